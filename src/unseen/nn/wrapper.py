"""A module around a user's model, with named layers."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unseen.errors import UnseenError
from unseen.nn.batch import Batch
from unseen.nn.calls import Output as Output
from unseen.nn.calls import call_for_logits, call_model, check_output
from unseen.nn.hooks import captured, evaluating, laid_out_for
from unseen.nn.inputs import (
    Inputs,
    check_finite,
    check_finite_logits,
    check_logits,
    describe_type,
    inputs,
)
from unseen.nn.microbatches import DividesBatches
from unseen.nn.model_errors import model_errors
from unseen.nn.objectives import HasObjective
from unseen.nn.places import COMPILED, find_place, named_layers
from unseen.nn.precision import GradientSteps, at_least_float32
from unseen.nn.probe import Probe, find_embedding, find_site, probe_model, recomputed_layer

log = logging.getLogger("unseen")

AUTO = "auto"
PARALLEL = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule")
SNAPSHOT_FEATURES = 256
# Methods that a subclass may override, by their names in version 0.1; to be removed in 0.3.
OLD_HOOKS = {"memory": "extra_state", "remember": "load_extra_state", "remarks": "warnings",
             "settings_once": "legacy_defaults"}  # fmt: skip


class ModelWrapper(HasObjective, GradientSteps, DividesBatches, nn.Module):
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

    needs_embedding: ClassVar[bool] = False  # find it if it is not named
    edits_passes: ClassVar[bool] = False  # gradients through passes that are not the model's own
    regroups_samples: ClassVar[bool] = False  # processes have other numbers of samples in a loss

    def __init__(
        self,
        model: nn.Module,
        sites: tuple[str, ...] | list[str] | str,
        embedding: str | None,
        output: Output = None,
    ) -> None:
        super().__init__()
        self.model = bare_model(model)
        if not any(p.requires_grad for p in self.model.parameters()):
            raise UnseenError("the model has no trainable parameters")
        self.finds_site = sites == AUTO and AUTO not in named_layers(self.model)
        self.sites = () if self.finds_site else site_names(self.model, sites)
        self.finds_embedding = embedding == AUTO or (embedding is None and self.needs_embedding)
        self.embedding_is_optional = False  # train without it if it is not found
        self.embedding = None if self.finds_embedding else embedding
        if self.embedding is not None:
            find_place(self.model, self.embedding, "embedding")
        self.output = check_output(output)
        self._prepared = False

    def prepare(self, batch: Any) -> None:
        """Find the layers that were left open, and check all of them with one batch.

        The first step does it. Before it, methods that find a site have no heads and no optimizer.
        """
        if not self._prepared:
            x = self._ready(Batch.of(batch).x)
            with model_errors(self.model, x):
                self._prepare(x)

    def _prepare(self, x: tuple[Tensor, ...]) -> None:
        if self.finds_site or self.finds_embedding:
            self._find_layers(x)
        self._check_layers(x)
        self._prepared = True

    @property
    def is_built(self) -> bool:
        """Whether all layers have names, and what depends on them is there."""
        return not (self.finds_site or self.finds_embedding)

    def _find_layers(self, x: tuple[Tensor, ...]) -> None:
        seen = probe_model(self.model, x, self.output_reader, self.sites)
        sites = (find_site(seen, self.model),) if self.finds_site else self.sites
        first = next((site for site in sites if site in seen.outputs), None)
        embedding = self.embedding
        if self.finds_embedding:
            try:
                embedding = find_embedding(seen, self.model, first)
            except UnseenError:
                if not self.embedding_is_optional:
                    raise
        found_site, found_embedding = self.finds_site, self.finds_embedding
        self.sites, self.embedding = sites, embedding
        self.finds_site = self.finds_embedding = False
        names = [*sites, *([] if embedding is None else [embedding])]
        shapes = probe_model(self.model, x, self.output_reader, names)
        if found_site:
            site = sites[0]
            log.warning('sites="auto": noise enters at "%s", %s', site, shapes.shape(site))
        if found_embedding and embedding is not None:
            shape = shapes.shape(embedding)
            log.warning('embedding: found at "%s", %s', embedding, shape)
        self._name_found_layers(shapes)

    def _name_found_layers(self, seen: Probe) -> None:
        """Build what depends on the layers that were left open. Subclasses override this."""

    def _check_layers(self, x: tuple[Tensor, ...]) -> None:
        """Raise unless the model runs the named layers. Subclasses check more."""
        names = [*self.sites, *([] if self.embedding is None else [self.embedding])]
        if names:
            seen = probe_model(self.model, x, self.output_reader, names)
            if missed := [name for name in names if name not in seen.visits]:
                raise UnseenError(
                    f"forward never reached {', '.join(missed)}: name layers that it uses"
                )
        if self.edits_passes and (layer := recomputed_layer(self.model, x, self.output_reader)):
            raise UnseenError(
                f'the model recomputes activations in the backward pass ("{layer}" ran again), '
                "without the changes that this method makes to the pass: turn activation "
                "checkpointing off, as model.gradient_checkpointing_disable(), and train with "
                "activation_checkpointing=True; or use ERM"
            )

    def build_for(self, state: Mapping[str, Tensor]) -> None:
        """Build what was made when these weights were trained. Subclasses override this."""

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return weights and buffers, as if no part of the model was compiled."""
        state = super().state_dict(*args, **kwargs)
        for name in [name for name in state if COMPILED in name]:
            state[name.replace(COMPILED, "")] = state.pop(name)
        return state

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load what `state_dict` returned, also into a model that is compiled."""
        own = {name.replace(COMPILED, ""): name for name in super().state_dict()}
        state = {own.get(name, name): tensor for name, tensor in state_dict.items()}
        return super().load_state_dict(state, strict, assign)

    def forward(self, *x: Any, **keywords: Any) -> Any:
        """Return the model's output, so that the wrapper can replace its model."""
        return self.model(*x, **keywords)

    def logits(self, x: tuple[Tensor, ...], params: Mapping[str, Tensor] | None = None) -> Tensor:
        """Return the model's logits, under other parameters and buffers if they are given."""
        logits: Tensor = call_for_logits(self.model, x, self.output_reader, params)
        return logits

    def adjust_to(self, steps: int) -> None:
        """Scale defaults with the length of a fit; settings that were given stay."""

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
            self.prepare(batch)
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
        check_finite_logits(logits)
        return logits

    return guarded


def bare_model(model: Any) -> nn.Module:
    """Return the module that a user wrote: out of torch.compile; not wrapped for several devices.

    Noise enters through hooks, which compiled code does not call.
    """
    if not isinstance(model, nn.Module):
        raise UnseenError(f"model must be a torch.nn.Module, not {describe_type(model)}")
    if "_orig_mod" in model._modules:
        log.warning("the model is compiled: it is trained and scored as it was written")
        return bare_model(model._orig_mod)
    for name, module in model.named_modules():
        kinds = [kind.__name__ for kind in type(module).__mro__ if kind.__name__ in PARALLEL]
        if kinds:
            where = f' in its layer "{name}"' if name else ""
            raise UnseenError(
                f"the model is wrapped in {kinds[0]}{where}: give the bare module, as before the "
                "wrap or model.module; start several processes with torchrun, and the library "
                "averages gradients itself"
            )
    return model


def site_names(model: nn.Module, sites: tuple[str, ...] | list[str] | str) -> tuple[str, ...]:
    """Return the names of the sites, or raise if the model does not have them."""
    if not isinstance(sites, str | list | tuple):
        raise UnseenError(
            'sites must be names of layers, such as ["conv1"], or "auto", not '
            f"{describe_type(sites)}"
        )
    names = (sites,) if isinstance(sites, str) else tuple(sites)
    for name in names:
        find_place(model, name, "site")
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
