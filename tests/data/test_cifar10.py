"""CIFAR-10 and CIFAR-10-C: reading, splits, cached corruptions."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from unseen.data import catalog, cifar10, cifar10_c, corruptions
from unseen.data.corruptions import weather
from unseen.data.location import CACHE_VARIABLE, VARIABLE, MissingData
from unseen.errors import UnseenError
from unseen.tasks.cifar10_c import CORRUPTIONS, SEVERITIES, task

REAL = Path(os.environ.get(VARIABLE, "")) / "cifar10"
needs_real_data = pytest.mark.skipif(
    not os.environ.get(VARIABLE) or not (REAL / cifar10.FOLDER).is_dir(),
    reason=f"{VARIABLE} names no folder with CIFAR-10 in it",
)


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "data"))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "data" / "cifar10").mkdir(parents=True)
    return tmp_path / "data" / "cifar10"


def write(root: Path, name: str, labels: np.ndarray, pixels: np.ndarray | None = None) -> Path:
    """A published file; image i is the grey i % 251 unless told otherwise."""
    if pixels is None:
        pixels = np.broadcast_to((np.arange(len(labels)) % 251)[:, None], (len(labels), 3072))
    path = root / cifar10.FOLDER / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(np.c_[labels, pixels.reshape(len(labels), -1)].astype(np.uint8).tobytes())
    return path


def photos(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3)).astype(np.uint8)


def small(root: Path) -> np.ndarray:
    """20 test images, of which the first 10 are examined."""
    pixels = photos(20)
    write(root, "data_batch_1.bin", np.arange(30) % 10)
    write(root, "test_batch.bin", np.arange(20) % 10, pixels.transpose(0, 3, 1, 2))
    return pixels


# ---- pixels and labels


def test_red_green_and_blue_row_by_row_behind_the_label(root):
    pixels = np.zeros((2, 3, 32, 32), np.uint8)
    pixels[1, 0, 0, 5], pixels[1, 1, 2, 0], pixels[1, 2, 31, 31] = 200, 100, 50
    write(root, "test_batch.bin", np.array([9, 3]), pixels)
    x, y = cifar10.load_images(cifar10.Slice("test", 0, 2))
    assert (
        x.shape == (2, 3, 32, 32)
        and x.dtype == torch.uint8
        and y.tolist() == [9, 3]
        and y.dtype == torch.int64
    )
    assert torch.equal(x, torch.from_numpy(pixels))


def test_training_files_are_read_as_one_and_as_many_as_there_are(root):
    for batch, count in ((1, 5), (2, 4), (5, 3)):
        write(root, f"data_batch_{batch}.bin", np.arange(count), np.full((count, 3072), batch))
    assert cifar10.count("train") == 12
    x, y = cifar10.load_images(cifar10.Slice("train", 3, 11))
    assert y.tolist() == [3, 4, 0, 1, 2, 3, 0, 1] and x[:, 0, 0, 0].tolist() == [
        1,
        1,
        2,
        2,
        2,
        2,
        5,
        5,
    ]
    with pytest.raises(UnseenError, match="has 12 train images; the first 13 are needed"):
        cifar10.load_images(cifar10.Slice("train", 0, 13))


BROKEN = {
    "cut short": (
        lambda path: path.write_bytes(path.read_bytes()[:-7]),
        r"its 9212 bytes are 3\.00 records",
    ),
    "empty": (lambda path: path.write_bytes(b""), "its 0 bytes"),
    "label 10": (
        lambda path: write(path.parents[1], path.name, np.array([1, 10, 2])),
        "record 1 has the label 10",
    ),
    "a web page": (lambda path: path.write_bytes(b"<html>404</html>"), "its 16 bytes"),
    "cifar-100": (
        lambda path: path.write_bytes(bytes(3074 * 2)),
        r"its 6148 bytes are 2\.00 records",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_error_names_file_and_expected_layout(root, case):
    spoil, told = BROKEN[case]
    path = write(root, "test_batch.bin", np.arange(3))
    spoil(path)
    with pytest.raises(UnseenError, match=told) as caught:
        cifar10.load_images(cifar10.Slice("test", 0, 3))
    assert (
        str(path) in str(caught.value)
        and "records of 3073 bytes" in str(caught.value)
        and VARIABLE in str(caught.value)
    )


def test_missing_file_is_named(root):
    with pytest.raises(
        MissingData, match=r"data_batch_1\.bin is missing: expected CIFAR-10's binary version"
    ):
        task().source.load("train")
    (root / "cifar-10-batches-py").mkdir()
    with pytest.raises(MissingData, match=r"has pickles, which are not read"):
        task().source.load("train")


# ---- what is learned from, held out, examined


def numbers(split: str) -> list[int]:
    return task().source.load(split).tensors[0][:, 0, 0, 0].tolist()


def test_one_training_file_halves_the_test_file(root):
    write(root, "data_batch_1.bin", np.arange(300) % 10)
    write(root, "test_batch.bin", np.arange(41) % 10)
    assert numbers("train") == [n % 251 for n in range(300)]
    assert numbers("test") == list(range(20)) and numbers("val") == list(range(20, 41))


def test_more_training_files_hold_out_their_last_2000(
    root,
):
    write(root, "data_batch_1.bin", np.arange(10_000) % 10)
    write(root, "data_batch_2.bin", np.arange(2_500) % 10)
    write(root, "test_batch.bin", np.arange(41) % 10)
    assert numbers("test") == list(range(41))
    assert numbers("val") == [n % 251 for n in range(500, 2_500)]
    assert numbers("train") == [n % 251 for n in range(10_000)] + [n % 251 for n in range(500)]
    with pytest.raises(UnseenError, match='cifar10 has no split "dev"; it has: train, val, test'):
        task().source.load("dev")


def test_the_task_has_75_domains_by_name_and_reads_nothing_when_it_is_made(root):
    cifar = task()
    assert (
        len(cifar.targets) == 75
        and cifar.domain("fog/3").name == "fog/3"
        and cifar.targets[0].name == "gaussian_noise/1"
    )
    assert tuple(corruptions.CORRUPTIONS) == CORRUPTIONS and corruptions.SEVERITIES == SEVERITIES
    small(root)
    with pytest.raises(UnseenError, match='fog/3 has no split "train", only test'):
        cifar.domain("fog/3").load("train")


# ---- a user's CIFAR-10-C


def write_published(root: Path, size: int = 20) -> dict[str, np.ndarray]:
    folder = root / cifar10_c.FOLDER
    folder.mkdir()
    sets = {"fog": photos(5 * size), "labels": np.tile(np.arange(size) % 10, 5).astype(np.uint8)}
    for name, array in sets.items():
        np.save(folder / f"{name}.npy", array)
    return sets


def test_published_sets_are_used_if_present(root, monkeypatch):
    small(root)
    sets = write_published(root)
    monkeypatch.setattr(cifar10_c, "corrupt", None)
    data = task().domain("fog/3").load("test")
    assert len(data) == 10, "only the images that are examined"
    x, y = data[torch.arange(10)]
    assert x.shape == (10, 3, 32, 32) and x.dtype == torch.float32 and y.tolist() == list(range(10))
    assert torch.equal(
        (x * 255).round().byte(), torch.from_numpy(sets["fog"][40:50]).permute(0, 3, 1, 2)
    ), "severity 1 comes first"


def test_incomplete_published_folder_is_refused(root):
    small(root)
    write_published(root)
    with pytest.raises(
        UnseenError, match=r"CIFAR-10-C/snow\.npy is missing.*complete the folder, or remove it"
    ):
        cifar10_c.load_images("snow", 1)
    told = {(r["domain"], r["split"]): r for r in catalog.check("cifar10_c")}  # by its task's name
    assert (
        told["cifar10_c", "test"]["state"] == "broken"
        and "missing" in told["cifar10_c", "test"]["problem"]
    )


SPOILED = {
    "cut": (
        "fog",
        lambda path, array: path.write_bytes(path.read_bytes()[:-100]),
        "cannot be read",
    ),
    "floats": ("fog", lambda path, array: np.save(path, array / 255), "of float64"),
    "channels first": (
        "fog",
        lambda path, array: np.save(path, array.transpose(0, 3, 1, 2)),
        r"is \(100, 3, 32, 32\)",
    ),
    "a severity short": (
        "fog",
        lambda path, array: np.save(path, array[:80]),
        r"is \(100,\) of uint8, fog.npy has 80 images",
    ),
    "another order": (
        "labels",
        lambda path, array: np.save(path, np.sort(array)),
        "differ from the first 10 test labels",
    ),
    "pickled": (
        "labels",
        lambda path, array: np.save(path, array.astype(object), allow_pickle=True),
        "cannot be read",
    ),
}


@pytest.mark.parametrize("case", SPOILED)
def test_broken_published_set_is_named(root, case):
    small(root)
    sets = write_published(root)
    name, spoil, told = SPOILED[case]
    path = root / cifar10_c.FOLDER / f"{name}.npy"
    spoil(path, sets[name])
    with pytest.raises(UnseenError, match=told) as caught:
        cifar10_c.load_images("fog", 2)
    assert f"{cifar10_c.FOLDER}/" in str(caught.value) and "is not as published" in str(
        caught.value
    )
    assert "(50000, 32, 32, 3)" in str(caught.value)


# ---- our own


def cached(root: Path) -> list[Path]:
    return sorted((root.parents[1] / "cache" / "cifar10_c").glob("*"))


def test_test_images_are_corrupted_without_published_sets(root):
    clean = small(root)
    x, y = cifar10_c.load_images("contrast", 5)
    assert x.dtype == torch.uint8 and y.tolist() == list(range(10))
    expected = corruptions.corrupt(clean[:10], "contrast", 5)
    assert torch.equal(x, torch.from_numpy(expected).permute(0, 3, 1, 2))


def test_corrupted_set_is_cached_and_not_aliased(root, monkeypatch):
    small(root)
    x, _ = cifar10_c.load_images("fog", 3)
    assert len(cached(root)) == 1, "no temporary files are left"
    expected = x.clone()
    x.zero_()
    monkeypatch.setattr(cifar10_c, "corrupt", None)
    assert torch.equal(cifar10_c.load_images("fog", 3)[0], expected)


def test_cache_key_covers_images_severity_and_version(root, monkeypatch):
    small(root)
    cifar10_c.load_images("fog", 3)
    cifar10_c.load_images("fog", 4)
    monkeypatch.setattr(cifar10_c, "VERSION", corruptions.VERSION + 1)
    cifar10_c.load_images("fog", 4)
    write(root, "test_batch.bin", np.arange(20) % 10, photos(40)[20:].transpose(0, 3, 1, 2))
    after, _ = cifar10_c.load_images("fog", 4)
    assert len(cached(root)) == 4
    assert torch.equal(
        after,
        torch.from_numpy(corruptions.corrupt(photos(40)[20:30], "fog", 4)).permute(0, 3, 1, 2),
    )


def test_other_overlays_make_other_frost(root):
    small(root)
    (root / "frost").mkdir()
    made = []
    for brightness in (90, 180):
        for name in weather.OVERLAYS:
            Image.fromarray(np.full((200, 200, 3), brightness, np.uint8)).save(
                root / "frost" / name
            )
        weather.load_overlays.cache_clear()  # a new process would read them again
        made.append(cifar10_c.load_images("frost", 1)[0].float().mean())
    assert made[1] > made[0] + 5


@pytest.mark.parametrize(
    "spoil", [lambda b: b[:-50], lambda b: b[:10], lambda b: b"", lambda b: b"\0" * len(b)]
)
def test_damaged_cache_file_is_computed_again(root, spoil):
    small(root)
    expected = cifar10_c.load_images("contrast", 2)[0].clone()
    path = cached(root)[0]
    path.write_bytes(spoil(path.read_bytes()))
    assert torch.equal(cifar10_c.load_images("contrast", 2)[0], expected)
    assert np.load(path)["pixels"].shape == (10, 32, 32, 3)


def test_unwritable_cache_warns_and_computes(root, tmp_path, monkeypatch, caplog):
    small(root)
    expected = cifar10_c.load_images("contrast", 1)[0].clone()
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file"))
    assert torch.equal(cifar10_c.load_images("contrast", 1)[0], expected)
    assert "cannot write" in caplog.text and CACHE_VARIABLE in caplog.text


# ---- the real thing


@needs_real_data
def test_the_real_files_are_read_and_their_splits_do_not_meet(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    cifar = task()
    train, val, test = (cifar.source.load(split) for split in ("train", "val", "test"))
    assert len(train) >= 10_000 and len(val) >= 1_000 and len(test) >= 500
    digests = [{row.numpy().tobytes() for row in data.tensors[0]} for data in (train, val, test)]
    assert not digests[1] & digests[2] and not digests[0] & digests[1]
    assert all(len(data.tensors[1].unique()) == 10 for data in (train, val, test))
    _, y = train[torch.arange(3)]
    assert [cifar10.CLASS_NAMES[i] for i in y] == ["frog", "truck", "truck"], (
        "the well-known first images"
    )
    if not (REAL / cifar10_c.FOLDER).is_dir():
        frosty = cifar.domain("frost/5").load("test")
        assert len(frosty) == len(test) and torch.equal(frosty.tensors[1], test.tensors[1])
        assert frosty[torch.arange(100)][0].mean() > test[torch.arange(100)][0].mean(), (
            "frost brightens"
        )
