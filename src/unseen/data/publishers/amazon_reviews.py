"""Amazon reviews: the 5,000 published word counts, and the raw texts."""

from __future__ import annotations

from pathlib import Path

from unseen.data import amazon_reviews
from unseen.data.publishers.parts import DataSet, Part

_COUNTS, _TEXTS = (
    "https://github.com/GRAAL-Research/domain_adversarial_neural_network",
    "https://www.cs.jhu.edu/~mdredze/datasets/sentiment/",
)
_BY_HAND = (
    f"the counts are in the folder data of {_COUNTS}, as <domain>_<split>.svmlight: "
    "put the eight files into {folder}"
)
_RAW = (
    "optional, for the variants ending in _raw: download domain_sentiment_data.tar.gz from "
    f"{_TEXTS} and unpack it in {{folder}}, so that it contains sorted_data_acl/"
)
_TEST_SIZES = {"books": 4465, "dvd": 3586, "electronics": 5681, "kitchen": 5945}

AMAZON_REVIEWS = DataSet(
    "amazon_reviews",
    "product reviews for the task amazon_reviews",
    (
        *(
            Part(domain, split, n, True, _COUNTS, "none stated", by_hand=_BY_HAND)
            for domain, test_size in _TEST_SIZES.items()
            for split, n in (("train", 2000), ("test", test_size))
        ),
        *(
            Part(domain, "raw", 2000, False, _TEXTS, "none stated", by_hand=_RAW)
            for domain in _TEST_SIZES
        ),
    ),
    main_file=lambda part: (
        f"{part.domain}.jsonl.gz"
        if part.split == "raw"
        else f"msda5000_{part.domain}_{part.split}.npz"
    ),
    count=lambda part, folder: _count(part, folder),
    read_by=("amazon_shifts",),
    variants={
        "the published counts": ("* train", "* test"),
        "the variants ending in _raw": ("* raw",),
    },
)


def _count(part: Part, folder: Path) -> int:
    if part.split == "raw":
        return len(amazon_reviews.read_texts(part.domain, folder)[1])
    return len(amazon_reviews.read_counts(part.domain, part.split, folder)[1])
