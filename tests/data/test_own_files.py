"""Manifests and folders of a user's own files: rows, splits, labels and problems."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import torch
from own_images import CLASSES, SIDE, draw, write_images
from PIL import Image

from unseen.data.own_files.collection import open_collection
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
