"""SYNTHIA: frames, 16-bit classes, cache."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from unseen.data import synthia
from unseen.data.driving import IGNORE
from unseen.data.location import CACHE_VARIABLE, VARIABLE
from unseen.errors import UnseenError
from unseen.tasks import driving
from unseen.tasks.driving import WEATHERS

WIDE, HIGH = 64, 38  # a twentieth of the published size
FILTERS = (0, 1, 2, 3, 4)


def predicted(kind: int, row: np.ndarray, above: np.ndarray, step: int) -> np.ndarray:
    """What a row's bytes are written as the difference to, by the PNG standard's filter types."""
    left, corner = (np.concatenate([np.zeros(step, int), r[:-step]]) for r in (row, above))
    guess = left + above - corner
    far = [np.abs(guess - near) for near in (left, above, corner)]
    paeth = np.where(
        (far[0] <= far[1]) & (far[0] <= far[2]), left, np.where(far[1] <= far[2], above, corner)
    )
    return (np.zeros_like(row), left, above, (left + above) // 2, paeth)[kind]


def png(channels: np.ndarray, bits: int = 16) -> bytes:
    """A PNG of (H, W, 3), with every filter type in turn."""
    rows = channels.astype(">u2" if bits == 16 else np.uint8)
    rows = np.stack([np.frombuffer(row.tobytes(), np.uint8) for row in rows]).astype(int)
    above, packed = np.zeros_like(rows[0]), b""
    for index, row in enumerate(rows):
        kind = FILTERS[index % len(FILTERS)]
        packed += (
            bytes([kind])
            + ((row - predicted(kind, row, above, 3 * bits // 8)) % 256).astype(np.uint8).tobytes()
        )
        above = row
    header = struct.pack(">IIBBBBB", channels.shape[1], channels.shape[0], bits, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(packed)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(d)) + name + d + struct.pack(">I", zlib.crc32(name + d))
        for name, d in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def label_map(classes: np.ndarray) -> bytes:
    """Classes in the first channel, numbers of instances, which may pass 255, in the second."""
    instances = np.random.default_rng(0).integers(0, 1000, classes.shape)
    return png(np.stack([classes, instances, np.zeros_like(classes)], axis=2))


def write_frame(
    folder: Path,
    number: int,
    classes: np.ndarray,
    grey: int = 0,
    camera: str = "Stereo_Left/Omni_F",
) -> None:
    for place in ("RGB", "GT/LABELS"):
        (folder / place / camera).mkdir(parents=True, exist_ok=True)
    colours = np.full((*classes.shape, 3), grey, np.uint8)
    Image.fromarray(colours).save(folder / "RGB" / camera / f"{number:06d}.png")
    (folder / "GT/LABELS" / camera / f"{number:06d}.png").write_bytes(label_map(classes))


def halves(top: int, bottom: int) -> np.ndarray:
    classes = np.full((HIGH, WIDE), top)
    classes[HIGH // 2 :] = bottom
    return classes


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """Write ten frames of Highway at dawn, grey encodes the index, and two of New York at night."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    for number in range(10):
        write_frame(
            tmp_path / "driving/synthia/SYNTHIA-SEQS-01-DAWN",
            number,
            halves(1, 3),
            grey=20 * number,
        )
        write_frame(
            tmp_path / "driving/synthia/SYNTHIA-SEQS-01-DAWN",
            number,
            halves(0, 0),
            255,
            "Stereo_Right/Omni_F",
        )
    for number in range(2):
        write_frame(
            tmp_path / "driving/synthia/SYNTHIA-SEQS-02-NIGHT", number, halves(15, 12), grey=7
        )
    return tmp_path


def frames_in(x: torch.Tensor) -> list[int]:
    return [round(float(image.float().mean()) / 20) for image in x]


# ---- frames and classes


def test_images_and_classes_of_the_left_front_camera(root):
    x, y = synthia.load_scenes("highway", "dawn")
    assert (
        x.shape == (10, 3, 190, 320)
        and y.shape == (10, 190, 320)
        and x.dtype == y.dtype == torch.uint8
    )
    assert frames_in(x) == list(range(10)), "in order of time"
    assert (y[:, :95] == 1).all() and (y[:, 95:] == 3).all()


def test_the_class_is_read_from_16_bits_whatever_the_filter_and_the_instances(tmp_path):
    classes = np.random.default_rng(1).choice([*range(13), 15], (HIGH, WIDE))
    path = tmp_path / "000000.png"
    path.write_bytes(label_map(classes))
    assert np.array_equal(
        synthia.read_label(path, (WIDE, HIGH)), np.where(classes == 15, 13, classes)
    )


def test_reserved_numbers_are_ignored_and_traffic_lights_follow_lane_markings(root):
    path = root / "000000.png"
    path.write_bytes(label_map(np.array([[13, 14, 15, 12, 0]])))
    assert synthia.read_label(path, (5, 1)).tolist() == [[IGNORE, IGNORE, 13, 12, 0]]
    assert (
        synthia.CLASSES[13] == "traffic_light"
        and synthia.CLASSES[12] == "lane_marking"
        and synthia.CLASSES[0] == "void"
    )


def test_smaller_label_maps_mix_no_classes(tmp_path):
    path = tmp_path / "000000.png"
    path.write_bytes(
        label_map(np.indices((HIGH, WIDE)).sum(0) % 2 * 12)
    )  # a chess board of void and lane markings
    assert set(np.unique(synthia.read_label(path, (WIDE // 4, HIGH // 4)))) <= {0, 12}


def test_a_source_is_cut_into_stretches_of_the_drive(root):
    parts = {
        split: frames_in(synthia.load_scenes("highway", "dawn", split)[0])
        for split in ("train", "val", "test")
    }
    assert parts == {"train": [0, 1, 2, 3, 4, 5, 6, 7], "val": [8], "test": [9]}


def test_subsample_of_900_frames_is_fixed(root, monkeypatch):
    assert synthia.MAX_FRAMES == 900
    many = [synthia.Frame(Path(str(i)), Path(str(i))) for i in range(1200)]
    chosen = synthia.subsample(many, synthia.MAX_FRAMES)
    assert chosen == synthia.subsample(many, synthia.MAX_FRAMES) and len(set(chosen)) == 900
    assert chosen == sorted(chosen, key=lambda f: int(f.image.name)) and chosen != many[:900]
    assert synthia.subsample(many[:900], 900) == many[:900]
    monkeypatch.setattr(synthia, "MAX_FRAMES", 3)
    assert len(synthia.load_scenes("highway", "dawn")[0]) == 3


# ---- the task


@pytest.mark.parametrize("weather", ["dawn", "fog"])
def test_the_task_is_the_papers(root, weather):
    task = driving.task(f"synthia_{weather}")
    assert (
        task.source.name == f"highway_{weather}"
        and task.classes == 14
        and task.metric == "miou"
        and task.ignore_label == 255
    )
    places = [
        f"{place}_{w}"
        for place in ("ny", "euro")
        for w in ("dawn", "fog", "night", "spring", "winter")
    ]
    assert [d.name for d in task.targets] == places
    assert task.class_names == synthia.CLASSES and WEATHERS == synthia.WEATHERS
    assert task.presets["paper"] == {
        "skips": False,
        "depth": 50,
        "width": 1.0,
        "steps": 50 * 112,
        "batch_size": 8,
        "lr": 1e-4,
    }


def test_an_unseen_domain_of_the_task_is_the_whole_sequence(root):
    x, y = driving.task("synthia_dawn").domain("ny_night").load("test")[:]
    assert (
        x.shape == (2, 3, 190, 320)
        and float(x.max()) == pytest.approx(7 / 255)
        and y.dtype == torch.int64
    )
    assert (y[:, :95] == 13).all() and (y[:, 95:] == 12).all()


# ---- the cache


def test_frames_are_cached_until_a_file_changes(root, monkeypatch):
    first = synthia.load_scenes("ny", "night")
    monkeypatch.setattr(synthia, "_read_frames", lambda frames: pytest.fail("decoded again"))
    assert all(
        torch.equal(a, b) for a, b in zip(first, synthia.load_scenes("ny", "night"), strict=True)
    )
    monkeypatch.undo()
    monkeypatch.setenv(VARIABLE, str(root))
    monkeypatch.setenv(CACHE_VARIABLE, str(root / "cache"))
    label = root / "driving/synthia/SYNTHIA-SEQS-02-NIGHT/GT/LABELS/Stereo_Left/Omni_F/000001.png"
    before = label.stat()
    label.write_bytes(label_map(halves(12, 15)))
    os.utime(label, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert (synthia.load_scenes("ny", "night")[1][1, 0] == 12).all()


def test_truncated_cache_file_is_computed_again(root):
    first = synthia.load_scenes("ny", "night")
    (kept,) = (root / "cache/driving").iterdir()
    kept.write_bytes(kept.read_bytes()[:-1000])
    assert all(
        torch.equal(a, b) for a, b in zip(first, synthia.load_scenes("ny", "night"), strict=True)
    )
    assert [p.name for p in (root / "cache/driving").iterdir()] == [kept.name], (
        "no temporary file is left"
    )


def test_unwritable_cache_still_reads(root, monkeypatch, caplog):
    (root / "a file").write_text("")
    monkeypatch.setenv(CACHE_VARIABLE, str(root / "a file"))
    assert len(synthia.load_scenes("ny", "night")[0]) == 2
    assert "cannot write" in caplog.text


# ---- what is off is named


def test_an_unknown_domain_is_named():
    with pytest.raises(
        UnseenError,
        match="no SYNTHIA domain ny rain; there are highway, ny, euro in dawn, fog, night",
    ):
        synthia.sequence_name("ny", "rain")


def test_a_missing_sequence_says_where_it_belongs(root):
    with pytest.raises(
        UnseenError,
        match="FOG/RGB/Stereo_Left/Omni_F is missing: expected SYNTHIA-SEQS-04-FOG/ with",
    ):
        driving.task("synthia_dawn").domain("euro_fog").load("test")


def spoilt(change):
    def made(folder: Path) -> None:
        change(folder / "GT/LABELS/Stereo_Left/Omni_F/000001.png")

    return made


BROKEN = {
    "a map in colour": (
        spoilt(lambda p: p.write_bytes(png(np.zeros((HIGH, WIDE, 3)), bits=8))),
        "is PNG RGB; expected",
    ),
    "a grey map": (
        spoilt(lambda p: Image.fromarray(np.zeros((HIGH, WIDE), np.uint8)).save(p)),
        "is PNG L; expected",
    ),
    "another class": (
        spoilt(lambda p: p.write_bytes(label_map(halves(3, 22)))),
        "has the class 22; expected classes among 0,",
    ),
    "a cut file": (spoilt(lambda p: p.write_bytes(p.read_bytes()[:-200])), "cannot be read"),
    "no map": (spoilt(lambda p: p.unlink()), "1 frames lack an image or a label map, e.g. 000001"),
}


@pytest.mark.parametrize("spoil, said", BROKEN.values(), ids=BROKEN)
def test_a_broken_sequence_is_named(root, spoil, said):
    spoil(root / "driving/synthia/SYNTHIA-SEQS-02-NIGHT")
    with pytest.raises(UnseenError, match=said) as caught:
        synthia.load_scenes("ny", "night")
    assert "SYNTHIA-SEQS-02-NIGHT" in str(caught.value) and VARIABLE in str(caught.value)
