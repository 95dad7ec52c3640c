"""Versions, dependency bounds and workflows agree with each other."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PIN = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)


def test_files_state_one_version():
    versions = runpy.run_path(str(ROOT / ".github/check_version.py"))["versions"]()
    assert set(versions.values()) == {PROJECT["version"]}


def test_lowest_constraints_are_the_lower_bounds():
    pins = {name.lower(): pin for name, pin in PIN.findall(
        (ROOT / "constraints-lowest.txt").read_text())}  # fmt: skip
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"]]
    for name in ("augment", "speech", "report", "tensorboard"):
        wanted += extras[name]
    for requirement in map(Requirement, wanted):
        (bound,) = requirement.specifier
        pin = pins.pop(requirement.name.lower())
        assert bound.operator == ">="
        assert Version(pin).release[: len(Version(bound.version).release)] == (
            Version(bound.version).release
        ), f"{requirement} but constraints-lowest.txt has {pin}"
    assert not pins, "constraints-lowest.txt pins what pyproject.toml does not require"


@pytest.mark.parametrize(
    "path", sorted([*ROOT.glob(".github/workflows/*.yml"), ROOT / ".pre-commit-config.yaml"]),
    ids=lambda path: path.name,
)  # fmt: skip
def test_yaml_file_parses(path):
    content = yaml.safe_load(path.read_text())
    assert content.get("jobs") or content.get("repos")


def test_ci_covers_every_supported_python():
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]
    versions = jobs["test"]["strategy"]["matrix"]["python"]
    assert PROJECT["requires-python"] == f">={versions[0]}"
    assert versions == ["3.10", "3.11", "3.12", "3.13"]


def test_pre_commit_uses_the_pinned_ruff():
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    ruff = next(repo for repo in repos if "ruff" in repo["repo"])
    pins = dict(PIN.findall((ROOT / "constraints.txt").read_text()))
    assert ruff["rev"] == f"v{pins['ruff']}"
