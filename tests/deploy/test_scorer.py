"""A run and its exported model answer by the same verbs, with the same numbers."""

from __future__ import annotations

import dataclasses
import io
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from unseen.deploy import OnnxDetector, RunScorer, Sums, open_scorer
from unseen.deploy.input_reader import InputReader
from unseen.deploy.reductions import shift_to_mean
from unseen.deploy.sums import SAMPLE, Moment, OddsHistogram, RowSample
from unseen.errors import UnseenError
from unseen.training.run import Run

pytestmark = pytest.mark.usefixtures("quick_estimators")


def test_run_scorer_equals_the_method(light_run):
    task, folder = light_run.task, light_run.folder
    scorer, net = open_scorer(folder, task=task, device="cpu"), Run(folder).load(task, "cpu")
    x = task.domain("far/1").load("test").tensors[0]
    seen, verdict = scorer.observe(x.numpy()), net.verdict(x)
    np.testing.assert_array_equal(seen.logits, net.predict(x))
    np.testing.assert_array_equal(seen.scores, net.uncertainty(x))
    ours = scorer.judge(seen)
    assert (ours.verdict, ours.n) == (verdict.verdict, verdict.n)
    for name in ("score", "threshold", "p_value", "predicted_accuracy", "failing_p_value"):
        assert getattr(ours, name) == pytest.approx(getattr(verdict, name), abs=1e-6), name
    assert ours.interval == pytest.approx(verdict.interval, abs=1e-6)
    np.testing.assert_allclose(scorer.correctness_from(seen), net.correctness(x), atol=1e-6)
    assert scorer.labels == "classes" and scorer.classes == ("0", "1", "2")


def test_run_and_exported_model_agree(light_run):
    run = open_scorer(light_run.folder, task=light_run.task, device="cpu")
    exported = open_scorer(light_run.exported, threads=1)
    assert isinstance(run, RunScorer) and isinstance(exported, OnnxDetector)
    x = light_run.task.domain("near/2").load("test").tensors[0].numpy()
    ours, theirs = run.verdict(x), exported.verdict(x)
    assert ours.verdict == theirs.verdict
    assert ours.predicted_accuracy == pytest.approx(theirs.predicted_accuracy, abs=1e-5)
    assert ours.score == pytest.approx(theirs.score, abs=1e-5)
    assert run.reader.modality == exported.reader.modality == "array"


def test_merged_sums_judge_as_the_whole(light_run):
    scorer = open_scorer(light_run.exported, threads=1)
    x = light_run.task.domain("far/1").load("test").tensors[0].numpy()
    cuts = [0, 7, 8, 31, len(x)]
    parts = [scorer.sums(scorer.observe(x[a:b]), start=a) for a, b in itertools.pairwise(cuts)]
    parts = [Sums.from_arrays(part.to_arrays()) for part in parts]  # as a file keeps them
    whole = scorer.judge(scorer.observe(x))
    for merged in (
        parts[0].merge(parts[1]).merge(parts[2]).merge(parts[3]),
        parts[2].merge(parts[3]).merge(parts[0].merge(parts[1])),
    ):
        found = scorer.judge(merged)
        assert found.verdict == whole.verdict and found.n == whole.n
        for name in ("score", "threshold", "predicted_accuracy"):
            assert getattr(found, name) == pytest.approx(getattr(whole, name), abs=1e-6), name


def test_sums_of_another_model_are_refused(light_run):
    scorer = open_scorer(light_run.exported, threads=1)
    x = light_run.task.domain("far/1").load("test").tensors[0].numpy()
    sums = scorer.sums(scorer.observe(x))
    other = open_scorer(light_run.exported, threads=1)  # calibrated on other features
    held_out = other.calibration.held_out + 0.1 * np.abs(other.calibration.held_out).max()
    other.calibration = dataclasses.replace(other.calibration, held_out=held_out)
    foreign = Sums.from_arrays(other.sums(other.observe(x)).to_arrays())
    with pytest.raises(UnseenError, match="must come from the same model"):
        sums.merge(foreign)
    with pytest.raises(UnseenError, match=r"model\.onnx: judge them by their model"):
        scorer.judge(foreign)
    run = open_scorer(light_run.folder, task=light_run.task, device="cpu")
    assert run.judge(sums.merge(run.sums(run.observe(x), start=len(x)))).n == 2 * len(x)
    arrays = {n: a for n, a in sums.to_arrays().items() if n != "source"}  # of an older version
    assert scorer.judge(Sums.from_arrays(arrays).merge(sums)).n == 2 * len(x)


def test_moments_merge_to_those_of_all_rows():
    rows = np.random.default_rng(0).normal(size=(50, 3))
    merged = Moment.of(rows[:11]).merge(Moment.of(rows[11:12])).merge(Moment.of(rows[12:]))
    assert merged.n == 50
    np.testing.assert_allclose(merged.mean, rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(merged.variance, rows.var(0), rtol=1e-12)


def test_sample_of_rows_does_not_depend_on_the_parts():
    rows = np.arange(3 * SAMPLE, dtype=np.float32).reshape(-1, 1, 1)
    whole = RowSample.of(rows, 0)
    parts = [RowSample.of(rows[a : a + 1000], a) for a in range(0, len(rows), 1000)]
    merged = parts.pop(3)
    for part in parts:
        merged = merged.merge(part)
    assert len(merged.rows) == SAMPLE
    np.testing.assert_array_equal(merged.rows, whole.rows)
    np.testing.assert_array_equal(merged.numbers, whole.rows[:, 0, 0])
    assert abs(float(whole.rows.mean()) / rows.mean() - 1) < 0.03  # of all rows alike


def test_histogram_finds_the_shift_of_all_probabilities():
    p = np.random.default_rng(0).beta(2, 1, 5000)
    exact = shift_to_mean(p, 0.4)
    odds = np.log(p / (1 - p)) + OddsHistogram.of(p).shift_to(0.4)
    np.testing.assert_allclose(1 / (1 + np.exp(-odds)), exact, atol=1e-6)


def image_bytes(size: tuple[int, int] = (9, 5)) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_reader_takes_an_image_in_any_form(tmp_path):
    (tmp_path / "a.png").write_bytes(image_bytes())
    reader = InputReader.of(None, (3, 6, 8), "run")
    pixels = np.asarray(Image.open(tmp_path / "a.png"))
    forms = [
        tmp_path / "a.png",
        str(tmp_path / "a.png"),
        {"path": str(tmp_path / "a.png")},
        image_bytes(),
        pixels,
        {"x": pixels},
        pixels.transpose(2, 0, 1),
    ]
    batch = reader.batch(forms)
    assert batch.shape == (len(forms), 3, 6, 8) and batch.dtype == np.float32
    assert batch.min() >= 0 and 0.5 < batch.max() <= 1
    assert (batch == batch[:1]).all()
    ready = np.random.default_rng(0).random((3, 6, 8)).tolist()
    np.testing.assert_array_equal(reader.batch([{"x": ready}])[0], np.float32(ready))


def test_reader_takes_texts_tables_and_arrays(tmp_path):
    text = InputReader.of({"modality": "text", "reader": {"vocabulary": ["a", "b"]}}, (2,), "run")
    (tmp_path / "a.txt").write_text("b b c")
    wanted = np.float32([[0, np.log(3)]])
    for item in ("b b c", {"text": "b b c"}, tmp_path / "a.txt", b"b b c"):
        np.testing.assert_allclose(text.batch([item]), wanted)
    state = {"columns": ["u", "v"], "mean": [1.0, 2.0], "deviation": [2.0, 1.0]}
    table = InputReader.of({"modality": "table", "reader": state}, (2,), "run")
    for item in ({"v": 4, "u": 3, "id": 7}, [3, 4], {"x": [3, 4]}):
        np.testing.assert_allclose(table.batch([item]), [[1, 2]])
    array = InputReader.of({"modality": "array", "reader": {"shape": [2, 2]}}, (1, 2, 2), "run")
    np.save(tmp_path / "a.npy", np.eye(2))
    for item in (
        tmp_path / "a.npy",
        (tmp_path / "a.npy").read_bytes(),
        np.eye(2),
        {"x": [[1, 0], [0, 1]]},
    ):
        np.testing.assert_array_equal(array.batch([item]), np.eye(2, dtype=np.float32)[None, None])


def test_file_that_is_no_exported_model_is_named(tmp_path):
    (tmp_path / "model.pt2").write_bytes(b"of torch.export")
    with pytest.raises(UnseenError, match=r"model\.pt2 is a file: give .* exported as \.onnx"):
        open_scorer(tmp_path / "model.pt2")


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("none.png", "none.png does not exist"),
        (b"no image", "the file cannot be read as an image"),
        ({"path": 3}, '"path" must be a string'),
        ({"text": "a"}, "reads image, not text"),
        ({"id": 1}, "expected one of path, text, x, not id"),
        ({"x": [[1.0]]}, r"expected an array \(3, 6, 8\), not \(1, 1\)"),
        ({"x": "a"}, "expected an array of numbers"),
        (np.full((3, 6, 8), np.nan), "NaN"),
        (np.zeros((2, 2, 2), np.uint8), r"expected an image \(H, W, 3\)"),
    ],
)  # fmt: skip
def test_bad_items_are_one_error(item, message):
    with pytest.raises(UnseenError, match=message):
        InputReader.of(None, (3, 6, 8), "run").batch([item])


def test_exported_model_reads_images_without_torch(tmp_path, own_export):
    """An own-data model reads a user's files as its training did, with numpy and Pillow alone."""
    code = """
import sys
from unseen.deploy import open_scorer
scorer = open_scorer(sys.argv[1], threads=1)
v = scorer.verdict(scorer.reader.batch(sys.argv[2:]))
assert "torch" not in sys.modules
print(v.score)
"""
    files = own_export.files[:6]
    command = [sys.executable, "-c", code, str(own_export.exported), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    scorer = open_scorer(own_export.folder, device="cpu", verdicts=False)
    x = scorer.reader.batch(files)
    assert float(done.stdout) == pytest.approx(scorer.domain_score(x), abs=1e-5)
    net = scorer.net
    torch.testing.assert_close(
        torch.from_numpy(scorer.predict(x)), net.predict(torch.from_numpy(x))
    )
