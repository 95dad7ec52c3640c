"""Seeded splits into train, val and test, in which a group is never on two sides."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

PARTS = {"val": 0.15, "test": 0.15}  # of each class; the rest is for training


def assign_splits(
    groups: Sequence[int], classes: Sequence[str], seed: int, parts: dict[str, float] | None = None
) -> list[str]:
    """Return the split of each row: about these parts of each class, whole groups at a time.

    A class with at least as many groups as there are splits has some rows in each of them.
    """
    parts = PARTS if parts is None else parts
    members: dict[int, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        members[group].append(index)
    by_class: dict[str, list[list[int]]] = defaultdict(list)
    for rows in members.values():
        by_class[classes[rows[0]]].append(rows)
    splits = ["train"] * len(groups)
    for name in sorted(by_class):
        pools = by_class[name]
        random.Random(f"{seed} {name}").shuffle(pools)
        total = sum(map(len, pools))
        for split, part in parts.items():
            taken = 0
            # Leave a group for each split that follows, and for training.
            while len(pools) > 1 and (taken == 0 or taken + len(pools[-1]) / 2 < part * total):
                for row in (chosen := pools.pop()):
                    splits[row] = split
                taken += len(chosen)
    return splits


def join_groups(keys: Iterable[Sequence[Hashable]]) -> list[int]:
    """Return the number of each row's group: rows that share a key, or a row that does."""
    parent: list[int] = []
    first: dict[Hashable, int] = {}

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    for row, shared in enumerate(keys):
        parent.append(row)
        for key in shared:
            other = root(first.setdefault(key, row))
            mine = root(row)
            parent[max(mine, other)] = min(mine, other)
    return [root(row) for row in range(len(parent))]
