"""digit_pairs: splits and names of the variants."""

from __future__ import annotations

import numpy as np
import pytest
from digit_files import write_mat, write_mnist, write_usps

from unseen.data import digits
from unseen.data.location import VARIABLE
from unseen.errors import UnseenError
from unseen.tasks import task_named


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Files in the published layouts; the value of each image is its index modulo 251."""
    tmp_path = tmp_path_factory.mktemp("data")

    def places(n, *shape):
        return (np.arange(n) % 251).astype(np.uint8).reshape(n, *[1] * len(shape)) * np.ones(
            shape, np.uint8
        )

    for split, n in (("train", 12_001), ("test", 30)):
        write_mnist(tmp_path, places(n, 28, 28), np.arange(n) % 10, split)
    for split, n in (("train", 6_020), ("test", 12)):
        values = np.repeat((np.arange(n) % 251)[:, None] / 127.5 - 1, 256, axis=1)
        write_usps(tmp_path, np.concatenate([(np.arange(n) % 10)[:, None], values], axis=1), split)
    for split, n in (("train", 700), ("test", 25)):
        write_mat(
            tmp_path,
            "svhn",
            split,
            X=places(n, 32, 32, 3).transpose(1, 2, 3, 0),
            y=np.arange(n)[:, None] % 10 + 1,
        )
    return tmp_path


@pytest.fixture
def digit_files(root, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(root))
    # The images are constant: one pixel is enough, and Pillow would take seconds.
    monkeypatch.setattr(
        digits,
        "resize",
        lambda pixels, _: np.broadcast_to(pixels[:, :1, :1], (len(pixels), 32, 32)),
    )


SIZES = {
    "usps_to_mnist": ((6_000, 20, 12), (12_001, 30)),
    "mnist_to_svhn": ((10_000, 2_000, 30), (700, 25)),
    "svhn_to_mnist": ((200, 500, 25), (12_001, 30)),
}


@pytest.mark.parametrize("variant", SIZES)
def test_splits_are_parts_of_the_published_files_and_do_not_overlap(digit_files, variant):
    task = task_named(f"digit_pairs/{variant}")
    source, target = SIZES[variant]
    assert [len(task.source.load(split)) for split in ("train", "val", "test")] == list(source)
    assert [len(task.targets[0].load(split)) for split in ("train", "test")] == list(target)
    last, first = task.source.load("train")[-1:], task.source.load("val")[:1]
    assert (
        int(first[0][0, 0, 0, 0].mul(255).round())
        == (int(last[0][0, 0, 0, 0].mul(255).round()) + 1) % 251
    )
    assert (
        last[0].shape == (1, 3, 32, 32) and float(last[0].min()) >= 0 and float(last[0].max()) <= 1
    )
    assert int(first[1]) == (int(last[1]) + 1) % 10
    with pytest.raises(UnseenError, match='has no split "val" here; it has: train, test'):
        task.targets[0].load("val")


def test_an_arrow_names_the_same_variant_and_the_domain():
    arrow, words = task_named("digit_pairs/mnist->svhn"), task_named("digit_pairs/mnist_to_svhn")
    assert (
        arrow.variant == words.variant == "mnist_to_svhn" and arrow.targets[0].name == "mnist->svhn"
    )
    with pytest.raises(
        UnseenError,
        match='digit_pairs has no variant "usps_to_svhn"; it has: usps_to_mnist, mnist_to_svhn',
    ):
        task_named("digit_pairs/usps->svhn")
