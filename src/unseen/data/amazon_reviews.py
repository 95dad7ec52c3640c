"""Amazon reviews of four product categories as bags of 5,000 words and word pairs.

Reads the published counts (0.1 s per domain), or extracts counts from the raw texts (2 s).
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.utils.data import TensorDataset

from unseen.data.location import MissingData, data_folder, data_root, remedy
from unseen.errors import UnseenError

Labels = NDArray[np.int64]

NAME = "amazon_reviews"
DOMAINS = ("books", "dvd", "electronics", "kitchen")
PUBLISHED_SPLITS = ("train", "test")
BLITZER_FOLDERS = {"kitchen": "kitchen_&_housewares"}  # where it differs from the domain's name
COLUMNS = 5000
_SEED = 5000  # of the fixed random orders
# File layouts, for error messages.
_NPZ = (
    "CSR arrays data, indices, indptr and shape (N, 5000) with counts from 1 to 255, "
    "and y with N labels -1 or 1"
)
_SVM = (
    "svmlight text, one review per line: -1 or 1, then column:count with columns 0 to 4999 "
    "and counts from 1 to 255"
)
_JSONL = (
    'one review per line, gzipped or not: {"text": "...", "rating": 4.0, ...} '
    "with ratings from 1 to 5"
)
_REVIEW = "blocks <review>...</review>, each with <rating> from 1 to 5 and <review_text>"


class Counts(TensorDataset):
    """Counts stored as uint8 and returned as floats."""

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        x, y = super().__getitem__(index)
        return x.float(), y


# ---- published counts


def read_counts(domain: str, split: str, folder: Path | None = None) -> tuple[csr_matrix, Labels]:
    """Read a published split: counts (N, 5000) uint8 and labels (N,), 1 for 4 and 5 stars.

    The file is msda5000_<domain>_<split>.npz, or <domain>_<split>.svmlight as published with DANN.
    """
    if domain not in DOMAINS or split not in PUBLISHED_SPLITS:
        known = f"{', '.join(DOMAINS)}, each with {' and '.join(PUBLISHED_SPLITS)}"
        raise UnseenError(f"the {NAME} data has no {domain}/{split}; it has: {known}")
    folder = data_folder(NAME) if folder is None else folder
    npz, svmlight = folder / f"msda5000_{domain}_{split}.npz", folder / f"{domain}_{split}.svmlight"
    return _read_svmlight(svmlight) if svmlight.exists() and not npz.exists() else _read_npz(npz)


def published_counts(domain: str, split: str) -> tuple[Tensor, Tensor]:
    """Load a published split: counts (N, 5000) uint8 and labels (N,) int64."""
    return _to_dense(*read_counts(domain, split))


def held_out_counts(domain: str, first: int, end: int | None) -> tuple[Tensor, Tensor]:
    """Load test reviews first to end - 1 in a fixed random order, without duplicates.

    In the published files 156 to 199 test reviews are also training reviews, and 184 to 381 occur
    twice. Reviews that repeat a training review or an earlier test review are left out.
    """
    x, y = read_counts(domain, "test")
    known = set(_row_bytes(read_counts(domain, "train")[0]))
    unique = []
    for index, row in enumerate(_row_bytes(x)):
        if row not in known:
            known.add(row)
            unique.append(index)
    order = np.random.default_rng(_SEED).permutation(unique)
    if len(order) <= (first if end is None else end - 1):
        wanted = first + 1 if end is None else end
        raise UnseenError(
            f"{domain}/test has {len(order)} reviews that are not in {domain}/train; "
            f"{wanted} are needed: {remedy(NAME)}"
        )
    return _to_dense(x[order[first:end]], y[order[first:end]])


def _read_npz(path: Path) -> tuple[csr_matrix, Labels]:
    _check_exists(path)
    try:
        with np.load(path, allow_pickle=False) as file:  # TypeError if it is a single array
            arrays = {name: file[name] for name in file.files}
    except Exception as error:  # numpy may raise anything for a damaged archive
        raise _layout_error(path, f"cannot be read ({error})", _NPZ) from error
    if missing := [
        name for name in ("data", "indices", "indptr", "shape", "y") if name not in arrays
    ]:
        raise _layout_error(path, f"lacks {', '.join(missing)}", _NPZ)
    for name, array in arrays.items():
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise _layout_error(
                path,
                f"its {name} is {array.shape} of {array.dtype}, not a vector of integers",
                _NPZ,
            )
    data, indices, indptr = (
        arrays["data"],
        arrays["indices"].astype(np.int64),
        arrays["indptr"].astype(np.int64),
    )
    shape = tuple(arrays["shape"].tolist())
    if len(shape) != 2 or shape[1] != COLUMNS:
        raise _layout_error(path, f"its shape is {shape}", _NPZ)
    if (
        len(indptr) != shape[0] + 1
        or indptr[0] != 0
        or indptr[-1] != len(data)
        or (np.diff(indptr) < 0).any()
    ):
        raise _layout_error(
            path, f"its indptr does not divide {len(data)} counts into {shape[0]} rows", _NPZ
        )
    if len(indices) != len(data):
        raise _layout_error(path, f"it has {len(data)} counts and {len(indices)} indices", _NPZ)
    if len(indices) and not (indices.min() >= 0 and indices.max() < COLUMNS):
        raise _layout_error(
            path, f"its indices range from {indices.min()} to {indices.max()}", _NPZ
        )
    return _check_counts(path, csr_matrix((data, indices, indptr), shape), arrays["y"], _NPZ)


def _read_svmlight(path: Path) -> tuple[csr_matrix, Labels]:
    from sklearn.datasets import load_svmlight_file  # slow to import

    try:
        x, y = load_svmlight_file(str(path), n_features=COLUMNS, zero_based=True)
    except Exception as error:  # scikit-learn may raise anything for a damaged file
        raise _layout_error(path, f"cannot be read ({error})", _SVM) from error
    return _check_counts(path, x, y, _SVM)


def _check_counts(
    path: Path, x: csr_matrix, y: NDArray[Any], layout: str
) -> tuple[csr_matrix, Labels]:
    if x.shape[0] != len(y):
        raise _layout_error(path, f"there are {x.shape[0]} reviews and {len(y)} labels", layout)
    if not len(y):
        raise _layout_error(path, "contains no review", layout)
    if not set(np.unique(y).tolist()) <= {-1, 1}:
        raise _layout_error(
            path, f"its labels are {', '.join(f'{v:g}' for v in np.unique(y)[:5])}", layout
        )
    if not ((x.data >= 1) & (x.data <= 255) & (x.data % 1 == 0)).all():
        raise _layout_error(
            path,
            f"its counts range from {x.data.min():g} to {x.data.max():g} or are not integers",
            layout,
        )
    x = x.astype(np.uint8)
    entries = x.nnz
    x.sum_duplicates()  # also sorts, so that equal reviews have equal bytes
    if x.nnz != entries:
        raise _layout_error(path, "a review has the same column twice", layout)
    return x, (y > 0).astype(np.int64)


def _row_bytes(x: csr_matrix) -> Iterable[bytes]:
    columns = x.indices.astype(np.int32)
    return (columns[a:b].tobytes() + x.data[a:b].tobytes() for a, b in pairwise(x.indptr.tolist()))


def _to_dense(x: csr_matrix, y: Labels) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(x.toarray()), torch.from_numpy(y)


# ---- counts of the raw texts


def read_texts(domain: str, folder: Path | None = None) -> tuple[list[str], Labels]:
    """Read the reviews of a domain, title and text, without duplicates; label 1 for 4 and 5 stars.

    The file is <domain>.jsonl.gz, or sorted_data_acl/<domain>/{negative,positive}.review as
    published by Blitzer et al.
    """
    if domain not in DOMAINS:
        raise UnseenError(f"the {NAME} data has no {domain}; it has: {', '.join(DOMAINS)}")
    folder = data_folder(NAME) if folder is None else folder
    jsonl, blocks = (
        folder / f"{domain}.jsonl.gz",
        folder / "sorted_data_acl" / BLITZER_FOLDERS.get(domain, domain),
    )
    rows = _read_blocks(blocks) if blocks.is_dir() and not jsonl.exists() else _read_jsonl(jsonl)
    unique: dict[str, tuple[str, int]] = {}
    for title, text, rating in rows:
        unique.setdefault(" ".join(text.lower().split()), (f"{title}\n{text}", int(rating > 3)))
    texts = [text for text, _ in unique.values()]
    return texts, np.array([label for _, label in unique.values()], np.int64)


def extract_counts(
    source: str, train_size: int, domain: str, first: int, end: int | None
) -> tuple[Tensor, Tensor]:
    """Extract counts (N, 5000) uint8 and labels (N,) of reviews first to end - 1 in a fixed order.

    The vocabulary is that of the first `train_size` reviews of the source. Unlike the published
    one, it does not depend on the unseen domains.
    """
    texts, labels = _shuffled_texts(domain, data_root())
    if len(texts) <= (first if end is None else end - 1):
        wanted = first + 1 if end is None else end
        raise UnseenError(
            f"{data_folder(NAME)} has {len(texts)} distinct reviews of {domain}; "
            f"{wanted} are needed: {remedy(NAME)}"
        )
    words = _vocabulary(source, train_size, data_root())
    return _to_dense(count_words(texts[first:end], words), labels[first:end])


def most_frequent(texts: Iterable[str], size: int) -> list[str]:
    """Return the most frequent words and bigrams; ties are in alphabetical order."""
    from sklearn.feature_extraction.text import CountVectorizer  # slow to import

    vectorizer = CountVectorizer(ngram_range=(1, 2))
    totals = vectorizer.fit_transform(texts).sum(axis=0).A1
    # Not `max_features`: its choice among ties depends on numpy's unstable sort.
    ranked = sorted(
        vectorizer.vocabulary_, key=lambda word: (-totals[vectorizer.vocabulary_[word]], word)
    )
    return ranked[:size]


def count_words(texts: Iterable[str], words: list[str]) -> csr_matrix:
    """Count the words in each text, (N, 5000) uint8; columns beyond the vocabulary are 0."""
    from sklearn.feature_extraction.text import CountVectorizer

    counts = CountVectorizer(ngram_range=(1, 2), vocabulary=words).transform(texts)
    values = np.minimum(counts.data, 255).astype(np.uint8)
    return csr_matrix((values, counts.indices, counts.indptr), (counts.shape[0], COLUMNS))


@cache
def _shuffled_texts(domain: str, root: Path) -> tuple[list[str], Labels]:
    texts, labels = read_texts(domain, data_folder(NAME, root))
    order = np.random.default_rng(_SEED).permutation(len(texts))
    return [texts[i] for i in order], labels[order]


@cache
def _vocabulary(source: str, train_size: int, root: Path) -> list[str]:
    return most_frequent(_shuffled_texts(source, root)[0][:train_size], COLUMNS)


def _read_jsonl(path: Path) -> list[tuple[str, str, float]]:
    plain = path.with_suffix("")  # browsers may decompress downloads
    path = path if path.exists() or not plain.exists() else plain
    _check_exists(path)
    raw = path.read_bytes()
    try:
        lines = (gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw).decode().splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise _layout_error(path, f"cannot be read ({error})", _JSONL) from error
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            rows.append((str(row.get("title") or ""), row["text"], _parse_rating(row["rating"])))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _layout_error(
                path, f"line {number} is not a review ({type(error).__name__}: {error})", _JSONL
            ) from error
        label = int(rows[-1][2] > 3)
        if not isinstance(row["text"], str) or row.get("label", label) != label:
            raise _layout_error(
                path, f"line {number} has no text, or a label that contradicts its rating", _JSONL
            )
    if not rows:
        raise _layout_error(path, "contains no review", _JSONL)
    return rows


def _read_blocks(folder: Path) -> list[tuple[str, str, float]]:
    rows = []
    for path in (folder / "negative.review", folder / "positive.review"):
        _check_exists(path)
        # The published files are not valid XML and mix encodings.
        text = path.read_text(errors="replace")
        blocks = re.findall(r"<review>(.*?)</review>", text, re.DOTALL)
        if not blocks:
            raise _layout_error(path, "contains no review", _REVIEW)
        if (opened := text.count("<review>")) != len(blocks):
            raise _layout_error(
                path, f"{opened} reviews begin and {len(blocks)} end: it may be truncated", _REVIEW
            )
        for number, block in enumerate(blocks, start=1):
            parts = dict(
                re.findall(r"<(title|rating|review_text)>\s*(.*?)\s*</\1>", block, re.DOTALL)
            )
            try:
                rows.append(
                    (parts.get("title", ""), parts["review_text"], _parse_rating(parts["rating"]))
                )
            except (KeyError, ValueError) as error:
                raise _layout_error(
                    path,
                    f"review {number} is incomplete ({type(error).__name__}: {error})",
                    _REVIEW,
                ) from error
    return rows


def _parse_rating(value: Any) -> float:
    rating = float(value)
    if not 1 <= rating <= 5:
        raise ValueError(f"rating {value} is not in 1..5")
    return rating


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise MissingData(f"{path} is missing; {remedy(NAME)}")


def _layout_error(path: Path, problem: str, layout: str) -> UnseenError:
    return UnseenError(f"{path} is not as published: {problem}; expected {layout}; {remedy(NAME)}")
