"""Weights that are not finite are never saved, never called finished and never loaded."""

from __future__ import annotations

import pytest
import safetensors.torch
import torch
from light_task import light_task, samples
from tiny import TinyNet
from torch.utils.data import DataLoader

import unseen
from unseen import UnseenError
from unseen.adaptation import fine_tune
from unseen.experiments.adapt import interpolate
from unseen.experiments.evaluate import evaluate
from unseen.methods.erm import ERM
from unseen.nn.tensor_files import read_tensors
from unseen.training import train as training
from unseen.training.run import Run
from unseen.training.train import train

QUICK = {"steps": 4, "batch_size": 8, "log_every": 1, "checkpoint_every": 2}


class Masked(TinyNet):
    """A model with infinities of its own, like the mask of an attention."""

    def __init__(self):
        super().__init__(norm=True)
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))


def loader():
    return DataLoader(samples("train"), 20)


def change(path, name, value):
    """Change a tensor of a file."""
    tensors = safetensors.torch.load(path.read_bytes())
    tensors[name] = value(tensors[name])
    path.write_bytes(safetensors.torch.save(tensors))


def with_one(number):
    def changed(tensor):
        tensor.view(-1)[0] = number
        return tensor

    return changed


DAMAGES = [
    (with_one(torch.nan), r"model.safetensors: model.fc2.bias holds numbers that are not finite"),
    (with_one(torch.inf), r"model.safetensors: model.fc2.bias holds numbers that are not finite"),
    (lambda t: t.double() + 1e300, r"model.safetensors: model.fc2.bias holds numbers that are not"),
    (
        lambda t: t.long(),
        r"model.safetensors does not fit .*fc2.bias is int64 in the file, float32 in the model",
    ),
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    settings = {**QUICK, "num_checkpoints": 2}
    return train(light_task(), "erm", folder, overrides=settings, progress=False)


@pytest.mark.parametrize("value, text", DAMAGES)
def test_load_refuses_weights_that_are_not_finite_floats(tmp_path, value, text):
    net = unseen.ERM(TinyNet())
    net.save(tmp_path)
    change(tmp_path / "model.safetensors", "model.fc2.bias", value)
    model = TinyNet()
    before = model.fc2.bias.tolist()
    with pytest.raises(UnseenError, match=text):
        unseen.load(tmp_path, model)
    assert model.fc2.bias.tolist() == before


@pytest.mark.parametrize("value, text", DAMAGES)
def test_a_run_with_weights_that_are_not_finite_floats_is_refused(tmp_path, finished, value, text):
    content = (finished.folder / "model.safetensors").read_bytes()
    try:
        change(finished.folder / "model.safetensors", "model.fc2.bias", value)
        with pytest.raises(UnseenError, match=text):
            evaluate(finished, light_task())
    finally:
        (finished.folder / "model.safetensors").write_bytes(content)


def test_kept_weights_that_are_not_finite_are_refused(finished):
    path = finished.kept_path(finished.kept_steps()[0])
    content = path.read_bytes()
    try:
        change(path, "model.fc2.bias", with_one(torch.nan))
        with pytest.raises(UnseenError, match=rf"{path.name}: model.fc2.bias holds numbers"):
            evaluate(finished, light_task(), kept=True)
    finally:
        path.write_bytes(content)


def test_half_precision_weights_still_load(tmp_path):
    net = unseen.ERM(TinyNet())
    net.save(tmp_path)
    change(tmp_path / "model.safetensors", "model.fc2.bias", lambda t: t.half())
    unseen.load(tmp_path, TinyNet())


def test_infinities_of_the_model_itself_are_kept(tmp_path):
    net = unseen.ERM(Masked(), embedding="fc1")
    unseen.fit(net, loader(), steps=2, progress=False)
    net.save(tmp_path)
    loaded = unseen.load(tmp_path, Masked())
    assert loaded.model.mask.tolist() == [0.0, -torch.inf]
    adapted = fine_tune(loaded.model, *samples("test").tensors, steps=2)
    assert adapted.mask.tolist() == [0.0, -torch.inf]
    assert interpolate(loaded.model, adapted, 0.5).mask.tolist() == [0.0, -torch.inf]
    change(tmp_path / "model.safetensors", "model.mask", lambda t: -t)
    with pytest.raises(UnseenError, match=r"model.mask holds numbers that are not finite"):
        unseen.load(tmp_path, Masked())


def test_save_refuses_weights_that_are_not_finite_and_keeps_the_old_save(tmp_path):
    net = unseen.ERM(TinyNet())
    net.save(tmp_path)
    net.model.fc1.weight.data[0, 0] = torch.inf
    with pytest.raises(UnseenError, match=r"model.fc1.weight holds numbers that are not finite"):
        net.save(tmp_path)
    unseen.load(tmp_path, TinyNet())


# ---- updates that overflow


def test_fit_names_the_layer_that_its_last_update_overflowed():
    net = unseen.ERM(TinyNet(), lr=1e39)
    with pytest.raises(UnseenError, match=r"model\.\S+ is not finite after step 1: .* lower the"):
        unseen.fit(net, loader(), steps=1, progress=False)


def test_fit_names_a_buffer_that_is_not_finite():
    net = unseen.ERM(TinyNet(norm=True))

    def overflow(norm, *_):
        norm.running_var.data.fill_(torch.inf)

    net.model.norm.register_forward_hook(overflow)
    with pytest.raises(UnseenError, match=r"model\.norm\.running_var is not finite after step 2"):
        unseen.fit(net, loader(), steps=2, progress=False)


def overflowing(monkeypatch, at, ruin):
    """Make the update of one step overflow; the loss of that step is finite."""
    step = ERM.step

    def ruined(self, batch):
        logs = step(self, batch)
        if int(self.steps_done) == at:
            ruin(self)
        return logs

    monkeypatch.setattr(ERM, "step", ruined)


def ruin_weights(net):
    net.model.fc2.weight.data[0, 0] = torch.inf


def ruin_optimizer(net):
    optimizer = next(iter(net.optimizers().values()))
    optimizer.state[net.model.fc2.weight]["exp_avg_sq"][0, 0] = torch.inf


@pytest.mark.parametrize(
    "ruin, text",
    [
        (ruin_weights, r"model\.fc2\.weight is not finite after step 4"),
        (ruin_optimizer, r"exp_avg_sq of model\.fc2\.weight in the optimizer is not finite after"),
    ],
)
def test_training_keeps_the_good_checkpoint_when_its_last_update_overflows(
    tmp_path, monkeypatch, ruin, text, finished
):
    out = tmp_path / "run"
    overflowing(monkeypatch, 4, ruin)
    with pytest.raises(UnseenError, match=rf"{text}.*; .*run keeps the checkpoint of step 2"):
        train(light_task(), "erm", out, overrides=QUICK, progress=False)
    assert not Run(out).done and not (out / "model.safetensors").exists()
    assert int(read_tensors(Run(out).state_path)["net/steps_done"]) == 2
    monkeypatch.undo()
    train(light_task(), "erm", out, overrides=QUICK, resume=True, progress=False)
    names = ("model.safetensors", "source.safetensors")
    assert [(out / n).read_bytes() for n in names] == [
        (finished.folder / n).read_bytes() for n in names
    ]


def test_training_leaves_nothing_when_its_first_update_overflows(tmp_path):
    settings = {**QUICK, "lr": 1e39, "steps": 1}
    with pytest.raises(UnseenError, match=r"model\.\S+ is not finite after step 1"):
        train(light_task(), "erm", tmp_path / "run", overrides=settings, progress=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["net/model.fc2.bias", "optimizer/net/0/exp_avg"])
def test_a_checkpoint_that_is_not_finite_is_refused(tmp_path, monkeypatch, name):
    class Interrupted(Exception):
        pass

    def interrupt(*args):
        raise Interrupted

    monkeypatch.setattr(training, "calibrate", interrupt)
    with pytest.raises(Interrupted):
        train(light_task(), "erm", tmp_path / "run", overrides=QUICK, progress=False)
    path = Run(tmp_path / "run").state_path
    name = next(n for n in read_tensors(path) if n.split("/")[-1] == name.split("/")[-1])
    change(path, name, with_one(torch.nan))
    with pytest.raises(UnseenError, match=r"state.safetensors: \S+ holds numbers that are not"):
        train(light_task(), "erm", tmp_path / "run", overrides=QUICK, resume=True, progress=False)


def test_adaptation_names_step_and_layer():
    with pytest.raises(UnseenError, match=r"fine_tune: \S+ of .* not finite.*after step 1"):
        fine_tune(TinyNet(), *samples("test").tensors, steps=1, lr=1e39)
