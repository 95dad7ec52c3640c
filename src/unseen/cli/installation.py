"""Is everything here that unseen needs? Python, torch, devices, packages, data, disk and the command itself."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from packaging.requirements import Requirement

from unseen.data.location import CACHE_VARIABLE, VARIABLE, cache_folder, data_root
from unseen.data.publishers import DATA_SETS, DataSet, Part
from unseen.tasks import TASKS

LEAST_PYTHON = (3, 10)
LEAST_FREE = 0.5  # GB: a run with its checkpoint and kept weights
WISHED_FREE = 5.0  # GB: all published data, and what is made of it
BYSTANDERS = (
    "torchvision",
    "torchaudio",
)  # not used here; built for another torch they break whatever imports them
DATA_OF = {  # which data set a task reads; a task that is not here brings its own
    "digits": "digits",
    "digit_pairs": "digits",
    "digits_shifts": "digits",
    "cifar10_c": "cifar10",
    "cifar_shifts": "cifar10",
    "driving": "driving",
    "amazon_reviews": "amazon_reviews",
    "amazon_shifts": "amazon_reviews",
    "google_commands": "google_commands",
    "speech_shifts": "google_commands",
}


class Finding(NamedTuple):
    """One thing looked at. A problem keeps something from working; a note is worth knowing."""

    what: str
    state: Literal["ok", "note", "problem"]
    found: str
    advice: str = ""


def version() -> str:
    """Return the version of the installed package."""
    try:
        return importlib.metadata.version("unseen")
    except importlib.metadata.PackageNotFoundError:  # a source tree on sys.path
        return "unknown"


def examine(timeout: float = 120.0) -> list[Finding]:
    """Look at everything; programs that are tried get so many seconds each."""
    parts = (
        python(),
        torch_itself(),
        threads(),
        devices(),
        packages(),
        bystanders(timeout),
        data(),
        places(),
        command(timeout),
    )
    return [finding for part in parts for finding in part]


def python() -> Iterator[Finding]:
    found = f"{platform.python_version()}, {sys.executable}"
    if sys.version_info[:2] < LEAST_PYTHON:
        yield Finding(
            "python",
            "problem",
            found,
            f"unseen needs Python {'.'.join(map(str, LEAST_PYTHON))} or newer",
        )
    else:
        yield Finding("python", "ok", found)


def torch_itself() -> Iterator[Finding]:
    """Does it compute, and learn?"""
    again = "install torch again: pip install --force-reinstall torch"
    try:
        weight = torch.ones(2, 2, requires_grad=True)
        (weight @ torch.ones(2, 2)).sum().backward()
        right = weight.grad is not None and bool((weight.grad == 2).all())
    except Exception as error:
        yield Finding(
            "torch at work", "problem", f"{torch.__version__} cannot compute: {error}", again
        )
        return
    yield (
        Finding("torch at work", "ok", "computes")
        if right
        else Finding("torch at work", "problem", "computes wrongly", again)
    )


def threads() -> Iterator[Finding]:
    """As many as there are processors to run them, or fewer."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    used, named = torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")
    found = f"{used} for {cores} processors" + (f" (OMP_NUM_THREADS={named})" if named else "")
    if named and not (named.isdecimal() and int(named)):
        yield Finding(
            "threads",
            "note",
            found,
            f"OMP_NUM_THREADS must be a whole number from 1 on: unset it, or set it to {cores}",
        )
    elif used > cores:
        yield Finding(
            "threads",
            "note",
            found,
            f"more threads than processors slow training down: set OMP_NUM_THREADS={cores}",
        )
    else:
        yield Finding("threads", "ok", found)


def devices() -> Iterator[Finding]:
    names = [
        "cpu",
        *(f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())),
    ]
    if torch.version.cuda and not torch.cuda.is_available():
        advice = "this torch is built for CUDA and sees no device: check the driver (nvidia-smi), or go on with the CPU"
        yield Finding("devices", "note", ", ".join(names), advice)
    else:
        yield Finding("devices", "ok", ", ".join(names))


def packages() -> Iterator[Finding]:
    """What pyproject.toml asks for: the needed ones must be there, those of an extra may be."""
    try:
        wanted = [Requirement(line) for line in importlib.metadata.requires("unseen") or []]
    except importlib.metadata.PackageNotFoundError:
        yield Finding(
            "unseen",
            "problem",
            "not installed",
            "install it: pip install . (or -e .) in its folder",
        )
        return
    yield Finding("unseen", "ok", f"{version()}, {Path(__file__).parents[1]}")
    for need in wanted:
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            yield _package(need, f"pip install '{_bare(need)}'", "problem")
    for extra in sorted(importlib.metadata.metadata("unseen").get_all("Provides-Extra") or []):
        of_extra = [
            n
            for n in wanted
            if n.marker
            and n.marker.evaluate({"extra": extra})
            and not n.marker.evaluate({"extra": ""})
        ]
        for need in of_extra:
            if need.name != "unseen":  # an extra made of others
                found = _package(need, f"pip install 'unseen[{extra}]'", "note")
                yield found._replace(what=f"{need.name} (extra {extra})")


def _package(need: Requirement, advice: str, if_not: Literal["note", "problem"]) -> Finding:
    try:
        version = importlib.metadata.version(need.name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(need.name, if_not, "not installed", advice)
    if not need.specifier.contains(version, prereleases=True):
        return Finding(need.name, if_not, f"{version}, but {need.specifier} is needed", advice)
    return Finding(need.name, "ok", version)


def _bare(need: Requirement) -> str:
    return f"{need.name}{need.specifier}"


def bystanders(timeout: float) -> Iterator[Finding]:
    """Packages that often come with torch: not needed, but named if they are installed and broken."""
    for name in BYSTANDERS:
        if importlib.util.find_spec(name) is None:
            continue
        failure = _failure([sys.executable, "-c", f"import {name}"], timeout)
        if failure:
            advice = (
                f"unseen does not use it, other packages that import it will fail: pip uninstall {name}, "
                "or install the one made for this torch"
            )
            yield Finding(name, "note", f"installed but broken: {failure}", advice)
        else:
            yield Finding(name, "ok", "installed, can be imported (not needed)")


def _failure(words: list[str], timeout: float) -> str:
    """The last line that a failing program says; nothing if it works."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {timeout:g} s"
    except OSError as error:
        return str(error)
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return (
        "" if done.returncode == 0 else said[-1].strip() if said else f"exit code {done.returncode}"
    )


def data() -> Iterator[Finding]:
    """Of every data set what is here, by its files; `unseen data check` reads them. Tasks without one need nothing."""
    embedded = [name for name in TASKS if name not in DATA_OF]
    yield Finding("data", "ok", f"under {data_root()}; nothing to fetch for {', '.join(embedded)}")
    for name, of_tasks in {
        d: [t for t, read in DATA_OF.items() if read == d and t in TASKS] for d in DATA_SETS
    }.items():
        yield _data_set(DATA_SETS[name], data_root() / name, of_tasks)


def _data_set(data_set: DataSet, folder: Path, tasks: list[str]) -> Finding:
    here = [part for part in data_set.parts if _is_here(data_set, part, folder)]
    missing = [part for part in data_set.parts if part.needed and part not in here]
    what = f"data of {', '.join(tasks)}"
    if not missing:
        return Finding(
            what,
            "ok",
            f"{folder}: all that is needed ({len(here)} of {len(data_set.parts)} published parts)",
        )
    told = ", ".join(f"{part.domain}/{part.split}" for part in missing)
    advice = f"`unseen data fetch {data_set.name}` gets it or says how; or set {VARIABLE} to the folder that holds {data_set.name}/"
    return Finding(what, "note", f"missing in {folder}: {told}", advice)


def _is_here(data_set: DataSet, part: Part, folder: Path) -> bool:
    path = folder / data_set.main_file(part)
    return path.exists() or (path.suffix == ".gz" and path.with_suffix("").exists())


def places() -> Iterator[Finding]:
    """Where data is kept, where what is made of it is kept, and where runs go: is there room, and may we write?"""
    cache = cache_folder("x").parent
    wanted = (
        ("data folder", data_root(), f"let {VARIABLE} name another place"),
        (
            "cache folder",
            cache,
            f"let {CACHE_VARIABLE} name another place: without one everything is made at every call",
        ),
        (
            "current folder",
            Path.cwd(),
            "runs are written where --out says: name a folder that can be written",
        ),
    )
    named = Path(os.environ.get(VARIABLE) or data_root())
    if named.exists() and not named.is_dir():
        yield Finding(
            VARIABLE,
            "problem",
            f"{named} is no folder",
            f"let {VARIABLE} name the folder that holds the data",
        )
    elif os.environ.get(VARIABLE) and not named.exists():
        yield Finding(
            VARIABLE,
            "note",
            f"{named} is not there",
            "`unseen data fetch` makes it, unless the name is mistyped",
        )
    for what, folder, elsewhere in wanted:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            yield Finding(what, "note", f"{folder} cannot be written", elsewhere)
            continue
        free = shutil.disk_usage(there).free / 1e9
        found = f"{folder}, {free:.1f} GB free"
        if free < LEAST_FREE:
            yield Finding(
                what, "problem", found, f"a run may not fit: free some space, or {elsewhere}"
            )
        elif free < WISHED_FREE and what != "current folder":
            yield Finding(
                what, "note", found, f"all data sets together need about {WISHED_FREE:g} GB"
            )
        else:
            yield Finding(what, "ok", found)


def command(timeout: float) -> Iterator[Finding]:
    """Does the console script work?"""
    on_path, beside = shutil.which("unseen"), Path(sys.executable).with_name("unseen")
    script = on_path or (str(beside) if beside.exists() else None)
    if script is None:
        advice = "install the package: pip install .; until then `python -m unseen.cli` is the same command"
        yield Finding("command unseen", "problem", "not found", advice)
    elif failure := _failure([script, "--version"], timeout):
        yield Finding(
            "command unseen",
            "problem",
            f"{script} fails: {failure}",
            "install the package again: pip install .",
        )
    elif on_path is None:
        yield Finding(
            "command unseen",
            "note",
            f"{script} works, but is not on PATH",
            f"call it by that name, or activate {beside.parent.parent}",
        )
    else:
        yield Finding("command unseen", "ok", script)
