"""Ablations of the paper."""

from __future__ import annotations

from unseen.report.groups import OURS, Group, TaskRuns
from unseen.report.paper import ablation_name

ABLATIONS = {
    "full": "the complete method",
    "random_gaussian": "standard Gaussian noise, not learned",
    "deterministic": "learned shift μ, no sampling",
    "random_mu": "learned σ, random μ",
    "random_sigma": "learned μ, random σ",
    "no_mixup": "no label mixup",
    "random_mixup": "label mixup with random coefficients",
    "no_adversarial": "no adversary",
    "no_meta": "no meta step: trained on perturbed data directly",
    "no_minimize_phi_p": "noise heads only ascend",
}


def find_ablations(task: TaskRuns) -> list[tuple[str, Group, list[str]]]:
    """Return name, runs and averaged domains of each ablation; empty for fewer than two."""
    domains = task.domains
    if task.task == "cifar10_c":  # the paper averages severity 5 only
        domains = [d for d in task.domains if d.endswith("/5")]
    names = [(ablation_name(group.changes), group, domains) for group in task.of(OURS)]
    known = [(name, group, averaged) for name, group, averaged in names if name is not None]
    order = list(ABLATIONS)
    return sorted(known, key=lambda row: order.index(row[0])) if len(known) > 1 else []
