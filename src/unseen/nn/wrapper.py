"""A module around a user's model, with named layers."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from unseen.errors import UnseenError
from unseen.nn.batch import Batch
from unseen.nn.calls import Output as Output
from unseen.nn.calls import call_for_logits, call_model, check_output
from unseen.nn.hooks import captured, evaluating, laid_out_for, perturbable_layers, submodule
from unseen.nn.inputs import Inputs, check_finite, check_logits, describe_type, inputs
from unseen.nn.model_errors import model_errors
from unseen.nn.objectives import HasObjective
from unseen.nn.precision import GradientSteps, at_least_float32

SNAPSHOT_FEATURES = 256
# Methods that a subclass may override, by their names in version 0.1; to be removed in 0.3.
OLD_HOOKS = {"memory": "extra_state", "remember": "load_extra_state", "remarks": "warnings",
             "settings_once": "legacy_defaults"}  # fmt: skip


class ModelWrapper(HasObjective, GradientSteps, nn.Module):
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
        for name, guard in (("step", _guard_step), ("predict", _guard_predict)):
            if name in vars(cls):
                setattr(cls, name, guard(vars(cls)[name]))

    def __init__(
        self,
        model: nn.Module,
        sites: tuple[str, ...] | list[str] | str,
        embedding: str | None,
        output: Output = None,
    ) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise UnseenError(f"model must be a torch.nn.Module, not {describe_type(model)}")
        if not any(p.requires_grad for p in model.parameters()):
            raise UnseenError("the model has no trainable parameters")
        self.model = model
        self.sites = resolve_sites(model, sites)
        self.embedding = embedding
        if embedding is not None:
            submodule(model, embedding, "embedding")
        self.output = check_output(output)

    def forward(self, *x: Any, **keywords: Any) -> Any:
        """Return the model's output, so that the wrapper can replace its model."""
        return self.model(*x, **keywords)

    def logits(self, x: tuple[Tensor, ...], params: Mapping[str, Tensor] | None = None) -> Tensor:
        """Return the model's logits, under other parameters and buffers if they are given."""
        logits: Tensor = call_for_logits(self.model, x, self.output_reader, params)
        return logits

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def trainable(self) -> dict[str, nn.Parameter]:
        """Return the model's parameters that require a gradient, by name."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def _ready(self, x: Any) -> Inputs:
        """Return the inputs on the model's device and in its memory format."""
        return laid_out_for(self.model, inputs(x))


def _guard_step(step: Callable[..., Any]) -> Callable[..., Any]:
    """Check the batch of a step, and explain errors that the model raises."""

    @functools.wraps(step)
    def guarded(self: ModelWrapper, batch: Any, *args: Any, **kwargs: Any) -> Any:
        batch = Batch.of(batch)
        with model_errors(self.model, batch.x):
            return step(self, batch, *args, **kwargs)

    return guarded


def _guard_predict(predict: Callable[..., Any]) -> Callable[..., Any]:
    """Check the inputs and outputs of a prediction, and explain errors that the model raises."""

    @functools.wraps(predict)
    def guarded(self: ModelWrapper, x: Any) -> Any:
        values = check_finite(inputs(x))
        with model_errors(self.model, values):
            logits = predict(self, values[0] if isinstance(x, Tensor) else values)
        if isinstance(logits, Tensor):
            logits = at_least_float32(logits)
        check_logits(logits, len(values[0]))
        return logits

    return guarded


def resolve_sites(model: nn.Module, sites: tuple[str, ...] | list[str] | str) -> tuple[str, ...]:
    """Return the names of the sites; "auto" is the first conv or linear layer."""
    if sites == "auto":
        layers = perturbable_layers(model)
        if not layers:
            raise UnseenError('sites="auto" found no conv or linear layer in the model')
        return (layers[0],)
    if not isinstance(sites, str | list | tuple):
        raise UnseenError(
            'sites must be names of layers, such as ["conv1"], or "auto", not '
            f"{describe_type(sites)}"
        )
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
        call_model(model, batch.x)
    features = outputs[embedding].flatten(1)[:, :SNAPSHOT_FEATURES]
    # Label maps would be most of a run's size.
    return {"embedding": features} if batch.y.dim() > 1 or batch.y.is_floating_point() else {
        "embedding": features, "labels": batch.y
    }  # fmt: skip
