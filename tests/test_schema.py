"""One schema reads settings from Python, the command line, grids and config.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest

from unseen.errors import UnseenError
from unseen.schema import (
    Section,
    construct_settings,
    group_unions,
    hyperparameters,
    merge,
    parse_settings,
    plain,
    read_toml,
    validate,
)


@dataclass(frozen=True)
class Noise:
    scale: float | None = 2.0
    per: Literal["channel", "feature"] = "channel"

    def __post_init__(self):
        if self.scale is not None and self.scale <= 0:
            raise UnseenError(f"noise.scale must be above 0, not {self.scale}")


@dataclass(frozen=True)
class Adversary:
    rounds: int | None = 10
    steps: int = 30


@dataclass(frozen=True)
class LearnedMixup:
    weight: float = 0.01
    rho: float = 0.9
    kind: Literal["learned"] = "learned"


@dataclass(frozen=True)
class RandomMixup:
    weight: float = 0.01
    kind: Literal["random"] = field(default="random", init=False)


class Toy:
    def __init__(
        self,
        model,
        *,
        sites: tuple[str, ...] | list[str] | str = "auto",
        lr: float = 1e-4,
        draws: int = 3,
        order: Literal[1, 2] = 1,
        schedule: Literal["none", "linear"] = "linear",
        fold: bool = True,
        noise: Noise = Noise(),  # noqa: B008
        adversary: Adversary | None = Adversary(),  # noqa: B008
        mixup: LearnedMixup | RandomMixup | None = LearnedMixup(),  # noqa: B008
    ):
        pass


def build(*words):
    return construct_settings(hyperparameters(Toy), parse_settings(words), "--set", "toy")


@pytest.mark.parametrize(
    ("words", "name", "expected"),
    [
        (["noise.scale=3"], "noise", Noise(scale=3.0)),
        (["noise.scale=none", "noise.per=feature"], "noise", Noise(None, "feature")),
        (["adversary=none"], "adversary", None),
        (["adversary.steps=2"], "adversary", Adversary(steps=2)),
        (["mixup=none"], "mixup", None),
        (["mixup.rho=0.5"], "mixup", LearnedMixup(rho=0.5)),
        (["mixup=random", "mixup.weight=0.1"], "mixup", RandomMixup(0.1)),
        (["mixup.weight=0.1", "mixup=random"], "mixup", RandomMixup(0.1)),
        (["lr=1"], "lr", 1.0),
        (["sites=0,2"], "sites", ["0", "2"]),
        (["sites=0"], "sites", "0"),
        (["schedule=none"], "schedule", "none"),
    ],
)
def test_words_become_constructor_arguments(words, name, expected):
    assert build(*words)[name] == expected


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("draws=2.5", "--set: draws must be an integer, not 2.5"),
        ("draws=true", "--set: draws must be an integer, not True"),
        ('draws="3"', "--set: draws must be an integer, not '3'"),
        ("lr=true", "--set: lr must be a number, not True"),
        ('lr="3"', "--set: lr must be a number, not '3'"),
        ("lr=NaN", "--set: lr must be a finite number, not nan"),
        ("lr=" + "9" * 400, "--set lr: it has an integer of 1329 bits"),
        ("lr=" + "9" * 5000, "--set lr: it has an integer of 5000 digits"),
        ("lr=" + "[" * 10**5, "--set lr: lists and tables are nested more than 50 deep"),
        ("a." * 10**4 + "b=1", "--set a.a."),
        ('noise={"scale": 1, "scale": 2}', '--set noise: the key "scale" occurs twice'),
        ('sites="a\\u0000b"', "--set sites: a string has a null character"),
        ("order=3", "--set: order must be one of 1, 2, not 3"),
        ("order=true", "--set: order must be one of 1, 2"),
        ("fold=1", "--set: fold must be true or false, not 1"),
        ("sites=1.5", "--set: sites must be a list or a name, not 1.5"),
        ("noise=none", "--set: noise must be a table of settings, not None"),
        ("noise.scale=x", "--set: noise.scale must be a number or none, not 'x'"),
        ("noise.scale=-1", "--set: noise.scale must be above 0, not -1"),
        ("noise.scal=1", "--set: unknown setting noise.scal; known settings: scale, per"),
        ("noize.scale=1", "--set: unknown setting noize; known settings: sites, lr, draws"),
        ("adversary.steps=1.5", "--set: adversary.steps must be an integer, not 1.5"),
        ("mixup=strong", "--set: mixup must be of kind learned, random or none"),
        ("mixup.beta=1", "--set: unknown setting mixup.beta; known settings: weight, rho"),
        ("draws", 'a setting is written key=value, not "draws"'),
        ("noise..scale=1", "a setting is written key=value"),
    ],
)
def test_errors_name_the_place_the_field_and_what_was_expected(word, message):
    with pytest.raises(UnseenError) as error:
        build(word)
    assert str(error.value).startswith(message)


def test_all_problems_are_reported_at_once():
    with pytest.raises(UnseenError, match=r"draws must be .*; unknown setting bogus"):
        build("draws=x", "bogus=1")


def test_plain_settings_construct_the_same_settings():
    settings = build("noise.scale=3", "mixup=random", "adversary=none", "sites=0,2")
    again = construct_settings(hyperparameters(Toy), plain(settings), "config.json", "toy")
    assert again == settings


def test_merge_keeps_fields_that_the_upper_layer_does_not_name():
    below, above = {"a": {"x": 1, "y": 2}, "b": 1}, {"a": {"y": 3}}
    assert merge(below, above) == {"a": {"x": 1, "y": 3}, "b": 1}
    assert merge({"a": {"x": 1}}, {"a": None}) == {"a": None}
    assert merge({"a": None}, {"a": {"x": 1}}) == {"a": {"x": 1}}


def test_another_kind_keeps_the_fields_that_both_kinds_have():
    unions = group_unions(hyperparameters(Toy))
    below = {"mixup": {"kind": "learned", "weight": 0.5, "rho": 0.1}}
    above = {"mixup": {"kind": "random", "weight": 0.5}}
    assert merge(below, {"mixup": "random"}, unions) == above
    assert merge(merge(below, {"mixup": None}), {"mixup": {"rho": 0.2}}, unions) == {
        "mixup": {"kind": "learned", "rho": 0.2}
    }


def test_toml_errors_name_the_file(tmp_path):
    (tmp_path / "grid.toml").write_text("task = ")
    with pytest.raises(UnseenError, match=r"grid.toml is not valid TOML"):
        read_toml(tmp_path / "grid.toml")
    with pytest.raises(UnseenError, match=r"none.toml does not exist"):
        read_toml(tmp_path / "none.toml")


def test_missing_fields_are_named():
    class Grid(Section):
        task: str
        seeds: list[int] = [0]  # noqa: RUF012

    with pytest.raises(UnseenError, match=r"grid.toml: task is missing"):
        validate(Grid, {}, "grid.toml")
    with pytest.raises(UnseenError, match=r"grid.toml: seeds\[1\] must be"):
        validate(Grid, {"task": "a", "seeds": [0, "x"]}, "grid.toml")
