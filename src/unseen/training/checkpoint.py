"""Save and load trained methods; checkpoint and restore the state of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict
from torch import Tensor, nn

from unseen.api import Method
from unseen.detection.registry import make_detector
from unseen.errors import UnseenError
from unseen.files import read_json, write_json
from unseen.nn.tensor_files import read_metadata, read_tensors, write_tensors
from unseen.schema import Section, construct_settings, plain, validate
from unseen.schema.migration import FORMAT, migrate_config

CONFIG, MODEL, SOURCE = "config.json", "model.safetensors", "source.safetensors"


class MethodConfig(Section):
    """What config.json of a saved method must hold."""

    model_config = ConfigDict(extra="allow")

    method: str
    settings: dict[str, Any]


def load_weights(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Load tensors into the module, or name those that do not fit and change nothing."""
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
    """Write weights, source statistics and configuration of a trained method."""
    write_json(folder / CONFIG, {**(config or {}), **method_config(net)})
    if net.detector.statistics is not None:
        save_detector(net, folder)
    write_tensors(folder / MODEL, net.state_dict())


def save_detector(net: Method, folder: Path) -> None:
    """Write the state of the calibrated detector."""
    metadata = {"detector": net.detector.name, **net.detector.options()}
    write_tensors(folder / SOURCE, net.detector.state_dict(), metadata)


def load_detector(net: Method, folder: Path) -> None:
    """Give the method the detector that was saved with it."""
    path = folder / SOURCE
    tensors, options = read_tensors(path), read_metadata(path)
    name = options.pop("detector", None)
    if name is None:  # 0.1 wrote no name; only one detector had tensors of a reader
        reader = any(key.startswith("reader/") for key in tensors)
        detector = net.make_detector("embedding" if reader else "site")
    elif name == net.detector.name:
        detector = net.detector
    else:
        detector = make_detector(name, net, **options)
    try:
        detector.load_state_dict(tensors)
    except UnseenError as error:
        raise UnseenError(f"{path}: {error}") from error
    net.detector = detector


def method_config(net: Method) -> dict[str, Any]:
    """Return the part of config.json that `load_method` needs."""
    return {"format": FORMAT, "method": net.name, "settings": plain(net.settings())}


def migrate_method_config(config: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the content of a config.json in the current format."""
    from unseen.methods import METHODS

    method = METHODS.get(str(config.get("method")))
    return migrate_config(config, where, getattr(method, "migrate_settings", None))


def load_method(folder: Path, model: nn.Module) -> Method:
    """Load a saved method around the given model, which receives the saved weights."""
    from unseen.methods import method_named

    where = str(folder / CONFIG)
    config = validate(MethodConfig, migrate_method_config(read_json(folder / CONFIG), where), where)
    kind = method_named(config.method)
    settings = construct_settings(kind.settings_of(), config.settings, where, kind.name)
    net = kind(model, **settings)
    load_weights(net, read_tensors(folder / MODEL), folder / MODEL)
    if (folder / SOURCE).exists():
        load_detector(net, folder)
    return net.eval()


def training_state(net: Method) -> dict[str, Tensor]:
    """Return everything that a killed run needs to continue with the same bits."""
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
    """Restore a checkpoint, or raise an error if it is not one of this run."""
    try:
        _restore(net, state, path)
    except (KeyError, RuntimeError, TypeError, ValueError, IndexError) as error:
        raise UnseenError(
            f"{path} is not a checkpoint of this run: {type(error).__name__}: {error}"
        ) from error


def _restore(net: Method, state: dict[str, Tensor], path: Path) -> None:
    load_weights(
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
