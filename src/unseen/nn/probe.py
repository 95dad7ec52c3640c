"""One pass of a few samples that shows which layers a model runs, in which order.

Methods take it before their first step: it finds the layers that a user left open, and the mistakes
that would show up only later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from unseen.errors import UnseenError
from unseen.nn.calls import Output, call_for_logits
from unseen.nn.hooks import evaluating, scratch_buffers, visited
from unseen.nn.inputs import Inputs, check_logits, map_inputs, take_rows
from unseen.nn.model_errors import model_errors
from unseen.nn.places import CONVS, ENTRY, INPUT, TRANSPOSED, eager, named_layers

FINAL_LAYERS = (*CONVS, nn.Linear)  # that may compute the logits
FIRST_LAYERS = (*FINAL_LAYERS, *TRANSPOSED, nn.Embedding, nn.EmbeddingBag, nn.RNNBase)


@dataclass
class Probe:
    """What one pass showed of the layers that noise may enter, in the order they ran."""

    samples: int
    outputs: dict[str, Tensor] = field(default_factory=dict)  # at the places, detached
    visits: dict[str, int] = field(default_factory=dict)
    reaching: set[str] = field(default_factory=set)  # places whose features reach the logits
    classes: int = 0  # columns of the logits

    def is_site(self, name: str) -> bool:
        """Return whether noise can enter here: floats, batch first, once, on the way to logits."""
        out = self.outputs.get(name)
        return (
            out is not None
            and self.visits[name] == 1
            and name in self.reaching
            and out.dim() > 1
            and len(out) == self.samples
        )

    def shape(self, name: str) -> str:
        """Return the shape at a place, with N for the batch."""
        return f"(N, {', '.join(map(str, self.outputs[name].shape[1:]))})"


def first_samples(x: tuple[Tensor, ...], n: int = 2) -> Inputs:
    return map_inputs(Tensor.detach, take_rows(x, slice(n)))


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """Take passes in eval mode; random numbers are left as they were."""
    with torch.random.fork_rng(devices=_devices(model)), evaluating(model):
        yield


def _devices(model: nn.Module) -> list[torch.device]:
    """Return the GPU whose random numbers a pass may draw."""
    parameter = next(model.parameters(), None)
    on_gpu = parameter is not None and parameter.device.type == "cuda"
    return [parameter.device] if on_gpu and parameter is not None else []


def probe_model(
    model: nn.Module, x: tuple[Tensor, ...], output: Output = None, places: Sequence[str] = ()
) -> Probe:
    """Pass a few samples; look at the named places and at all layers that noise may enter."""
    # A dimension of the size of the batch would look like it.
    x = first_samples(x, 3 if any(t.shape[1:2] == (2,) for t in x) else 2)
    seen = Probe(len(x[0]))
    anchors: dict[str, Tensor] = {}

    def visit(name: str, _: Any, h: Any) -> Tensor | None:
        seen.visits[name] = seen.visits.get(name, 0) + 1
        if not isinstance(h, Tensor) or not h.is_floating_point():
            return None
        seen.outputs.setdefault(name, h.detach())
        # Zero: the pass is the same, and logits that h reaches have a gradient in the anchor.
        anchors[name] = torch.zeros((), dtype=h.dtype, device=h.device, requires_grad=True)
        return h + anchors[name]

    layers = [name for name, m in named_layers(model).items() if isinstance(m, FIRST_LAYERS)]
    names = dict.fromkeys([INPUT, *layers, *places])
    with _undisturbed(model), torch.enable_grad(), eager(model):
        with model_errors(model, x), visited(model, names, visit):
            logits = call_for_logits(model, x, output)
        check_logits(logits, seen.samples)
        seen.classes = logits.shape[1]
        if logits.requires_grad:
            seen.reaching = _reaching(logits, anchors)
    return seen


def _reaching(logits: Tensor, anchors: dict[str, Tensor]) -> set[str]:
    """Return the names of the anchors that the logits have a gradient in."""
    try:
        gradients = torch.autograd.grad(logits.sum(), list(anchors.values()), allow_unused=True)
    except RuntimeError as error:
        if "checkpoint" not in str(error):
            raise
        return set(anchors)  # reentrant checkpointing hides it; `recomputed_layer` finds that
    return {name for name, g in zip(anchors, gradients, strict=True) if g is not None}


def find_site(seen: Probe, model: nn.Module) -> str:
    """Return the first layer on the way to the logits that noise can enter, else the input."""
    layers = named_layers(model)
    sites = [n for n in seen.outputs if isinstance(layers.get(n), FIRST_LAYERS) and seen.is_site(n)]
    if not sites and not seen.is_site(INPUT):
        raise UnseenError(
            'sites="auto" found no layer that runs once, returns floats with the batch first and '
            "reaches the logits: name a layer"
        )
    return sites[0] if sites else INPUT


def find_embedding(seen: Probe, model: nn.Module, site: str | None) -> str:
    """Return what enters the last linear or conv layer on the way to the logits.

    A site that comes later is the embedding itself.
    """
    layers, order = named_layers(model), list(seen.outputs)
    last = [n for n in order if isinstance(layers.get(n), FINAL_LAYERS) and seen.is_site(n)]
    if last and (site is None or order.index(last[-1]) > order.index(site)):
        return last[-1] + ENTRY
    if site is None:
        raise UnseenError(
            "no linear or conv layer computes the logits: name the last hidden layer, "
            'as embedding="fc2"'
        )
    return site


def check_places(
    seen: Probe, sites: Sequence[str], mix_at: str | None, embedding: str | None
) -> None:
    """Raise unless the pass reaches the named places once, in an order that can work."""
    names = dict.fromkeys([*sites, *(n for n in (mix_at, embedding) if n is not None)])
    if missed := [n for n in names if n not in seen.visits]:
        raise UnseenError(f"forward never reached {', '.join(missed)}: name layers that it uses")
    for name in names:
        if seen.visits[name] > 1:
            raise UnseenError(
                f'forward reached "{name}" twice in one pass: name a layer that is used once'
            )
        if name not in seen.outputs:
            raise UnseenError(f'"{name}" gives no tensor of floats: name a layer that returns one')
    for site in sites:
        if len(seen.outputs[site]) != seen.samples:
            raise UnseenError(
                f'"{site}" gives {tuple(seen.outputs[site].shape)} for {seen.samples} samples: a '
                "site must keep the batch first"
            )
        if site not in seen.reaching:
            raise UnseenError(
                f'noise at "{site}" does not reach the logits: the model does not use its (first) '
                "output, or cuts its gradient; name another site"
            )
    reached = list(seen.outputs)
    order = [name for name in reached if name in sites]
    if order != list(sites):
        raise UnseenError(
            f"forward reaches the sites in another order: name them as {', '.join(order)}"
        )
    if mix_at is not None and reached.index(mix_at) < reached.index(sites[-1]):
        raise UnseenError(f'mixup.at "{mix_at}" is reached before the last site "{sites[-1]}"')
    if embedding is not None and sites and reached.index(embedding) < reached.index(sites[0]):
        raise UnseenError(f'embedding "{embedding}" is reached before the first site "{sites[0]}"')


def recomputed_layer(model: nn.Module, x: tuple[Tensor, ...], output: Output = None) -> str | None:
    """Return a layer that runs again in the backward pass: activation checkpointing."""
    visits: dict[str, int] = {}

    def visit(name: str, _: Any, h: Any) -> None:
        visits[name] = visits.get(name, 0) + 1

    names = [name for name, m in named_layers(model).items() if name and not any(m.children())]
    state = {**dict(model.named_parameters()), **scratch_buffers(model)}
    devices = _devices(model)
    with torch.random.fork_rng(devices), torch.enable_grad(), visited(model, names, visit):
        logits = call_for_logits(model, first_samples(x), output, state)
        before = dict(visits)
        trainable = [p for p in model.parameters() if p.requires_grad]
        try:
            torch.autograd.grad(logits.sum(), trainable, allow_unused=True)
        except RuntimeError as error:
            if "checkpoint" not in str(error):
                raise
            return "a block"  # its reentrant kind refuses such a gradient
    return next((name for name in visits if visits[name] > before.get(name, 0)), None)
