"""`unseen predict`: rows equal those of one pass, in parts, after a kill, and in ONNX."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow.parquet
import pytest
import torch
from command_line import unseen
from exported import calibrated
from PIL import Image
from predict_at_once import predict_domain

from unseen.deploy import OnnxDetector, export_onnx, open_scorer
from unseen.deploy.predict import predict_samples
from unseen.deploy.samples import open_samples
from unseen.deploy.smallest import smallest
from unseen.deploy.task_samples import TaskSamples
from unseen.errors import UnseenError
from unseen.files import locked
from unseen.models import FCN32s
from unseen.training.run import Run

pytestmark = pytest.mark.usefixtures("quick_estimators")
LIGHT = ("--task", "light_task:light_task", "--domain", "far/1")


def rows_of(path):
    return list(csv.DictReader(path.open()))


def manifest(own, path, rows, domains=("a",)):
    """Write a manifest of `rows` rows that repeat the new images."""
    files = [own.files[i % len(own.files)] for i in range(rows)]
    lines = [f"{f},{domains[i % len(domains)]},{f.parent.name}" for i, f in enumerate(files)]
    path.write_text("\n".join(["path,domain,label", *lines]) + "\n")
    return path


def test_rows_in_parts_equal_those_of_one_pass(light_run, tmp_path):
    before = predict_domain(
        Run(light_run.folder), light_run.task, "far/1", tmp_path / "old.csv", reject_rate=0.2
    )
    result = unseen(
        "predict", light_run.folder, *LIGHT, "--out", tmp_path / "new.csv", "--reject-rate", 0.2,
        "--part", 16, "--json",
    ).json()  # fmt: skip
    old, new = rows_of(tmp_path / "old.csv"), rows_of(tmp_path / "new.csv")
    assert [*new[0]][:5] == [*old[0]] and len(new) == len(old) == 60
    for name in ("sample", "prediction", "rejected"):
        assert [row[name] for row in new] == [row[name] for row in old], name
    for name in ("probability", "correctness"):
        ours, theirs = ([float(row[name]) for row in rows] for rows in (new, old))
        np.testing.assert_allclose(ours, theirs, atol=2e-6, err_msg=name)
    for name, value in before.items():
        if name != "out":
            assert result[name] == pytest.approx(value, abs=1e-6), name
    net = Run(light_run.folder).load(light_run.task, "cpu")
    x = light_run.task.domain("far/1").load("test").tensors[0]
    verdict = net.verdict(x)
    assert result["verdict"] == verdict.verdict == result["domains"]["far/1"]["verdict"]
    assert result["predicted_accuracy"] == pytest.approx(verdict.predicted_accuracy, abs=1e-6)
    assert result["interval"] == pytest.approx(verdict.interval, abs=1e-6)
    scores = [float(row["score"]) for row in new]
    np.testing.assert_allclose(scores, net.uncertainty(x), rtol=1e-5)
    assert not (tmp_path / "new.csv.parts").exists()


def test_exported_model_predicts_files_as_the_run_does(own_export, tmp_path):
    data = manifest(own_export, tmp_path / "m.csv", 20, domains=("a", "b", "b"))
    common = ("--data", data, "--part", 7, "--json", "--out")
    results = [
        unseen("predict", model, *common, tmp_path / f"{name}.csv").json()
        for name, model in (("run", own_export.folder), ("onnx", own_export.exported))
    ]
    ours, theirs = rows_of(tmp_path / "run.csv"), rows_of(tmp_path / "onnx.csv")
    for name in ("sample", "domain", "prediction", "rejected"):
        assert [r[name] for r in ours] == [r[name] for r in theirs]
    for name in ("probability", "score", "probability of dot", "correctness"):
        a, b = ([float(row[name]) for row in rows] for rows in (ours, theirs))
        np.testing.assert_allclose(a, b, atol=1e-5, err_msg=name)
    a, b = (result["domains"] for result in results)
    assert [*a] == [*b] == ["a", "b"] and (a["a"]["n"], a["b"]["n"]) == (7, 13)
    for domain in "ab":
        assert a[domain]["verdict"] == b[domain]["verdict"]
        for name in ("score", "predicted_accuracy", "accuracy", "threshold"):
            assert a[domain][name] == pytest.approx(b[domain][name], abs=1e-5), name
    assert results[0]["n"] == 20 and "verdict" in results[0]


def test_every_format_holds_the_same_rows(own_export, tmp_path):
    for ending in ("csv", "jsonl", "parquet"):
        done = unseen(
            "predict", own_export.exported, "--data", own_export.files[0].parents[1], "--part", 5,
            "--out", tmp_path / f"p.{ending}",
        )  # fmt: skip
        assert done.returncode == 0 and "accuracy" in done.stdout, done.stderr
    wide = rows_of(tmp_path / "p.csv")
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    table = pyarrow.parquet.read_table(tmp_path / "p.parquet").to_pylist()
    assert len(wide) == len(lines) == len(table) == len(own_export.files)
    for a, b, c in zip(wide, lines, table, strict=True):
        assert [*a] == [*b] == [*c] and a["sample"] == b["sample"] == c["sample"]
        assert a["prediction"] == b["prediction"] == c["prediction"]
        assert float(a["score"]) == b["score"] == pytest.approx(c["score"], rel=1e-5)


def test_killed_prediction_continues_after_its_last_part(own_export, tmp_path):
    data = manifest(own_export, tmp_path / "m.csv", 2500)
    out, parts = tmp_path / "p.csv", tmp_path / "p.csv.parts"
    words = ["predict", own_export.exported, "--data", data, "--part", 32, "--out"]
    command = [sys.executable, "-m", "unseen", *map(str, [*words, out])]
    process = subprocess.Popen(command, env=dict(os.environ), stderr=subprocess.DEVNULL)
    while len(list(parts.glob("0*.npz"))) < 3 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    done = len(list(parts.glob("0*.npz")))
    assert not out.exists() and 3 <= done < 79
    asked = []

    class Counting(OnnxDetector):
        def observe(self, x):
            asked.append(len(x))
            return super().observe(x)

    scorer = Counting(own_export.exported, threads=1)
    samples = open_samples(data, scorer.reader, scorer.classes)
    resumed = predict_samples(scorer, samples, out, part=32, progress=False)
    assert sum(asked) == 2500 - 32 * done
    whole = predict_samples(scorer, samples, tmp_path / "q.csv", part=32, progress=False)
    assert out.read_bytes() == (tmp_path / "q.csv").read_bytes()
    assert {**resumed, "out": ""} == {**whole, "out": ""}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.csv", "p.csv", "q.csv"]


def test_memory_does_not_grow_with_the_samples(own_export, tmp_path):
    scorer, peaks = OnnxDetector(own_export.exported, threads=1), []
    for rows in (300, 300, 1500, 1500):  # the first call for a size also makes its threshold
        data = manifest(own_export, tmp_path / f"{rows}.csv", rows)
        tracemalloc.start()
        samples = open_samples(data, scorer.reader)
        predict_samples(scorer, samples, tmp_path / "p.parquet", part=100, progress=False)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[3] < 1.3 * peaks[1]


def test_unfinished_predictions_of_others_are_kept(own_export, light_run, tmp_path):
    data = manifest(own_export, tmp_path / "m.csv", 30)
    bad = tmp_path / "bad.png"
    bad.write_bytes(own_export.files[0].read_bytes()[:60])
    lines = data.read_text().splitlines()
    lines[20] = f"{bad},a,"
    data.write_text("\n".join(lines))
    out, words = tmp_path / "p.csv", ("--data", data, "--out", tmp_path / "p.csv", "--part", 8)
    failed = unseen("predict", own_export.exported, *words)
    assert failed.returncode == 2 and "bad.png" in failed.stderr and "line 21" in failed.stderr
    parts = tmp_path / "p.csv.parts"
    assert not out.exists() and len(list(parts.glob("0*.npz"))) == 2
    other = unseen("predict", own_export.exported, *words[:-1], 9)
    assert other.returncode == 2 and "of another part" in other.stderr
    fewer = manifest(own_export, tmp_path / "fewer.csv", 20)
    other = unseen("predict", own_export.exported, "--data", fewer, *words[2:])
    assert other.returncode == 2 and "of other samples" in other.stderr
    assert len(list(parts.glob("0*.npz"))) == 2
    Image.open(own_export.files[0]).save(bad)
    assert unseen("predict", own_export.exported, *words[:-1], 9, "--restart").returncode == 0
    assert len(rows_of(out)) == 30 and not parts.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("path\nnone.png\n", "missing files: 1"),
        ("path\nnotes.txt\n", "files that are no image"),
        ("text\nhello\n", "has columns of text, the run was trained on image"),
        ("path\n", "holds no samples"),
    ],
)
def test_bad_data_leave_nothing_behind(own_export, tmp_path, content, message):
    (tmp_path / "m.csv").write_text(content)
    done = unseen(
        "predict", own_export.exported, "--data", tmp_path / "m.csv", "--out", tmp_path / "p.csv"
    )
    assert done.returncode == 2 and message in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["m.csv"]


def test_bad_options_are_one_error(own_export, tmp_path):
    data = ("--data", own_export.files[0].parents[1])
    for words, message in (
        ((*data, "--out", tmp_path / "p.xlsx"), "must end in .csv, .jsonl, .parquet"),
        ((*data, "--out", tmp_path / "p.csv", "--reject-rate", 1), "reject_rate"),
        (("--out", tmp_path / "p.csv"), "name files to predict"),
        ((*data, "--out", tmp_path / "p.csv", "--task", "digits"), "leave out --task"),
    ):
        done = unseen("predict", own_export.exported, *words)
        assert done.returncode == 2 and message in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


def test_label_maps_are_png_files(tmp_path):
    torch.manual_seed(0)
    x = torch.rand(20, 3, 32, 32)
    model = FCN32s(4, depth=18, width=0.1)
    net = calibrated(model, ["body.conv1"], "hidden", x, 4, maps=(32, 32))
    export_onnx(net, x[:2], tmp_path / "model.onnx")
    (tmp_path / "images").mkdir()
    for i in range(3):
        pixels = (255 * x[i].permute(1, 2, 0)).byte().numpy()
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i}.png")
    out = tmp_path / "p.jsonl"
    done = unseen("predict", tmp_path / "model.onnx", "--data", tmp_path / "images", "--out", out)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    scorer = open_scorer(tmp_path / "model.onnx", threads=1)
    logits = scorer.predict(scorer.reader.batch([row["sample"] for row in rows]))
    for row, wanted in zip(rows, logits.argmax(1), strict=True):
        found = np.asarray(Image.open(tmp_path / row["prediction"]))
        np.testing.assert_array_equal(found, wanted)


def test_task_samples_are_refused_by_models_of_others(light_run, tmp_path):
    with pytest.raises(UnseenError, match="not trained on files"):
        open_samples(tmp_path, open_scorer(light_run.exported).reader)
    samples = TaskSamples(light_run.task, "near/1")
    chunk = samples.read(list(samples.references(58)))
    assert list(chunk.names) == ["58", "59"] and chunk.labels.tolist() == [1, 2]


def test_smallest_numbers_are_those_of_a_sort():
    rng = np.random.default_rng(0)
    values = [rng.random(50).round(2) for _ in range(7)]  # with ties
    order = np.argsort(np.concatenate(values), kind="stable")
    for k in (0, 1, 100, 349):
        cut = smallest(lambda: iter(values), k)
        chosen = np.concatenate([cut.below(part) for part in values])
        wanted = np.zeros(350, bool)
        wanted[order[:k]] = True
        np.testing.assert_array_equal(chosen, wanted)


def test_summary_breaks_no_word_on_a_terminal_of_80_columns(capsys, monkeypatch):
    from unseen.cli.predict import _show

    monkeypatch.setenv("COLUMNS", "80")
    row = {
        "n": 80, "verdict": "failing", "times_threshold": 26.71, "alarm": True,
        "predicted_accuracy": 0.543, "interval": [0.434, 1.0], "accuracy": 0.5,
    }  # fmt: skip
    _show({**row, "out": "p.csv", "domains": {"camera-1": row, "camera-2": row}})
    words = capsys.readouterr().out.split()
    assert {"threshold", "predicted", "accuracy,", "interval)", "failing", "camera-2"} <= set(words)


def test_samples_are_not_replaced_by_their_predictions(own_export, tmp_path):
    data = manifest(own_export, tmp_path / "m.csv", 10)
    before = data.read_bytes()
    done = unseen("predict", own_export.exported, "--data", data, "--out", data)
    assert done.returncode == 2 and "m.csv holds the samples" in done.stderr
    assert data.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["m.csv"]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_any_name_of_a_file_is_written_and_read_again(own_export, tmp_path, ending):
    names = [b"a\xff.png", b"carriage\rreturn.png", b"comma,.png", b"line\nfeed.png", b'q"uote.png']
    folder = tmp_path / "new"
    folder.mkdir()
    for name in names:
        try:
            (folder / os.fsdecode(name)).write_bytes(own_export.files[0].read_bytes())
        except OSError:
            pytest.skip("this file system takes UTF-8 names only")
    out = tmp_path / f"p.{ending}"
    scorer = OnnxDetector(own_export.exported, threads=1)
    predict_samples(scorer, open_samples(folder, scorer.reader), out, progress=False)
    if ending == "csv":
        with out.open(newline="") as file:
            found = [row["sample"] for row in csv.DictReader(file)]
    elif ending == "jsonl":
        found = [json.loads(line)["sample"] for line in out.read_text().splitlines()]
    else:
        found = pyarrow.parquet.read_table(out)["sample"].to_pylist()
    expected = [name.decode(errors="surrogateescape") for name in names]
    expected[0] = r"a\udcff.png"
    assert [os.path.basename(name) for name in found] == expected


def test_restart_does_not_touch_the_parts_of_a_running_command(own_export, tmp_path):
    data, out = manifest(own_export, tmp_path / "m.csv", 30), tmp_path / "p.csv"
    words = ("predict", own_export.exported, "--data", data, "--out", out, "--part", 10)
    parts = tmp_path / "p.csv.parts"
    with locked(parts / "work"):  # as a running command does
        (parts / "plan.json").write_text("{}")
        (parts / "000000.npz").write_bytes(b"of the other command")
        other = unseen(*words, "--restart")
        assert other.returncode == 2 and "written by another process" in other.stderr
        assert (parts / "000000.npz").read_bytes() == b"of the other command"
    assert unseen(*words, "--restart").returncode == 0
    assert len(rows_of(out)) == 30 and not parts.exists()


def test_parts_without_a_plan_are_not_used(own_export, tmp_path):
    data, out = manifest(own_export, tmp_path / "m.csv", 30), tmp_path / "p.csv"
    parts = tmp_path / "p.csv.parts"
    parts.mkdir()
    (parts / "000000.npz").write_bytes(b"left by a kill while the parts were removed")
    done = unseen("predict", own_export.exported, "--data", data, "--out", out, "--part", 10)
    assert done.returncode == 0, done.stderr
    assert len(rows_of(out)) == 30 and not parts.exists()


def test_sample_whose_prediction_is_not_finite_is_named(own_export, tmp_path, monkeypatch):
    data = manifest(own_export, tmp_path / "m.csv", 30)
    scorer = OnnxDetector(own_export.exported, threads=1)
    observe = scorer.observe

    def observe_overflow(x):
        seen = observe(x)
        logits = seen.logits.copy()
        logits[7] = np.inf
        return replace(seen, logits=logits)

    monkeypatch.setattr(scorer, "observe", observe_overflow)
    samples = open_samples(data, scorer.reader)
    name = own_export.files[7 % len(own_export.files)].name
    with pytest.raises(UnseenError, match=f"{name}: the outputs of the model are not finite"):
        predict_samples(scorer, samples, tmp_path / "p.jsonl", progress=False)
    assert not (tmp_path / "p.jsonl").exists()
