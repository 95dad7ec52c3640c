"""Places in a user's model where features are read or changed, by name.

conv1      the output of the layer conv1; the first one if it returns several
fc:input   what enters the layer fc
input      what enters the model, unless a layer has this name
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from unseen.errors import UnseenError

INPUT, ENTRY = "input", ":input"
COMPILED = "_orig_mod."  # torch.compile puts it into the names of layers
CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
BATCH_NORMS = (nn.modules.batchnorm._NormBase,)  # also instance norms


class Place(NamedTuple):
    """A module, and whether its input or its output is meant."""

    name: str
    module: nn.Module
    at_input: bool


class Features(NamedTuple):
    """The number of features of a layer and their axis."""

    width: int
    axis: int


def named_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return all modules by name, as they would be called in a model that is not compiled."""
    return {name.replace(COMPILED, ""): module for name, module in model.named_modules()}


def find_place(model: nn.Module, name: str, role: str) -> Place:
    """Return the named place, or raise an error that lists the layers."""
    modules = named_layers(model)
    if isinstance(name, str) and name:
        if name in modules:
            return Place(name, modules[name], at_input=False)
        layer = name.removesuffix(ENTRY)
        if layer != name and layer in modules:
            return Place(name, modules[layer], at_input=True)
        if name == INPUT:
            return Place(name, model, at_input=True)
    names = [n for n, m in modules.items() if n and not any(m.children())]
    shown = ", ".join(names[:60]) + (f", ... ({len(names)} in all)" if len(names) > 60 else "")
    problem = f'no {role} "{name}"'
    if not isinstance(name, str):
        problem = f"the name of the {role} must be text, not {name!r}"
    raise UnseenError(f"{problem}; the model has: {shown or 'no named layers'}")


def submodule(model: nn.Module, name: str, role: str) -> nn.Module:
    """Return the module of the named place, or raise an error that lists the layers."""
    return find_place(model, name, role).module


# ---- features


def output_features(layer: nn.Module) -> Features | None:
    """Return the features of a layer's output, if its kind declares them."""
    if isinstance(layer, nn.Linear | nn.Bilinear):
        return Features(layer.out_features, -1)
    if isinstance(layer, (*CONVS, *TRANSPOSED)):
        return Features(layer.out_channels, 1)
    if isinstance(layer, BATCH_NORMS):
        return Features(layer.num_features, 1)
    if isinstance(layer, nn.GroupNorm):
        return Features(layer.num_channels, 1)
    if isinstance(layer, nn.LayerNorm | nn.RMSNorm):
        return Features(layer.normalized_shape[0], -len(layer.normalized_shape))
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        return Features(layer.embedding_dim, -1)
    if isinstance(layer, nn.RNNBase):
        size = layer.proj_size or layer.hidden_size
        return Features(size * (2 if layer.bidirectional else 1), -1)
    if isinstance(layer, nn.MultiheadAttention):
        return Features(layer.embed_dim, -1)
    for attribute, axis in (("out_features", -1), ("out_channels", 1), ("num_features", 1)):
        if isinstance(width := getattr(layer, attribute, None), int):  # a layer of the user's own
            return Features(width, axis)
    return None


def input_features(layer: nn.Module) -> Features | None:
    """Return the features of a layer's input, if its kind declares them."""
    if isinstance(layer, nn.Linear):
        return Features(layer.in_features, -1)
    if isinstance(layer, (*CONVS, *TRANSPOSED)):
        return Features(layer.in_channels, 1)
    if isinstance(layer, nn.RNNBase):
        return Features(layer.input_size, -1)
    keeps = isinstance(layer, nn.GroupNorm | nn.LayerNorm | nn.RMSNorm | nn.MultiheadAttention)
    return output_features(layer) if keeps or isinstance(layer, BATCH_NORMS) else None


def declared_features(model: nn.Module, name: str) -> Features | None:
    """Return the features at a place, if its layer declares them."""
    place = find_place(model, name, "layer")
    return input_features(place.module) if place.at_input else output_features(place.module)


def features_before(model: nn.Module, name: str) -> Features | None:
    """Return the features at a place; a layer that declares none has those of the one before it.

    A block has the features of the last layer in it.
    """
    if (declared := declared_features(model, name)) is not None:
        return declared
    modules = named_layers(model)
    if name not in modules:
        return None
    names = list(modules)
    end = max(i for i, other in enumerate(names) if other == name or other.startswith(f"{name}."))
    for other in reversed(names[1 : end + 1]):  # the first one is the model
        if (declared := output_features(modules[other])) is not None:
            return declared
    return None


def channel_axis(model: nn.Module, name: str) -> int:
    """Return the axis of the features at a place."""
    if (found := features_before(model, name)) is not None:
        return found.axis
    has_channels = any(isinstance(m, (*CONVS, *TRANSPOSED)) for m in model.modules())
    return 1 if has_channels else -1


def width_at(model: nn.Module, name: str) -> int:
    """Return the number of features at the named place."""
    if (found := features_before(model, name)) is not None:
        return found.width
    raise UnseenError(
        f'no layer up to "{name}" declares its number of features: name a linear, conv or norm '
        "layer"
    )


# ---- compiled parts


def is_compiled(model: nn.Module) -> bool:
    """Return whether a part of the model is compiled by torch.compile."""
    return any(
        "_orig_mod" in m._modules or m._compiled_call_impl is not None for m in model.modules()
    )


def eager(model: nn.Module) -> AbstractContextManager[Any]:
    """Run compiled parts as they were written: compiled code calls no hooks.

    It has no second derivatives either.
    """
    return torch.compiler.set_stance("force_eager") if is_compiled(model) else nullcontext()


def first_float(values: tuple[object, ...]) -> int:
    """Return the place of the first tensor of floats, or 0."""
    found = (i for i, t in enumerate(values) if isinstance(t, Tensor) and t.is_floating_point())
    return next(found, 0)
