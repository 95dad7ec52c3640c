"""Amazon reviews of four kinds of products: the published counts of 5,000 words and word pairs, and our own from the raw texts.

Nothing is converted on disk, and nothing is cached there: a domain's published counts take 0.1 s to read, its texts 2 s to count.
"""

from __future__ import annotations

import gzip
import json
import re
import zipfile
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
BLITZERS_NAME = {"kitchen": "kitchen_&_housewares"}  # where it differs from ours
COLUMNS = 5000
_SEED = 5000  # of every random order here; any constant would do
# What the files must look like.
_NPZ = "CSR arrays data, indices, indptr and shape (N, 5000) of counts from 1 to 255, and y of N labels -1 or 1"
_SVM = "svmlight text, one review a line: -1 or 1, then column:count with columns 0 to 4999 and counts from 1 to 255"
_JSONL = 'one review a line, gzipped or plain: {"text": "...", "rating": 4.0, ...} with ratings from 1 to 5'
_REVIEW = "blocks <review>...</review>, each with <rating> from 1 to 5 and <review_text>"


class Counts(TensorDataset):
    """Counts kept as bytes and given as floats: a quarter of the memory."""

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        x, y = super().__getitem__(index)
        return x.float(), y


# ---- the published counts


def published(domain: str, split: str, folder: Path | None = None) -> tuple[csr_matrix, Labels]:
    """A published split as it is: counts (N, 5000) of uint8, and labels, 1 for 4 and 5 stars.

    Read from msda5000_<domain>_<split>.npz, or else from <domain>_<split>.svmlight as DANN's authors publish it.
    """
    if domain not in DOMAINS or split not in PUBLISHED_SPLITS:
        known = f"{', '.join(DOMAINS)}, each with {' and '.join(PUBLISHED_SPLITS)}"
        raise UnseenError(f"the {NAME} data has no {domain}/{split}; it has: {known}")
    folder = data_folder(NAME) if folder is None else folder
    npz, svmlight = folder / f"msda5000_{domain}_{split}.npz", folder / f"{domain}_{split}.svmlight"
    return _svmlight(svmlight) if svmlight.exists() and not npz.exists() else _npz(npz)


def counts(domain: str, split: str) -> tuple[Tensor, Tensor]:
    """A published split: counts (N, 5000) uint8 and labels (N,) int64."""
    return _dense(*published(domain, split))


def held_out_counts(domain: str, first: int, end: int | None) -> tuple[Tensor, Tensor]:
    """Reviews first to end - 1 of the domain's published test split in a fixed random order, without what was trained on.

    The published splits share reviews (156 to 199 of a test file are in its training file too, and 184 to 381 are in it
    twice): here every review that repeats a training review or an earlier one is left out.
    """
    x, y = published(domain, "test")
    seen = set(_rows(published(domain, "train")[0]))
    fresh = []
    for index, row in enumerate(_rows(x)):
        if row not in seen:
            seen.add(row)
            fresh.append(index)
    order = np.random.default_rng(_SEED).permutation(fresh)
    if len(order) <= (first if end is None else end - 1):
        wanted = first + 1 if end is None else end
        raise UnseenError(
            f"{domain}/test has {len(order)} reviews that {domain}/train has not; {wanted} are needed: {remedy(NAME)}"
        )
    return _dense(x[order[first:end]], y[order[first:end]])


def _npz(path: Path) -> tuple[csr_matrix, Labels]:
    _must_exist(path)
    try:
        with np.load(
            path, allow_pickle=False
        ) as file:  # a pickle runs code; a lone array is no archive: TypeError
            held = {name: file[name] for name in file.files}
    except (
        OSError,
        ValueError,
        EOFError,
        KeyError,
        TypeError,
        AttributeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise _off(path, f"it cannot be read ({error})", _NPZ) from error
    if missing := [
        name for name in ("data", "indices", "indptr", "shape", "y") if name not in held
    ]:
        raise _off(path, f"it lacks {', '.join(missing)}", _NPZ)
    for name, array in held.items():
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise _off(
                path,
                f"its {name} is {array.shape} of {array.dtype}, not one row of whole numbers",
                _NPZ,
            )
    data, indices, indptr = (
        held["data"],
        held["indices"].astype(np.int64),
        held["indptr"].astype(np.int64),
    )
    shape = tuple(held["shape"].tolist())
    if len(shape) != 2 or shape[1] != COLUMNS:
        raise _off(path, f"its shape is {shape}", _NPZ)
    if (
        len(indptr) != shape[0] + 1
        or indptr[0] != 0
        or indptr[-1] != len(data)
        or (np.diff(indptr) < 0).any()
    ):
        raise _off(
            path, f"its indptr does not divide {len(data)} counts into {shape[0]} rows", _NPZ
        )
    if len(indices) != len(data):
        raise _off(path, f"it has {len(data)} counts and {len(indices)} indices", _NPZ)
    if len(indices) and not (indices.min() >= 0 and indices.max() < COLUMNS):
        raise _off(path, f"its indices run from {indices.min()} to {indices.max()}", _NPZ)
    return _checked(path, csr_matrix((data, indices, indptr), shape), held["y"], _NPZ)


def _svmlight(path: Path) -> tuple[csr_matrix, Labels]:
    from sklearn.datasets import load_svmlight_file  # half a second to import

    try:
        x, y = load_svmlight_file(str(path), n_features=COLUMNS, zero_based=True)
    except (OSError, ValueError) as error:
        raise _off(path, f"it cannot be read ({error})", _SVM) from error
    return _checked(path, x, y, _SVM)


def _checked(path: Path, x: csr_matrix, y: NDArray[Any], layout: str) -> tuple[csr_matrix, Labels]:
    if x.shape[0] != len(y):
        raise _off(path, f"there are {x.shape[0]} reviews and {len(y)} labels", layout)
    if not len(y):
        raise _off(path, "it holds no review", layout)
    if not set(np.unique(y).tolist()) <= {-1, 1}:
        raise _off(path, f"its labels are {', '.join(f'{v:g}' for v in np.unique(y)[:5])}", layout)
    if not ((x.data >= 1) & (x.data <= 255) & (x.data % 1 == 0)).all():
        raise _off(
            path,
            f"its counts run from {x.data.min():g} to {x.data.max():g} or are not whole",
            layout,
        )
    x = x.astype(np.uint8)
    filled = x.nnz
    x.sum_duplicates()  # also sorts, so that equal reviews have equal bytes
    if x.nnz != filled:
        raise _off(path, "a review names one column twice", layout)
    return x, (y > 0).astype(np.int64)


def _rows(x: csr_matrix) -> Iterable[bytes]:
    columns = x.indices.astype(np.int32)
    return (columns[a:b].tobytes() + x.data[a:b].tobytes() for a, b in pairwise(x.indptr.tolist()))


def _dense(x: csr_matrix, y: Labels) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(x.toarray()), torch.from_numpy(y)


# ---- our own counts of the raw texts


def reviews(domain: str, folder: Path | None = None) -> tuple[list[str], Labels]:
    """Texts of a domain, each below its title, and labels, 1 for 4 and 5 stars; a text that repeats an earlier one is left out.

    Read from <domain>.jsonl.gz, or else from sorted_data_acl/<domain>/{negative,positive}.review as Blitzer et al. publish it.
    """
    if domain not in DOMAINS:
        raise UnseenError(f"the {NAME} data has no {domain}; it has: {', '.join(DOMAINS)}")
    folder = data_folder(NAME) if folder is None else folder
    jsonl, blocks = (
        folder / f"{domain}.jsonl.gz",
        folder / "sorted_data_acl" / BLITZERS_NAME.get(domain, domain),
    )
    rows = _blocks(blocks) if blocks.is_dir() and not jsonl.exists() else _jsonl(jsonl)
    kept: dict[str, tuple[str, int]] = {}
    for title, text, rating in rows:
        kept.setdefault(" ".join(text.lower().split()), (f"{title}\n{text}", int(rating > 3)))
    return [text for text, _ in kept.values()], np.array(
        [label for _, label in kept.values()], np.int64
    )


def extracted_counts(
    source: str, trained_on: int, domain: str, first: int, end: int | None
) -> tuple[Tensor, Tensor]:
    """Reviews first to end - 1 of a domain in a fixed random order: counts (N, 5000) uint8 and labels (N,) int64.

    Counted are the words and pairs most frequent in the source's first reviews, so many as are trained on: unlike the
    published ones, they owe nothing to the unseen domains.
    """
    texts, labels = _shuffled(domain, data_root())
    if len(texts) <= (first if end is None else end - 1):
        wanted = first + 1 if end is None else end
        where = data_folder(NAME)
        raise UnseenError(
            f"{where} has {len(texts)} reviews of {domain} with texts of their own; {wanted} are needed: {remedy(NAME)}"
        )
    words = _vocabulary(source, trained_on, data_root())
    return _dense(counted(texts[first:end], words), labels[first:end])


def most_frequent(texts: Iterable[str], size: int) -> list[str]:
    """The words and pairs of neighbours that the texts use most often, the most frequent first, equals by the alphabet."""
    from sklearn.feature_extraction.text import CountVectorizer  # a second to import

    vectorizer = CountVectorizer(ngram_range=(1, 2))
    totals = vectorizer.fit_transform(texts).sum(axis=0).A1
    # Not `max_features`: which of equals it keeps is left to numpy's unstable sort, which differs between processors.
    ranked = sorted(
        vectorizer.vocabulary_, key=lambda word: (-totals[vectorizer.vocabulary_[word]], word)
    )
    return ranked[:size]


def counted(texts: Iterable[str], words: list[str]) -> csr_matrix:
    """How often each text uses each word, (N, 5000) uint8; columns past the last word stay 0."""
    from sklearn.feature_extraction.text import CountVectorizer

    found = CountVectorizer(ngram_range=(1, 2), vocabulary=words).transform(texts)
    found.data = np.minimum(found.data, 255)  # the published reviews say "the" up to 206 times
    return csr_matrix(
        (found.data.astype(np.uint8), found.indices, found.indptr), (found.shape[0], COLUMNS)
    )


@cache
def _shuffled(domain: str, root: Path) -> tuple[list[str], Labels]:
    texts, labels = reviews(domain, data_folder(NAME, root))
    order = np.random.default_rng(_SEED).permutation(len(texts))
    return [texts[i] for i in order], labels[order]


@cache
def _vocabulary(source: str, trained_on: int, root: Path) -> list[str]:
    return most_frequent(_shuffled(source, root)[0][:trained_on], COLUMNS)


def _jsonl(path: Path) -> list[tuple[str, str, float]]:
    plain = path.with_suffix("")  # browsers unzip what they download
    path = path if path.exists() or not plain.exists() else plain
    _must_exist(path)
    raw = path.read_bytes()
    try:
        lines = (gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw).decode().splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise _off(path, f"it cannot be read ({error})", _JSONL) from error
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            rows.append((str(row.get("title") or ""), row["text"], _stars(row["rating"])))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _off(
                path, f"line {number} is no review ({type(error).__name__}: {error})", _JSONL
            ) from error
        if not isinstance(row["text"], str) or row.get("label", int(rows[-1][2] > 3)) != int(
            rows[-1][2] > 3
        ):
            raise _off(
                path, f"line {number} has no text, or a label that its rating belies", _JSONL
            )
    if not rows:
        raise _off(path, "it holds no review", _JSONL)
    return rows


def _blocks(folder: Path) -> list[tuple[str, str, float]]:
    rows = []
    for path in (folder / "negative.review", folder / "positive.review"):
        _must_exist(path)
        # The published files are neither XML nor of one encoding.
        text = path.read_text(errors="replace")
        found = re.findall(r"<review>(.*?)</review>", text, re.DOTALL)
        if not found:
            raise _off(path, "it holds no review", _REVIEW)
        if (begun := text.count("<review>")) != len(found):
            raise _off(
                path,
                f"{begun} reviews begin and {len(found)} end: it may have been cut short",
                _REVIEW,
            )
        for number, block in enumerate(found, start=1):
            parts = dict(
                re.findall(r"<(title|rating|review_text)>\s*(.*?)\s*</\1>", block, re.DOTALL)
            )
            try:
                rows.append((parts.get("title", ""), parts["review_text"], _stars(parts["rating"])))
            except (KeyError, ValueError) as error:
                raise _off(
                    path, f"review {number} is not whole ({type(error).__name__}: {error})", _REVIEW
                ) from error
    return rows


def _stars(value: Any) -> float:
    rating = float(value)
    if not 1 <= rating <= 5:
        raise ValueError(f"a rating of {value}")
    return rating


def _must_exist(path: Path) -> None:
    if not path.exists():
        raise MissingData(f"{path} is missing; {remedy(NAME)}")


def _off(path: Path, what: str, layout: str) -> UnseenError:
    return UnseenError(f"{path} is not as published: {what}; expected {layout}; {remedy(NAME)}")
