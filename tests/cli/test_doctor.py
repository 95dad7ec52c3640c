"""The doctor finds what is wrong, names it, and says what to do; each illness is a made one."""

from __future__ import annotations

import collections
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from unseen import TASKS
from unseen.cli import installation as doctor
from unseen.data.publishers import DATA_SETS
from unseen.errors import UnseenError
from unseen.tasks import task_named


@pytest.fixture
def healthy(tmp_path, monkeypatch):
    """An empty place to look in, and an installation whose metadata the test writes."""
    monkeypatch.setenv("UNSEEN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def installed(
    folder: Path, name: str, version: str, *requires: str, extras: tuple[str, ...] = ()
) -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    lines += [f"Provides-Extra: {extra}" for extra in extras] + [
        f"Requires-Dist: {need}" for need in requires
    ]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


def by_name(findings):
    return {finding.what: finding for finding in findings}


def test_packages_are_read_from_what_the_installation_asks_for(healthy):
    installed(healthy, "unseen", "0.1.0", "torch>=2.5", "sleepy>=2", "absentee", "tomli; python_version < '3.0'",
              "drum>=1; extra == 'music'", "unseen[music]; extra == 'all'", extras=("music", "all"))  # fmt: skip
    installed(healthy, "sleepy", "1.9")
    found = by_name(doctor.packages())
    assert (
        found["torch"].state == "ok" and found["torch"].found == torch.__version__.split("+")[0]
    ) or "+" in found["torch"].found
    assert found["sleepy"] == (
        "sleepy",
        "problem",
        "1.9, but >=2 is needed",
        "pip install 'sleepy>=2'",
    )
    assert found["absentee"] == ("absentee", "problem", "not installed", "pip install 'absentee'")
    assert found["drum (extra music)"] == (
        "drum (extra music)",
        "note",
        "not installed",
        "pip install 'unseen[music]'",
    )
    assert "tomli" not in found and not any(name.startswith("unseen (") for name in found)


def test_a_package_that_is_not_installed_at_all_is_a_problem(monkeypatch):
    def gone(name):
        raise doctor.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.importlib.metadata, "requires", gone)
    (finding,) = doctor.packages()
    assert finding.state == "problem" and "pip install ." in finding.advice


@pytest.mark.parametrize(
    "code, told",
    [
        (
            "raise RuntimeError('operator torchvision::nms does not exist')",
            "operator torchvision::nms does not exist",
        ),
        (
            "import ctypes; ctypes.CDLL('libtorch_of_another_version.so')",
            "libtorch_of_another_version.so",
        ),
        ("import os; os.kill(os.getpid(), 11)", "exit code -11"),
        ("import time; time.sleep(60)", "no answer within 2 s"),
    ],
)
def test_a_broken_torchvision_is_named_although_nothing_needs_it(healthy, monkeypatch, code, told):
    (healthy / "torchvision").mkdir()
    (healthy / "torchvision/__init__.py").write_text(code + "\n")
    monkeypatch.setenv("PYTHONPATH", str(healthy))
    found = by_name(doctor.bystanders(timeout=2 if "sleep" in code else 60))
    assert found["torchvision"].state == "note" and told in found["torchvision"].found
    assert "pip uninstall torchvision" in found["torchvision"].advice
    assert "torchaudio" not in found or found["torchaudio"].state == "ok"


def test_a_sound_torchvision_is_no_news(healthy, monkeypatch):
    (healthy / "torchvision.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(healthy))
    assert by_name(doctor.bystanders(60))["torchvision"].state == "ok"


def test_data_says_for_each_task_what_is_there_where_it_looked_and_how_to_get_the_rest(healthy):
    finding = by_name(doctor.data())["data of digits, digit_pairs, digits_shifts"]
    assert finding.state == "note" and str(healthy / "data/digits") in finding.found
    assert (
        "mnist/train" in finding.found
        and "svhn/test" in finding.found
        and "syn/" not in finding.found
    )
    assert "unseen data fetch digits" in finding.advice and "UNSEEN_DATA" in finding.advice
    for part in DATA_SETS["digits"].parts:
        if part.needed:
            path = healthy / "data/digits" / DATA_SETS["digits"].main_file(part)
            path = path.with_suffix("") if path.suffix == ".gz" else path  # unzipped is as good
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    found = by_name(doctor.data())
    assert found["data of digits, digit_pairs, digits_shifts"].state == "ok"
    assert found["data of driving"].state == "note"


def test_every_task_either_reads_a_data_set_that_the_doctor_knows_or_needs_none(healthy):
    for name in TASKS:
        try:
            task_named(name).source.load("train")
        except UnseenError as error:
            assert name in doctor.DATA_OF, f"{name} needs data ({error}): tell doctor.DATA_OF which"
            continue
        assert name not in doctor.DATA_OF, f"{name} needs no data"


def test_disk_space_and_places_that_cannot_be_written(healthy, monkeypatch):
    (healthy / "data").mkdir()
    assert {f.state for f in doctor.places()} == {"ok"}
    usage = collections.namedtuple("usage", "total used free")
    monkeypatch.setattr(
        doctor.shutil, "disk_usage", lambda path: usage(10**12, 10**12 - 10**8, 10**8)
    )
    found = by_name(doctor.places())
    assert (
        found["current folder"].state == "problem"
        and "0.1 GB free" in found["current folder"].found
    )
    (healthy / "file").touch()
    monkeypatch.setenv("UNSEEN_CACHE", str(healthy / "file/cache"))
    finding = by_name(doctor.places())["cache folder"]
    assert (
        finding.state == "note"
        and "cannot be written" in finding.found
        and "UNSEEN_CACHE" in finding.advice
    )


def test_a_data_folder_that_is_not_there_or_no_folder_is_named(healthy, monkeypatch):
    assert "is not there" in by_name(doctor.places())["UNSEEN_DATA"].found
    (healthy / "data").write_text("a file")
    found = by_name(doctor.places())["UNSEEN_DATA"]
    assert found.state == "problem" and "is no folder" in found.found
    (healthy / "data").unlink()
    (healthy / "data").mkdir()
    assert "UNSEEN_DATA" not in by_name(doctor.places())


@pytest.mark.parametrize("named", ["abc", "-3", "0"])
def test_a_number_of_threads_that_is_none_is_remarked_on(monkeypatch, named):
    monkeypatch.setenv("OMP_NUM_THREADS", named)
    (found,) = doctor.threads()
    assert found.state == "note" and "whole number from 1 on" in found.advice


def test_threads_and_python(monkeypatch):
    monkeypatch.setattr(doctor.torch, "get_num_threads", lambda: 10_000)
    (finding,) = doctor.threads()
    assert finding.state == "note" and "OMP_NUM_THREADS=" in finding.advice
    monkeypatch.setattr(doctor.sys, "version_info", (3, 9, 1))
    (finding,) = doctor.python()
    assert finding.state == "problem" and "3.10" in finding.advice


def test_the_console_script_must_be_there_and_work(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor.sys, "executable", str(tmp_path / "bin/python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    (finding,) = doctor.command(60)
    assert (
        finding.state == "problem"
        and finding.found == "not found"
        and "python -m unseen.cli" in finding.advice
    )
    (tmp_path / "path").mkdir()
    script = tmp_path / "path/unseen"
    script.write_text("#!/bin/sh\necho 'bad interpreter' >&2; exit 1\n")
    script.chmod(0o755)
    (finding,) = doctor.command(60)
    assert finding.state == "problem" and "bad interpreter" in finding.found
    script.write_text("#!/bin/sh\nexit 0\n")
    assert next(doctor.command(60)).state == "ok"
    (tmp_path / "bin").mkdir()
    script.rename(tmp_path / "bin/unseen")
    (finding,) = doctor.command(60)
    assert finding.state == "note" and "not on PATH" in finding.found


def test_the_command_ends_with_1_at_a_problem_names_it_and_prints_only_json(tmp_path):
    installed(tmp_path, "numpy", "1.0")  # found before the real one's metadata
    words = [sys.executable, "-c", "from unseen.cli import main; main()", "doctor", "--json"]
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    environment = {
        "PYTHONPATH": str(tmp_path),
        "UNSEEN_DATA": str(tmp_path),
        "PATH": path,
        "HOME": str(tmp_path),
    }
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    told = json.loads(done.stdout)
    assert done.returncode == 1 and not told["ok"] and told["problems"] == ["numpy"], done.stderr
    finding = next(f for f in told["findings"] if f["what"] == "numpy")
    assert finding["found"].startswith("1.0, but") and finding["advice"].startswith(
        "pip install 'numpy"
    )
    assert "1 problems: numpy" in done.stderr
    assert {"python", "torch", "threads", "devices", "data", "command unseen"} <= {
        f["what"] for f in told["findings"]
    }
