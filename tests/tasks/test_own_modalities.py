"""Sounds, texts, tables, arrays and label maps of one's own: read, trained on, judged."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import torch
from command_line import unseen
from own_images import draw
from PIL import Image

from unseen.data.own_files.collection import open_collection
from unseen.data.own_files.options import DataOptions
from unseen.data.own_files.problems import DataProblems
from unseen.errors import UnseenError
from unseen.tasks.own_files import task_from_files

SMALL = ("--set", "steps=2", "--set", "batch_size=4", "--method", "erm")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path_factory.mktemp("cache")))


def write_rows(path, columns, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def trained(data, out, *more):
    done = unseen("train", "--data", data, "--out", out, *SMALL, *more)
    assert done.returncode == 0, done.stderr
    return unseen("evaluate", out, "--json").json()


# ---- sound


def write_sounds(root, each=6, rate=8000, ending="wav"):
    soundfile = pytest.importorskip("soundfile")
    rng = np.random.default_rng(0)
    for name, hz in (("low", 200), ("high", 1500)):
        (root / name).mkdir(parents=True)
        for i in range(each):
            t = np.arange(int(rate * (0.3 + 0.02 * i))) / rate
            wave = 0.5 * np.sin(2 * np.pi * hz * t) + 0.01 * rng.normal(size=len(t))
            soundfile.write(root / name / f"{i}.{ending}", wave, rate)
    return root


@pytest.mark.parametrize("ending", ["wav", "flac"])
def test_sounds_become_spectrograms_of_one_length(tmp_path, ending):
    root = write_sounds(tmp_path / "tones", ending=ending)
    task = task_from_files(str(root))
    x, _ = task.source.load("train")[0]
    assert x.shape[:2] == (1, 32) and 8 <= x.shape[2] <= 14 and 0 <= x.min() < x.max() <= 1
    high, low = (
        torch.stack([x[0] for x, y in (data[i] for i in range(len(data))) if y == label]).mean(
            (0, 2)
        )
        for data in [task.source.load("train")]
        for label in (0, 1)
    )
    assert high.argmax() > low.argmax()
    assert trained(root, tmp_path / "run")["source"]["n"] == 2


def test_broken_sound_is_listed(tmp_path):
    root = write_sounds(tmp_path / "tones")
    (root / "low" / "0.wav").write_bytes(b"RIFF????WAVE")
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(root / "low" / "1.wav", np.full(900, np.nan), 16000, subtype="FLOAT")
    match = r"unreadable sounds: 2\n  low/0.wav.*\n  low/1.wav: the sound holds NaN or infinity"
    with pytest.raises(DataProblems, match=match):
        open_collection(DataOptions(str(root)))


# ---- text


def test_texts_become_words_of_the_training_split_only(tmp_path):
    # fmt: off
    rows = [[f"a fine {w} day", "good", "web", s] for w, s in
            (("sunny", "train"), ("warm", "train"), ("calm", "val"), ("soft", "test"))]
    rows += [[f"an awful {w} day", "bad", "web", s] for w, s in
             (("rainy", "train"), ("cold", "train"), ("loud", "val"), ("grim", "test"))]
    # fmt: on
    rows += [["fine fine", "", "phone", ""], ["unseenword", "", "phone", ""]]
    path = write_rows(tmp_path / "reviews.csv", ["text", "label", "domain", "split"], rows)
    task = task_from_files(str(path))
    words = task.record["data"]["reader"]["vocabulary"]
    assert "sunny" in words and "calm" not in words and "unseenword" not in words
    phone = task.domain("phone").load("test")
    assert phone[0][0][words.index("fine")] == pytest.approx(np.log(3))
    assert phone[1][0].sum() == 0 and phone[1][1] == -100
    out = tmp_path / "run"
    result = trained(path, out)
    assert result["domains"]["phone"] == {"accuracy": None, "n": 2}


def test_text_files_are_read(tmp_path):
    for label in ("a", "b"):
        (tmp_path / "t" / label).mkdir(parents=True)
        for i in range(4):
            (tmp_path / "t" / label / f"{i}.txt").write_text(f"{label * 3} word{i}")
    task = task_from_files(str(tmp_path / "t"))
    assert {"aaa", "bbb"} <= set(task.record["data"]["reader"]["vocabulary"])


# ---- tables


def test_table_is_standardized_with_its_training_rows(tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    for i in range(40):
        label = i % 2
        rows.append([f"{100 + 5 * label + rng.normal():.4f}", f"{rng.normal():.4f}", 7, label])
    path = write_rows(tmp_path / "t.csv", ["size", "weight", "constant", "label"], rows)
    task = task_from_files(str(path))
    data = task.source.load("train")
    x = torch.stack([data[i][0] for i in range(len(data))])
    assert x.shape[1] == 3 and x.dtype == torch.float32
    assert torch.allclose(x.mean(0), torch.zeros(3), atol=1e-5)
    assert torch.allclose(x[:, :2].std(0, correction=0), torch.ones(2), atol=1e-4)
    assert (x[:, 2] == 0).all()
    result = trained(path, tmp_path / "run")
    assert result["source"]["n"] == 6


def test_table_problems_name_line_and_column(tmp_path):
    rows = [[1, "x", 0], [2, 3, 1], ["", 4, 0], [5, "nan", 1]]
    path = write_rows(tmp_path / "t.csv", ["a", "b", "label"], rows)
    with pytest.raises(DataProblems) as error:
        open_collection(DataOptions(str(path)))
    text = str(error.value)
    assert "features that are not finite numbers" in text and "no features): 3" in text
    assert "line 2, column b: x" in text and "line 4, column a: nothing" in text


# ---- arrays


def test_arrays_of_one_shape_are_read_and_others_listed(tmp_path):
    root = tmp_path / "arrays"
    rng = np.random.default_rng(0)
    for label in ("p", "q"):
        (root / label).mkdir(parents=True)
        for i in range(6):
            np.save(root / label / f"{i}.npy", rng.normal(size=(6, 8)).astype(np.float64))
    x, _ = task_from_files(str(root)).source.load("train")[0]
    assert x.shape == (1, 6, 8) and x.dtype == torch.float32
    assert trained(root, tmp_path / "run")["source"]["n"] == 2
    np.save(root / "p" / "0.npy", np.zeros((3, 3)))
    np.save(root / "p" / "1.npy", np.full((6, 8), np.nan))
    np.save(root / "q" / "1.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataProblems) as error:
        open_collection(DataOptions(str(root)))
    text = str(error.value)
    assert "mixed sizes (most are 6x8): 1\n  p/0.npy: 3x3" in text
    assert "p/1.npy: it holds NaN" in text and "q/1.npy: cannot be read as .npy" in text


# ---- label maps


def write_maps(root, each=8):
    rng = np.random.default_rng(0)
    root.mkdir(parents=True)
    rows = []
    for i in range(each):
        draw("dot", rng).resize((32, 32)).save(root / f"{i}.jpg", quality=95)
        labels = np.zeros((32, 32), np.uint8)
        labels[8:20, 8:20], labels[0] = 1, 255
        Image.fromarray(labels).save(root / f"{i}.png")
        rows.append([f"{i}.jpg", f"{i}.png"])
    return write_rows(root / "maps.csv", ["path", "label"], rows)


def test_label_maps_give_segmentation(tmp_path):
    path = write_maps(tmp_path / "scenes")
    task = task_from_files(str(path))
    assert (task.classes, task.metric, task.ignore_label) == (2, "miou", 255)
    x, y = task.source.load("train")[0]
    assert x.shape == (3, 32, 32) and y.shape == (32, 32) and y.dtype == torch.int64
    assert (y[0] == 255).all() and y[10, 10] == 1
    result = trained(path, tmp_path / "run", "--set", "width=0.0625")
    assert set(result["source"]["classes"]) == {"0", "1"}


def test_label_maps_that_do_not_fit_are_listed(tmp_path):
    path = write_maps(tmp_path / "scenes")
    Image.new("RGB", (32, 32)).save(path.parent / "0.png")
    Image.new("L", (9, 9)).save(path.parent / "1.png")
    (path.parent / "2.png").unlink()
    with pytest.raises(DataProblems) as error:
        open_collection(DataOptions(str(path)))
    text = str(error.value)
    assert "unreadable label maps: 1\n  line 2" in text and "its mode is RGB" in text
    assert "label maps of another size than their image: 1\n  line 3" in text
    assert "missing label maps: 1\n  line 4" in text


def test_data_of_another_kind_than_the_run_are_refused(tmp_path):
    rows = [[i + j, 3 * i, i % 2] for i in range(12) for j in range(2)]
    path = write_rows(tmp_path / "t.csv", ["a", "b", "label"], rows)
    trained(path, tmp_path / "run")
    other = write_rows(tmp_path / "o.csv", ["text", "label"], [["x", "0"]])
    done = unseen("evaluate", tmp_path / "run", "--data", other)
    assert done.returncode == 2 and "the run was trained on table" in done.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["data"]["reader"]["columns"] == ["a", "b"]
    with pytest.raises(UnseenError):
        task_from_files(str(other))
    turned = write_rows(
        tmp_path / "b.csv", ["when", "b", "a"], [["noon", 3 * i, i] for i in range(4)]
    )
    result = unseen("evaluate", tmp_path / "run", "--data", turned, "--json").json()
    assert result["domains"]["b"] == {"accuracy": None, "n": 4}
    short = write_rows(tmp_path / "s.csv", ["a"], [[1]])
    done = unseen("evaluate", tmp_path / "run", "--data", short)
    assert done.returncode == 2 and "lacks feature columns of the run: b" in done.stderr


# ---- several labels, numbers


def read_predictions(run, data, out):
    done = unseen("predict", run, "--data", data, "--out", out)
    assert done.returncode == 0, done.stderr
    return list(csv.DictReader(out.open()))


def test_several_labels_train_with_their_loss_and_metric(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)).round(4)
    labels = ["|".join(n for n, v in zip("pq", row, strict=True) if v > 0) or "|" for row in x]
    rows = [[*map(float, row), label] for row, label in zip(x, labels, strict=True)]
    path = write_rows(tmp_path / "t.csv", ["a", "b", "label"], rows)
    task = task_from_files(str(path))
    assert (task.metric, task.loss, task.class_names) == ("map", "bce", ("p", "q"))
    data = task.source.load("train")
    row = data.rows[0]
    assert data[0][1].tolist() == [float(v > 0) for v in x[row]]
    result = trained(path, tmp_path / "run", "--set", "steps=60", "--set", "lr=0.01")
    assert result["source"]["map"] > 0.8
    target = write_rows(tmp_path / "new.csv", ["a", "b"], [[3, 3], [-3, -3], [3, -3]])
    evaluated = unseen("evaluate", tmp_path / "run", "--data", target, "--json").json()
    assert evaluated["domains"]["new"] == {"map": None, "n": 3}
    partly = write_rows(tmp_path / "some.csv", ["a", "b", "label"],
                        [[i, -i, "p" if i % 2 else ""] for i in range(1, 13)])  # fmt: skip
    evaluated = unseen("evaluate", tmp_path / "run", "--data", partly, "--json").json()
    assert evaluated["domains"]["some"]["n"] == 6  # those with labels
    words = ("--data", partly, "--draws", 1, "--steps", 1, "--json")
    assert len(unseen("adapt", tmp_path / "run", *words, "--shots", 2).json()["after"]) == 1
    done = unseen("adapt", tmp_path / "run", *words, "--shots", 5)
    assert done.returncode == 2 and "labelled samples to adapt with, 5 were asked" in done.stderr
    predicted = read_predictions(tmp_path / "run", target, tmp_path / "p.csv")
    assert [row["prediction"] for row in predicted] == ["p|q", "", "p"]
    scored = unseen("score", tmp_path / "run", "--data", target, "--json").json()
    assert scored["verdict"] in ("ok", "shifted", "unknown")


def test_numbers_with_decimals_are_a_regression(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)).round(4)
    rows = [[*map(float, row), f"{row[0] - row[1]:.3f}"] for row in x]
    path = write_rows(tmp_path / "t.csv", ["a", "b", "label"], rows)
    task = task_from_files(str(path))
    assert (task.metric, task.loss, task.classes, task.class_names) == ("mae", "mse", 1, ())
    result = trained(path, tmp_path / "run", "--set", "steps=80", "--set", "lr=0.01")
    assert result["source"]["mae"] < 0.6
    target = write_rows(tmp_path / "new.csv", ["a", "b"], [[1, -1], [-1, 1]])
    high, low = read_predictions(tmp_path / "run", target, tmp_path / "p.csv")
    assert float(high["prediction"]) > 1 > -1 > float(low["prediction"])
    evaluated = unseen("evaluate", tmp_path / "run", "--data", target, "--json").json()
    assert evaluated["domains"]["new"] == {"mae": None, "n": 2}
    assert task_from_files(DataOptions(str(path), labels="number")).metric == "mae"
