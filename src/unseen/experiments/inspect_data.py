"""Describe a user's data: counts, sizes, problems, and a contact sheet."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from unseen.data.own_files.checks import describe_size
from unseen.data.own_files.collection import Collection, open_collection
from unseen.data.own_files.contact_sheet import contact_sheet
from unseen.data.own_files.labels import split_label
from unseen.data.own_files.options import DataOptions
from unseen.data.own_files.sound import RESOLUTION

NO_LABEL = "(none)"
NO_SPLIT = "(no split)"
SIZES = 10  # that are listed, the most common first


def inspect_data(options: DataOptions, sheet: Path | None = None) -> dict[str, Any]:
    """Return what the data are and what is wrong with them.

    Args:
        sheet: PNG file for some samples of each class and domain.
    """
    made = open_collection(options, allow_problems=True)
    result: dict[str, Any] = {
        "data": options.path,
        "kind": made.modality,
        "labels": made.label_kind,
        "samples": len(made.rows),
        "source": made.source,
        "classes": made.classes,
        "split": _describe_split(made),
        "domains": {name: _describe(made, name) for name in made.domains if name},
        "sizes": _sizes(made),
        "ignored": {"count": len(made.manifest.ignored), "examples": made.manifest.ignored[:20]},
        "problems": made.problems.to_json(),
    }
    if made.manifest.features:
        result["features"] = list(made.manifest.features)
    if sheet is not None:
        result["sheet"] = str(sheet) if contact_sheet(made, sheet) else None
    return result


def _describe_split(made: Collection) -> str:
    if made.source is None:
        return "none without a source"
    return f"seed {made.options.split_seed}" if made.seeded_split else "given"


def _describe(made: Collection, domain: str) -> dict[str, Any]:
    rows = [row for row in made.rows if row.domain == domain]
    result: dict[str, Any] = {
        "n": len(rows),
        "splits": dict(sorted(Counter(row.split or NO_SPLIT for row in rows).items())),
        "unlabelled": sum(not row.label for row in rows),
        "groups": len({row.group for row in rows if row.group}),
    }
    if made.label_kind in ("classes", "several"):
        counts = Counter(
            name
            for row in rows
            for name in split_label(row.label, made.label_kind, made.options.separator)
            or [NO_LABEL]
        )
        others = sorted(set(counts) - set(made.classes))
        names = [*made.classes, *others]
        result["classes"] = {name: counts[name] for name in names if counts[name]}
    return result


def _sizes(made: Collection) -> dict[str, Any]:
    shapes = [fact.shape for fact in made.facts if fact is not None]
    if not shapes:
        return {}
    if made.modality == "sound":
        seconds = np.array([shape[0] for shape in shapes]) / RESOLUTION
        low, middle, high = np.quantile(seconds, (0, 0.5, 1)).tolist()
        return {"seconds": {"shortest": low, "median": middle, "longest": high}}
    if made.modality == "text":
        return {}
    common = Counter(map(describe_size, shapes)).most_common(SIZES)
    return {"count": len(set(shapes)), "most_common": dict(common)}
