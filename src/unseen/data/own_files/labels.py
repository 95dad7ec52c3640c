"""What labels are: classes, several classes, a number, or a map of classes; and their tensors."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from unseen.errors import UnseenError

LabelKind = Literal["classes", "several", "number", "map"]
KINDS: tuple[str, ...] = get_args(LabelKind)
SEPARATOR = "|"
IGNORED = -100  # label of a sample without one
IGNORED_PIXEL = 255  # of label maps
MAPS = (".png", ".bmp", ".tif", ".tiff", ".gif")


def kind_of(labels: Iterable[str], separator: str, files: bool) -> LabelKind:
    """Return what these labels are: maps end in .png, several have a separator in between.

    Numbers are classes if all of them are whole, else the target of a regression. That they are too
    if a few labels are no numbers, such as nan, which the checks list.
    """
    known = [label for label in labels if label]
    if files and known and all(label.lower().endswith(MAPS) for label in known):
        return "map"
    if any(separator in label for label in known):
        return "several"
    numbers = [n for label in known if (n := as_number(label)) is not None]
    if 2 * len(numbers) >= len(known) and any(not n.is_integer() for n in numbers):
        return "number"
    return "classes"


def is_whole(label: str) -> bool:
    """Return whether a label is a whole number."""
    number = as_number(label)
    return number is not None and number.is_integer()


def without_zeros(label: str) -> str:
    """Return a whole number without its decimals, 1.0 as 1; other labels as they are."""
    found = re.fullmatch(r"([+-]?\d+)\.0*", label)
    return found[1] if found else label


def as_number(label: str) -> float | None:
    """Return a label as a finite number, or None."""
    try:
        value = float(label)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def class_names(labels: Iterable[str], kind: LabelKind, separator: str) -> list[str]:
    """Return the classes: numbers in their order, words in alphabetical order."""
    names = {name for label in labels for name in split_label(label, kind, separator)}
    return sorted(names, key=_natural)


def _natural(name: str) -> tuple[object, ...]:
    number = as_number(name)
    return (0, number, name) if number is not None else (1, 0.0, name)


def split_label(label: str, kind: LabelKind, separator: str) -> list[str]:
    """Return the classes that a label names."""
    if kind == "several":
        return [name.strip() for name in label.split(separator) if name.strip()]
    return [label] if label else []


def label_tensor(
    labels: Sequence[str], kind: LabelKind, classes: Sequence[str], separator: str
) -> Tensor:
    """Return the labels of samples; one without a label is ignored."""
    index = {name: i for i, name in enumerate(classes)}
    if kind == "classes":
        return torch.tensor([index[label] if label else IGNORED for label in labels])
    if kind == "number":
        numbers = [math.nan if not label else float(label) for label in labels]
        return torch.tensor(numbers, dtype=torch.get_default_dtype())
    y = torch.zeros(len(labels), len(classes))
    for row, label in enumerate(labels):
        if not label:
            y[row] = math.nan
        for name in split_label(label, kind, separator):
            y[row, index[name]] = 1
    return y


def check_separator(separator: str) -> str:
    """Return the separator of labels; letters and digits could be part of a label."""
    if not separator or re.search(r"\w", separator):
        raise UnseenError(
            f"--separator must be punctuation between labels, such as |, not {separator!r}"
        )
    return separator
