"""Training as people have it: optimizers, schedules, clipping, averages, precision, checkpoints."""

from __future__ import annotations

import json
import math
import sys

import pytest
import torch
from light_task import light_task
from tiny import TinyNet, tiny_batch
from torch.utils.data import DataLoader, TensorDataset

import unseen
from unseen import METHODS, UnseenError
from unseen.methods import Adversary
from unseen.training.averaging import WeightAverage
from unseen.training.train import train

QUICK = {
    "uncertainty_guided": {"warmup": 2, "adversary": Adversary(rounds=1, steps=1), "draws": 1},
    "gud": {"every": 2, "rounds": 1, "capacity": 4, "ascent_steps": 1},
    "m_ada": {"every": 2, "rounds": 1, "capacity": 4, "ascent_steps": 1},
    "jigen": {"puzzles": 3},
    "bnn": {"passes": 2},
    "mc_dropout": {"passes": 2},
}
NAMES = [name for name in METHODS if name != "autoaugment"]  # ERM behind an augmentation of colours


def images(n=24, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    return TensorDataset(torch.rand(n, 2, 9, 9, generator=g) * (1 + y.view(-1, 1, 1, 1)) / 3, y)


def make(name="uncertainty_guided", model=None, **settings):
    torch.manual_seed(0)
    chosen = {**QUICK.get(name, {}), **settings}
    return METHODS[name](model or TinyNet(), sites=["conv1"], embedding="fc1", **chosen)


def shuffled():
    torch.manual_seed(1)
    return DataLoader(images(), 8, shuffle=True)


def weights(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def fit(net, **settings):
    loader = shuffled()
    return unseen.fit(net, loader, held_out=loader, progress=False, **{"steps": 6, **settings})


# ---- history and length


def test_history_has_every_step_and_a_frame():
    seen = []
    history = fit(make(), on_step=lambda step, logs: seen.append((step, logs["loss"])))
    assert history.steps == [1, 2, 3, 4, 5, 6] and history["loss"] == [v for _, v in seen]
    assert math.isnan(history["ascent_gain"][0]) and not math.isnan(history["ascent_gain"][2])
    frame = pytest.importorskip("pandas") and history.to_frame()
    assert frame.index.name == "step" and frame["loss"].tolist() == history["loss"]


def test_history_without_pandas_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UnseenError, match="pip install pandas"):
        fit(make("erm")).to_frame()


def test_history_stands_in_for_the_method_with_a_warning():
    net = make("erm")
    history = fit(net)
    x = images().tensors[0]
    with pytest.warns(DeprecationWarning, match=r"history.net.predict"):
        assert torch.equal(history.predict(x), net.predict(x))
    detector = net.make_detector()
    with pytest.warns(DeprecationWarning, match="detector"):
        history.detector = detector
    assert net.detector is detector
    with pytest.raises(UnseenError, match=r"give history.net"):
        unseen.calibrate(history, shuffled())


def test_epochs_count_passes_over_the_loader():
    net = make("erm")
    fit(net, steps=None, epochs=2)
    assert int(net.steps_done) == 6
    with pytest.raises(UnseenError, match="steps or epochs, not both"):
        fit(net, epochs=1)


# ---- schedule, clipping, optimizer


def test_schedule_ends_low_and_the_rate_is_restored():
    rates = {}
    for schedule in ("constant", "cosine", lambda done: 0.5):
        net = make("erm", lr=0.01)
        group = net.model_optimizer.param_groups[0]
        seen = rates.setdefault(str(schedule)[:8], [])
        fit(net, schedule=schedule, on_step=lambda *_, g=group, s=seen: s.append(g["lr"]))
        assert group["lr"] == 0.01 and "initial_lr" not in group
    constant, cosine, own = rates.values()
    assert set(constant) == {0.01} and set(own) == {0.005}
    assert cosine == sorted(cosine, reverse=True) and cosine[-1] < 1e-3
    with pytest.raises(UnseenError, match="schedule must be constant, linear, cosine"):
        fit(make("erm"), schedule="exponential")
    with pytest.raises(UnseenError, match=r"schedule gave -1 after 0% of the steps"):
        fit(make("erm"), schedule=lambda done: -1)


def test_a_ball_trains_on_the_worst_inputs_of_a_box_as_pgd_does():
    data = DataLoader(images(), 8)
    balled, plain = make("erm"), make("erm")
    pgd = make("pgd", eps=0.1, step_size=0.05, attack_steps=3)
    for net, ball in ((balled, 0.1), (pgd, None), (plain, None)):
        torch.manual_seed(1)
        unseen.fit(net, data, steps=4, ball=ball, progress=False)
    for name, weight in pgd.model.state_dict().items():
        torch.testing.assert_close(balled.model.state_dict()[name], weight, rtol=0, atol=0)
    assert not torch.equal(next(plain.model.parameters()), next(balled.model.parameters()))


def test_a_ball_needs_float_inputs_and_a_positive_size():
    words = DataLoader(TensorDataset(torch.arange(12).view(6, 2), torch.arange(6) % 2), 3)
    model = torch.nn.Sequential(
        torch.nn.Embedding(12, 2), torch.nn.Flatten(), torch.nn.Linear(4, 2)
    )
    with pytest.raises(UnseenError, match="this model is given int64 only"):
        unseen.fit(unseen.ERM(model), words, steps=1, ball=0.1, progress=False)
    with pytest.raises(UnseenError, match="ball"):
        unseen.fit(make("erm"), DataLoader(images(), 8), steps=1, ball=-0.1, progress=False)


def test_clip_bounds_the_gradients_of_every_optimizer():
    net = make("bnn", optimizer="sgd")
    norms = []
    for optimizer in net.optimizers().values():

        def spy(o, *_):
            held = [p for group in o.param_groups for p in group["params"] if p.grad is not None]
            norms.append(torch.nn.utils.get_total_norm([p.grad for p in held]))

        optimizer.register_step_post_hook(spy)
    fit(net, clip=0.01)
    assert len(norms) == 12 and max(norms) <= 0.0101
    norms.clear()
    fit(net)
    assert max(norms) > 0.0101  # the hook is gone


@pytest.mark.parametrize("value", [0, -1.0, "1", math.inf])
def test_clip_must_be_positive(value):
    with pytest.raises(UnseenError, match="fit: clip must be"):
        fit(make("erm"), clip=value)


@pytest.mark.parametrize(
    "factory",
    [
        lambda params: torch.optim.AdamW(params, lr=0.01, weight_decay=0.1),
        lambda params: torch.optim.SGD(params[0]["params"], lr=0.01),  # forgets the heads
    ],
)
def test_own_optimizer_keeps_the_noise_heads_in_their_own_group(factory):
    net = make(optimizer=factory)
    model, heads = net.model_optimizer.param_groups
    own = {id(p) for p in [*net.heads.parameters(), *net.mixup_head.parameters()]}
    assert {id(p) for p in heads["params"]} == own
    assert heads["weight_decay"] == 0 and model["lr"] == heads["lr"] == net.inner_rate == 0.01
    before = [p.detach().clone() for p in heads["params"]]
    fit(net)
    assert any(not torch.equal(p, q) for p, q in zip(heads["params"], before, strict=True))


@pytest.mark.parametrize(
    ("factory", "text"),
    [
        (lambda params: torch.optim.SGD([p for g in params for p in g["params"]], 0.1), "keep the"),
        (lambda params: None, "must return a torch.optim.Optimizer, not NoneType"),
        (lambda: None, "the function given as optimizer failed: .*TypeError"),
        ("rmsprop", "optimizer must be one of adam, sgd, or a function"),
        (torch.optim.SGD([torch.zeros(1)], 0.1), "optimizer=lambda params: SGD"),
    ],
)
def test_unusable_optimizer_is_named(factory, text):
    with pytest.raises(UnseenError, match=text):
        make(optimizer=factory)


def test_method_with_own_optimizer_saves_without_code(tmp_path):
    net = make(optimizer=lambda params: torch.optim.RMSprop(params, lr=0.01))
    fit(net)
    net.save(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["settings"]["optimizer"].keys() == {
        "function"
    }
    again = unseen.load(tmp_path, TinyNet())
    assert torch.equal(again.predict(images().tensors[0]), net.predict(images().tensors[0]))


# ---- averages


@pytest.mark.parametrize("name", NAMES)
def test_every_method_evaluates_the_average_and_trains_on_from_the_raw_weights(name):
    plain, averaged = make(name), make(name)
    fit(plain)
    fit(averaged, ema=0.9)
    assert not torch.equal(weights(plain), weights(averaged))
    for net in (plain, averaged):
        fit(net, steps=2)
    assert torch.equal(weights(plain), weights(averaged))


def test_average_is_the_mean_of_its_definition():
    layer = torch.nn.Linear(1, 1)
    average, expected = WeightAverage(layer, 0.5), layer.weight.item()
    for step in range(8):
        with torch.no_grad():
            layer.weight.fill_(float(step))
        average.update(layer)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    with average.applied(layer):
        assert layer.weight.item() == pytest.approx(expected)
    assert layer.weight.item() == 7.0


def test_weights_that_were_replaced_after_a_fit_are_kept():
    net = make("erm")
    fit(net, ema=0.9)
    with torch.no_grad():
        net.model.fc2.bias.fill_(3.0)
    fit(net, steps=1)
    assert (net.model.fc2.bias > 2.9).all()


# ---- precision


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
@pytest.mark.parametrize("name", NAMES)
def test_every_method_trains_in_16_bits(name, amp, caplog):
    net, dtypes = make(name), set()
    handle = net.model.conv2.register_forward_hook(lambda _, __, out: dtypes.add(out.dtype))
    history = fit(net, amp=amp)
    handle.remove()
    wanted = torch.bfloat16 if amp == "bf16" else torch.float16
    assert wanted in dtypes and torch.float32 in dtypes  # training, and calibration after it
    assert all(p.dtype == torch.float32 for p in net.parameters()) and net.scaler is None
    assert len(history) == 6 and net.predict(images().tensors[0]).dtype == torch.float32
    assert not net.model._forward_hooks and not net.model._forward_pre_hooks
    assert ('on a CPU "bf16" needs no scaled loss' in caplog.text) == (amp == "fp16")


def test_scaled_gradients_are_those_of_full_precision():
    """The scale of fp16 changes no gradient: it is multiplied in and divided out."""

    def gradients(scaler):
        net = make()
        net.warmup, net.scaler = 0, scaler
        net.meta_gradients(tiny_batch(), seeds=[1])
        params = [*net.trainable().values(), *net.outer_parameters()]
        return torch.cat([p.grad.flatten() for p in params]) / net.loss_scale

    torch.testing.assert_close(gradients(torch.amp.GradScaler("cpu")), gradients(None))


def test_16_bits_reach_nearly_the_same_weights():
    nets = [make("erm"), make("erm")]
    for net, amp in zip(nets, (None, "bf16"), strict=True):
        fit(net, amp=amp)
    torch.testing.assert_close(weights(nets[1]), weights(nets[0]), atol=5e-3, rtol=0.05)


def test_autocast_around_a_fit_trains_and_scores():
    with torch.autocast("cpu", torch.bfloat16):
        net = fit(make()).net
        assert net.alarm(images().tensors[0] * 50 + 9) in (True, False)


def test_model_in_bfloat16_trains_and_scores():
    net = make("uncertainty_guided", TinyNet().bfloat16())
    fit(net)
    assert net.uncertainty(images().tensors[0]).dtype == torch.float32


def test_second_order_in_fp16_is_refused_before_the_first_step():
    net = make(meta="second")
    with pytest.raises(UnseenError, match='set meta="first"'):
        fit(net, amp="fp16")
    assert net.steps_done == 0


def test_own_method_that_does_not_scale_its_loss_is_named():
    class Own(METHODS["erm"]):
        name = "own"

        def step(self, batch):
            loss = self.source_loss(batch)
            self.model_optimizer.zero_grad()
            loss.backward()
            self.model_optimizer.step()
            return {"loss": loss.detach()}

    with pytest.raises(UnseenError, match=r"own does not scale its loss.*amp=\"bf16\""):
        fit(Own(TinyNet()), amp="fp16")
    fit(Own(TinyNet()), amp="bf16", clip=1.0, ema=0.9)


# ---- checkpoints


class Killed(BaseException):
    pass


def kill_at(step):
    def on_step(now, _):
        if now == step:
            raise Killed

    return on_step


@pytest.mark.parametrize("name", ["uncertainty_guided", "erm", "m_ada"])
def test_killed_fit_resumes_with_the_same_bits(tmp_path, name):
    settings = {"ema": 0.9, "clip": 1.0, "schedule": "cosine", "steps": 9}
    if name == "erm":
        settings["amp"] = "fp16"
    whole, killed, resumed = make(name), make(name), make(name)
    expected = fit(whole, **settings)
    file = tmp_path / "fit.safetensors"
    options = {**settings, "checkpoint": file, "checkpoint_every": 2}
    with pytest.raises(Killed):
        fit(killed, **options, on_step=kill_at(5))
    with pytest.raises(UnseenError, match="resume=True to continue"):
        fit(resumed, **options)
    history = fit(resumed, **options, resume=True)
    assert torch.equal(weights(resumed), weights(whole))
    logs, before = ([(name, str(h[name])) for name in h] for h in (history, expected))
    assert history.steps == expected.steps and logs == before
    again = make(name)
    fit(again, **options, resume=True)  # finished already: nothing is left to do
    assert torch.equal(weights(again), weights(whole))


def test_loader_with_its_own_generator_resumes_in_its_order(tmp_path):
    def loader():
        return DataLoader(images(), 8, shuffle=True, generator=torch.Generator().manual_seed(7))

    whole, killed = make("erm"), make("erm")
    unseen.fit(whole, loader(), steps=5, progress=False)
    options = {"steps": 5, "progress": False, "checkpoint": tmp_path / "c", "checkpoint_every": 1}
    with pytest.raises(Killed):
        unseen.fit(killed, loader(), on_step=kill_at(2), **options)
    resumed = make("erm")
    unseen.fit(resumed, loader(), resume=True, **options)
    assert torch.equal(weights(resumed), weights(whole))


def test_score_of_all_training_data_is_0_after_averaging_in_16_bits():
    """Statistics and scores use the same weights and the same precision."""
    net = fit(make("uncertainty_guided"), ema=0.9, amp="bf16").net
    x = torch.cat([batch[0] for batch in DataLoader(images(), 8)])
    assert net.domain_score(x) < 1e-5 < net.domain_score(x[:8]) < net.domain_score(x + 5)


def test_checkpoint_of_another_fit_is_refused(tmp_path):
    file = tmp_path / "fit.safetensors"
    fit(make("erm"), checkpoint=file)
    with pytest.raises(UnseenError, match="was written with steps = 6, now it is 7"):
        fit(make("erm"), checkpoint=file, resume=True, steps=7)
    with pytest.raises(UnseenError, match="was written with method = erm"):
        fit(make("pgd"), checkpoint=file, resume=True)
    changes = {"ema": 0.9, "amp": "bf16", "clip": 1.0, "augment": lambda x: x}
    for name, value in changes.items():
        with pytest.raises(UnseenError, match=f"was written with {name} = .*now it is"):
            fit(make("erm"), checkpoint=file, resume=True, **{name: value})
    with pytest.raises(UnseenError, match=r"was written with label_smoothing = 0\.0, now it is 0"):
        fit(make("erm", label_smoothing=0.1), checkpoint=file, resume=True)
    own = tmp_path / "own.safetensors"
    fit(make("erm", optimizer=lambda params: torch.optim.SGD(params, lr=0.1)), checkpoint=own)
    faster = make("erm", optimizer=lambda params: torch.optim.SGD(params, lr=0.5))
    with pytest.raises(UnseenError, match=r"learning rates = .*0\.1.* now it is .*0\.5"):
        fit(faster, checkpoint=own, resume=True)
    make("erm").save(tmp_path / "saved")
    with pytest.raises(UnseenError, match=r"is not a checkpoint of unseen.fit"):
        fit(make("erm"), checkpoint=tmp_path / "saved/model.safetensors", resume=True)
    with pytest.raises(UnseenError, match="resume=True needs the file"):
        fit(make("erm"), resume=True)


# ---- modes and warnings


def test_layers_in_eval_mode_stay_there():
    net = make("erm", TinyNet(norm=True))
    net.model.norm.eval()
    before = net.model.norm.running_mean.clone()
    fit(net)
    fit(net)  # after the first, all layers are in eval mode
    assert torch.equal(net.model.norm.running_mean, before)
    free = make("erm", TinyNet(norm=True).eval())
    fit(free)
    assert not torch.equal(free.model.norm.running_mean, before)


@pytest.mark.parametrize("name", ["uncertainty_guided", "gud"])
def test_second_fit_gives_no_false_warning(name, caplog):
    settings = {"warmup": 6} if name == "uncertainty_guided" else {"every": 6}
    net = make(name, **settings)
    fit(net)
    assert "this is ERM" in caplog.text
    caplog.clear()
    fit(net, steps=2)
    assert "this is ERM" not in caplog.text


# ---- runs


def test_run_with_all_settings_resumes_with_the_same_bits(tmp_path):
    overrides = {"clip": 1.0, "ema": 0.9, "amp": "bf16", "lr_schedule": "cosine", "epochs": 2,
                 "checkpoint_every": 2}  # fmt: skip
    run = train(light_task(), "erm", tmp_path / "a", overrides=overrides, progress=False)
    assert run.config["loop"]["steps"] == 6 and run.config["loop"]["ema"] == 0.9
    whole = run.load(light_task())

    calls = []

    def stop(self, *args, real=WeightAverage.update):
        calls.append(1)
        if len(calls) == 6:
            raise Killed
        return real(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WeightAverage, "update", stop)
        with pytest.raises(Killed):
            train(light_task(), "erm", tmp_path / "b", overrides=overrides, progress=False)
    again = train(
        light_task(), "erm", tmp_path / "b", overrides=overrides, progress=False, resume=True
    )
    assert torch.equal(weights(again.load(light_task())), weights(whole))
