"""Check the installation: Python, torch, devices, packages, data, disk space and the command."""

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
from unseen.training.identity import package_version

MIN_PYTHON = (3, 10)
MIN_FREE = 0.5  # GB: a run with its checkpoints
RECOMMENDED_FREE = 5.0  # GB: all published data and what is derived from it
# Not used by unseen; if built for another torch, they break packages that import them.
COMPANIONS = ("torchvision", "torchaudio")
DATA_OF = {  # the data set of a task; other tasks need no download
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
REINSTALL_TORCH = "reinstall torch: pip install --force-reinstall torch"


class Finding(NamedTuple):
    """Result of one check. A problem prevents something from working; a note is a hint."""

    what: str
    state: Literal["ok", "note", "problem"]
    found: str
    advice: str = ""


def examine(timeout: float = 120.0) -> list[Finding]:
    """Run all checks; a program that is tried gets `timeout` seconds."""
    checks = (
        check_python(),
        check_torch(),
        check_threads(),
        check_devices(),
        check_packages(),
        check_companions(timeout),
        check_data(),
        check_folders(),
        check_command(timeout),
    )
    return [finding for check in checks for finding in check]


def check_python() -> Iterator[Finding]:
    found = f"{platform.python_version()}, {sys.executable}"
    if sys.version_info[:2] < MIN_PYTHON:
        needed = ".".join(map(str, MIN_PYTHON))
        yield Finding("python", "problem", found, f"unseen needs Python {needed} or newer")
    else:
        yield Finding("python", "ok", found)


def check_torch() -> Iterator[Finding]:
    """Compute a gradient."""
    try:
        weight = torch.ones(2, 2, requires_grad=True)
        (weight @ torch.ones(2, 2)).sum().backward()
        correct = weight.grad is not None and bool((weight.grad == 2).all())
    except Exception as error:
        found = f"{torch.__version__} cannot compute: {error}"
        yield Finding("torch at work", "problem", found, REINSTALL_TORCH)
        return
    if correct:
        yield Finding("torch at work", "ok", "computes a gradient")
    else:
        yield Finding("torch at work", "problem", "computes a wrong gradient", REINSTALL_TORCH)


def check_threads() -> Iterator[Finding]:
    """Compare the number of threads with the number of processors."""
    affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if affinity else os.cpu_count() or 1
    used, variable = torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")
    found = f"{used} for {cores} processors"
    found += f" (OMP_NUM_THREADS={variable})" if variable else ""
    if variable and not (variable.isdecimal() and int(variable)):
        advice = f"OMP_NUM_THREADS must be a positive integer: unset it, or set it to {cores}"
        yield Finding("threads", "note", found, advice)
    elif used > cores:
        advice = f"more threads than processors slow training down: set OMP_NUM_THREADS={cores}"
        yield Finding("threads", "note", found, advice)
    else:
        yield Finding("threads", "ok", found)


def check_devices() -> Iterator[Finding]:
    cuda = [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    found = ", ".join(["cpu", *cuda])
    if torch.version.cuda and not torch.cuda.is_available():
        advice = "this torch is built for CUDA but finds no device: check the driver (nvidia-smi)"
        yield Finding("devices", "note", found, advice)
    else:
        yield Finding("devices", "ok", found)


def check_packages() -> Iterator[Finding]:
    """Check the dependencies in pyproject.toml; those of an extra are optional."""
    try:
        requirements = [Requirement(line) for line in importlib.metadata.requires("unseen") or []]
    except importlib.metadata.PackageNotFoundError:
        advice = "install it: pip install . (or -e .) in its folder"
        yield Finding("unseen", "problem", "not installed", advice)
        return
    yield Finding("unseen", "ok", f"{package_version()}, {Path(__file__).parents[1]}")
    for requirement in requirements:
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            install = f"pip install '{requirement.name}{requirement.specifier}'"
            yield _check_package(requirement, install, "problem")
    for extra in sorted(importlib.metadata.metadata("unseen").get_all("Provides-Extra") or []):
        for requirement in requirements:
            # An extra may consist of other extras of unseen.
            if _belongs_to(requirement, extra) and requirement.name != "unseen":
                finding = _check_package(requirement, f"pip install 'unseen[{extra}]'", "note")
                yield finding._replace(what=f"{requirement.name} (extra {extra})")


def _belongs_to(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    if marker is None or marker.evaluate({"extra": ""}):
        return False
    return marker.evaluate({"extra": extra})


def _check_package(
    requirement: Requirement, advice: str, otherwise: Literal["note", "problem"]
) -> Finding:
    name, needed = requirement.name, requirement.specifier
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, otherwise, "not installed", advice)
    if not needed.contains(version, prereleases=True):
        return Finding(name, otherwise, f"{version}, but {needed} is needed", advice)
    return Finding(name, "ok", version)


def check_companions(timeout: float) -> Iterator[Finding]:
    """Import packages that often accompany torch; unseen does not need them."""
    for name in COMPANIONS:
        if importlib.util.find_spec(name) is None:
            continue
        if failure := _failure([sys.executable, "-c", f"import {name}"], timeout):
            advice = (
                f"unseen does not use it, but packages that import it will fail: "
                f"pip uninstall {name}, or install the version for this torch"
            )
            yield Finding(name, "note", f"installed but broken: {failure}", advice)
        else:
            yield Finding(name, "ok", "installed, can be imported (not needed)")


def _failure(command: list[str], timeout: float) -> str:
    """Run a program; return the last line of its errors, or an empty string if it succeeds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {timeout:g} s"
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit code {done.returncode}"


def check_data() -> Iterator[Finding]:
    """Look for the files of every data set; `unseen data check` also reads them."""
    bundled = [name for name in TASKS if name not in DATA_OF]
    yield Finding("data", "ok", f"under {data_root()}; nothing to fetch for {', '.join(bundled)}")
    for name, data_set in DATA_SETS.items():
        tasks = [task for task, read in DATA_OF.items() if read == name and task in TASKS]
        yield _check_data_set(data_set, data_root() / name, tasks)


def _check_data_set(data_set: DataSet, folder: Path, tasks: list[str]) -> Finding:
    present = [part for part in data_set.parts if _exists(data_set, part, folder)]
    missing = [part for part in data_set.parts if part.needed and part not in present]
    what = f"data of {', '.join(tasks)}"
    if not missing:
        count = f"{len(present)} of {len(data_set.parts)} published parts"
        return Finding(what, "ok", f"{folder}: complete ({count})")
    names = ", ".join(f"{part.domain}/{part.split}" for part in missing)
    advice = (
        f"run `unseen data fetch {data_set.name}`, "
        f"or set {VARIABLE} to the folder that contains {data_set.name}/"
    )
    return Finding(what, "note", f"missing in {folder}: {names}", advice)


def _exists(data_set: DataSet, part: Part, folder: Path) -> bool:
    path = folder / data_set.main_file(part)
    return path.exists() or (path.suffix == ".gz" and path.with_suffix("").exists())


def check_folders() -> Iterator[Finding]:
    """Check space and permissions of the folders for data, cache and runs."""
    yield from _check_data_variable()
    folders = (
        ("data folder", data_root(), f"set {VARIABLE} to another folder"),
        (
            "cache folder",
            cache_folder("x").parent,
            f"set {CACHE_VARIABLE} to another folder; without a cache, data is prepared every time",
        ),
        ("current folder", Path.cwd(), "write runs elsewhere with --out"),
    )
    for what, folder, alternative in folders:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK):
            yield Finding(what, "note", f"{folder} cannot be written", alternative)
            continue
        free = shutil.disk_usage(existing).free / 1e9
        found = f"{folder}, {free:.1f} GB free"
        if free < MIN_FREE:
            advice = f"a run may not fit: free some space, or {alternative}"
            yield Finding(what, "problem", found, advice)
        elif free < RECOMMENDED_FREE and what != "current folder":
            advice = f"all data sets together need about {RECOMMENDED_FREE:g} GB"
            yield Finding(what, "note", found, advice)
        else:
            yield Finding(what, "ok", found)


def _check_data_variable() -> Iterator[Finding]:
    value = os.environ.get(VARIABLE)
    folder = Path(value or data_root())
    if folder.exists() and not folder.is_dir():
        advice = f"set {VARIABLE} to the folder that contains the data"
        yield Finding(VARIABLE, "problem", f"{folder} is not a folder", advice)
    elif value and not folder.exists():
        advice = "`unseen data fetch` creates it; check the spelling"
        yield Finding(VARIABLE, "note", f"{folder} does not exist", advice)


def check_command(timeout: float) -> Iterator[Finding]:
    """Run the console script."""
    on_path, beside = shutil.which("unseen"), Path(sys.executable).with_name("unseen")
    script = on_path or (str(beside) if beside.exists() else None)
    what = "command unseen"
    if script is None:
        advice = "install the package: pip install .; `python -m unseen.cli` is the same command"
        yield Finding(what, "problem", "not found", advice)
    elif failure := _failure([script, "--version"], timeout):
        advice = "reinstall the package: pip install ."
        yield Finding(what, "problem", f"{script} fails: {failure}", advice)
    elif on_path is None:
        advice = f"use that path, or activate {beside.parent.parent}"
        yield Finding(what, "note", f"{script} works, but is not on PATH", advice)
    else:
        yield Finding(what, "ok", script)
