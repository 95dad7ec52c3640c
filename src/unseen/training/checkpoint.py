"""Save and load trained methods; checkpoint and restore the state of training."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict
from torch import Tensor, nn

from unseen.api import Method
from unseen.detection.accuracy import FILE as ESTIMATOR
from unseen.detection.accuracy import AccuracyEstimator
from unseen.detection.registry import make_detector
from unseen.errors import UnseenError, naming
from unseen.files import json_bytes, read_json, read_together, replace_files, write_atomically
from unseen.nn.finite import find_not_finite
from unseen.nn.tensor_files import read_metadata, read_tensors, tensor_bytes
from unseen.reading import MissingFile
from unseen.schema import Section, construct_settings, plain, saved_values, validate
from unseen.schema.migration import FORMAT, migrate_config

log = logging.getLogger("unseen")

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
    for name, (t, mine) in {n: (tensors[n], own[n]) for n in own if n in tensors}.items():
        if t.shape != mine.shape:
            shapes = f"{tuple(t.shape)} in the file, {tuple(mine.shape)}"
            problems.append(f"{name} is {shapes} in the model")
        elif t.is_floating_point() != mine.is_floating_point():
            problems.append(f"{name} is {_kind(t)} in the file, {_kind(mine)} in the model")
    if problems:
        more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise UnseenError(f"{path} does not fit this model: {'; '.join(problems[:5])}{more}")
    values = {name: t.to(own[name].dtype) for name, t in tensors.items()}
    if bad := find_not_finite(values, own):  # a mask of the model itself may hold infinities
        raise UnseenError(_NOT_FINITE.format(path=path, name=bad))
    module.load_state_dict(values)


_NOT_FINITE = (
    "{path}: {name} holds numbers that are not finite: the training diverged or the file is "
    "damaged; train again, with lower learning rates"
)


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def save_method(
    net: Method,
    folder: Path,
    config: dict[str, Any] | None = None,
    more: Mapping[str, bytes] | None = None,
    remove: Iterable[str] = (),
) -> None:
    """Write weights, source statistics and configuration of a trained method.

    The files replace those of an earlier save together: a kill leaves the old save or the new one.

    Args:
        config: further entries of config.json.
        more: further files by name, written with these.
        remove: files that do not belong to the new ones.
    """
    if not net.is_built:
        raise UnseenError(
            "the layers that were left open are found in the first step: train before you save, or "
            "call net.prepare((x, y))"
        )
    state = net.state_dict()
    if bad := find_not_finite(state, dict(net.named_buffers())):
        raise UnseenError(
            f"{bad} holds numbers that are not finite, so {folder} is not written: "
            "train again, with lower learning rates"
        )
    files = {CONFIG: json_bytes({**(config or {}), **method_config(net)})}  # see read_together
    calibrated = net.detector.statistics is not None
    files |= {SOURCE: detector_bytes(net)} if calibrated else {}
    files |= {MODEL: tensor_bytes(state), **(more or {})}
    absent = [] if calibrated else [SOURCE]
    if net.has_accuracy_estimator:
        files[ESTIMATOR] = net.accuracy_estimator.to_bytes()
    else:
        absent.append(ESTIMATOR)
    replace_files(folder, files, [*absent, *remove])


def detector_bytes(net: Method) -> bytes:
    """Return the content of the file of the calibrated detector."""
    metadata = {"detector": net.detector.name, **net.detector.options()}
    return tensor_bytes(net.detector.state_dict(), metadata)


def save_detector(net: Method, folder: Path) -> None:
    """Write the state of the calibrated detector."""
    write_atomically(folder / SOURCE, detector_bytes(net))


def load_detector(
    net: Method, path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]
) -> None:
    """Give the method the detector that was saved with it."""
    options = dict(metadata)
    name = options.pop("detector", None)
    with naming(str(path)):
        if name is None:  # 0.1 wrote no name; only one detector had tensors of a reader
            reader = any(key.startswith("reader/") for key in tensors)
            detector = net.make_detector("embedding" if reader else "site")
        elif name == net.detector.name:
            detector = net.detector
        else:
            detector = make_detector(name, net, options)
        detector.load_state_dict(tensors)
    net.detector = detector


def method_config(net: Method) -> dict[str, Any]:
    """Return the part of config.json that `load_method` needs."""
    return {"format": FORMAT, "method": net.name, "settings": plain(net.settings())}


def migrate_method_config(config: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the content of a config.json in the current format."""
    from unseen.methods import find_method

    method = find_method(str(config.get("method")))
    return migrate_config(config, where, getattr(method, "migrate_settings", None))


def load_method(
    folder: Path, model: nn.Module, functions: Mapping[str, Any] | None = None
) -> Method:
    """Load a saved method around the given model, which receives the saved weights.

    Args:
        functions: settings that are functions, by name; they are not saved.
    """
    from unseen.methods import method_named

    content, weights, detector = read_together(folder, CONFIG, lambda: _read_files(folder))
    where = str(folder / CONFIG)
    config = validate(MethodConfig, migrate_method_config(content, where), where)
    with naming(where):
        kind = method_named(config.method)
    given = dict(functions or {})
    values = dict(config.settings)
    if isinstance(values.get("optimizer"), Mapping) and "optimizer" not in given:
        log.info("%s: a further fit uses adam, unless optimizer=... is given again", folder)
        del values["optimizer"]
    saved = saved_values(values, given, where)
    settings = construct_settings(kind.settings_of(), saved, where, kind.name)
    with naming(where):
        net = kind(model, **settings, **given)
    net.build_for(weights)
    load_weights(net, weights, folder / MODEL)
    if detector is not None:
        load_detector(net, folder / SOURCE, *detector)
    net.eval()
    if (folder / ESTIMATOR).exists():
        try:
            net.accuracy_estimator = AccuracyEstimator.load(folder / ESTIMATOR, net)
        except UnseenError as error:
            log.warning("%s", error)
    return net


def _read_files(
    folder: Path,
) -> tuple[dict[str, Any], dict[str, Tensor], tuple[dict[str, Tensor], dict[str, str]] | None]:
    config, source = read_json(folder / CONFIG), folder / SOURCE
    detector = None
    with contextlib.suppress(MissingFile):  # a method without calibration
        detector = read_tensors(source), read_metadata(source)
    return config, read_tensors(folder / MODEL), detector


def check_training_state(net: Method, state: Mapping[str, Tensor], step: int) -> None:
    """Raise an error if an optimizer or a memory is not finite; weights are checked by the loop.

    An infinite second moment of Adam freezes its weight without a trace in the loss.
    """
    skipped = ("net/", "average/")
    name = find_not_finite({n: t for n, t in state.items() if not n.startswith(skipped)}, {})
    if name is None:
        return
    names = {id(p): n for n, p in net.named_parameters()}
    place = name
    kind, _, rest = name.partition("/")
    if kind == "optimizer":
        label, index, key = rest.split("/", 2)
        groups = net.optimizers()[label].param_groups
        parameter = [p for group in groups for p in group["params"]][int(index)]
        place = f"{key} of {names.get(id(parameter), rest)} in the optimizer"
    raise UnseenError(
        f"{place} is not finite after step {step}: a gradient overflowed; "
        "lower the learning rates, or look for extreme values in the data"
    )


def training_state(net: Method) -> dict[str, Tensor]:
    """Return everything that a killed run needs to continue with the same bits."""
    state = {f"net/{name}": t for name, t in net.state_dict().items()}
    for label, optimizer in net.optimizers().items():
        for index, entry in optimizer.state_dict()["state"].items():
            for key, value in entry.items():
                if value is None:  # SGD without momentum
                    continue
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
    weights = {n.removeprefix("net/"): t for n, t in state.items() if n.startswith("net/")}
    net.build_for(weights)
    load_weights(net, weights, path)
    weights = {n: t for n, t in state.items() if n.startswith(("net/", "average/"))}
    if bad := find_not_finite(state, weights):
        raise UnseenError(_NOT_FINITE.format(path=path, name=bad))
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
