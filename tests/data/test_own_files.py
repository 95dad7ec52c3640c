"""Manifests and folders of a user's own files: rows, splits, labels and problems."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import torch
from own_images import CLASSES, SIDE, draw, write_images
from PIL import Image

from unseen.data.own_files import facts
from unseen.data.own_files.collection import open_collection
from unseen.data.own_files.image import ImageReader
from unseen.data.own_files.options import DataOptions
from unseen.data.own_files.problems import DataProblems
from unseen.data.own_files.splits import assign_splits, join_groups
from unseen.errors import UnseenError
from unseen.tasks.own_files import task_from_files


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path_factory.mktemp("cache")))


def write_csv(path, rows, columns):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([columns, *rows])
    return path


def manifest_of(root, **more):
    """Write a manifest of the images below a folder, with more columns."""
    files = sorted(p.relative_to(root) for p in root.rglob("*.png"))
    rows = [[str(f), f.parts[-2], *(value(i) for value in more.values())]
            for i, f in enumerate(files)]  # fmt: skip
    return write_csv(root / "manifest.csv", rows, ["path", "label", *more])


def problems_of(path, **options):
    with pytest.raises(DataProblems) as error:
        open_collection(DataOptions(str(path), **options))
    return str(error.value)


def splits_of(made, domain):
    return {s: {made.rows[i].content for i in made.indices(domain, s)}
            for s in ("train", "val", "test")}  # fmt: skip


# ---- layouts


def test_folder_of_classes_is_one_domain_with_seeded_splits(tmp_path):
    write_images(tmp_path / "photos", 10)
    made = open_collection(DataOptions(str(tmp_path / "photos")))
    assert made.domains == ["photos"] and made.classes == list(CLASSES)
    splits = splits_of(made, "photos")
    assert [len(splits[s]) for s in ("train", "val", "test")] == [24, 3, 3]
    assert splits == splits_of(open_collection(DataOptions(str(tmp_path / "photos"))), "photos")
    other = open_collection(DataOptions(str(tmp_path / "photos"), split_seed=1))
    assert splits != splits_of(other, "photos")


def test_folder_of_domains_needs_a_source_and_takes_the_others_as_targets(tmp_path):
    for i, name in enumerate(("day", "night")):
        write_images(tmp_path / name, 4, seed=i)
    assert "--source NAME, one of day, night" in problems_of(tmp_path)
    made = open_collection(DataOptions(str(tmp_path), source="night"))
    assert made.domains == ["night", "day"]
    assert len(made.indices("day", "test")) == 12


def test_folder_may_be_the_one_that_one_is_in(tmp_path, monkeypatch):
    write_images(tmp_path / "a", 4)
    monkeypatch.chdir(tmp_path / "a")
    made = open_collection(DataOptions("."))
    assert made.source == "a" and {row.label for row in made.rows} == set(CLASSES)
    assert all(row.content.startswith(f"{row.label}/") for row in made.rows)


def test_progress_of_a_long_look_is_shown(caplog, monkeypatch):
    monkeypatch.setattr(facts, "REPORT_EVERY", -1.0)
    with caplog.at_level("INFO", logger="unseen"):
        assert list(facts._with_progress(iter("ab"), 2)) == ["a", "b"]
    assert "looked at 1 of 2 files, 0 s left" in caplog.text


def test_folder_of_splits_is_not_taken_for_domains(tmp_path):
    for i, name in enumerate(("train", "val", "test")):
        write_images(tmp_path / "set" / name, 3, seed=i)
    made = open_collection(DataOptions(str(tmp_path / "set")))
    assert made.domains == ["set"] and not made.seeded_split
    assert all(name.startswith("val/") for name in splits_of(made, "set")["val"])


def test_flat_folder_is_an_unlabelled_domain_beside_a_labelled_one(tmp_path):
    write_images(tmp_path / "lab", 4)
    (tmp_path / "street").mkdir()
    for i in range(5):
        draw("dot", np.random.default_rng(100 + i)).save(tmp_path / "street" / f"{i}.jpg")
    (tmp_path / "street" / "notes.md").write_text("ignored")
    task = task_from_files(str(tmp_path))
    assert task.source.name == "lab"
    street = task.domain("street").load("test")
    assert len(street) == 5 and (street.labels == -100).all()


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_manifest_formats_give_the_same_rows(tmp_path, ending):
    root = write_images(tmp_path / "a", 5)
    rows = [{"path": str(p.relative_to(root)), "label": p.parts[-2], "split": None}
            for p in sorted(root.rglob("*.png"))]  # fmt: skip
    path = root / f"m.{ending}"
    if ending == "csv":
        write_csv(path, [[r["path"], r["label"], ""] for r in rows], ["path", "label", "split"])
    elif ending == "jsonl":
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    else:
        pa = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pa.Table.from_pylist(rows), path)
    made = open_collection(DataOptions(str(path)))
    assert [(r.content, r.label) for r in made.rows] == [(r["path"], r["label"]) for r in rows]
    assert made.classes == list(CLASSES)


# ---- splits


def test_groups_and_duplicates_stay_on_one_side():
    groups = join_groups([[("p", i // 4), ("same", i if i != 40 else 3)] for i in range(80)])
    assert groups[40] == groups[0] == groups[43]
    splits = assign_splits(groups, [str(i % 2) for i in range(80)], seed=3)
    sides = {}
    for group, split in zip(groups, splits, strict=True):
        assert sides.setdefault(group, split) == split
    assert {s: splits.count(s) for s in ("train", "val", "test")}["train"] >= 50
    assert min(splits.count("val"), splits.count("test")) >= 4


def test_group_column_keeps_patients_on_one_side(tmp_path):
    root = write_images(tmp_path / "a", 12)
    made = open_collection(DataOptions(str(manifest_of(root, group=lambda i: f"patient{i // 3}"))))
    splits = {}
    for row in made.rows:
        assert splits.setdefault(row.group, row.split) == row.split
    assert set(splits.values()) == {"train", "val", "test"}


def test_given_splits_that_break_a_group_are_refused(tmp_path):
    root = write_images(tmp_path / "a", 6)
    path = manifest_of(
        root, split=lambda i: ("train", "val", "test")[i % 3], group=lambda i: f"p{i // 2}"
    )
    assert "groups in training and test" in problems_of(path)


def test_missing_val_is_taken_from_train_only(tmp_path):
    root = write_images(tmp_path / "a", 10)
    made = open_collection(DataOptions(
        str(manifest_of(root, split=lambda i: "test" if i % 5 == 0 else "train"))
    ))  # fmt: skip
    assert len(made.indices("manifest", "test")) == 6
    assert len(made.indices("manifest", "val")) >= 3


# ---- problems


def test_all_problems_are_listed_together_with_lines(tmp_path):
    root = write_images(tmp_path / "a", 4)
    path = manifest_of(root, split=lambda i: ("train", "train", "val", "test")[i % 4])
    (root / "bar" / "1.png").write_bytes(b"no image")
    (root / "dot" / "0.png").write_bytes((root / "dot" / "0.png").read_bytes()[:-20])
    (root / "dot" / "3.png").write_bytes((root / "dot" / "1.png").read_bytes())
    Image.new("RGB", (5, 7)).save(root / "ring" / "0.png")
    with path.open("a", newline="") as file:
        file.write("gone.png,bar,train\n" * 25)
        file.write("ring/1.png,bar,somewhere\n")
    text = problems_of(path)
    assert "missing files: 25\n  line 14: " in text and "and 5 more" in text
    assert "unreadable images: 2\n  line 3: bar/1.png" in text
    assert (
        "mixed sizes (most are 12x12): add --resize 64, say: 1\n  line 10: ring/0.png: 7x5" in text
    )
    assert "unknown splits: 1\n  line 39" in text
    assert "line 9 (manifest/test) equals line 7 (manifest/train)" in text
    assert text.count("\n") < 50


def test_unknown_labels_empty_classes_and_too_few_classes(tmp_path):
    write_images(tmp_path / "a", 4)
    write_images(tmp_path / "b", 4, seed=1)
    (tmp_path / "a" / "empty").mkdir()
    (tmp_path / "b" / "ring").rename(tmp_path / "b" / "wheel")
    text = problems_of(tmp_path, source="a")
    assert "unknown labels in targets: 4\n  b/wheel/0.png: wheel" in text
    assert "empty classes: 1\n  a/empty has no samples" in text
    rows = [[f"a/bar/{i}.png", "bar"] for i in range(4)]
    one = write_csv(tmp_path / "one.csv", rows, ["path", "label"])
    assert "fewer than two classes: 1" in problems_of(one)


def test_resize_accepts_mixed_sizes_and_orientation_is_applied(tmp_path):
    root = write_images(tmp_path / "a", 4)
    turned = Image.new("RGB", (6, 3), "red")
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save(root / "bar" / "0.png", exif=exif)
    assert "bar/0.png: 6x3" in problems_of(root)
    task = task_from_files(DataOptions(str(root), resize="8x10"))
    x, y = task.source.load("train")[0]
    assert x.shape == (3, 8, 10) and 0 <= x.min() <= x.max() <= 1 and y.dtype == torch.int64


@pytest.mark.parametrize("name, content, message", [
    ("a.csv", "path,label,path\n", 'two columns are called "path"'),
    ("a.csv", "label\nx\n", "needs a column path, text or columns of numbers"),
    ("a.csv", "path,label\n", "has no rows"),
    ("a.csv", "path,text,label\n", "both a path and a text column"),
    ("a.csv", "path,label\na.xyz,b\n", "the files are no images"),
    ("a.jsonl", "[1]\n", "line 1: expected an object"),
    ("a.jsonl", "{bad\n", "line 1"),
    ("a.parquet", "nonsense", "cannot be read as Parquet"),
    ("a.docx", "", "takes a folder, or a manifest"),
    ("a.csv", "path,label\n\xff", None),
])  # fmt: skip
def test_damaged_manifest_gives_one_error(tmp_path, name, content, message):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UnseenError, match=message):
        open_collection(DataOptions(str(path)))


@pytest.mark.parametrize("options, message", [
    ({"resize": "big"}, "--resize must be a side"),
    ({"resize": "0"}, "--resize must be a side"),
    ({"separator": "a"}, "--separator must be punctuation"),
    ({"seconds": -1.0}, "--seconds"),
    ({"labels": "words"}, "--labels must be one of"),
])  # fmt: skip
def test_bad_options_are_refused(options, message):
    with pytest.raises(UnseenError, match=message):
        DataOptions("x", **options)


def test_images_of_other_modes_become_rgb(tmp_path):
    root = tmp_path / "a"
    for label in ("x", "y"):
        (root / label).mkdir(parents=True)
    deep = np.linspace(0, 65535, SIDE * SIDE).reshape(SIDE, SIDE).astype(np.uint16)
    Image.fromarray(deep).save(root / "x" / "deep.png")
    for i, mode in enumerate(("L", "RGBA", "P", "1", "CMYK")):
        name = f"{i}.tif" if mode == "CMYK" else f"{i}.png"
        Image.new("RGB", (SIDE, SIDE), (40 * i, 9, 200)).convert(mode).save(root / "y" / name)
    for i in range(4):
        draw("dot", np.random.default_rng(i)).save(root / "x" / f"{i}.bmp")
    task = task_from_files(str(root))
    shapes = {tuple(task.source.load(s)[i][0].shape) for s in ("train", "val", "test")
              for i in range(len(task.source.load(s)))}  # fmt: skip
    assert shapes == {(3, SIDE, SIDE)}
    train = task.source.load("train")
    names = train.names(range(len(train)))
    if any("deep" in n for n in names):
        x, _ = train[next(i for i, n in enumerate(names) if "deep" in n)]
        assert x.max() > 0.95 and 0.4 < x.mean() < 0.6


def test_one_scale_holds_for_all_images_of_16_bits_or_floats(tmp_path):
    read = ImageReader(height=2, width=2).read
    for name, pixels, expected in (
        ("bright.png", np.full((2, 2), 65535, np.uint16), 255),
        ("dark.png", np.full((2, 2), 200, np.uint16), 0),  # not taken for 8 bits
        ("grey.tif", np.full((2, 2), 0.5, np.float32), 127),
    ):
        Image.fromarray(pixels).save(tmp_path / name)
        assert (read(tmp_path / name) == expected).all()
    Image.fromarray(np.full((2, 2), 90, np.float32)).save(tmp_path / "large.tif")
    assert "values run from 90 to 90, expected 0 to 1" in look(tmp_path / "large.tif")
    with pytest.raises(UnseenError, match=r"large.tif cannot be read as an image: values run"):
        read(tmp_path / "large.tif")


def look(path):
    return ImageReader.look(path, True).problem


# ---- manifests as people write them


def texts(tmp_path, name, rows, columns=("text", "label")):
    return write_csv(tmp_path / name, rows, columns)


def test_column_names_may_be_capitals_and_lines_of_json_blank(tmp_path):
    rows = [[f"word{i} {i % 2}", "ab"[i % 2]] for i in range(20)]
    made = open_collection(DataOptions(str(texts(tmp_path, "a.csv", rows, ("Text", "LABEL")))))
    assert made.modality == "text" and made.classes == ["a", "b"]
    lines = "\n\n".join(json.dumps({"text": t, "label": y}) for t, y in rows)
    (tmp_path / "b.jsonl").write_text(f"{lines}\n \n")
    assert len(open_collection(DataOptions(str(tmp_path / "b.jsonl"))).rows) == 20
    both = texts(tmp_path, "c.csv", [], ("text", "label", "Label"))
    with pytest.raises(UnseenError, match='two columns are called "label"'):
        open_collection(DataOptions(str(both)))


@pytest.mark.parametrize("name", ["a.tsv", "a.CSV"])
def test_line_without_all_columns_is_a_problem_not_an_unlabelled_row(tmp_path, name):
    mark = "\t" if name.endswith("tsv") else ","
    lines = [f"word{i}{mark}{'ab'[i % 2]}" for i in range(20)]
    (tmp_path / name).write_text("\n".join([f"text{mark}label", *lines, "short"]) + "\n")
    assert "another number of columns: 1\n  line 22" in problems_of(tmp_path / name)


def test_whole_numbers_with_and_without_decimals_are_one_class(tmp_path):
    rows = [[f"word{i} {i % 2}", ("1", "2", "1.0", "2.")[i % 4]] for i in range(24)]
    made = open_collection(DataOptions(str(texts(tmp_path, "a.csv", rows))))
    assert made.classes == ["1", "2"] and {row.label for row in made.rows} == {"1", "2"}
    words = [[t, {"1": "v1.0", "2": "2.0"}.get(y, "x")] for t, y in rows]
    made = open_collection(DataOptions(str(texts(tmp_path, "b.csv", words))))
    assert made.classes == ["2.0", "v1.0", "x"]  # words: left as they are


def test_word_among_numbers_is_listed_and_not_taken_for_a_class(tmp_path):
    rows = [[f"word{i}", f"{i}.5" if i else "n/a"] for i in range(20)]
    text = problems_of(texts(tmp_path, "a.csv", rows))
    assert "labels that are no numbers (--labels classes, if they are classes): 1" in text
    assert "line 2: n/a" in text and "fewer than" not in text


def test_file_listed_with_two_labels_is_a_problem(tmp_path):
    path = manifest_of(write_images(tmp_path / "a", 6))
    with path.open("a", newline="") as file:
        csv.writer(file).writerow(["bar/0.png", "dot"])
    text = problems_of(path)
    assert "files listed twice with different labels" in text
    assert "line 20: bar/0.png: dot, and bar in line 2" in text


def test_source_without_labels_is_one_problem(tmp_path):
    text = problems_of(texts(tmp_path, "a.csv", [[f"word{i}", ""] for i in range(30)]))
    assert "no labels: 1" in text and "rows without a label" not in text
