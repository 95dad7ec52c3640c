"""The Lightning callback, with a real trainer on the CPU."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

import unseen
from unseen.errors import UnseenError

EXAMPLE = Path(__file__).parents[2] / "examples/lightning_callback.py"
pl = pytest.importorskip("lightning.pytorch")
QUIET = {
    "accelerator": "cpu", "logger": False, "enable_checkpointing": False,
    "enable_progress_bar": False, "enable_model_summary": False,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("quick_estimators")
def test_callback_calibrates_after_fit_and_scores_in_predict(tmp_path, monkeypatch, capsys):
    """One test: the import of lightning takes longer than everything here."""
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(EXAMPLE))
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert "ALARM" not in first and "ALARM" in second
    module, callback, loaders = names["module"], names["callback"], names["loaders"]
    UnseenCallback, samples = names["UnseenCallback"], names["samples"]

    # Scores are those of the method, and stand beside what predict_step returned.
    for loader, scores, outputs, verdict in zip(
        loaders, callback.scores, names["predictions"], callback.verdicts, strict=True
    ):
        x = loader.dataset.tensors[0]
        assert torch.allclose(scores, callback.net.uncertainty(x), atol=1e-6)
        assert torch.equal(torch.cat([o["unseen_score"] for o in outputs]), scores)
        expected = callback.net.verdict(x)
        assert verdict.verdict == expected.verdict
        assert verdict.score == pytest.approx(expected.score)
        assert verdict.predicted_accuracy == pytest.approx(expected.predicted_accuracy)

    # Batches of samples without labels: a tensor, or a list of one.
    x = loaders[0].dataset.tensors[0][:8]
    for batch in (x, [x], (x,)):
        callback.on_predict_start(names["trainer"], module)
        callback.on_predict_batch_end(names["trainer"], module, None, batch, 0)
        assert torch.allclose(callback.scores[0], callback.net.uncertainty(x), atol=1e-6)

    # The same thresholds as a calibration by hand on the same data.
    train, held_out = DataLoader(samples(256), 64), DataLoader(samples(256), 64)
    saving = UnseenCallback(
        source=train, held_out=held_out, detector="energy", estimate_accuracy=False,
        folder=tmp_path / "calibrated",
    )  # fmt: skip
    trainer = pl.Trainer(max_epochs=1, callbacks=[saving], **QUIET)
    trainer.fit(module, train)
    assert module.net.training, "the module is left in the mode it had"
    by_hand = unseen.ERM(module)
    by_hand.detector = unseen.detection.Energy(by_hand).calibrate(train, held_out)
    assert saving.net.threshold(64) == by_hand.threshold(64)

    # Another process: from the folder, with the same weights only.
    loaded = UnseenCallback(folder=tmp_path / "calibrated", estimate_accuracy=False)
    pl.Trainer(callbacks=[loaded], **QUIET).predict(module, loaders)
    trainer.predict(module, loaders)
    assert [v.threshold for v in loaded.verdicts] == [v.threshold for v in saving.verdicts]
    assert loaded.verdicts[0].predicted_accuracy is None

    # Other weights, such as those of the best checkpoint, are calibrated first.
    with torch.no_grad():
        module.net[2].weight.mul_(3)
    with pytest.raises(UnseenError, match="other weights than the module has"):
        fresh = UnseenCallback(folder=tmp_path / "calibrated")
        pl.Trainer(callbacks=[fresh], **QUIET).predict(module, loaders)
    before = saving.net.threshold(64)
    trainer.predict(module, loaders)
    assert saving.net.threshold(64) != before

    with pytest.raises(UnseenError, match="not calibrated"):
        pl.Trainer(callbacks=[UnseenCallback()], **QUIET).predict(module, loaders)
