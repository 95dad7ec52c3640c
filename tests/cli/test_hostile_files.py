"""Damaged and hostile files of runs, grids and results: exit 2 with a message, no traceback."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import safetensors.torch
import torch
from command_line import unseen
from own_task import OWN

DEEP = b"[" * 10**5
NESTED = {"a": {}}
for _ in range(200):
    NESTED = {"a": NESTED}
VALUES = [
    None, True, -1, 1.5, float("inf"), 10**400, "", "\ud800", "a\0b", [], [None], {}, {"x": None},
    NESTED,
]  # fmt: skip
GRID = """
task = "own_task:make"
seeds = [0]
runs = "{folder}/runs"
results = "{folder}/results"
[[row]]
method = "uncertainty_guided"
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A finished run, its grid and the results of it."""
    folder = tmp_path_factory.mktemp("hostile")
    run = folder / "runs/uncertainty_guided-default-seed0"
    (folder / "grid.toml").write_text(GRID.format(folder=folder))
    assert unseen("train", "own_task:make", "--out", run).returncode == 0
    assert unseen("evaluate", run, *OWN).returncode == 0
    done = unseen("bench", folder / "grid.toml", "--tables-only")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def folder(base, tmp_path):
    """A copy to damage."""
    shutil.copytree(base, tmp_path / "copy")
    grid = GRID.format(folder=tmp_path / "copy")
    (tmp_path / "copy/grid.toml").write_text(grid)
    return tmp_path / "copy"


def run_in(folder):
    return folder / "runs/uncertainty_guided-default-seed0"


COMMANDS = {
    "evaluate": lambda f: ("evaluate", run_in(f), *OWN),
    "score": lambda f: ("score", run_in(f), "--domain", "grain", *OWN),
    "train": lambda f: ("train", "own_task:make", "--out", run_in(f), "--resume"),
    "report": lambda f: ("report", f / "runs", "--out", f / "page"),
    "bench": lambda f: ("bench", f / "grid.toml", "--tables-only"),
    "published": lambda f: (
        *("bench", f / "grid.toml", "--tables-only"),
        *("--published", f / "results"),
    ),
    "update-readme": lambda f: ("update-readme", f / "page.md", "--folder", f),
}
READERS = {
    "config.json": ("evaluate", "report", "train", "bench"),
    "records.jsonl": ("evaluate", "report", "train", "bench"),
    "source.safetensors": ("evaluate", "score"),
    "model.safetensors": ("evaluate",),
}


def check(folder, command, name=None):
    """Run a command; it must not fail with anything but a message that names the file or folder."""
    (folder / "page.md").write_text("<!-- results -->\n<!-- /results -->\n")
    done = unseen(*COMMANDS[command](folder))
    assert done.returncode in (0, 1, 2) and "Traceback" not in done.stderr
    if done.returncode == 2 and name is not None:
        assert name in done.stderr or str(run_in(folder)) in done.stderr
    return done


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "content",
    [b"{", DEEP, b"\xff\xfe", b"\0" * 99, b'{"a": 1' + b"0" * 5000 + b"}", b"3"],
    ids=["open", "deep", "not UTF-8", "null", "digits", "number"],
)
def test_damaged_content_is_named(folder, name, content):
    (run_in(folder) / name).write_bytes(content + b"\n")
    for command in READERS[name]:
        done = check(folder, command)
        assert done.returncode == 2 and name in done.stderr


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "device"])
def test_special_files_are_named(folder, name, kind):
    make = {
        "folder": os.mkdir,
        "pipe": os.mkfifo,
        "loop": lambda path: os.symlink(name, path),
        "device": lambda path: os.symlink("/dev/zero", path),
    }[kind]
    path = run_in(folder) / name
    for command in READERS[name]:
        path.unlink() if path.is_symlink() or not path.is_dir() else path.rmdir()
        make(path)
        assert check(folder, command).returncode == 2


def some_fields(document, number):
    """Return every sixth field; together, the values are tried in every field several times."""
    every = list(fields(document))
    return every if "UNSEEN_TORTURE" in os.environ else every[number % 6 :: 6]


def fields(document, at=()):
    """Yield the paths of all fields; of lists the first item only."""
    items = document.items() if isinstance(document, dict) else enumerate(document[:1])
    for name, value in items:
        yield (*at, name)
        if isinstance(value, dict | list):
            yield from fields(value, (*at, name))


def changed(document, at, value):
    copy = json.loads(json.dumps(document))
    part = copy
    for name in at[:-1]:
        part = part[name]
    part[at[-1]] = value
    return json.dumps(copy)


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_wrong_values_in_the_configuration_are_named(folder, number):
    path = run_in(folder) / "config.json"
    document = json.loads(path.read_text())
    for at in some_fields(document, number):
        path.write_text(changed(document, at, VALUES[number]))
        check(folder, "bench", "config.json")


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_wrong_values_in_records_are_named(folder, number):
    path = run_in(folder) / "records.jsonl"
    first, *rest = path.read_text().splitlines()
    for name in json.loads(first):
        line = changed(json.loads(first), (name,), VALUES[number])
        path.write_text("\n".join([line, *rest]) + "\n")
        check(folder, "bench", "records.jsonl")
    check(folder, "evaluate")


@pytest.mark.parametrize("number", range(len(VALUES)))
@pytest.mark.parametrize("name", ["runs.json", "summary.json"])
def test_wrong_values_in_published_results_are_named(folder, name, number):
    path = folder / "results" / name
    document = json.loads(path.read_text())
    shutil.rmtree(folder / "runs")
    for at in some_fields(document, number):
        path.write_text(changed(document, at, VALUES[number]))
        check(folder, "update-readme", name)
        if name == "runs.json":
            check(folder, "published", name)
            assert path.exists()


@pytest.mark.parametrize(
    "edit",
    [
        lambda t, m: t.update(mean=t["mean"][None]),
        lambda t, m: t.update(mean=t["mean"].long()),
        lambda t, m: t.update(mean=t["mean"].to(torch.float8_e4m3fn)),
        lambda t, m: t.update(mean=t["mean"][:1], held_out=t["held_out"][:, :1]),
        lambda t, m: t.update(mean=t["mean"] * float("nan")),
        lambda t, m: t.update(held_out=t["held_out"][:0]),
        lambda t, m: t.pop("mean"),
        lambda t, m: t.update(more=torch.zeros(1)),
        lambda t, m: m.update(detector="nose"),
        lambda t, m: m.update(detector="energy", net="x"),
        lambda t, m: m.update(detector="energy", name="x"),
        lambda t, m: m.update(detector="mahalanobis", layer="nowhere"),
        lambda t, m: m.update(detector="mahalanobis"),
    ],
)
def test_wrong_source_statistics_are_named(folder, edit):
    path = run_in(folder) / "source.safetensors"
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    edit(tensors, metadata)
    path.write_bytes(
        safetensors.torch.save({n: t.contiguous() for n, t in tensors.items()}, metadata)
    )
    done = check(folder, "score", "source.safetensors")
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"sites": ["nowhere"]}, "nowhere"),
        ({"lr": -1}, "lr must be"),
        ({"embedding": "nowhere"}, "nowhere"),
    ],
)
def test_settings_that_a_constructor_refuses_name_the_file(folder, settings, text):
    path = run_in(folder) / "config.json"
    document = json.loads(path.read_text())
    document["settings"] |= settings
    path.write_text(json.dumps(document))
    done = check(folder, "score", "config.json")
    assert done.returncode == 2 and text in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "set = " + "[" * 10**5,
        "task = 3",
        'task = "own_task:nothing"',
        'runs = "a\\u0000b"',
        "samples = 1" + "0" * 5000,
        "seeds = [0x" + "f" * 5000 + "]",
        "set = {lr = 2020-01-01}",
        "set = {lr = inf}",
        "set = {mixup = {kind = []}}",
        "a." * 10**4 + "b = 1",
    ],
)
def test_hostile_grids_are_named(folder, line):
    name = line.partition(" ")[0]
    lines = (folder / "grid.toml").read_text().splitlines()
    rest = [old for old in lines if not old.startswith(f"{name} =")]
    (folder / "grid.toml").write_text("\n".join([line, *rest]))
    done = check(folder, "bench")
    assert done.returncode == 2 and ("grid.toml" in done.stderr or "own_task" in done.stderr)
