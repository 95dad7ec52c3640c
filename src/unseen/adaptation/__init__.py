"""Adaptation to a new domain, one file per method. ADAPTATIONS is the registry."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from unseen.adaptation.base import FEW_LABELS, UNLABELLED, Adaptation, Labelled, draw_shots
from unseen.adaptation.ccsa import CCSA
from unseen.adaptation.dirt_t import DirtT
from unseen.adaptation.fada import FADA
from unseen.adaptation.fine_tuning import FineTune, fine_tune
from unseen.adaptation.sbada import SBADA
from unseen.adaptation.se import SelfEnsembling
from unseen.errors import UnseenError

ADAPTATIONS: dict[str, type[Adaptation]] = {
    kind.name: kind for kind in (FineTune, FADA, CCSA, DirtT, SelfEnsembling, SBADA)
}


def adaptation_named(name: str) -> type[Adaptation]:
    """Return the adaptation class of that name."""
    if not isinstance(name, str) or name not in ADAPTATIONS:
        raise UnseenError(f'no adaptation "{name}"; there are: {", ".join(ADAPTATIONS)}')
    return ADAPTATIONS[name]


def adapted_model(
    name: str,
    model: nn.Module,
    source: Dataset,
    target: Dataset,
    *,
    seed: int = 0,
    progress: bool = False,
    **settings: Any,
) -> nn.Module:
    """Return a copy of the model adapted to `target`.

    Args:
        name: Name of the adaptation method, a key of ADAPTATIONS.
        model: The trained model; it is not changed.
        source: Training data of the source domain.
        target: A few labelled samples, or all samples (labels unused), as the method needs.
        seed: Seed of all random numbers; torch's global generator is left unchanged.
        progress: Show a progress bar.
        settings: Keyword arguments of the method.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return adaptation_named(name)(model, **settings).run(
            source, target, seed=seed, progress=progress
        )


__all__ = [
    "ADAPTATIONS",
    "FEW_LABELS",
    "UNLABELLED",
    "Adaptation",
    "Labelled",
    "adaptation_named",
    "adapted_model",
    "draw_shots",
    "fine_tune",
]
