"""From settings to a run: rates that decay, presets with typos, layers called by numbers."""

from __future__ import annotations

import pytest

from test_run import Interrupted, tiny_task, weights
from unseen import UnseenError, run


def test_decay_takes_every_rate_to_zero_along_its_curve(tmp_path, monkeypatch):
    seen = []
    original = run.set_rates

    def watched(net, decay, done):
        original(net, decay, done)
        seen.append([group["lr"] for o in net.optimizers().values() for group in o.param_groups])

    monkeypatch.setattr(run, "set_rates", watched)
    task = tiny_task()
    for decay, middle in (("none", 1.0), ("linear", 0.5), ("cosine", 0.5)):
        seen.clear()
        out = tmp_path / decay
        overrides = {"decay": decay, "lr": 0.01, "head_lr": 0.1}
        run.train(task, "uncertainty_guided", out, overrides=overrides, progress=False)
        assert seen[0] == pytest.approx([0.01, 0.1]) and seen[6] == pytest.approx([0.01 * middle, 0.1 * middle])
        assert seen[11][0] < (0.01 if decay == "none" else 0.001) + 1e-9
    with pytest.raises(UnseenError, match="decay must be one of none, linear, cosine"):
        run.train(task, "erm", tmp_path / "x", overrides={"decay": "steps"}, progress=False)


def test_a_decaying_run_resumes_to_the_same_bits(tmp_path, monkeypatch):
    overrides = {"decay": "cosine", "lr": 0.01}
    run.train(tiny_task(), "erm", tmp_path / "whole", overrides=overrides, progress=False)
    original = run.training_batch

    def stopping(source, size, seed, step):
        if step == 9:
            raise Interrupted
        return original(source, size, seed, step)

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(run, "training_batch", stopping)
        run.train(tiny_task(), "erm", tmp_path / "run", overrides=overrides, progress=False)
    run.train(tiny_task(), "erm", tmp_path / "run", overrides=overrides, resume=True, progress=False)
    assert weights(tmp_path / "whole") == weights(tmp_path / "run")


def test_a_typo_in_a_preset_is_named(tmp_path):
    with pytest.raises(UnseenError, match=r'preset "fast" of tiny: erm has no setting step; there are: steps'):
        run.train(tiny_task(presets={"fast": {"step": 3}}), "erm", tmp_path / "run", progress=False)


def test_layers_that_are_called_by_numbers_can_be_set():
    from unseen.methods import METHODS
    from unseen.settings import parse, resolve

    _, settings = resolve(tiny_task(), METHODS["uncertainty_guided"], "fast", parse(["sites=0,2", "embedding=4"]))
    assert settings["sites"] == ["0", "2"] and settings["embedding"] == "4"
    _, settings = resolve(tiny_task(), METHODS["uncertainty_guided"], "fast", parse(["sites=0"]))
    assert settings["sites"] == "0"
