"""Speech Commands: clips, lists, cached spectrograms, the task."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import unseen

soundfile = pytest.importorskip("soundfile")

from spoken_words import PITCH, tone, write, write_words  # noqa: E402

from unseen.data import spectrograms, speech  # noqa: E402
from unseen.data.location import CACHE_VARIABLE, VARIABLE  # noqa: E402
from unseen.data.mel import stft, to_pixels  # noqa: E402
from unseen.errors import UnseenError  # noqa: E402
from unseen.methods import METHODS  # noqa: E402
from unseen.models import LeNet  # noqa: E402
from unseen.tasks import google_commands  # noqa: E402
from unseen.tasks.google_commands import UNSEEN  # noqa: E402

T = np.arange(16_000) / 16_000


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def folder(root) -> Path:
    return write_words(root)


def names(split: str) -> list[str]:
    return [clip.name for clip in speech.list_clips(split)]


# ---- one clip


def test_a_clip_is_read_as_it_is(root):
    samples = np.round(tone(440) * 32767) / 32768
    read = speech.read_clip(write(root / "a.wav", samples))
    assert read.dtype == np.float32 and len(read) == 16_000
    np.testing.assert_allclose(read, samples, atol=2e-5)


def test_stereo_is_mixed(root):
    left, right = tone(440), tone(1000)
    read = speech.read_clip(write(root / "a.wav", np.stack([left, right], axis=1), subtype="FLOAT"))
    np.testing.assert_allclose(read, (left + right) / 2, atol=1e-6)


@pytest.mark.parametrize("rate", [8_000, 44_100, 48_000])
def test_other_rates_become_16_khz(root, rate):
    read = speech.read_clip(write(root / "a.wav", tone(1000, rate=rate), rate, subtype="FLOAT"))
    assert len(read) == 16_000 and read.dtype == np.float32
    np.testing.assert_allclose(read[2000:-2000], tone(1000)[2000:-2000], atol=5e-3)


def test_resampling_removes_aliases(root):
    read = speech.read_clip(
        write(root / "a.wav", tone(15_000, rate=44_100), 44_100, subtype="FLOAT")
    )
    assert np.abs(read[2000:-2000]).max() < 0.01


def test_short_clips_are_followed_by_silence_and_long_ones_cut(root):
    short = speech.one_second(speech.read_clip(write(root / "a.wav", tone(440, 0.3))))
    assert len(short) == 16_000 and short[:4800].any() and not short[4800:].any()
    long = np.arange(20_000)
    assert speech.one_second(long).tolist() == list(range(16_000))
    assert len(speech.one_second(np.ones(1))) == 16_000


def cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:-1001])
    return path


def holding(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


BROKEN = {
    "cut short": (
        lambda p: cut(write(p, tone(440))),
        "is truncated: its header states 32044 bytes, it has 31043",
    ),
    "cut within its header": (
        lambda p: holding(p, write(p, tone(440)).read_bytes()[:20]),
        "is truncated: .* it has 20",
    ),
    "a web page": (lambda p: holding(p, b"<html>404</html>"), "cannot be read as sound"),
    "an empty file": (lambda p: holding(p, b""), "cannot be read as sound"),
    "no samples": (lambda p: write(p, np.zeros(0)), "is empty: its length is 0"),
    "not finite": (
        lambda p: write(p, np.array([0, np.nan, 1]), subtype="FLOAT"),
        "has samples that are not finite",
    ),
    "a rate that no recorder has": (
        lambda p: holding(
            p, (b := write(p, tone(440)).read_bytes())[:24] + b"\xff\xff\xff\x7f" + b[28:]
        ),
        "has a sampling rate of 2147483647 Hz: expected 1000 to 400000",
    ),
    "missing": (lambda p: p, "is missing"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_clip_is_named(root, case):
    make, told = BROKEN[case]
    path = make(root / "a.wav")
    with pytest.raises(UnseenError, match=rf"a\.wav {told}") as caught:
        speech.read_clip(path)
    assert VARIABLE in str(caught.value)


def test_a_header_written_while_streaming_is_no_cut(root):
    path = write(root / "a.wav", tone(440))
    content = bytearray(path.read_bytes())
    content[4:8] = struct.pack("<I", 2**32 - 1)
    assert len(speech.read_clip(holding(path, bytes(content)))) == 16_000


# ---- the folder and its lists


def test_the_lists_hold_out_and_the_rest_is_for_training(folder):
    assert names("val") == [f"{w}/{i:08x}_nohash_0.wav" for w in PITCH for i in (6, 7)]
    assert names("test") == [f"{w}/{i:08x}_nohash_0.wav" for w in PITCH for i in (8, 9)]
    assert len(names("train")) == 18 and not set(names("train")) & (
        set(names("val")) | set(names("test"))
    )
    assert [clip.label for clip in speech.list_clips("test")] == [0, 0, 1, 1, 2, 2]
    assert speech.available_words() == ("go", "no", "yes"), "noises are no word"
    assert speech.list_clips("test")[0].speaker == "00000008"


def test_the_archive_may_be_unpacked_without_a_folder_of_its_own(folder, root):
    before = names("train")
    for path in list(folder.iterdir()):
        path.rename(root / "google_commands" / path.name)
    folder.rmdir()
    assert names("train") == before and speech.available_words() == ("go", "no", "yes")


def test_words_that_were_not_unpacked_may_stay_in_the_lists(folder):
    with (folder / "testing_list.txt").open("a") as file:
        file.write("zero/00000001_nohash_0.wav\n")
    assert len(names("test")) == 6


def swapped(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


ODD_FOLDERS = {
    "no list": (
        lambda f: (f / "testing_list.txt").unlink(),
        "testing_list.txt is missing, which lists",
    ),
    "a clip less": (
        lambda f: (f / "no/00000008_nohash_0.wav").unlink(),
        "1 missing clips, e.g. no/00000008",
    ),
    "a word without clips": (lambda f: (f / "abc").mkdir(), r"abc contains no \.wav"),
    "held out twice": (
        lambda f: swapped(f / "validation_list.txt", "go/00000006", "go/00000008"),
        "go/00000008_nohash_0.wav is in both validation_list.txt and testing_list.txt",
    ),
    "a list of another kind": (
        lambda f: swapped(f / "testing_list.txt", "no/", ""),
        'has the line "00000008_nohash_0.wav"',
    ),
    "no words": (
        lambda f: [p.rename(f / f"_{p.name}") for p in list(f.iterdir()) if p.name in PITCH],
        "folders of 0 words",
    ),
    "nothing held out": (lambda f: (f / "testing_list.txt").write_text(""), "no clip for test"),
}


@pytest.mark.parametrize("case", ODD_FOLDERS)
def test_broken_folder_is_named(folder, case):
    spoil, told = ODD_FOLDERS[case]
    spoil(folder)
    with pytest.raises(UnseenError, match=told):
        speech.list_clips("test")


def test_no_such_split_and_no_data(folder, root, monkeypatch):
    with pytest.raises(UnseenError, match='no split "dev"; it has: train, val, test'):
        speech.list_clips("dev")
    monkeypatch.setenv(VARIABLE, str(root / "elsewhere"))
    with pytest.raises(UnseenError, match=f"no google_commands data: .*{VARIABLE}"):
        speech.list_clips("train")


# ---- pictures, made once


def test_pictures_are_of_the_right_clips(folder):
    x, y = spectrograms.load_spectrograms("test")
    assert x.shape == (6, 1, 32, 32) and x.dtype == torch.uint8 and y.tolist() == [0, 0, 1, 1, 2, 2]
    read = speech.read_clip(folder / "no/00000009_nohash_0.wav")
    assert torch.equal(x[3, 0], torch.from_numpy(to_pixels(stft(speech.one_second(read)))))
    assert not x[0, 0, :, -4:].any(), "0.7 seconds, and then silence"
    brightest = x.float().mean(3).argmax(2).flatten().tolist()
    assert (
        brightest[0] == brightest[1] < brightest[2] == brightest[3] < brightest[4] == brightest[5]
    )


def test_spectrograms_are_cached(folder, root, monkeypatch):
    first = spectrograms.load_spectrograms("test", "noise")
    monkeypatch.setattr(spectrograms, "read_clip", None)  # whoever decodes again fails
    again = spectrograms.load_spectrograms("test", "noise")
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert [p.suffix for p in (root / "cache/google_commands").iterdir()] == [".npz"], (
        "nothing half-written stays"
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b[: len(b) // 2],
        lambda b: b[:3000] + bytes([b[3000] ^ 1]) + b[3001:],
        lambda b: b"",
        lambda b: b.replace(
            b"'shape': (", b"'shape': [", 1
        ),  # numpy's own header: reading it fails in many ways
        lambda b: b.replace(b"32, 32), }", b"16, 32), }", 1),  # or not at all
    ],
)
def test_a_damaged_file_is_made_again(folder, root, damage):
    first = spectrograms.load_spectrograms("test")[0]
    (path,) = (root / "cache/google_commands").iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert torch.equal(spectrograms.load_spectrograms("test")[0], first)
    assert torch.equal(torch.from_numpy(np.load(path)["pixels"])[:, None], first), (
        "and it is whole again"
    )


def test_cache_key_covers_clips_noises_and_version(folder, root, monkeypatch):
    changed = folder / "go/00000008_nohash_0.wav"
    before = spectrograms.load_spectrograms("test")[0]
    write(changed, tone(5000, 0.7))  # as many bytes as before
    os.utime(changed, ns=(time.time_ns(), time.time_ns() + 10**9))
    after = spectrograms.load_spectrograms("test")[0]
    assert not torch.equal(before[0], after[0]) and torch.equal(before[1:], after[1:])
    noisy = spectrograms.load_spectrograms("test", "noise")[0]
    write(folder / "_background_noise_/hum.wav", tone(50, 2.0))
    assert not torch.equal(spectrograms.load_spectrograms("test", "noise")[0], noisy)
    files = len(list((root / "cache/google_commands").iterdir()))
    monkeypatch.setattr(spectrograms, "VERSION", spectrograms.VERSION + 1)
    spectrograms.load_spectrograms("test")
    assert len(list((root / "cache/google_commands").iterdir())) == files + 1


def test_unwritable_cache_still_computes_spectrograms(folder, root, monkeypatch):
    expected = spectrograms.load_spectrograms("test")[0]
    monkeypatch.setenv(CACHE_VARIABLE, str(holding(root / "a file", b"")))
    assert torch.equal(spectrograms.load_spectrograms("test")[0], expected)


def test_all_broken_clips_are_reported_and_not_cached(folder, root):
    cut(folder / "go/00000008_nohash_0.wav")
    holding(folder / "yes/00000009_nohash_0.wav", b"")
    with pytest.raises(
        UnseenError,
        match=r"2 of 6 clips cannot be used: .*go/00000008.*truncated.*yes/00000009.*as sound",
    ):
        spectrograms.load_spectrograms("test")
    assert not (root / "cache").exists()


def test_noise_needs_noises_and_the_others_do_not(folder):
    for path in (folder / "_background_noise_").iterdir():
        path.unlink()
    with pytest.raises(UnseenError, match=r"_background_noise_ contains no \.wav"):
        spectrograms.load_spectrograms("test", "noise")
    assert len(spectrograms.load_spectrograms("test", "shift")[0]) == 6


# ---- the task


def test_the_task_is_made_from_folder_names_alone(folder, root, monkeypatch):
    task = google_commands.task()
    assert (
        task.classes == 3
        and task.class_names == ("go", "no", "yes")
        and task.model().fc3.out_features == 3
    )
    assert (
        tuple(d.name for d in task.targets)
        == UNSEEN
        == ("amplitude", "pitch", "noise", "stretch", "shift")
    )
    assert not (root / "cache").exists()
    monkeypatch.setenv(VARIABLE, str(root / "elsewhere"))
    task = google_commands.task()
    assert task.classes == 30 and task.class_names == () and task.model().fc3.out_features == 30
    with pytest.raises(UnseenError, match="no google_commands data"):
        task.source.load("train")


def test_the_task_loads_floats_from_0_to_1(folder):
    task = google_commands.task()
    assert {s: len(task.source.load(s)) for s in ("train", "val", "test")} == {
        "train": 18,
        "val": 6,
        "test": 6,
    }
    clean = task.source.load("test")
    for domain in task.targets:
        test, pool = domain.load("test"), domain.load("train")
        assert len(test) == 6 and len(pool) == 18
        x, y = test[torch.arange(6)]
        assert (
            x.shape == (6, 1, 32, 32) and x.dtype == torch.float32 and x.min() >= 0 and x.max() <= 1
        )
        assert torch.equal(y, clean.tensors[1]) and not torch.equal(
            test.tensors[0], clean.tensors[0]
        )
        with pytest.raises(UnseenError, match='has no split "val"; it has: train, test'):
            domain.load("val")


def test_corruptions_of_a_clip_do_not_depend_on_the_other_clips(folder):
    before = spectrograms.load_spectrograms("test", "pitch")[0]
    (folder / "go/00000008_nohash_0.wav").unlink()
    swapped(folder / "testing_list.txt", "go/00000008_nohash_0.wav\n", "")
    assert torch.equal(spectrograms.load_spectrograms("test", "pitch")[0], before[1:])


@pytest.mark.parametrize("method", ["erm", "gud", "m_ada", "uncertainty_guided"])
def test_methods_learn_words_and_score_them(folder, method):
    data = google_commands.task().source.load("train")
    torch.manual_seed(0)
    settings = {
        "uncertainty_guided": {"warmup": 5, "adversary": {"rounds": 1, "steps": 2}, "draws": 2}
    }.get(method, {})
    net = METHODS[method](LeNet(3), sites=("conv1",), embedding="fc2", lr=3e-3, **settings)
    unseen.fit(net, DataLoader(data, 18), steps=30, progress=False)
    x, y = data[torch.arange(18)]
    assert (net.predict(x).argmax(1) == y).float().mean() > 0.6 and net.uncertainty(
        x
    ).isfinite().all()


def test_lenet_is_the_papers():
    model = LeNet()
    assert sum(p.numel() for p in model.parameters()) == 156 + 2_416 + 48_120 + 10_164 + 85 * 30
    assert model(torch.rand(2, 1, 32, 32)).shape == (2, 30)
    seen = {}
    for name in ("conv1", "conv2", "fc1", "fc2"):
        model.get_submodule(name).register_forward_hook(
            lambda _, __, out, name=name: seen.update({name: tuple(out.shape[1:])})
        )
    model(torch.rand(1, 1, 32, 32))
    assert seen == {"conv1": (6, 28, 28), "conv2": (16, 10, 10), "fc1": (120,), "fc2": (84,)}


# ---- the real clips

REAL = Path(os.environ.get(VARIABLE, "")) / "google_commands"
needs_real_data = pytest.mark.skipif(
    not os.environ.get(VARIABLE) or not REAL.is_dir(),
    reason=f"{VARIABLE} names no folder with the real speech commands in it",
)


@needs_real_data
def test_nobody_speaks_in_two_published_splits():
    speakers = {
        split: {clip.speaker for clip in speech.list_clips(split)} for split in speech.SPLITS
    }
    assert all(len(s) > 20 for s in speakers.values())
    assert not speakers["train"] & speakers["test"] and not speakers["train"] & speakers["val"]
    assert not speakers["val"] & speakers["test"]


@needs_real_data
def test_real_words_match_their_labels(tmp_path, monkeypatch):
    from sklearn.linear_model import RidgeClassifier

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    # A third of the clips shows the same: reading and corrupting all takes half a minute.
    list_clips = spectrograms.list_clips
    monkeypatch.setattr(spectrograms, "list_clips", lambda split: list_clips(split)[::3])
    task = google_commands.task()
    x, y = (t.numpy() for t in task.source.load("train").tensors)
    reader = RidgeClassifier(alpha=1e4).fit(x.reshape(len(x), -1), y)
    reached = {}
    for name in ("source", "amplitude", "noise"):
        x, y = (t.numpy() for t in task.domain(name).load("test").tensors)
        reached[name] = reader.score(x.reshape(len(x), -1), y)
    chance = 1 / task.classes
    assert (
        reached["source"] > 2.5 * chance and reached["amplitude"] > 2.5 * chance > reached["noise"]
    ), reached
