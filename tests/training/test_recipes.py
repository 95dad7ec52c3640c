"""Recipes: one word for settings that work together; explicit settings win."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import unseen
from unseen import ERM, UnseenError
from unseen.augmentations import Views
from unseen.cli import main
from unseen.methods import method_named
from unseen.tasks import task_named
from unseen.training.config import resolve
from unseen.training.recipes import RECIPES

pytestmark = pytest.mark.usefixtures("quick_estimators")


def command(*words):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert not end.value.code


def loader():
    x = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return [(x, torch.arange(6) % 3)]


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("method", ["erm", "uncertainty_guided", "gud"])
def test_recipe_is_valid_for_methods(name, method):
    recipe = RECIPES[name]
    Views(recipe.settings.get("augment"), recipe.settings.get("views"))
    chosen = resolve(task_named("mini_digits"), method_named(method), "fast", {}, recipe=name)
    assert chosen.loop.ema == recipe.settings["ema"]
    explicit = {"ema": 0.5, "augment": None, "views": None}
    won = resolve(task_named("mini_digits"), method_named(method), "fast", explicit, recipe=name)
    assert (won.loop.ema, won.loop.augment, won.loop.views) == (0.5, None, None)


@pytest.mark.parametrize(
    "task",
    ["digits", "digits_shifts", "digit_pairs", "amazon_reviews", "google_commands", "driving"],
)
def test_best_presets_resolve_for_every_kind_of_method(task):
    for method in ("erm", "uncertainty_guided"):
        chosen = resolve(task_named(task), method_named(method), "best", {})
        assert chosen.loop.ema is not None
        if task == "amazon_reviews":
            assert chosen.model["binarise"] is True


def test_fit_follows_a_recipe_and_wraps_a_bare_model():
    history = unseen.fit(model(), loader(), steps=2, recipe="image", progress=False)
    assert isinstance(history.net, ERM) and history.net.lr == RECIPES["image"].settings["lr"]
    torch.manual_seed(1)
    by_word = unseen.fit(ERM(model(), lr=0.01), loader(), 3, recipe="image", progress=False)
    settings = {n: RECIPES["image"].settings[n] for n in ("augment", "views", "ema")}
    torch.manual_seed(1)
    by_hand = unseen.fit(ERM(model(), lr=0.01), loader(), 3, progress=False, **settings)
    assert by_word["loss"] == by_hand["loss"] and by_word.net.lr == 0.01
    torch.manual_seed(1)
    clean = unseen.fit(
        ERM(model(), lr=0.01), loader(), 3, recipe="image", augment=[], views=1, progress=False
    )
    assert clean["loss"] != by_word["loss"]


def test_unknown_recipe_is_refused_with_the_known_ones():
    with pytest.raises(UnseenError, match='no recipe "best"; there are: image, text, speech'):
        unseen.fit(ERM(model()), loader(), 1, recipe="best")


def test_recipes_command_shows_what_is_in_each(capsys):
    command("recipes", "--json")
    listed = json.loads(capsys.readouterr().out)["recipes"]
    assert [recipe["name"] for recipe in listed] == list(RECIPES)
    assert listed[0]["settings"]["ema"] == RECIPES["image"].settings["ema"]
    command("recipes", "image")
    shown = capsys.readouterr().out
    assert "augment, view 3" in shown and "the batch itself" in shown and "random_kernel" in shown


def test_train_command_takes_method_and_settings_of_a_recipe(tmp_path, capsys):
    words = ["--recipe", "image", "--set", "steps=2", "--set", "ema=0.9", "--json"]
    command("train", "mini_digits", "--out", str(tmp_path / "run"), *words)
    assert json.loads(capsys.readouterr().out)["method"] == "erm"
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["recipe"] == "image" and config["loop"]["ema"] == 0.9
    assert config["loop"]["views"] == 3


def test_train_command_takes_the_method_of_a_preset(tmp_path, capsys, monkeypatch):
    (tmp_path / "with_method.py").write_text(
        "from dataclasses import replace\n"
        "from unseen.tasks import task_named\n"
        "def task(method='gud'):\n"
        "    presets = {'best': {'method': method, 'steps': 1}, 'fast': {'steps': 1}}\n"
        "    return replace(task_named('mini_digits'), presets=presets)\n"
        "def wrong():\n"
        "    return task('gudd')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def method_of(out, *words):
        command("train", "with_method:task", "--out", str(tmp_path / out), *words, "--json")
        return json.loads(capsys.readouterr().out)["method"]

    assert method_of("best", "--preset", "best") == "gud"
    assert method_of("fast") == "uncertainty_guided"
    assert method_of("given", "--preset", "best", "--method", "erm") == "erm"
    assert method_of("recipe", "--preset", "best", "--recipe", "image") == "erm"
    with pytest.raises(SystemExit) as end:
        main(["train", "with_method:wrong", "--out", str(tmp_path / "x"), "--preset", "best"])
    assert end.value.code == 2 and 'no method "gudd"' in capsys.readouterr().err
