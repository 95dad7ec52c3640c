"""Folders of format 1, written by the last commit of version 0.1, still load, resume and count."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from toy_domains import BarNet, bars, make

import unseen
from unseen import UnseenError
from unseen.experiments.evaluate import evaluate
from unseen.experiments.published_runs import read_published_runs
from unseen.methods import METHODS
from unseen.nn.tensor_files import read_tensors
from unseen.schema.migration import FORMAT, LOOP_NAMES, migrate_config
from unseen.training.config import LoopSettings, resolve
from unseen.training.identity import difference, identity
from unseen.training.run import Run
from unseen.training.train import train

FOLDER = Path(__file__).parents[1] / "format_1"
OVERRIDES = {"steps": 40, "warmup": 10, "checkpoint_every": 10, "num_checkpoints": 2}


@pytest.fixture
def old(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "old")
    return tmp_path / "old"


def test_finished_run_evaluates_to_the_recorded_values(old):
    run = Run(old / "finished")
    recorded = {r["domain"]: r["value"] for r in run.records() if r["split"] == "test"}
    result = evaluate(run, make(), device="cpu")
    values = {name: d["accuracy"] for name, d in result["domains"].items()}
    assert values == {name: recorded[name] for name in values} and len(values) == 3


def test_config_is_read_in_the_current_format_and_keeps_its_run(old):
    written = json.loads((old / "finished/config.json").read_text())
    config = Run(old / "finished").config
    assert config["format"] == FORMAT and config["run"] == written["run"]
    assert config["loop"] == {
        **LoopSettings().model_dump(),
        "steps": 40,
        "checkpoint_every": 10,
        "num_checkpoints": 2,
    }


def test_finished_run_is_recognized_when_resumed(old):
    run = train(
        make(), "uncertainty_guided", old / "finished", overrides=OVERRIDES, resume=True,
        progress=False,
    )  # fmt: skip
    assert run.done
    with pytest.raises(UnseenError, match="was started with batch_size = 32, now it is 16"):
        overrides = {**OVERRIDES, "batch_size": 16}
        train(
            make(), "uncertainty_guided", old / "finished", overrides=overrides, resume=True,
            progress=False,
        )  # fmt: skip


def test_interrupted_run_resumes_to_the_bits_of_an_uninterrupted_one(old):
    run_id = json.loads((old / "interrupted/config.json").read_text())["run"]
    run = train(
        make(), "uncertainty_guided", old / "interrupted", overrides=OVERRIDES, resume=True,
        progress=False,
    )  # fmt: skip
    resumed, whole = (
        read_tensors(old / name / "model.safetensors") for name in ("interrupted", "finished")
    )
    assert resumed.keys() == whole.keys()
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)
    config = json.loads((run.folder / "config.json").read_text())
    assert config["format"] == FORMAT and config["run"] == run_id
    assert {r["run"] for r in run.records()} == {run_id}


def test_saved_method_loads_with_the_same_predictions(old):
    net = unseen.load(old / "saved", BarNet())
    trained = Run(old / "finished").load(make(), "cpu")
    x = bars(16, 7)[0]
    assert torch.equal(net.predict(x), trained.predict(x))
    assert torch.equal(net.uncertainty(x), trained.uncertainty(x))
    net.save(old / "again")
    again = unseen.load(old / "again", BarNet())
    assert again.settings() == net.settings()


@pytest.mark.parametrize(
    ("row", "overrides"),
    [(0, {}), (1, {"warmup": 10}), (2, {"warmup": 10, "mixup": None, "adversary": None})],
)
def test_published_run_counts_for_the_same_settings(row, overrides):
    published = read_published_runs(FOLDER / "results")[row]
    method = METHODS[published.config["method"]]
    chosen = resolve(make(), method, "fast", {"steps": 40, "checkpoint_every": 20, **overrides})
    net = method(make().model(), **chosen.method)
    assert difference(published.config, identity(make(), net, "fast", chosen, 0)) is None
    other = identity(make(), net, "fast", chosen, 1)
    assert difference(published.config, other) == ("seed", 0, 1)


def test_migration_needs_no_torch():
    code = (
        "import sys, types; package = types.ModuleType('unseen')\n"
        "package.__path__ = [sys.argv[1]]; sys.modules['unseen'] = package\n"
        "import unseen.schema.migration, unseen.schema, unseen.files\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(Path(unseen.__file__).parent)], check=True)


def test_unknown_format_is_named():
    with pytest.raises(UnseenError, match=r"here: format is 7, this version reads 1 and 2"):
        migrate_config({"format": 7}, "here")


def test_migration_leaves_the_current_format_alone():
    config = json.loads((FOLDER / "finished/config.json").read_text())
    migrated = migrate_config(config, "here")
    assert migrate_config(migrated, "here") == migrated
    assert not set(LOOP_NAMES) & set(migrated["loop"])


@pytest.mark.parametrize(("old_name", "new_name"), LOOP_NAMES.items())
def test_old_loop_names_are_accepted_with_a_warning(tmp_path, old_name, new_name):
    value = {"batch": 16, "decay": "linear", "keep": 3}[old_name]
    with pytest.warns(DeprecationWarning, match=f"--set: .*{old_name} .now {new_name}."):
        loop = resolve(make(), unseen.ERM, "fast", {old_name: value}).loop
    assert getattr(loop, new_name) == value
