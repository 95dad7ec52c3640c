"""A module around a user's model, with named layers."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from unseen.errors import UnseenError
from unseen.nn.batch import Batch
from unseen.nn.hooks import captured, evaluating, laid_out_for, perturbable_layers, submodule
from unseen.nn.inputs import inputs

SNAPSHOT_FEATURES = 256
# Methods that a subclass may override, by their names in version 0.1; to be removed in 0.3.
OLD_HOOKS = {"memory": "extra_state", "remember": "load_extra_state", "remarks": "warnings",
             "settings_once": "legacy_defaults"}  # fmt: skip


class ModelWrapper(nn.Module):
    """Holds a model, the sites where noise enters and the layer of the embedding."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for old, new in OLD_HOOKS.items():
            if old in vars(cls) and new not in vars(cls):
                warnings.warn(
                    f"{cls.__name__}.{old} is now called {new}; 0.3 removes the old name",
                    DeprecationWarning,
                    stacklevel=2,
                )
                setattr(cls, new, vars(cls)[old])

    def __init__(
        self, model: nn.Module, sites: tuple[str, ...] | list[str] | str, embedding: str | None
    ) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise UnseenError(f"model must be a torch.nn.Module, not {type(model).__name__}")
        if not any(p.requires_grad for p in model.parameters()):
            raise UnseenError("the model has no trainable parameters")
        self.model = model
        self.sites = resolve_sites(model, sites)
        self.embedding = embedding
        if embedding is not None:
            submodule(model, embedding, "embedding")

    def forward(self, *x: Tensor) -> Tensor:
        """Return the model's output, so that the wrapper can replace its model."""
        out: Tensor = self.model(*x)
        return out

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def trainable(self) -> dict[str, nn.Parameter]:
        """Return the model's parameters that require a gradient, by name."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def _ready(self, x: Any) -> tuple[Tensor, ...]:
        """Return the inputs on the model's device and in its memory format."""
        return laid_out_for(self.model, inputs(x))


def resolve_sites(model: nn.Module, sites: tuple[str, ...] | list[str] | str) -> tuple[str, ...]:
    """Return the names of the sites; "auto" is the first conv or linear layer."""
    if sites == "auto":
        layers = perturbable_layers(model)
        if not layers:
            raise UnseenError('sites="auto" found no conv or linear layer in the model')
        return (layers[0],)
    names = (sites,) if isinstance(sites, str) else tuple(sites)
    for name in names:
        submodule(model, name, "site")
    if len(set(names)) < len(names):
        raise UnseenError(f"a site is named twice: {', '.join(names)}")
    return names


@torch.no_grad()
def embedding_snapshot(model: nn.Module, embedding: str | None, batch: Batch) -> dict[str, Tensor]:
    """Return the first features of a batch's embedding, with its labels."""
    if embedding is None:
        return {}
    with evaluating(model), captured(model, (embedding,)) as outputs:
        model(*batch.x)
    features = outputs[embedding].flatten(1)[:, :SNAPSHOT_FEATURES]
    # Label maps would be most of a run's size.
    return {"embedding": features} if batch.y.dim() > 1 else {
        "embedding": features, "labels": batch.y
    }  # fmt: skip
