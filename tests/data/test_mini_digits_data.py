"""mini_digits: balanced, deterministic, without leaks, and shifted."""

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from edge_features import edge_features
from sklearn.linear_model import RidgeClassifier
from torch import Tensor

from unseen.data import mini_digits

HANDWRITTEN = ("photo", "scanner")
SIZES = {
    ("digits", "train"): 1000,
    ("digits", "val"): 397,
    ("digits", "test"): 400,
    **{(domain, "train"): 300 for domain in mini_digits.DOMAINS},
    **{(domain, "test"): 800 if domain in HANDWRITTEN else 600 for domain in mini_digits.DOMAINS},
}


def digest(pixels: Tensor, labels: Tensor) -> str:
    return hashlib.sha256(pixels.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()


def pixel_features(pixels: Tensor) -> np.ndarray:
    return pixels.float().mean(1).flatten(1).numpy() / 255


def accuracy(features, fitted_on: tuple[Tensor, Tensor], scored_on: tuple[Tensor, Tensor]) -> float:
    model = RidgeClassifier(alpha=1.0).fit(features(fitted_on[0]), fitted_on[1].numpy())
    return model.score(features(scored_on[0]), scored_on[1].numpy())


@pytest.mark.parametrize(("domain", "split"), SIZES)
def test_shapes_types_and_balance(domain, split):
    pixels, labels = mini_digits.load_images(domain, split)
    assert pixels.shape == (SIZES[domain, split], 3, 32, 32)
    assert pixels.dtype == torch.uint8
    assert labels.shape == (len(pixels),)
    assert labels.dtype == torch.int64
    per_class = torch.bincount(labels)
    assert len(per_class) == 10
    assert per_class.max() - per_class.min() <= (9 if (domain, split) == ("digits", "val") else 0)
    assert len(labels[: len(labels) // 4].unique()) == 10, "classes are mixed, not in blocks"


def test_source_is_light_grey_strokes_on_black():
    pixels, _ = mini_digits.load_images("digits", "train")
    assert torch.equal(pixels[:, 0], pixels[:, 1])
    assert torch.equal(pixels[:, 0], pixels[:, 2])
    assert pixels[..., :2, :].max() == 0
    assert pixels[..., :, -2:].max() == 0
    assert (pixels.flatten(1).amax(1) == 255).float().mean() > 0.95


@pytest.mark.parametrize("domain", mini_digits.DOMAINS)
def test_same_bits_when_made_again_and_no_global_generator_touched(domain):
    first = digest(*mini_digits.load_images(domain, "train"))
    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    assert digest(*mini_digits._generate.__wrapped__(domain, "train")) == first
    assert (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_rng_state().tolist(),
    ) == before


def test_same_bits_in_a_fresh_process():
    program = (
        "import hashlib, random, numpy, torch\n"
        "random.seed(5), numpy.random.seed(5), torch.manual_seed(5)\n"
        "from unseen.data import mini_digits\n"
        "pixels, labels = mini_digits.load_images('scanner', 'train')\n"
        "print(hashlib.sha256(pixels.numpy().tobytes() + labels.numpy().tobytes()).hexdigest())\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(mini_digits.__file__).parents[2]),
        "PYTHONHASHSEED": "5",
    }
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    assert run.stdout.strip() == digest(*mini_digits.load_images("scanner", "train"))


def test_no_image_is_in_two_splits():
    seen = [
        {image.tobytes() for image in mini_digits.load_images(domain, split)[0].numpy()}
        for domain in ("digits", *mini_digits.DOMAINS)
        for split in mini_digits.SPLITS
        if (domain, split) in SIZES
    ]
    assert len(set.union(*seen)) == sum(SIZES.values())


def test_unseen_handwriting_comes_from_its_own_source_split():
    source = {
        split: {c.tobytes() for c in cells}
        for split, (cells, _) in mini_digits._handwriting().items()
    }
    pool, test = (
        {c.tobytes() for c in mini_digits._unseen_handwriting(split)[0]}
        for split in ("train", "test")
    )
    assert sum(map(len, source.values())) == 1797
    assert len(pool) == 300
    assert pool < source["val"]
    assert test == source["test"]
    assert not source["train"] & (source["val"] | source["test"])


def test_a_caller_cannot_corrupt_the_cache():
    before = digest(*mini_digits.load_images("photo", "train"))
    pixels, labels = mini_digits.load_images("photo", "train")
    pixels.zero_()
    labels.fill_(3)
    assert digest(*mini_digits.load_images("photo", "train")) == before


@pytest.mark.parametrize(
    ("domain", "split", "told"),
    [
        ("mnist", "test", ("mnist", "digits", *mini_digits.DOMAINS)),
        ("photo", "dev", ("dev", *mini_digits.SPLITS)),
        ("street", "val", ("street", "no val split", "train, test")),
    ],
)
def test_errors_list_valid_values(domain, split, told):
    with pytest.raises(ValueError) as caught:
        mini_digits.load_images(domain, split)
    for text in told:
        assert text in str(caught.value)


@pytest.fixture(scope="module")
def source_accuracy() -> dict[str, float]:
    domains, fitted_on = (
        ("digits", *mini_digits.DOMAINS),
        mini_digits.load_images("digits", "train"),
    )
    return {
        domain: accuracy(pixel_features, fitted_on, mini_digits.load_images(domain, "test"))
        for domain in domains
    }


@pytest.mark.parametrize("domain", mini_digits.DOMAINS)
def test_domain_is_shifted_from_the_source_and_learnable(domain, source_accuracy):
    assert source_accuracy["digits"] > 0.9
    assert source_accuracy[domain] < source_accuracy["digits"] - 0.15
    assert (
        accuracy(
            edge_features,
            mini_digits.load_images(domain, "train"),
            mini_digits.load_images(domain, "test"),
        )
        > 0.7
    )
