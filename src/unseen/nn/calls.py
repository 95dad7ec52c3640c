"""Call a user's model: inputs by position and by name, logits from whatever it returns."""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from unseen.errors import UnseenError
from unseen.nn.inputs import Inputs, describe_type
from unseen.nn.places import eager

log = logging.getLogger("unseen")

Output = str | Callable[[Any], Tensor] | None
LOGIT_KEYS = ("logits", "out")  # of transformers, and of torchvision's segmentation models


def call_model(
    model: nn.Module, x: tuple[Tensor, ...], params: Mapping[str, Tensor] | None = None
) -> Any:
    """Return the model's output, under other parameters and buffers if they are given."""
    x = bind(model, x)
    if params is None:
        return model(*x.positional, **x.keywords)
    with eager(model):
        return torch.func.functional_call(model, dict(params), x.positional, x.keywords)


def call_for_logits(
    model: nn.Module,
    x: tuple[Tensor, ...],
    output: Output = None,
    params: Mapping[str, Tensor] | None = None,
) -> Any:
    """Return the logits of the model, under other parameters and buffers if they are given."""
    return logits_from(call_model(model, x, params), output)


def bind(model: nn.Module, x: tuple[Tensor, ...]) -> Inputs:
    """Match the names of inputs with the arguments of the model's forward.

    A single input may have any name. Of several, those without an argument are left out.
    """
    if not isinstance(x, Inputs):
        return Inputs(x)
    if not x.names:
        return x
    known, takes_any = _arguments(model)
    found = [name for name in x.names if name in known]
    if len(found) == len(x.names) or (takes_any and not found):
        return x
    if len(x) == 1:
        return Inputs(x)
    if not found:
        raise UnseenError(
            f"the batch has inputs {', '.join(x.names)}, the model's forward takes "
            f"{', '.join(known) or 'none'}: rename the entries of the batch"
        )
    _notice_left_out(model, tuple(name for name in x.names if name not in known))
    return Inputs((*x.positional, *(x.keywords[name] for name in found)), found)


_ARGUMENTS: WeakKeyDictionary[nn.Module, tuple[tuple[str, ...], bool]] = WeakKeyDictionary()
_LEFT_OUT: WeakKeyDictionary[nn.Module, tuple[str, ...]] = WeakKeyDictionary()


def _arguments(model: nn.Module) -> tuple[tuple[str, ...], bool]:
    """Return the names that the model's forward takes, and whether it takes any others."""
    if model not in _ARGUMENTS:
        parameters = inspect.signature(model.forward).parameters.values()
        variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        known = tuple(p.name for p in parameters if p.kind not in variable)
        _ARGUMENTS[model] = known, any(p.kind is p.VAR_KEYWORD for p in parameters)
    return _ARGUMENTS[model]


def _notice_left_out(model: nn.Module, names: tuple[str, ...]) -> None:
    if _LEFT_OUT.get(model) != names:  # once per model
        _LEFT_OUT[model] = names
        log.warning(
            "%s of the batch left out: the model's forward has no such argument", ", ".join(names)
        )


def logits_from(out: Any, output: Output = None) -> Any:
    """Return the logits in a model's output.

    Args:
        output: where they are: a key, an attribute, or a function of the output. None finds a
            tensor, the entry "logits" or "out", or the first entry of a tuple.
    """
    if callable(output):
        return output(out)
    if output is not None:
        return _entry(out, output)
    if isinstance(out, Tensor):
        return out
    entries = _entries(out)
    for key in LOGIT_KEYS:
        if key in entries:
            return entries[key]
    if isinstance(out, list | tuple) and out and isinstance(out[0], Tensor):
        return out[0]
    if len(entries) == 1:
        return next(iter(entries.values()))
    if entries:
        raise UnseenError(
            f"the model returns {type(out).__name__} with {', '.join(entries)}: name the logits, "
            f'as output="{next(iter(entries))}"'
        )
    return out  # the caller checks it


def _entry(out: Any, key: str) -> Any:
    entries = _entries(out)
    if key in entries:
        return entries[key]
    has = f"it has {', '.join(entries)}" if entries else f"it is {describe_type(out)}"
    raise UnseenError(f'the output of the model has no "{key}"; {has}: set output=')


def _entries(out: Any) -> dict[str, Any]:
    """Return the entries of an output by name: of a mapping, a named tuple or an object."""
    if isinstance(out, Mapping):
        return {str(key): value for key, value in out.items()}
    if isinstance(out, Tensor):
        return {}
    if isinstance(out, list | tuple):
        fields = getattr(out, "_fields", None) or map(str, range(len(out)))
        return dict(zip(fields, out, strict=True))
    if dataclasses.is_dataclass(out):
        return {f.name: getattr(out, f.name) for f in dataclasses.fields(out)}
    return {k: v for k, v in getattr(out, "__dict__", {}).items() if k[:1] != "_"}


def check_output(output: Any) -> Output:
    """Return where the logits are, or raise an error that says what is taken."""
    if output is None or callable(output) or (isinstance(output, str) and output):
        return output  # type: ignore[no-any-return]
    raise UnseenError(
        'output must name the logits in what the model returns, as "logits", or be a function of '
        f"it; it is {describe_type(output)}"
    )
