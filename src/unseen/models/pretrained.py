"""Load pretrained weights into any model; only the last layer may differ."""

from __future__ import annotations

import logging
from pathlib import Path

from torch import Tensor, nn

from unseen.errors import UnseenError
from unseen.models.resnet import read_weights

log = logging.getLogger("unseen")

SHOWN = 20


def load_pretrained_weights(model: nn.Module, path: str | Path) -> None:
    """Load weights from a safetensors or torch file; list every tensor that does not fit.

    The last layer keeps its random weights if the file lacks it or has it in another shape, as
    the weights of a model for other classes do.
    """
    tensors, own = read_weights(Path(path)), model.state_dict()
    last = _last_layer(model)
    missing = [n for n in own if n not in tensors and not n.endswith("num_batches_tracked")]
    shapes = [n for n in own if n in tensors and tensors[n].shape != own[n].shape]
    fresh = [n for n in (*missing, *shapes) if n.rpartition(".")[0] == last]
    problems = {
        "missing in the file": [n for n in missing if n not in fresh],
        "unexpected in the file": [n for n in tensors if n not in own],
        "of another shape": [_shapes(n, tensors, own) for n in shapes if n not in fresh],
        "not finite": [n for n in own if n in tensors and not tensors[n].isfinite().all()],
    }
    if any(problems.values()):
        raise UnseenError(f"{path} does not fit this model\n{_listing(problems)}")
    if fresh:
        log.warning("%s: %s start from random weights", path, ", ".join(fresh))
    used = {n: own[n] if n in fresh else tensors.get(n, own[n]) for n in own}
    model.load_state_dict(used)


def _last_layer(model: nn.Module) -> str:
    names = [name for name, m in model.named_modules() if list(m.parameters(recurse=False))]
    return names[-1] if names else ""


def _shapes(name: str, tensors: dict[str, Tensor], own: dict[str, Tensor]) -> str:
    theirs, ours = tuple(tensors[name].shape), tuple(own[name].shape)
    return f"{name}: {theirs} in the file, {ours} in the model"


def _listing(problems: dict[str, list[str]]) -> str:
    lines = []
    for kind, names in problems.items():
        if names:
            lines.append(f"{kind}: {len(names)}")
            lines += [f"  {name}" for name in names[:SHOWN]]
            lines += [f"  and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return "\n".join(lines)
