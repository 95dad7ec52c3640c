"""Files that are whole or absent: written to a temporary name and renamed. Weights are safetensors, which hold no code."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unseen.api import Method
from unseen.detection.source_statistics import EmbeddingShiftPredictor, SourceStatistics
from unseen.errors import UnseenError
from unseen.files import locked as locked
from unseen.files import read_json, write_json
from unseen.files import write_atomically as write_atomically
from unseen.nn.tensor_files import read_tensors, write_tensors
from unseen.training.config import describe_type, matches_type

FORMAT = 1
CONFIG, MODEL, SOURCE = "config.json", "model.safetensors", "source.safetensors"
READER = {field.name for field in dataclasses.fields(EmbeddingShiftPredictor)}


def fill(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Put the tensors into the module, or say which names and shapes do not fit and change nothing."""
    own = module.state_dict()
    problems = [f"missing {name}" for name in own if name not in tensors]
    problems += [f"unexpected {name}" for name in tensors if name not in own]
    problems += [
        f"{name} is {tuple(tensors[name].shape)} in the file, {tuple(own[name].shape)} in the model"
        for name in own
        if name in tensors and tensors[name].shape != own[name].shape
    ]
    if problems:
        more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise UnseenError(f"{path} does not fit this model: {'; '.join(problems[:5])}{more}")
    module.load_state_dict(tensors)


def save_method(net: Method, folder: Path, config: dict[str, Any] | None = None) -> None:
    """Weights, source statistics and configuration of a trained method."""
    write_json(folder / CONFIG, {**(config or {}), **method_config(net)})
    if net.reference is not None:
        save_reference(net, folder)
    write_tensors(folder / MODEL, net.state_dict())


def save_reference(net: Method, folder: Path) -> None:
    """What the method remembers of its source, and where its score is read."""
    assert net.reference is not None
    reader = (
        {} if net.reader is None else {f"reader/{name}": t for name, t in vars(net.reader).items()}
    )
    write_tensors(
        folder / SOURCE, {"mean": net.reference.mean, "held_out": net.reference.held_out, **reader}
    )


def method_config(net: Method) -> dict[str, Any]:
    settings = {k: list(v) if isinstance(v, tuple) else v for k, v in net.settings().items()}
    return {"format": FORMAT, "method": net.name, "settings": settings}


def load_method(folder: Path, model: nn.Module) -> Method:
    """The method as it was saved, around the given model, which takes over the saved weights."""
    from unseen.methods import method_named

    config = read_json(folder / CONFIG)
    if config.get("format") != FORMAT:
        raise UnseenError(
            f"{folder / CONFIG}: format is {config.get('format')!r}, this version reads {FORMAT}"
        )
    kind = method_named(str(config.get("method")))
    settings = config.get("settings")
    if not isinstance(settings, dict):
        raise UnseenError(f'{folder / CONFIG}: "settings" must be an object')
    if unknown := [name for name in settings if name not in kind.settings_of()]:
        raise UnseenError(f"{folder / CONFIG}: {kind.name} has no setting {', '.join(unknown)}")
    hints = {name: p.annotation for name, p in kind.settings_of().items()}
    for name, value in settings.items():
        if not matches_type(value, hints[name]):
            raise UnseenError(
                f"{folder / CONFIG}: {name} must be {describe_type(hints[name])}, not {value!r}"
            )
    net = kind(model, **settings)
    fill(net, read_tensors(folder / MODEL), folder / MODEL)
    if (folder / SOURCE).exists():
        tensors = read_tensors(folder / SOURCE)
        reader = {
            name.removeprefix("reader/"): tensors.pop(name)
            for name in list(tensors)
            if name.startswith("reader/")
        }
        if set(tensors) != {"mean", "held_out"} or (reader and set(reader) != READER):
            raise UnseenError(
                f"{folder / SOURCE} must hold mean and held_out, it holds {', '.join([*tensors, *reader])}"
            )
        mean, held_out = tensors["mean"], tensors["held_out"]
        if (
            mean.dim() != 1
            or held_out.dim() != 2
            or held_out.shape[1:] != mean.shape
            or not len(held_out)
        ):
            raise UnseenError(
                f"{folder / SOURCE}: mean must be (F,) and held_out (N, F), not {mean.shape} and {held_out.shape}"
            )
        if not (mean.isfinite().all() and held_out.isfinite().all()):
            raise UnseenError(
                f"{folder / SOURCE} holds numbers that are not finite: train the run again"
            )
        net.reference = SourceStatistics(mean, held_out)
        if reader:
            net.reader = _checked_reader(reader, len(mean), folder / SOURCE)
    return net.eval()


def _checked_reader(
    reader: dict[str, Tensor], features: int, path: Path
) -> EmbeddingShiftPredictor:
    for name, tensor in reader.items():
        shape = (features, features) if name == "weight" else (features,)
        if tensor.shape != shape or not tensor.isfinite().all():
            raise UnseenError(
                f"{path}: reader/{name} must hold finite numbers of shape {shape}: run `unseen calibrate` again"
            )
    return EmbeddingShiftPredictor(**reader)


def training_state(net: Method) -> dict[str, Tensor]:
    """Everything a killed run needs to go on with the same bits."""
    state = {f"net/{name}": t for name, t in net.state_dict().items()}
    for label, optimizer in net.optimizers().items():
        for index, entry in optimizer.state_dict()["state"].items():
            for key, value in entry.items():
                state[f"optimizer/{label}/{index}/{key}"] = torch.as_tensor(value)
    state |= {f"memory/{name}": t for name, t in net.extra_state().items()}
    state["random/cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        state["random/cuda"] = torch.cuda.get_rng_state()
    return state


def restore_training_state(net: Method, state: dict[str, Tensor], path: Path) -> None:
    """Put a checkpoint back, or say that it is not one of this run."""
    try:
        _restore(net, state, path)
    except (KeyError, RuntimeError, TypeError, ValueError, IndexError) as error:
        raise UnseenError(
            f"{path} is not a checkpoint of this run: {type(error).__name__}: {error}"
        ) from error


def _restore(net: Method, state: dict[str, Tensor], path: Path) -> None:
    fill(
        net,
        {name.removeprefix("net/"): t for name, t in state.items() if name.startswith("net/")},
        path,
    )
    for label, optimizer in net.optimizers().items():
        entries: dict[int, dict[str, Tensor]] = {}
        prefix = f"optimizer/{label}/"
        for name, tensor in state.items():
            if name.startswith(prefix):
                index, key = name.removeprefix(prefix).split("/", 1)
                entries.setdefault(int(index), {})[key] = tensor
        optimizer.load_state_dict(
            {"state": entries, "param_groups": optimizer.state_dict()["param_groups"]}
        )
    net.load_extra_state(
        {name.removeprefix("memory/"): t for name, t in state.items() if name.startswith("memory/")}
    )
    torch.set_rng_state(state["random/cpu"])
    if torch.cuda.is_available() and "random/cuda" in state:
        torch.cuda.set_rng_state(state["random/cuda"])
