"""Readers of the published digit formats: pixels, labels, errors."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from digit_files import idx, write_mat, write_mnist, write_mnist_m, write_usps

from unseen.cli import data as cli_data
from unseen.data import catalog, digits, digits_shifts
from unseen.data.images import ByteImages
from unseen.data.location import VARIABLE, data_root
from unseen.errors import UnseenError
from unseen.tasks import digits as digits_benchmark
from unseen.tasks.tuning import digits_shifts as tuning


def corner(side: int) -> np.ndarray:
    """An image whose only bright part is the top right: any flip or turn shows."""
    image = np.zeros((side, side), np.uint8)
    image[: side // 2, side // 2 :] = 255
    return image


def assert_is_corner(image: torch.Tensor) -> None:
    inner = image[..., 3:-3, 3:-3].float()
    top, bottom = inner[..., :12, :], inner[..., 14:, :]
    assert top[..., 14:].min() > 200 and top[..., :12].max() < 55 and bottom.max() < 55


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


# ---- pixels and labels


@pytest.mark.parametrize("pack", [gzip.compress, bytes], ids=["gz", "unzipped by the browser"])
def test_mnist(root, pack):
    write_mnist(root, np.stack([corner(28), np.full((28, 28), 77)]), np.array([7, 0]), "test", pack)
    x, y = digits.load_images("mnist", "test")
    assert (
        x.shape == (2, 3, 32, 32)
        and x.dtype == torch.uint8
        and y.dtype == torch.int64
        and y.tolist() == [7, 0]
    )
    assert_is_corner(x[0])
    assert (x[1] == 77).all(), "resizing keeps a constant image as it is"
    assert torch.equal(x[:, 0], x[:, 1]) and torch.equal(x[:, 0], x[:, 2])


def test_mnist_unzipped_under_its_plain_name(root):
    write_mnist(root, np.full((1, 28, 28), 5), np.array([3]), "test", bytes)
    for path in (root / "digits/mnist").iterdir():
        path.rename(path.with_suffix(""))
    assert digits.load_images("mnist", "test")[1].tolist() == [3]


def test_usps(root):
    write_usps(root, np.stack([np.append(6, corner(16) / 127.5 - 1), np.append(0, np.zeros(256))]))
    x, y = digits.load_images("usps", "test")
    assert (
        x.shape == (2, 3, 32, 32)
        and x.dtype == torch.uint8
        and y.tolist() == [6, 0]
        and y.dtype == torch.int64
    )
    assert_is_corner(x[0])
    assert (x[1] == 128).all(), "-1 is 0, 1 is 255, so 0 lies in the middle"


@pytest.mark.parametrize("domain", ["svhn", "syn"])
def test_mat(root, domain):
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 4)).astype(np.uint8)
    write_mat(root, domain, X=pixels, y=np.array([[10], [1], [9], [10]], np.uint8))
    x, y = digits.load_images(domain, "test")
    assert (
        x.shape == (4, 3, 32, 32)
        and x.dtype == torch.uint8
        and y.tolist() == [0, 1, 9, 0]
        and y.dtype == torch.int64
    )
    assert x[2, 1, 5, 30] == pixels[5, 30, 1, 2]
    assert torch.equal(x, torch.from_numpy(pixels).permute(3, 2, 0, 1))


def test_syn_may_write_zero_as_zero(root):
    write_mat(root, "syn", X=np.zeros((32, 32, 3, 2), np.uint8), y=np.array([0, 4], np.uint8))
    assert digits.load_images("syn", "test")[1].tolist() == [0, 4]


def test_mnist_m_takes_the_order_of_the_list(root):
    pixels = list(np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3)).astype(np.uint8))
    write_mnist_m(root, pixels, "00000002.png 8\n00000000.png 1\n00000001.png 0\n")
    x, y = digits.load_images("mnist_m", "test")
    assert y.tolist() == [8, 1, 0] and x.dtype == torch.uint8
    assert torch.equal(
        x, torch.from_numpy(np.stack([pixels[2], pixels[0], pixels[1]])).permute(0, 3, 1, 2)
    )


def test_pictures_are_floats_from_0_to_1_by_one_index_or_many():
    data = ByteImages(
        torch.tensor([0, 51, 255], dtype=torch.uint8).view(3, 1, 1, 1), torch.tensor([4, 5, 6])
    )
    x, y = data[torch.tensor([2, 1])]
    assert (
        x.flatten().tolist() == [1.0, pytest.approx(0.2)]
        and y.tolist() == [6, 5]
        and data[0][0].item() == 0.0
    )


# ---- what is off is named


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def good_mnist(root: Path) -> Path:
    write_mnist(root, np.random.default_rng(0).integers(0, 256, (4, 28, 28)), np.arange(4))
    return root / "digits/mnist/train-images-idx3-ubyte.gz"


def rewritten(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def labels_of(path: Path) -> Path:
    return path.with_name("train-labels-idx1-ubyte.gz")


def packed(array: np.ndarray) -> bytes:
    return gzip.compress(idx(array))


X2, Y2 = np.zeros((32, 32, 3, 2), np.uint8), np.array([1, 2], np.uint8)
IMAGE = np.zeros((32, 32, 3), np.uint8)
ROW = np.append(6, np.zeros(256))


def mnist_with(make):
    return lambda root: (make(good_mnist(root)), "mnist", "train")


def mat_with(**arrays):
    return lambda root: (write_mat(root, **arrays), "svhn", "test")


def usps_with(*rows):
    return lambda root: (write_usps(root, np.stack(rows)), "usps", "test")


def usps_of(content: bytes):
    return lambda root: (rewritten(write_usps(root, ROW[None]), content), "usps", "test")


def png_with(pixels, listed):
    return lambda root: (write_mnist_m(root, pixels, listed), "mnist_m", "test")


def with_cut_tail(make):
    def made(root):
        path, *where = make(root)
        cut(path)
        return path, *where

    return made


BROKEN = {
    "gz cut short": (with_cut_tail(mnist_with(lambda path: path)), "truncated"),
    "gz with a wrong byte": (
        mnist_with(lambda p: rewritten(p, p.read_bytes()[:-8] + bytes(8))),
        "cannot be decompressed",
    ),
    "labels for images": (
        mnist_with(lambda p: rewritten(p, packed(np.arange(4)))),
        "starts with 0x00000801, not 0x00000803",
    ),
    "a web page": (
        mnist_with(lambda p: rewritten(p, b"<html>404</html>")),
        "starts with 0x3c68746d",
    ),
    "an empty file": (mnist_with(lambda p: rewritten(p, b"")), "starts with 0x,"),
    "fewer bytes than announced": (
        mnist_with(lambda p: rewritten(p, gzip.compress(idx(np.zeros((4, 28, 28)))[:-5]))),
        "states 4 x 28 x 28 bytes, 3131 follow",
    ),
    "more announced than a number can hold": (
        mnist_with(
            lambda p: rewritten(p, gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 2**31, 2**31, 4)))
        ),
        "states 2147483648 x 2147483648 x 4 bytes, 0 follow",
    ),
    "another size": (
        mnist_with(lambda p: rewritten(p, packed(np.zeros((4, 32, 32))))),
        "images are 32x32",
    ),
    "fewer labels": (
        mnist_with(lambda p: rewritten(labels_of(p), packed(np.arange(3))) and p),
        "4 images and 3 labels",
    ),
    "label 11": (
        mnist_with(lambda p: rewritten(labels_of(p), packed(np.array([0, 1, 2, 11]))) and p),
        "labels range from 0 to 11",
    ),
    "mat of other names": (
        mat_with(images=X2, labels=Y2),
        "contains images (32, 32, 3, 2), labels (1, 2)",
    ),
    "mat of other axes": (
        mat_with(X=X2.transpose(3, 0, 1, 2), y=Y2),
        "its X is (2, 32, 32, 3) of uint8",
    ),
    "mat of floats": (mat_with(X=X2 / 255, y=Y2), "its X is (32, 32, 3, 2) of float64"),
    "mat with fewer labels": (mat_with(X=X2, y=Y2[:1]), "2 images and 1 labels"),
    "mat with label 12": (mat_with(X=X2, y=np.array([1, 12])), "labels range from 1 to 12"),
    "mat with two zeros": (mat_with(X=X2, y=np.array([0, 10])), "both 0 and 10"),
    "mat with half labels": (mat_with(X=X2, y=np.array([0.5, 1])), "does not contain integers"),
    "mat with complex labels": (
        mat_with(X=X2, y=np.array([1 + 1j, 2])),
        "does not contain integers",
    ),
    "mat cut short": (with_cut_tail(mat_with(X=X2, y=Y2)), "cannot be read"),
    "usps with a short line": (usps_of(b"6 0 0\n6 0 0\n"), "3 numbers, not 257"),
    "usps with a word": (usps_of(b"six 0 0\n"), "six"),
    "usps out of range": (usps_with(ROW, ROW + np.eye(257)[4] * 255), "values range from 0 to 255"),
    "usps with label 10": (usps_with(np.append(10, np.zeros(256))), "labels range from 10 to 10"),
    "usps with NaN": (
        usps_with(ROW * np.where(np.arange(257) == 9, np.nan, 1)),
        "values range from nan to nan",
    ),
    "usps empty": (usps_of(b""), "no image"),
    "png not listed": (png_with([IMAGE, IMAGE], "00000000.png 1\n"), "lists 1 images"),
    "png not there": (png_with([IMAGE], "00000009.png 1\n"), "00000009.png is not among them"),
    "png of another size": (png_with([IMAGE[:28, :28]], "00000000.png 1\n"), "is 28x28 RGB"),
    "png in grey": (png_with([IMAGE[..., 0]], "00000000.png 1\n"), "is 32x32 L"),
    "list of other columns": (png_with([IMAGE], "1 00000000.png\n"), 'the line "1 00000000.png"'),
    "list with a label of thirty digits": (
        png_with([IMAGE], f"00000000.png {'1' * 30}\n"),
        'the line "00000000.png 111',
    ),
    "list with a picture twice": (
        png_with([IMAGE, IMAGE], "00000000.png 1\n00000000.png 1\n"),
        "some more than once",
    ),
    "list that leaves its folder": (
        png_with([IMAGE], "../../secret.png 1\n"),
        'the line "../../secret.png 1"',
    ),
}


@pytest.mark.filterwarnings("ignore:.*input contained no data")
@pytest.mark.parametrize("case", BROKEN)
def test_error_names_file_and_expected_layout(root, case):
    make, told = BROKEN[case]
    path, domain, split = make(root)
    with pytest.raises(UnseenError) as caught:
        digits.load_images(domain, split)
    message = str(caught.value)
    assert told in message and "is not as published" in message and "expected " in message
    assert (
        str(path.parent) in message
        and VARIABLE in message
        and "unseen data fetch digits" in message
    )
    row = next(
        r for r in catalog.check("digits", root) if (r["domain"], r["split"]) == (domain, split)
    )
    assert row["state"] == "broken" and told in row["problem"]


def test_a_broken_png_is_named(root):
    path = write_mnist_m(root, [IMAGE, IMAGE], "00000000.png 1\n00000001.png 2\n")
    cut(path.parent / "mnist_m_test/00000001.png")
    (path.parent / "mnist_m_test/00000001.png").write_bytes(b"\x89PNG")
    with pytest.raises(UnseenError, match=r"00000001\.png is not as published: cannot be read"):
        digits.load_images("mnist_m", "test")


def test_missing_files_name_variable_and_command(root, monkeypatch):
    for domain, split in digits.MAIN_FILE:
        with pytest.raises(
            UnseenError, match=rf"no digits data: .*fetch digits.*{VARIABLE}.*now {root}"
        ):
            digits.load_images(domain, split)
    write_mnist(root, np.zeros((1, 28, 28)), np.zeros(1))
    for domain, split in digits.MAIN_FILE:
        if (domain, split) != ("mnist", "train"):
            with pytest.raises(
                UnseenError,
                match=rf"{digits.MAIN_FILE[domain, split]} is missing.*fetch digits.*{VARIABLE}",
            ):
                digits.load_images(domain, split)
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))
    assert data_root().name == "unseen" and data_root().is_absolute()
    with pytest.raises(UnseenError, match=rf"{VARIABLE} .*not set, so .*unseen was searched"):
        digits.load_images("usps", "test")


def test_no_such_domain_or_split(root):
    with pytest.raises(
        UnseenError, match="no svhn/extra; it has: mnist/train, mnist/test, svhn/train"
    ):
        digits.load_images("svhn", "extra")


# ---- the tasks


@pytest.fixture
def numbered(root) -> Path:
    """12,000 training images, the value of each its number modulo 251."""
    number = np.arange(12_000)
    write_mnist(root, np.broadcast_to((number % 251)[:, None, None], (12_000, 28, 28)), number % 10)
    return root


def numbers(task, split: str) -> list[int]:
    return task.source.load(split).tensors[0][:, 0, 0, 0].tolist()


def test_the_source_is_the_first_10000_and_what_is_held_out_is_not_among_them(numbered):
    assert numbers(digits_benchmark.task(), "train") == [n % 251 for n in range(10_000)]
    assert numbers(digits_benchmark.task(), "val") == [n % 251 for n in range(10_000, 12_000)]
    assert numbers(tuning.task(), "val") == [n % 251 for n in range(10_000, 11_000)]
    made_of, labels = digits_shifts._held_out.__wrapped__(numbered)
    assert made_of[:, 0, 0].tolist() == [n % 251 for n in range(11_000, 12_000)]
    assert labels.tolist() == [n % 10 for n in range(11_000, 12_000)]


def test_too_small_training_file_is_named(root):
    write_mnist(root, np.zeros((100, 28, 28)), np.arange(100) % 10)
    for split in ("train", "val"):
        with pytest.raises(UnseenError, match="has 100 images; the first 1"):
            digits_benchmark.task().source.load(split)
    with pytest.raises(UnseenError, match="has 100 MNIST training images"):
        digits_shifts._held_out.__wrapped__(root)


def test_task_reads_nothing_and_includes_syn_if_present(root):
    task = digits_benchmark.task()
    assert [d.name for d in task.targets] == ["svhn", "mnist_m", "usps"]
    for domain in (task.source, *task.targets, *tuning.task().targets):
        with pytest.raises(UnseenError, match=f"unseen data fetch digits.*{VARIABLE}"):
            domain.load("test")
    path = root / "digits/syn/synth_test_32x32.mat"
    path.parent.mkdir(parents=True)
    path.write_text("not read")
    assert [d.name for d in digits_benchmark.task().targets] == ["svhn", "mnist_m", "syn", "usps"]


def test_training_pool_exists_if_its_file_does(root):
    write_mat(root, split="train", X=X2, y=Y2)
    svhn, _, usps = digits_benchmark.task().targets
    assert len(svhn.load("train")) == 2
    with pytest.raises(UnseenError, match=r"usps/zip\.train\.gz is missing"):
        usps.load("train")
    with pytest.raises(UnseenError, match="photo has no split"):
        tuning.task().targets[0].load("train")
    with pytest.raises(UnseenError, match='mnist has no split "dev"; it has: train, val, test'):
        digits_benchmark.task().source.load("dev")


# ---- the command line


def test_check_as_json_and_its_exit_code(root, capsys):
    write_usps(root, np.stack([ROW] * 3))
    with pytest.raises(SystemExit) as ended:
        cli_data.check("digits", json_=True)
    told = json.loads(capsys.readouterr().out)
    states = {(r["domain"], r["split"]): (r["state"], r["n"]) for r in told["files"]}
    assert ended.value.code == 1 and told["ok"] is False and told["root"] == str(root)
    assert states["usps", "test"] == ("ok", 3) and states["mnist", "train"] == ("missing", 0)
    drive = next(r["problem"] for r in told["files"] if r["domain"] == "mnist_m")
    assert "drive.google.com" in drive and f"{root}/digits/mnist_m" in drive


def test_every_reader_has_its_publisher():
    assert {(r["domain"], r["split"]) for r in catalog.data_sets() if r["name"] == "digits"} == set(
        digits.MAIN_FILE
    )
