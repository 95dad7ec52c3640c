"""Settings of a run: presets, overrides, schedules."""

from __future__ import annotations

import pytest
from test_run import Interrupted, tiny_task, weights
from tiny import TinyNet

from unseen import ERM, UncertaintyGuided, UnseenError
from unseen.methods import Noise
from unseen.training import train as training
from unseen.training.config import resolve
from unseen.training.identity import difference
from unseen.training.loop import lr_schedulers
from unseen.training.train import train


def test_schedules_take_every_rate_to_zero(tmp_path, monkeypatch):
    rates = []
    original = ERM.step

    def recording_step(net, batch):
        rates.append([group["lr"] for o in net.optimizers().values() for group in o.param_groups])
        return original(net, batch)

    monkeypatch.setattr(ERM, "step", recording_step)
    for schedule, middle in (("none", 1.0), ("linear", 0.5), ("cosine", 0.5)):
        rates.clear()
        overrides = {"lr_schedule": schedule, "lr": 0.01}
        train(tiny_task(), "erm", tmp_path / schedule, overrides=overrides, progress=False)
        assert rates[0] == [0.01] and rates[6] == pytest.approx([0.01 * middle])
        assert rates[11][0] < (0.01 if schedule == "none" else 0.001) + 1e-9
    with pytest.raises(UnseenError, match="lr_schedule must be one of none, linear, cosine"):
        resolve(tiny_task(), ERM, "fast", {"lr_schedule": "steps"})


def test_every_optimizer_group_keeps_its_own_rate():
    net = UncertaintyGuided(
        TinyNet(), sites=("conv1",), embedding="fc1", lr=0.01, noise=Noise(lr=0.1)
    )
    optimizers = net.optimizers().values()
    lr_schedulers(optimizers, "linear", steps=10, first=5)
    assert [g["lr"] for o in optimizers for g in o.param_groups] == pytest.approx([0.005, 0.05])


@pytest.mark.parametrize(
    ("method", "overrides"),
    [
        ("erm", {"lr_schedule": "cosine", "lr": 0.01}),
        ("uncertainty_guided", {"optimizer": "sgd", "lr": 0.01, "weight_decay": 0.001}),
    ],
)
def test_schedule_and_optimizer_resume_to_the_same_bits(tmp_path, monkeypatch, method, overrides):
    train(tiny_task(), method, tmp_path / "whole", overrides=overrides, progress=False)
    original = training.training_indices

    def stopping(source, size, seed, step):
        if step == 9:
            raise Interrupted
        return original(source, size, seed, step)

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(training, "training_indices", stopping)
        train(tiny_task(), method, tmp_path / "run", overrides=overrides, progress=False)
    train(tiny_task(), method, tmp_path / "run", overrides=overrides, resume=True, progress=False)
    assert weights(tmp_path / "whole") == weights(tmp_path / "run")


def test_unknown_setting_in_a_preset_is_named(tmp_path):
    with pytest.raises(
        UnseenError, match=r'preset "fast" of tiny: unknown setting step; known settings: steps'
    ):
        train(tiny_task(presets={"fast": {"step": 3}}), "erm", tmp_path / "run", progress=False)


def test_layers_named_by_numbers_can_be_set():
    from unseen.methods import METHODS
    from unseen.schema import parse_settings
    from unseen.training.config import resolve

    settings = resolve(
        tiny_task(),
        METHODS["uncertainty_guided"],
        "fast",
        parse_settings(["sites=0,2", "embedding=4"]),
    ).method
    assert settings["sites"] == ["0", "2"] and settings["embedding"] == "4"
    settings = resolve(
        tiny_task(), METHODS["uncertainty_guided"], "fast", parse_settings(["sites=0"])
    ).method
    assert settings["sites"] == "0"


def test_arguments_of_the_model_are_settings_of_the_run(tmp_path):
    import json

    from tiny import TinyNet

    def wide(*, classes: int = 3, norm: bool = False) -> TinyNet:
        return TinyNet(classes, norm)

    task = tiny_task(model=wide, presets={"fast": {"steps": 4, "batch_size": 8, "norm": True}})
    made = train(task, "erm", tmp_path / "run", overrides={"classes": 5}, progress=False)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["model"] == {
        "classes": 5,
        "norm": True,
    }
    loaded = made.load(task).model
    assert loaded.fc2.out_features == 5 and "norm.running_mean" in loaded.state_dict()
    with pytest.raises(UnseenError, match=r"classes must be an integer, not 'many'"):
        train(task, "erm", tmp_path / "x", overrides={"classes": "many"}, progress=False)
    with pytest.raises(UnseenError, match="was started with classes = 5, now it is 3"):
        train(task, "erm", tmp_path / "run", resume=True, progress=False)
    with pytest.raises(
        UnseenError,
        match=r'"model": unknown setting width; known settings: classes, norm',
    ):
        spoilt = json.loads((tmp_path / "run" / "config.json").read_text()) | {
            "model": {"width": 2}
        }
        (tmp_path / "run" / "config.json").write_text(json.dumps(spoilt))
        made.load(task)


def test_setting_of_both_model_and_method_is_refused(tmp_path):
    from tiny import TinyNet

    def confusing(*, lr: float = 0.1) -> TinyNet:
        return TinyNet()

    with pytest.raises(UnseenError, match="the model of tiny has a setting lr, which erm has too"):
        train(tiny_task(model=confusing), "erm", tmp_path / "run", progress=False)


def test_sgd_uses_nesterov_and_decays_only_the_model(tmp_path):
    import torch
    from tiny import TinyNet, tiny_batch

    from unseen.methods import METHODS

    chosen = {"optimizer": "sgd", "lr": 0.1, "weight_decay": 0.01}
    torch.manual_seed(0)
    net = METHODS["erm"](TinyNet(), **chosen)
    before = {name: p.detach().clone() for name, p in net.model.named_parameters()}
    batch = tiny_batch()
    loss = torch.nn.functional.cross_entropy(net.model(*batch.x), batch.y)
    grads = dict(zip(before, torch.autograd.grad(loss, list(net.model.parameters())), strict=True))
    net.step(batch)
    for (
        name,
        p,
    ) in net.model.named_parameters():  # the first Nesterov step goes 1 + 0.9 gradients far
        expected = before[name] - 0.1 * 1.9 * (grads[name] + 0.01 * before[name])
        torch.testing.assert_close(p.detach(), expected)
    guided = METHODS["uncertainty_guided"](TinyNet(), sites=("conv1",), embedding="fc1", **chosen)
    assert [g["weight_decay"] for g in guided.optimizers()["model"].param_groups] == [0.01, 0.0]
    with pytest.raises(UnseenError, match="optimizer must be one of adam, sgd"):
        METHODS["erm"](TinyNet(), optimizer="lamb")


def test_run_older_than_a_setting_resumes(tmp_path):
    import json

    made = train(tiny_task(), "erm", tmp_path / "run", progress=False)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    for name in ("optimizer", "weight_decay"):
        del config["settings"][name]
    del config["model"], config["loop"]["lr_schedule"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    assert (
        train(tiny_task(), "erm", tmp_path / "run", resume=True, progress=False).folder
        == made.folder
    )


def test_run_older_than_noise_sign_had_positive_noise(tmp_path):
    out = tmp_path / "r"
    overrides = {"noise": {"sign": "positive"}}
    told = train(tiny_task(), "uncertainty_guided", out, overrides=overrides, progress=False).config
    noise = dict(told["settings"]["noise"])
    both = {**told, "settings": {**told["settings"], "noise": {**noise, "sign": "both"}}}
    del noise["sign"]
    older = {**told, "settings": {**told["settings"], "noise": noise}}
    assert difference(older, told) is None
    assert difference(older, both) == ("noise.sign", "positive", "both")
    forgotten = {**told, "settings": {**told["settings"], "a_setting_of_once": None}}
    assert difference(forgotten, told) is None
