"""Checks of a collection: labels, sizes, and what must not be on both sides of a split."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from unseen.data.own_files.facts import content_digest
from unseen.data.own_files.labels import as_number, split_label

if TYPE_CHECKING:
    from unseen.data.own_files.collection import Collection, Trained


def check_labels(made: Collection, trained: Trained | None) -> None:
    """Add rows with labels that cannot be used, classes without samples, too few classes."""
    kind, problems = made.label_kind, made.problems
    if made.source is None and trained is None:
        return  # nothing to compare with
    known = set(made.classes)
    separator = made.options.separator if trained is None else trained.separator
    labelled = any(row.label for row in made.rows if row.domain == made.source)
    for row in made.rows:
        if not row.label:
            if row.domain == made.source and labelled:
                problems.add("source rows without a label", row.where)
            continue
        if kind == "number" and as_number(row.label) is None:
            problems.add(
                "labels that are no numbers (--labels classes, if they are classes)",
                f"{row.where}: {row.label}",
            )
        if kind in ("classes", "several") and row.domain != made.source:
            for name in split_label(row.label, kind, separator):
                if name not in known:
                    problems.add("unknown labels in targets", f"{row.where}: {name}")
    if made.source is None:
        return
    of_source = [row for row in made.rows if row.domain == made.source and row.label]
    if not of_source:
        problems.add("no labels", f"the source {made.source} needs a label for every row")
        return
    for name in made.manifest.empty_classes:
        problems.add("empty classes", f"{name} has no samples")
    if kind in ("classes", "several"):
        _check_classes(made, of_source, separator)
    if len(made.classes) < (1 if kind == "several" else 2) and kind != "number":
        found = ", ".join(made.classes) or "none"
        problems.add("fewer than two classes", f"the source {made.source} has only: {found}")
    for split in ("train", "val", "test"):
        if not any(row.split == split for row in of_source):
            problems.add(
                "empty splits (give more samples or groups of a class, or a column split)",
                f"the source {made.source} has no rows for {split}",
            )


def _check_classes(made: Collection, of_source: list[Any], separator: str) -> None:
    train = Counter(
        name
        for row in of_source
        if row.split == "train"
        for name in split_label(row.label, made.label_kind, separator)
    )
    for name in made.classes:
        if not train[name]:
            made.problems.add("empty classes", f"{name} has no samples to train on")


def check_sizes(made: Collection, trained: Trained | None) -> None:
    """Add files of another size than most, unless images are resized."""
    if made.modality not in ("image", "array") or made.options.size() is not None:
        return
    if trained is not None and made.modality == "image":
        return  # images are resized to those of the run
    sizes = Counter(fact.shape for fact in made.facts if fact is not None)
    if trained is not None:
        expected = tuple(trained.shape)
    elif sizes:
        expected = sizes.most_common(1)[0][0]
    remedy = ": add --resize 64, say" if made.modality == "image" else ""
    for row, fact in zip(made.rows, made.facts, strict=True):
        if fact is not None and tuple(fact.shape) != expected:
            made.problems.add(
                f"mixed sizes (most are {describe_size(expected)}){remedy}",
                f"{_at(row)}{row.content}: {describe_size(fact.shape)}",
            )


def describe_size(shape: tuple[int, ...]) -> str:
    """Return a size such as 64x64."""
    return "x".join(map(str, shape))


def check_sides(made: Collection) -> None:
    """Add groups and equal samples that are both trained on and held out or tested on."""
    if made.source is None:
        return
    _check_groups(made)
    if made.options.allow_duplicates:
        return
    if made.manifest.kind == "path":
        _check_listed_twice(made)
    by_key: dict[Any, list[int]] = defaultdict(list)
    for index in range(len(made.rows)):
        by_key[content_key(made, index)].append(index)
    for indices in by_key.values():
        if len(indices) > 1 and len({_trained_on(made, i) for i in indices}) > 1:
            _add_duplicates(made, indices)


def _check_groups(made: Collection) -> None:
    sides: dict[str, dict[bool, str]] = defaultdict(dict)
    for index, row in enumerate(made.rows):
        if row.group and row.domain == made.source:
            sides[row.group].setdefault(_trained_on(made, index), row.where)
    for group, found in sides.items():
        if len(found) > 1:
            made.problems.add(
                "groups in training and test", f"{group}: {found[True]} and {found[False]}"
            )


def _check_listed_twice(made: Collection) -> None:
    """Add files of the source that are listed again, with another label."""
    first: dict[str, Any] = {}
    for row in made.rows:
        if row.domain == made.source and row.label:
            other = first.setdefault(row.content, row)
            if other.label != row.label:
                made.problems.add(
                    "files listed twice with different labels (--allow-duplicates accepts them)",
                    f"{row.where}: {row.content}: {row.label}, and {other.label} in {other.where}",
                )


def _add_duplicates(made: Collection, indices: list[int]) -> None:
    """Add samples that are equal in every byte and on both sides."""
    seen: dict[Any, dict[bool, int]] = defaultdict(dict)
    for index in indices:
        row, fact = made.rows[index], made.facts[index]
        key = row.content if fact is None else content_digest(made.manifest.file(row))
        seen[key].setdefault(_trained_on(made, index), index)
    for sides in seen.values():
        if len(sides) > 1:
            ours, theirs = (made.rows[sides[side]] for side in (True, False))
            made.problems.add(
                "duplicates across splits (--allow-duplicates accepts them)",
                f"{theirs.where} ({theirs.domain}/{theirs.split}) equals {ours.where} "
                f"({ours.domain}/train)",
            )


def _trained_on(made: Collection, index: int) -> bool:
    row = made.rows[index]
    return row.domain == made.source and row.split == "train"


def _at(row: Any) -> str:
    return "" if row.where == row.content else f"{row.where}: "


def content_key(made: Collection, index: int) -> Any:
    """Return what is equal for samples of equal content, and seldom for others."""
    fact = made.facts[index]
    return made.rows[index].content if fact is None else fact.fingerprint
