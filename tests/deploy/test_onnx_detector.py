"""An exported model judges as torch does, and refuses what it cannot read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
import torch
from exported import calibrated, with_estimator
from scipy.optimize import linear_sum_assignment
from tiny import TinyNet

import unseen
from unseen.deploy import OnnxDetector, export_onnx, export_program
from unseen.deploy.calibration import ABOUT, ARRAYS, CHECKSUM, checksum_of
from unseen.deploy.thresholds import TorchRandom
from unseen.deploy.transport import shortest_paths
from unseen.errors import UnseenError


def samples(n: int = 120, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, 2, 8, 8, generator=torch.Generator().manual_seed(seed))


def tiny(at: str):
    """A method with weights large enough for predictions that differ."""
    torch.manual_seed(0)
    model = TinyNet()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3)
    return calibrated(model, ["conv1"], "fc1", samples(), 3, at=at)


@pytest.fixture(scope="module", params=["site", "embedding"])
def exported(request, tmp_path_factory):
    net, x = tiny(request.param), samples()
    with_estimator(net, x, net.predict(x).argmax(1) % 2)
    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    export_onnx(net, x[:4], path, classes=("a", "b", "c"), about={"preprocessing": "none"})
    return net, path


@pytest.mark.parametrize(("n", "factor"), [(1, 1.0), (33, 1.0), (100, 2.5)])
def test_verdict_equals_torch(exported, n, factor):
    net, path = exported
    x = factor * samples(n, seed=3)
    v, w = net.verdict(x), OnnxDetector(path, threads=1).verdict(x.numpy())
    assert (v.verdict, v.n, v.alarm) == (w.verdict, w.n, w.alarm)
    for name in ("score", "threshold", "predicted_accuracy", "source_accuracy"):
        assert getattr(w, name) == pytest.approx(getattr(v, name), abs=1e-5), name
    assert w.interval == pytest.approx(v.interval, abs=1e-5)
    # Of 2,000 resampled scores, rounding may move one across the score.
    assert w.p_value == pytest.approx(v.p_value, abs=2e-3)
    assert w.failing_p_value == pytest.approx(v.failing_p_value, abs=1e-3)


def test_signals_and_correctness_equal_torch(exported):
    net, path = exported
    x, detector = samples(70, seed=4), OnnxDetector(path, threads=1)
    ours, theirs = detector.estimate_accuracy(x.numpy()), net.estimate_accuracy(x)
    assert ours.scores == pytest.approx(theirs.scores, abs=1e-4)
    assert ours.extrapolates == theirs.extrapolates
    np.testing.assert_allclose(detector.correctness(x.numpy()), net.correctness(x), atol=1e-3)


def test_parts_of_a_domain_join_to_the_whole(exported):
    detector, x = OnnxDetector(exported[1], threads=1), samples(50, seed=5).numpy()
    joined = detector.join([detector.observe(x[:20]), detector.observe(x[20:])])
    whole, parts = detector.judge(detector.observe(x)), detector.judge(joined)
    assert parts.predicted_accuracy == pytest.approx(whole.predicted_accuracy, abs=1e-6)
    assert parts.score == pytest.approx(whole.score, abs=1e-6)


def test_threshold_follows_the_rate(exported):
    net, path = exported
    detector = OnnxDetector(path, rate=0.2)
    for n, rate in ((1, 0.05), (5, 0.01), (64, 0.2), (700, 0.003)):
        assert detector.threshold(n, rate) == pytest.approx(net.threshold(n, rate), abs=1e-6)
    assert detector.threshold(64) == detector.threshold(64, 0.2) < detector.threshold(64, 0.01)
    table = detector.calibration.more["thresholds"]
    row = table["values"][table["batch_sizes"].index(64)]
    assert row[table["rates"].index(0.01)] == detector.threshold(64, 0.01)


def test_metadata_is_readable_without_unseen(exported):
    model = onnx.load(exported[1])
    about = json.loads({p.key: p.value for p in model.metadata_props}[ABOUT])
    assert about["classes"] == ["a", "b", "c"] and about["preprocessing"] == "none"
    assert about["version"] and about["inputs"][0]["shape"] == [None, 2, 8, 8]
    assert OnnxDetector(exported[1]).classes == ("a", "b", "c")


def test_deployed_detector_imports_neither_torch_nor_scipy(exported, tmp_path):
    x = samples(9).numpy()
    np.save(tmp_path / "x.npy", x)
    code = """
import sys, numpy as np
sys.modules["scipy"] = None  # as if it were not installed
from unseen.deploy import OnnxDetector
v = OnnxDetector(sys.argv[1], threads=1).verdict(np.load(sys.argv[2]))
assert "torch" not in sys.modules and "unseen.detection" not in sys.modules
print(v.predicted_accuracy)
"""
    command = [sys.executable, "-c", code, str(exported[1]), str(tmp_path / "x.npy")]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    expected = exported[0].verdict(torch.from_numpy(x)).predicted_accuracy
    assert float(done.stdout) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 3, 8, 8), np.float32), r"\(N, 2, 8, 8\) float32, not \(2, 3, 8, 8\)"),
        (np.zeros((2, 8, 8), np.float32), r"expected \(N, 2, 8, 8\)"),
        (np.zeros((2, 2, 8, 8), np.int64), "not .* int64"),
        (np.zeros((0, 2, 8, 8), np.float32), "at least one sample"),
        (np.full((2, 2, 8, 8), np.nan, np.float32), "sample index 0"),
        ((np.zeros((2, 2, 8, 8)), np.zeros(2)), "2 inputs were given"),
        ({"a": np.zeros(2), "b": np.zeros(2)}, "lack x"),
        ("text", "expected"),
    ],
)  # fmt: skip
def test_bad_inputs_are_one_error(exported, x, message):
    with pytest.raises(UnseenError, match=message):
        OnnxDetector(exported[1]).predict(x)


def test_damaged_files_are_one_error_that_names_the_file(exported, tmp_path):
    content = exported[1].read_bytes()
    bad = tmp_path / "bad.onnx"
    for damaged in (b"", b"no model", content[: len(content) // 2]):
        bad.write_bytes(damaged)
        with pytest.raises(UnseenError, match=r"bad\.onnx .*export"):
            OnnxDetector(bad)
    with pytest.raises(UnseenError, match=r"no file .*none\.onnx"):
        OnnxDetector(tmp_path / "none.onnx")


def changed(path, target, key, change, *, checked=True) -> None:
    """Write a copy of a model with other metadata; `checked` with the checksum of that."""
    model = onnx.load(path)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    metadata[key] = change(metadata[key])
    if checked:
        metadata[CHECKSUM] = checksum_of(metadata)
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, metadata)
    onnx.save(model, target)


@pytest.mark.parametrize(
    ("key", "change"),
    [
        (
            ABOUT,
            lambda text: re.sub(r'"source_accuracy": [\d.]+', '"source_accuracy": 0.123', text),
        ),
        (ABOUT, lambda text: text.replace('"classes": ["a", "b"', '"classes": ["b", "a"')),
        (ARRAYS, lambda text: text.replace("A", "B", 1)),
    ],
)
def test_changed_number_is_noticed(exported, tmp_path, key, change):
    changed(exported[1], tmp_path / "same.onnx", key, str)
    OnnxDetector(tmp_path / "same.onnx")
    changed(exported[1], tmp_path / "bad.onnx", key, change, checked=False)
    with pytest.raises(UnseenError, match=r"bad\.onnx is damaged .*checksum.*export it again"):
        OnnxDetector(tmp_path / "bad.onnx")


def test_model_without_a_checksum_is_read(exported, tmp_path):
    model = onnx.load(exported[1])
    kept = {e.key: e.value for e in model.metadata_props if e.key != CHECKSUM}
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, kept)
    onnx.save(model, tmp_path / "old.onnx")
    assert OnnxDetector(tmp_path / "old.onnx").classes == OnnxDetector(exported[1]).classes


@pytest.mark.parametrize(
    ("key", "change", "message"),
    [
        (ABOUT, lambda text: "{", "damaged"),
        (ABOUT, lambda text: text.replace('"format": 1', '"format": 9'), "format 9"),
        (ABOUT, lambda text: text.replace('"relative_deviation"', '"eval"', 1), "reduction 'eval'"),
        (ABOUT, lambda text: text.replace('"name": "x"', '"name": "y"'), "do not fit"),
        (ARRAYS, lambda text: text.replace('"held_out"', '"held"'), "held_out"),
        (ARRAYS, lambda text: text.replace('"data": "', '"data": "?', 1), "damaged"),
        (ARRAYS, lambda text: "[]", "damaged"),
        (ABOUT, lambda text: text[:-1] + ', "labels": []}', "unknown labels"),
        (
            ABOUT,
            lambda text: re.sub(r'("cott".*?"threshold": )[-\d.e]+', r"\1null", text),
            "cott has",
        ),
    ],
)
def test_damaged_metadata_is_one_error(exported, tmp_path, key, change, message):
    changed(exported[1], tmp_path / "bad.onnx", key, change)
    with pytest.raises(UnseenError, match=message) as error:
        OnnxDetector(tmp_path / "bad.onnx")
    assert "bad.onnx" in str(error.value) and "export it again" in str(error.value)


def test_model_of_others_is_refused(exported, tmp_path):
    model = onnx.load(exported[1])
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(UnseenError, match="no calibration of unseen"):
        OnnxDetector(tmp_path / "other.onnx")


def test_torch_export_has_the_same_outputs(tmp_path):
    net, x = tiny("site"), samples(9, seed=6)
    export_program(net, x[:2], tmp_path / "model.pt2")
    extra = {ABOUT: "", "unseen.outputs": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=extra).module()
    with torch.no_grad():
        outputs = dict(zip(extra["unseen.outputs"].split("\n"), program(x), strict=True))
    torch.testing.assert_close(outputs["logits"], net.predict(x))
    torch.testing.assert_close(outputs["score"], net.uncertainty(x))
    assert json.loads(extra[ABOUT])["detector"] == "sigma"


class FixedBatch(TinyNet):
    def forward(self, x):
        return super().forward(x.reshape(len(x), 2, 8, 8))


def test_methods_that_cannot_be_exported_are_refused(tmp_path):
    path, x = tmp_path / "model.onnx", samples()
    net = calibrated(FixedBatch(), ["conv1"], "fc1", x, 3)
    with pytest.raises(UnseenError, match=r"FixedBatch .*x\.shape\[0\]"):
        export_onnx(net, x[:2], path)
    dropout = unseen.METHODS["mc_dropout"](TinyNet(), embedding="fc1", passes=2)
    unseen.calibrate(dropout, [(x, torch.zeros(len(x), dtype=torch.int64))])
    with pytest.raises(UnseenError, match="random passes"):
        export_onnx(dropout, x[:2], path)
    with pytest.raises(UnseenError, match="no source statistics"):
        export_onnx(unseen.ERM(TinyNet()), x[:2], path)
    with pytest.raises(UnseenError, match="2 names, the model predicts 3"):
        export_program(tiny("site"), x[:2], path, classes=("a", "b"))
    assert not path.exists()


def test_random_integers_are_those_of_torch():
    generator, random = torch.Generator().manual_seed(0), TorchRandom()
    for high, shape in ((7, (3, 50)), (1000, (2001,))):
        drawn = torch.randint(high, shape, generator=generator)
        np.testing.assert_array_equal(random.integers(high, shape), drawn)
    for n in (0, 1, 2, 1000):
        order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
        np.testing.assert_array_equal(TorchRandom().permutation(n), order)


@pytest.mark.parametrize("n", [1, 2, 17, 64])
def test_assignment_without_scipy_is_optimal(n):
    cost = np.random.default_rng(n).random((n, n)).round(2)  # with ties
    columns = shortest_paths(cost)
    assert sorted(columns) == list(range(n))
    best = cost[linear_sum_assignment(cost)].sum()
    assert cost[np.arange(n), columns].sum() == pytest.approx(best)


def test_export_refuses_the_estimator_of_another_method(tmp_path):
    def made():
        torch.manual_seed(0)
        net = unseen.ERM(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3)))
        unseen.calibrate(net, data, data)
        return net

    x = torch.rand(60, 1, 4, 4)
    data = [(x, torch.arange(60) % 3)]
    shifts = {k: [lambda v, g: (v[0] * 0.5,)] for k in "abc"}
    other = unseen.AccuracyEstimator.fit(made(), data, shifts=shifts)
    with pytest.raises(UnseenError, match="another method or other weights"):
        export_onnx(made(), x, tmp_path / "m.onnx", estimator=other)
    assert not (tmp_path / "m.onnx").exists()
