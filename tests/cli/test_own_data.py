"""`--data`: from a folder of images to a run, and every command on it."""

from __future__ import annotations

import csv
import json

import numpy as np
import own_images
import pytest
import safetensors.torch
import torch
from command_line import unseen
from own_images import CLASSES, QUICK, draw, write_images
from PIL import Image

from unseen.models.resnet_classifier import ResNetClassifier


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSEEN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """photos/ to train on, dark/ with labels, new/ without."""
    root = tmp_path_factory.mktemp("own")
    write_images(root / "photos", 16)
    write_images(root / "dark", 6, seed=1, light=0.3)
    (root / "new").mkdir()
    rng = np.random.default_rng(2)
    for i in range(12):
        draw(CLASSES[i % 3], rng, light=0.3).save(root / "new" / f"{i}.png")
    return root


@pytest.fixture(scope="module")
def run(folders):
    done = unseen("train", "--data", folders / "photos", "--out", folders / "run", *QUICK)
    assert done.returncode == 0, done.stderr
    return folders / "run"


def files_below(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def test_run_records_its_data_and_needs_no_options_again(run, folders):
    config = json.loads((run / "config.json").read_text())
    data = config["data"]
    assert data["options"]["path"] == str(folders / "photos") and len(data["digest"]) == 16
    assert (data["source"], data["modality"], data["classes"]) == ("photos", "image", [*CLASSES])
    result = unseen("evaluate", run, "--json").json()
    assert result["source"]["n"] == 6 and result["domains"] == {} and result["average"] is None


def test_evaluate_reads_labels_of_other_data_and_prints_none_without(run, folders):
    result = unseen("evaluate", run, "--data", folders / "dark", "--json").json()
    assert result["domains"]["dark"]["n"] == 18
    assert 0 <= result["domains"]["dark"]["accuracy"] <= 1
    result = unseen("evaluate", run, "--data", folders / "new", "--json").json()
    assert result["domains"]["new"] == {"accuracy": None, "n": 12}
    shown = unseen("evaluate", run, "--data", folders / "new")
    assert "no labels" in shown.stdout


def test_run_with_a_named_source_is_evaluated_on_other_data(folders, tmp_path):
    root = tmp_path / "places"
    write_images(root / "day", 16)
    write_images(root / "dusk", 4, seed=3)
    named = ("--data", root, "--source", "day")
    done = unseen("train", *named, "--out", tmp_path / "run", *QUICK)
    assert done.returncode == 0, done.stderr
    result = unseen("evaluate", tmp_path / "run", "--data", folders / "dark", "--json").json()
    assert result["domains"]["dark"]["n"] == 18
    wrong = unseen("train", "--data", root, "--source", "night", "--out", tmp_path / "no", *QUICK)
    assert wrong.returncode == 2 and 'there is no domain "night"' in wrong.stderr


def test_commands_without_labels_work_on_a_flat_folder(run, folders, tmp_path):
    new = ("--data", folders / "new")
    scored = unseen("score", run, *new, "--json").json()
    assert scored["domain"] == "new" and scored["n"] == 12
    assert scored["verdict"] in ("ok", "shifted", "failing", "unknown")
    estimated = unseen("estimate", run, *new, "--json").json()["domains"]["new"]
    assert "accuracy" not in estimated and estimated["n"] == 12
    watched = unseen("monitor", run, *new, "--batch", 4, "--json").json()
    assert watched["batches"] == {"new": 3}
    watched = unseen("monitor", run, *new, "--json")  # fewer samples than the default batch
    assert watched.json()["batches"] == {"new": 1} and "new has 12 samples" in watched.stderr
    assert unseen("monitor", run, *new, "--batch", 13).returncode == 2
    predicted = unseen("predict", run, *new, "--out", tmp_path / "p.csv", "--json").json()
    assert "accuracy" not in predicted
    rows = list(csv.DictReader((tmp_path / "p.csv").open()))
    assert {row["sample"] for row in rows} == {str(p) for p in (folders / "new").iterdir()}
    assert {row["prediction"] for row in rows} <= set(CLASSES)


def test_adapt_splits_a_target_into_halves(run, folders):
    words = ("--shots", 1, "--draws", 1, "--steps", 1, "--json")
    result = unseen("adapt", run, "--data", folders / "dark", *words).json()
    assert 0 <= result["before"] <= 1 and len(result["after"]) == 1
    result = unseen("adapt", run, "--data", folders / "new", "--with", "se", "--steps", 1,
                    "--json").json()  # fmt: skip
    assert result["before"] is None and result["after_mean"] is None
    shown = unseen("adapt", run, "--data", folders / "new", *words)
    assert shown.returncode == 2 and "new has no labels to adapt with" in shown.stderr
    shown = unseen("score", run)
    assert shown.returncode == 2 and "no unseen domain: add --data FOLDER" in shown.stderr


def test_changed_source_is_refused_and_moved_source_is_found(folders, tmp_path):
    import shutil

    root = write_images(tmp_path / "a" / "set", 8)
    assert unseen("train", "--data", root, "--out", tmp_path / "run", *QUICK).returncode == 0
    (tmp_path / "b").mkdir()
    shutil.move(root, tmp_path / "b" / "set")
    done = unseen("evaluate", tmp_path / "run")
    assert done.returncode == 2 and "does not exist" in done.stderr
    assert unseen("evaluate", tmp_path / "run", "--data", tmp_path / "b" / "set").returncode == 0
    shutil.move(tmp_path / "b" / "set", root)
    (root / "bar" / "0.png").unlink()
    done = unseen("evaluate", tmp_path / "run")
    assert done.returncode == 2 and "has changed since the run was trained" in done.stderr


def test_own_network_is_imported_only_with_permission(folders, tmp_path):
    model = "own_images:build"
    out = tmp_path / "run"
    settings = [word for word in QUICK if word != "width=0.0625"][:-1]
    done = unseen("train", "--data", folders / "photos", "--model", model, "--sites", "conv",
                  "--embedding", "fc1", "--out", out, *settings, "--set", "width=3")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"next: unseen score {out} --data ANOTHER_FOLDER --trust-code" in done.stdout
    assert own_images.built[-1] == (3, (3, 12, 12))
    calls = len(own_images.built)
    done = unseen("evaluate", out)
    assert done.returncode == 2 and "add --trust-code" in done.stderr
    done = unseen("evaluate", out, "--model", "os:getcwd")
    assert done.returncode == 2 and "was trained with --model own_images:build" in done.stderr
    assert len(own_images.built) == calls
    for permission in (("--trust-code",), ("--model", model)):
        assert unseen("evaluate", out, *permission).returncode == 0
    assert len(own_images.built) > calls


def test_own_network_without_types_or_sites_is_trained(folders, tmp_path):
    settings = [word for word in QUICK if word != "width=0.0625"][:-1]
    words = (
        "--data",
        folders / "photos",
        "--model",
        "own_images:untyped",
        "--out",
        tmp_path / "run",
    )
    done = unseen("train", *words, *settings, "--set", "width=3")
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["model"]["width"] == 3 and config["settings"]["sites"] == ["conv"]


def test_problems_exit_with_2_and_write_nothing(folders, tmp_path):
    root = write_images(tmp_path / "set", 3)
    Image.new("RGB", (3, 3)).save(root / "dot" / "0.png")
    before = files_below(tmp_path)
    done = unseen("train", "--data", root, "--out", tmp_path / "run", *QUICK)
    assert done.returncode == 2 and "mixed sizes" in done.stderr
    assert files_below(tmp_path) == before


@pytest.mark.parametrize("words, message", [
    ((), "nothing to train on"),
    (("mini_digits", "--data", "x"), "not on both"),
    (("mini_digits", "--model", "a:b"), "--model belongs to --data"),
    (("mini_digits", "--resize", "3"), "belongs to --data"),
    (("--data", "nowhere.csv"), "does not exist"),
])  # fmt: skip
def test_options_that_do_not_go_together(words, message, tmp_path):
    done = unseen("train", *words, "--out", tmp_path / "run")
    assert done.returncode == 2 and message in done.stderr
    assert files_below(tmp_path) == []


def test_pretrained_weights_are_loaded_and_mismatches_listed(folders, tmp_path, caplog):
    model = ResNetClassifier(7, width=0.0625)
    tensors = {k: v.clone() for k, v in model.state_dict().items()}
    safetensors.torch.save_file(tensors, tmp_path / "good.safetensors")
    words = ("train", "--data", folders / "photos", *QUICK, "--set", "lr=1e-12")
    caplog.set_level("INFO")
    done = unseen(*words, "--pretrained", tmp_path / "good.safetensors", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "the source is photos: 36 train, 6 val, 6 test (split with seed 0)" in caplog.text
    assert "fc.weight, fc.bias start from random weights" in caplog.text
    trained = safetensors.torch.load_file(tmp_path / "run" / "model.safetensors")
    assert torch.allclose(trained["model.conv1.weight"], tensors["conv1.weight"], atol=1e-6)
    tensors["extra"] = tensors.pop("conv1.weight")
    tensors["bn1.bias"] = torch.zeros(99)
    safetensors.torch.save_file(tensors, tmp_path / "bad.safetensors")
    done = unseen(*words, "--pretrained", tmp_path / "bad.safetensors", "--out", tmp_path / "other")
    assert done.returncode == 2 and not (tmp_path / "other").exists()
    for line in (
        "missing in the file: 1\n  conv1.weight",
        "unexpected in the file: 1\n  extra",
        "of another shape: 1\n  bn1.bias: (99,) in the file, (4,) in the model",
    ):
        assert line in done.stderr


def test_inspect_counts_and_draws(folders, tmp_path):
    result = unseen("data", "inspect", folders / "photos", "--sheet", tmp_path / "s.png",
                    "--json").json()  # fmt: skip
    assert result["domains"]["photos"]["classes"] == dict.fromkeys(CLASSES, 16)
    assert result["domains"]["photos"]["splits"] == {"test": 6, "train": 36, "val": 6}
    assert result["sizes"]["most_common"] == {"12x12": 48} and result["problems"] == {}
    with Image.open(tmp_path / "s.png") as sheet:
        assert sheet.size[0] > 700 and len(set(sheet.convert("L").get_flattened_data())) > 50
    done = unseen("data", "inspect", folders / "new")
    assert done.returncode == 2 and "no labels" in done.stderr


def test_inspect_without_a_source_shows_no_split_and_counts_what_it_leaves_out(folders, tmp_path):
    for name in ("day", "dusk"):
        write_images(tmp_path / name, 2)
    result = unseen("data", "inspect", tmp_path, "--json")
    made = json.loads(result.stdout)
    assert result.returncode == 2 and made["split"] == "none without a source"
    assert made["domains"]["day"]["splits"] == {"(no split)": 6}
    rows = "".join(f"gone{i}.png,a\n" for i in range(25))
    (tmp_path / "m.csv").write_text(f"path,label\n{rows}")
    shown = unseen("data", "inspect", tmp_path / "m.csv")
    assert "missing files: 25" in shown.stderr and "  and 5 more" in shown.stderr


def test_damaged_record_of_data_is_one_error(run, tmp_path):
    import shutil

    for field, value in (
        ("reader", {"height": "x"}), ("options", {"path": 3, "evil": 1}), ("modality", "smell"),
        ("shape", [-1]),
    ):  # fmt: skip
        copy = tmp_path / field
        shutil.copytree(run, copy)
        config = json.loads((copy / "config.json").read_text())
        config["data"][field] = value
        (copy / "config.json").write_text(json.dumps(config))
        done = unseen("evaluate", copy)
        assert done.returncode == 2 and '"data"' in done.stderr, (field, done.stderr)
