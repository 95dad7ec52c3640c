"""Several processes train one model: the numbers of one process, mistakes, lost processes."""

from __future__ import annotations

import io
import logging
import multiprocessing
import os
import signal
import socket

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from tiny import TinyNet
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import unseen
from unseen import METHODS, UnseenError
from unseen.methods import Adversary, LossWeights, Noise
from unseen.training import shared_memory
from unseen.training.distributed import LostProcess, Processes

QUICK = {
    "uncertainty_guided": {"warmup": 2, "adversary": Adversary(rounds=2, steps=2), "draws": 2},
    "gud": {"every": 3, "rounds": 2, "capacity": 14, "ascent_steps": 2},
    "m_ada": {"every": 3, "rounds": 2, "capacity": 14, "ascent_steps": 2, "order": 2},
    "jigen": {"puzzles": 3},
    "bnn": {"passes": 2},
    "mc_dropout": {"passes": 2},
}
SGD = {"optimizer": "sgd", "lr": 0.05}  # Adam would follow the rounding of gradients that are zero
SECOND = {"meta": "second", "weights": LossWeights(kl=0.1)}
# Method, its settings, settings of fit, whether the model has BatchNorm.
CASES = {
    "first order": ("uncertainty_guided", {}, {"ema": 0.9, "clip": 0.5}, False),
    "second order": ("uncertainty_guided", SECOND, {}, False),
    "no adversary": ("uncertainty_guided", {"adversary": None, "mixup": None, **SGD}, {}, False),
    "second, none": ("uncertainty_guided", {**SECOND, "adversary": None}, {}, False),
    "BatchNorm": ("uncertainty_guided", {**SECOND, **SGD}, {}, True),
    "features": (
        "uncertainty_guided",
        {"noise": Noise(per="feature", scale=None, sparse=0.5, strength="batch")},
        {"augment": "cutout,flip_crop,affine", "views": 2},
        False,
    ),
}
METHOD_CASES = {
    name: (name, SGD, {}, True)
    for name in METHODS
    if name not in ("uncertainty_guided", "cutout", "autoaugment")  # ERM behind an augmentation
}


def images(n=36):
    g = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 3
    x = torch.rand(n, 2, 9, 9, generator=g) * (1 + y.view(-1, 1, 1, 1)) / 3
    return TensorDataset(x, y)


def fit(case, steps=20, net=None, loader=None, **options):
    name, settings, of_fit, norm = case
    torch.manual_seed(0)
    chosen = {"lr": 1e-2, **QUICK.get(name, {}), **settings}
    model = TinyNet(norm=norm)
    net = net or METHODS[name](model, sites=["conv1"], embedding="fc1", **chosen)
    torch.manual_seed(1)
    loader = loader or DataLoader(images(), 12, shuffle=True)
    history = unseen.fit(
        net, loader, steps, held_out=loader, progress=False, **{**of_fit, **options}
    )
    weights = {name: t.double() for name, t in net.state_dict().items()}
    return weights, history["loss"], net.detector.state_dict()


def processes(size, act, *args):
    """Return act(rank, *args) of each process of a group; an error's text in place of a result."""
    context = multiprocessing.get_context("fork")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    results = [context.SimpleQueue() for _ in range(size)]
    started = [
        context.Process(target=_work, args=(rank, size, port, results[rank], act, args))
        for rank in range(size)
    ]
    for process in started:
        process.start()
    answers = [torch.load(io.BytesIO(r.get()), weights_only=False) for r in results]
    for process in started:
        process.join(120)
        assert not process.is_alive()
    return answers


def _work(rank, size, port, result, act, args):
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    try:
        answer = act(rank, *args)
    except UnseenError as error:
        answer = f"{type(error).__name__}: {error}"
    content = io.BytesIO()  # tensors in a queue would share the memory of this process
    torch.save(answer, content)
    result.put(content.getvalue())
    if not isinstance(answer, str):
        dist.destroy_process_group()
    os._exit(0)


def all_of(rank, cases):
    return [fit(case, 20 if name in CASES else 8) for name, case in cases.items()]


def distance(one, other):
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.fixture(scope="module")
def alone():
    cases = {**CASES, **METHOD_CASES}
    return dict(zip(cases, all_of(0, cases), strict=True))


@pytest.mark.parametrize("size", [2, 3])
def test_processes_have_the_weights_losses_and_calibration_of_one(alone, size):
    cases = CASES if size == 3 else {**CASES, **METHOD_CASES}
    answers = processes(size, all_of, cases)
    for answer in answers:
        for name, (weights, losses, detector) in zip(cases, answer, strict=True):
            expected, expected_losses, expected_detector = alone[name]
            assert distance(weights, expected) < 1e-5, name
            assert losses == pytest.approx(expected_losses, abs=1e-5), name
            assert distance(detector, expected_detector) < 1e-5, name


ADAM = {
    "erm": ("erm", {}, {}, False),
    "first order": CASES["first order"],
    "second order": CASES["second order"],
}


def with_adam(rank, steps=40):
    """Train with Adam, in 64 bits: it amplifies rounding, of which little is left then."""
    loader = DataLoader(TensorDataset(images().tensors[0].double(), images().tensors[1]), 12)
    found = {}
    for name, (method, settings, _, _) in ADAM.items():
        torch.manual_seed(0)
        chosen = {"lr": 1e-2, **QUICK.get(method, {}), **settings}
        net = METHODS[method](TinyNet(), sites=["conv1"], embedding="fc1", **chosen).double()
        assert isinstance(net.model_optimizer, torch.optim.Adam)
        found[name] = fit(ADAM[name], steps, net=net, loader=loader)[0]
    return found


def test_adam_in_64_bits_has_the_weights_of_one_process():
    expected = with_adam(0)
    for answer in processes(2, with_adam):
        for name, weights in answer.items():
            assert distance(weights, expected[name]) < 1e-11, name


# ---- how gradients are exchanged


def averages(rank, on_one_machine=True, dtype=torch.float32):
    """Average gradients a few times, also larger ones and some that not every process has."""
    group = Processes(torch.device("cpu"))
    group.on_one_machine = on_one_machine
    group.set_rows([3, 1, 4][: group.size])
    g = torch.Generator().manual_seed(rank)
    found = []
    for width in (5, 5, 400, 7):
        like = [torch.empty(3, width, dtype=dtype), torch.empty(2), torch.empty(1)]
        values = [torch.randn(t.shape, generator=g, dtype=t.dtype) for t in like]
        found += group.average([values[0], values[1] if rank else None, None], like)
    return found, group.slots is not None, group.bytes_averaged


def equal(one, other):
    return all(
        (a is None and b is None) or torch.equal(a, b) for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux")
def test_shared_memory_gives_the_averages_of_all_reduce(size, dtype):
    shared = processes(size, averages, True, dtype)
    reduced = processes(size, averages, False, dtype)
    assert all(used for _, used, _ in shared) and not any(used for _, used, _ in reduced)
    assert len({sent for _, _, sent in (*shared, *reduced)}) == 1
    first = shared[0][0]
    assert sum(t is None for t in first) == 4 and all(t.dtype == dtype for t in first[::3])
    assert all(equal(found, first) for found, _, _ in shared)  # the same bits
    for a, b in zip(first, reduced[0][0], strict=True):
        assert a is b is None or torch.allclose(a, b, rtol=1e-6, atol=1e-6)


def averages_kept(rank):
    group = Processes(torch.device("cpu"))
    group.set_rows([1, 1])
    like = [torch.empty(1000)]
    first = group.average([torch.full((1000,), float(rank))], like)[0]
    for _ in range(4):
        group.average([torch.full((1000,), 7.0)], like)
    return first


def test_averages_are_not_overwritten_by_later_ones():
    assert all(bool((t == 0.5).all()) for t in processes(2, averages_kept))


def hindered(rank, obstacle):
    if obstacle == "little memory":

        def fail(*args):
            raise OSError(28, "No space left on device")

        os.posix_fallocate = fail
    elif obstacle == "another machine":
        shared_memory._machine = lambda: ("host", str(rank))
    elif obstacle == "another container" and rank == 1:
        shared_memory._open = lambda *_: None
    elif obstacle == "another system":
        shared_memory._machine = lambda: None
    return averages(rank)


@pytest.mark.parametrize(
    "obstacle", ["little memory", "another machine", "another container", "another system"]
)
def test_processes_that_cannot_share_memory_use_all_reduce(obstacle):
    expected, _, _ = processes(2, averages, False)[0]
    for found, used, _ in processes(2, hindered, obstacle):
        assert not used and equal(found, expected)


def test_memory_of_another_file_is_not_opened(tmp_path):
    path = tmp_path / "other"
    path.write_bytes(bytes(4096))
    found = path.stat()
    assert shared_memory._open((str(path), found.st_dev, found.st_ino), 4096) is not None
    assert shared_memory._open((str(path), found.st_dev, found.st_ino + 1), 4096) is None
    assert shared_memory._open((str(path), found.st_dev, found.st_ino), 8192) is None
    assert shared_memory._open((str(tmp_path / "none"), 0, 0), 4096) is None


def uneven(rank):
    loader = DataLoader(images(29), 12, shuffle=True)  # the last batch has 5
    return fit(CASES["first order"], loader=loader)[0]


def test_an_uneven_last_batch_is_weighted_by_its_rows():
    expected = uneven(0)
    assert all(distance(w, expected) < 1e-5 for w in processes(3, uneven))


def uneven_norm(rank):
    return fit(CASES["BatchNorm"], 4, loader=DataLoader(images(29), 12))


def test_uneven_rows_with_batchnorm_are_refused():
    for answer in processes(2, uneven_norm):
        assert "with BatchNorm all need the same number" in answer and "drop_last" in answer


class Maps(nn.Module):
    """Labels for each pixel, of which some are ignored."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 3, 1)

    def forward(self, x):
        return self.conv2(torch.tanh(self.conv1(x)))


def ignoring(rank):
    x = images().tensors[0]
    y = torch.randint(3, (36, 7, 7), generator=torch.Generator().manual_seed(0))
    y[:, :3][torch.arange(36) % 6 < 3] = -100  # other numbers of labels in every process
    torch.manual_seed(0)
    net = unseen.UncertaintyGuided(
        Maps(), sites=["conv1"], embedding="conv1", warmup=2, draws=2, lr=1e-2,
        adversary=Adversary(rounds=1, steps=2), class_weights=(1.0, 2.0, 0.5),
    )  # fmt: skip
    case = ("uncertainty_guided", {}, {}, False)
    return fit(case, 6, net=net, loader=DataLoader(TensorDataset(x, y), 12))[0]


def test_ignored_labels_and_class_weights_count_as_in_one_process():
    expected = ignoring(0)
    assert all(distance(w, expected) < 1e-5 for w in processes(2, ignoring))


class Dropping(TinyNet):
    def __init__(self):
        super().__init__()
        self.drop, self.drop2d = nn.Dropout(0.3), nn.Dropout2d(0.3)

    def forward(self, x):
        x = self.drop2d(torch.tanh(self.conv1(x)))
        return self.fc2(torch.tanh(self.fc1(self.drop(self.conv2(x).mean((2, 3))))))


def dropping(rank):
    torch.manual_seed(0)
    net = unseen.UncertaintyGuided(
        Dropping(), sites=["conv1"], embedding="fc1", draws=2, warmup=1, lr=1e-2
    )
    return fit(CASES["first order"], 6, net=net)[0]


def test_dropout_layers_draw_for_the_whole_batch():
    expected = dropping(0)
    assert all(distance(w, expected) < 1e-5 for w in processes(2, dropping))


class DrawingByItself(Dropping):
    def forward(self, x):
        return super().forward(F.dropout(x, 0.1, self.training))


def drawing(rank):
    found = []
    for name, rows in (("erm", 29), ("jigen", 24)):  # 29: the last batch has 5
        torch.manual_seed(0)
        model = DrawingByItself() if name == "erm" else Dropping()
        net = METHODS[name](model, embedding="fc1", **SGD, **QUICK.get(name, {}))
        loader = DataLoader(images(rows), 12, shuffle=True)
        found.append(fit((name, {}, {}, False), 6, net=net, loader=loader)[0])
    return found


def test_layers_that_draw_other_numbers_of_rows_leave_the_order_of_samples_alike():
    first, second = processes(2, drawing)
    assert all(distance(a, b) == 0 for a, b in zip(first, second, strict=True))


# ---- data


def divided(rank, wrong=False):
    sampler = DistributedSampler(images(), rank=0 if wrong else rank, num_replicas=2, seed=3)
    return fit(CASES["first order"], 8, loader=DataLoader(images(), 6, sampler=sampler))


def test_a_distributed_sampler_divides_the_data_and_all_end_alike():
    first, second = processes(2, divided)
    assert distance(first[0], second[0]) == 0 and distance(first[2], second[2]) == 0
    assert first[1] == second[1]


def test_the_same_samples_in_every_process_are_refused():
    for answer in processes(2, divided, True):
        assert "were given the same samples" in answer and "DistributedSampler" in answer


def settings_differ(rank):
    return fit(CASES["first order"], 5 + rank)


def test_processes_that_are_called_differently_are_refused():
    for answer in processes(2, settings_differ):
        assert "steps is" in answer and "call all processes alike" in answer


class Unshared(unseen.ERM):
    """A method that updates by hand, past the library."""

    name, summary = "unshared", "updates by hand"

    def step(self, batch):
        loss = self.source_loss(batch)
        gradients = torch.autograd.grad(loss, list(self.trainable().values()))
        with torch.no_grad():
            for p, g in zip(self.trainable().values(), gradients, strict=True):
                p.sub_(0.1 * g)
        return {"loss": loss.detach()}


def heard(rank):
    """Return the messages of a fit that finds its layers and is calibrated on few samples."""
    logging.disable(logging.NOTSET)
    logger, messages = logging.getLogger("unseen"), []
    logger.setLevel(logging.INFO)
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger.addHandler(handler)
    torch.manual_seed(0)
    net = METHODS["uncertainty_guided"](TinyNet(), **QUICK["uncertainty_guided"])
    fit(CASES["first order"], 4, net=net)
    return messages, logger.level


def test_process_0_speaks_for_all():
    (messages, _), (of_other, level) = processes(2, heard)
    assert any("noise enters at" in message for message in messages) and of_other == []
    assert level == logging.INFO


def unshared(rank):
    return fit(CASES["first order"], 4, net=Unshared(TinyNet()))


def test_a_method_that_comes_apart_is_noticed():
    for answer in processes(2, unshared):
        assert "weights of the processes differ" in answer and "apply_gradients" in answer


# ---- checkpoints and lost processes


def interrupted(rank, path, steps, resume):
    torch.manual_seed(0)
    net = METHODS["uncertainty_guided"](
        TinyNet(), sites=["conv1"], embedding="fc1", lr=1e-2, **QUICK["uncertainty_guided"]
    )
    seen = []

    def stop(step, logs):
        seen.append(step)
        if not resume and step == steps:
            raise UnseenError("stopped")

    torch.manual_seed(1)
    loader = DataLoader(images(), 12, shuffle=True)
    unseen.fit(
        net, loader, 12, held_out=loader, progress=False, on_step=stop, checkpoint=path,
        checkpoint_every=4, resume=resume,
    )  # fmt: skip
    return seen, {name: t.double() for name, t in net.state_dict().items()}


def test_a_checkpoint_resumes_with_another_number_of_processes(tmp_path):
    expected = fit(("uncertainty_guided", {}, {}, False), 12)[0]
    path = tmp_path / "fit.safetensors"
    assert all("stopped" in a for a in processes(2, interrupted, path, 6, False))
    for seen, weights in processes(3, interrupted, path, 12, True):
        assert seen[0] == 5 and distance(weights, expected) < 1e-5


def dying(rank, moment):
    def stop(step, logs):
        if rank == 1 and step == 2:
            if moment == "after a step":
                os.kill(os.getpid(), signal.SIGKILL)
            shared_memory.SharedSlots.sum = lambda *_: os.kill(os.getpid(), signal.SIGKILL)

    return fit(CASES["first order"], 20, on_step=stop)


@pytest.mark.parametrize("moment", ["after a step", "before a sum"])
def test_a_process_that_dies_ends_the_others_with_a_message(moment):
    context = multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    both = [
        context.Process(target=_work, args=(rank, 2, port, answer, dying, (moment,)))
        for rank in (0, 1)
    ]
    for process in both:
        process.start()
    text = torch.load(io.BytesIO(answer.get()))
    for process in both:
        process.join(60)
    expected = LostProcess.__name__ if moment == "after a step" else "UnseenError: step 3: "
    assert text.startswith(expected) and "another process of this training has ended" in text
