"""`unseen doctor` finds problems, names them and suggests a fix; every problem is simulated."""

from __future__ import annotations

import collections
import json
from pathlib import Path

import pytest
import torch
from command_line import unseen

from unseen import TASKS
from unseen.cli import installation
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


def test_packages_are_checked_against_the_metadata(healthy):
    installed(
        healthy,
        "unseen",
        "0.1.0",
        "torch>=2.5",
        "sleepy>=2",
        "absentee",
        "tomli; python_version < '3.0'",
        "drum>=1; extra == 'music'",
        "unseen[music]; extra == 'all'",
        extras=("music", "all"),
    )
    installed(healthy, "sleepy", "1.9")
    found = by_name(installation.check_packages())
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


def test_missing_package_metadata_is_a_problem(monkeypatch):
    def gone(name):
        raise installation.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(installation.importlib.metadata, "requires", gone)
    (finding,) = installation.check_packages()
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
def test_broken_torchvision_is_named(healthy, monkeypatch, code, told):
    (healthy / "torchvision").mkdir()
    (healthy / "torchvision/__init__.py").write_text(code + "\n")
    monkeypatch.setenv("PYTHONPATH", str(healthy))
    found = by_name(installation.check_companions(timeout=2 if "sleep" in code else 60))
    assert found["torchvision"].state == "note" and told in found["torchvision"].found
    assert "pip uninstall torchvision" in found["torchvision"].advice
    assert "torchaudio" not in found or found["torchaudio"].state == "ok"


def test_working_torchvision_is_ok(healthy, monkeypatch):
    (healthy / "torchvision.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(healthy))
    assert by_name(installation.check_companions(60))["torchvision"].state == "ok"


def test_data_finding_names_missing_parts_folder_and_remedy(healthy):
    finding = by_name(installation.check_data())["data of digits, digit_pairs, digits_shifts"]
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
    found = by_name(installation.check_data())
    assert found["data of digits, digit_pairs, digits_shifts"].state == "ok"
    assert found["data of driving"].state == "note"


def test_data_set_of_every_task_is_known(healthy):
    for name in TASKS:
        try:
            task_named(name).source.load("train")
        except UnseenError as error:
            assert name in installation.DATA_OF, f"{name} needs data ({error}): add it to DATA_OF"
            continue
        assert name not in installation.DATA_OF, f"{name} needs no data"


def test_full_disk_and_read_only_folders_are_named(healthy, monkeypatch):
    (healthy / "data").mkdir()
    assert {f.state for f in installation.check_folders()} == {"ok"}
    usage = collections.namedtuple("usage", "total used free")
    monkeypatch.setattr(
        installation.shutil, "disk_usage", lambda path: usage(10**12, 10**12 - 10**8, 10**8)
    )
    found = by_name(installation.check_folders())
    assert (
        found["current folder"].state == "problem"
        and "0.1 GB free" in found["current folder"].found
    )
    (healthy / "file").touch()
    monkeypatch.setenv("UNSEEN_CACHE", str(healthy / "file/cache"))
    finding = by_name(installation.check_folders())["cache folder"]
    assert (
        finding.state == "note"
        and "cannot be written" in finding.found
        and "UNSEEN_CACHE" in finding.advice
    )


def test_missing_data_folder_is_named(healthy, monkeypatch):
    assert "does not exist" in by_name(installation.check_folders())["UNSEEN_DATA"].found
    (healthy / "data").write_text("a file")
    found = by_name(installation.check_folders())["UNSEEN_DATA"]
    assert found.state == "problem" and "is not a folder" in found.found
    (healthy / "data").unlink()
    (healthy / "data").mkdir()
    assert "UNSEEN_DATA" not in by_name(installation.check_folders())


@pytest.mark.parametrize("named", ["abc", "-3", "0"])
def test_invalid_number_of_threads_is_named(monkeypatch, named):
    monkeypatch.setenv("OMP_NUM_THREADS", named)
    (found,) = installation.check_threads()
    assert found.state == "note" and "positive integer" in found.advice


def test_too_many_threads_and_old_python_are_named(monkeypatch):
    monkeypatch.setattr(installation.torch, "get_num_threads", lambda: 10_000)
    (finding,) = installation.check_threads()
    assert finding.state == "note" and "OMP_NUM_THREADS=" in finding.advice
    monkeypatch.setattr(installation.sys, "version_info", (3, 9, 1))
    (finding,) = installation.check_python()
    assert finding.state == "problem" and "3.10" in finding.advice


def test_console_script_must_exist_and_work(tmp_path, monkeypatch):
    monkeypatch.setattr(installation.sys, "executable", str(tmp_path / "bin/python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    (finding,) = installation.check_command(60)
    assert (
        finding.state == "problem"
        and finding.found == "not found"
        and "python -m unseen.cli" in finding.advice
    )
    (tmp_path / "path").mkdir()
    script = tmp_path / "path/unseen"
    script.write_text("#!/bin/sh\necho 'bad interpreter' >&2; exit 1\n")
    script.chmod(0o755)
    (finding,) = installation.check_command(60)
    assert finding.state == "problem" and "bad interpreter" in finding.found
    script.write_text("#!/bin/sh\nexit 0\n")
    assert next(installation.check_command(60)).state == "ok"
    (tmp_path / "bin").mkdir()
    script.rename(tmp_path / "bin/unseen")
    (finding,) = installation.check_command(60)
    assert finding.state == "note" and "not on PATH" in finding.found


def test_doctor_exits_with_1_at_a_problem(healthy):
    installed(healthy, "numpy", "1.0")  # precedes the metadata of the real one
    finished = unseen("doctor", "--json")
    result = json.loads(finished.stdout)
    assert finished.returncode == 1 and not result["ok"], finished.stderr
    assert "numpy" in result["problems"] and "problems: " in finished.stderr
    finding = next(f for f in result["findings"] if f["what"] == "numpy")
    assert finding["found"].startswith("1.0, but")
    assert finding["advice"].startswith("pip install 'numpy")
    names = {f["what"] for f in result["findings"]}
    assert {"python", "torch", "threads", "devices", "data", "command unseen"} <= names
