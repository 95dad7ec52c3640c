"""Adapting a trained model to a new domain: one file per method. ADAPTATIONS is the table that everything else reads."""

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
}  # fmt: skip


def adaptation_named(name: str) -> type[Adaptation]:
    if name not in ADAPTATIONS:
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
    """A copy of the model, adapted by the method of that name to `target`: the labelled few, or all of it without labels.

    The seed owns every random number, and torch's own are left as they were.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return adaptation_named(name)(model, **settings).run(
            source, target, seed=seed, progress=progress
        )


__all__ = [
    "ADAPTATIONS", "FEW_LABELS", "UNLABELLED", "Adaptation", "Labelled", "adaptation_named", "adapted_model", "draw_shots",
    "fine_tune",
]  # fmt: skip
