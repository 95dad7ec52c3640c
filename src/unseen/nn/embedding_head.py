"""A second task on a model's embedding, as self_super and jigen have it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unseen.errors import UnseenError
from unseen.nn.hooks import captured, scratch_buffers


class EmbeddingHead(nn.Linear):
    """A linear classifier on a model's embedding, averaged over space if it has any."""

    def __init__(self, model: nn.Module, layer: str | None, classes: int, wanted_by: str) -> None:
        if layer is None:
            raise UnseenError(
                f'{wanted_by} reads the model\'s embedding: name its last hidden layer, as embedding="fc2"'
            )
        super().__init__(width_at(model, layer), classes)
        self.layer = layer

    def forward(self, z: Tensor) -> Tensor:
        z = z.flatten(2).mean(2) if z.dim() > 2 else z
        if z.dim() != 2 or z.shape[1] != self.in_features:
            raise UnseenError(
                f'the embedding "{self.layer}" gives {tuple(z.shape[1:])} features, its layers said {self.in_features}: '
                "name a linear, conv or norm layer"
            )
        return super().forward(z)


def width_at(model: nn.Module, name: str) -> int:
    """How many features the named layer gives; one that does not say (ReLU, pooling) keeps those of the last before it."""
    names = [other for other, _ in model.named_modules()]
    end = max(i for i, other in enumerate(names) if other == name or other.startswith(f"{name}."))
    for other in reversed(names[: end + 1]):
        for says in ("out_features", "out_channels", "num_features"):
            if isinstance(width := getattr(model.get_submodule(other), says, None), int):
                return width
    raise UnseenError(
        f'no layer up to "{name}" says how many features it gives: name a linear, conv or norm layer'
    )


def embedded(model: nn.Module, layer: str, x: tuple[Tensor, ...]) -> Tensor:
    """The named layer's output in a pass that teaches BatchNorm's running averages nothing."""
    with captured(model, (layer,)) as seen:
        torch.func.functional_call(model, scratch_buffers(model), x)
    return seen[layer]
