"""Choose the groups that a figure shows."""

from __future__ import annotations

from collections.abc import Sequence

from unseen.report.figures.svg import MAX_SERIES, join_names
from unseen.report.groups import OURS, Group, TaskRuns


def select_groups(task: TaskRuns, count: int = MAX_SERIES) -> tuple[list[Group], list[str]]:
    """Return the best group, one of every method and further ones; and the labels of the rest."""
    sign = -1 if task.less_is_better else 1
    means = {id(g): sign * g.mean_and_std(task.ranking_domains)[0] for g in task.groups}
    best = max(means.values())

    def rank(group: Group) -> tuple[bool, bool, bool, float]:
        mean = means[id(group)]
        return mean < best, bool(group.changes), group.method not in ("erm", OURS), -mean

    selected = sorted(task.groups, key=rank)[:count]
    rest = [group.label for group in task.groups if group not in selected]
    return [group for group in task.groups if group in selected], rest


def describe_omitted(labels: Sequence[str]) -> str:
    """Return a sentence on the groups that a figure does not show."""
    if not labels:
        return ""
    names = join_names(labels) if len(labels) <= 4 else f"{len(labels)} further settings"
    return f" Not shown: {names}."
