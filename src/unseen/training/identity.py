"""What makes a run the run it is, and how two runs differ."""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from unseen.api import Method, Task
from unseen.errors import UnseenError
from unseen.installed import package_version as package_version
from unseen.methods import find_method
from unseen.schema import group_unions, merge, plain
from unseen.schema.migration import FORMAT
from unseen.training.checkpoint import migrate_method_config
from unseen.training.config import LoopSettings, Resolved

TRAINED_ON = "trained_on"
NEWER = ("epochs", "clip", "ema", "amp", "views", "ball", "microbatch", "activation_checkpointing")
NEWER_SETTINGS = {
    "loss": "cross_entropy", "class_weights": None, "label_smoothing": 0.0, "output": None
}  # fmt: skip
NEWER_MODEL = {"binarise": False, "skips": False}


def identity(task: Task, net: Method, preset: str, chosen: Resolved, seed: int) -> dict[str, Any]:
    """Return the settings that determine a run, with their hash as its identifier."""
    settings: dict[str, Any] = {
        "task": task.name,
        "variant": task.variant,
        "method": net.name,
        "preset": preset,
        "seed": seed,
        "loop": chosen.loop.model_dump(),
        "settings": plain(net.settings()),
        "model": chosen.model,
    }
    # Settings that are newer than format 2 count where they are set: identifiers stay the same.
    loop = {n: v for n, v in settings["loop"].items() if v is not None or n not in NEWER}
    of_method = dict(settings["settings"])
    for name, default in NEWER_SETTINGS.items():
        if of_method.get(name) == default:
            of_method.pop(name, None)
    of_model = {
        n: v for n, v in chosen.model.items() if n not in NEWER_MODEL or v != NEWER_MODEL[n]
    }
    counted = {**settings, "loop": loop, "settings": of_method, "model": of_model}
    hashed = json.dumps(counted, sort_keys=True)
    digest = hashlib.sha256(hashed.encode()).hexdigest()
    return {"format": FORMAT, "run": digest[:8], **settings}


def trained_on(task: Task, source: Dataset, held_out: Dataset) -> dict[str, int]:
    """Return the amount of data, which tells runs on different downloads apart."""
    return {"train": len(source), "val": len(held_out), "classes": task.classes}  # type: ignore[arg-type]


def difference(before: dict[str, Any], config: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """Return the first setting in which a new run differs from an earlier one: name, old and new.

    The earlier configuration may be of an older format, as in published results.
    """
    before = migrate_method_config(before, "an earlier run")
    before = {
        **before,
        "model": {
            **{n: v for n, v in NEWER_MODEL.items() if n in config["model"]},
            **before.get("model", {}),
        },
        "loop": {**LoopSettings().model_dump(), **before["loop"]},
        "settings": _with_defaults(before, config),
    }
    for name in ("task", "variant", "method", "seed", "loop", "settings", "model"):
        if found := _first_difference(name, before.get(name), config[name]):
            path, old, new = found
            return path.partition(".")[2] or path, old, new
    old, new = before.get(TRAINED_ON), config.get(TRAINED_ON)
    if old is not None and new is not None and old != new:  # older runs do not record it
        return TRAINED_ON, old, new
    old, new = ((c.get("data") or {}).get("digest") for c in (before, config))
    return ("data", old, new) if None not in (old, new) and old != new else None


def _with_defaults(before: dict[str, Any], config: dict[str, Any]) -> Any:
    """Return a run's settings, with today's defaults for those that are newer than the run."""
    settings, method = before["settings"], find_method(config["method"])
    if method is None or not isinstance(settings, Mapping) or before["method"] != config["method"]:
        return settings
    parameters = method.settings_of()
    defaults = {name: plain(p.default) for name, p in parameters.items()}
    legacy = getattr(method, "migrate_settings", dict)(method.legacy_defaults)
    unions = group_unions(parameters)
    known = {name: value for name, value in defaults.items() if name in config["settings"]}
    return merge(merge(known, legacy, unions), settings, unions)


def _first_difference(path: str, old: Any, new: Any) -> tuple[str, Any, Any] | None:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        # A setting of None that only one of them has is no difference.
        parts = (_first_difference(f"{path}.{n}", old.get(n), new.get(n)) for n in {**old, **new})
        return next((part for part in parts if part), None)
    return None if old == new else (path, old, new)


def commit_here() -> str | None:
    """Return the commit of the working tree that holds this package, if there is one."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        folder = Path(__file__).resolve().parent
        command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        return answer.stdout.strip() or None
    return None


def origin() -> dict[str, Any]:
    """Return what a run was started with: command, threads, commit and versions."""
    return {
        "command": _command(),
        "threads": torch.get_num_threads(),
        "commit": commit_here(),
        "versions": {
            "unseen": package_version(),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def _command() -> str:
    from_shell = Path(sys.argv[0]).stem in ("unseen", "__main__")
    return " ".join(["unseen", *sys.argv[1:]]) if from_shell else "unseen.training.train.train"


def check_seed(seed: int) -> int:
    """Return the seed if it lies in the range that all generators accept."""
    if isinstance(seed, bool) or not 0 <= seed < 2**31:
        raise UnseenError(f"seed must lie between 0 and {2**31 - 1}, not {seed}")
    return seed
