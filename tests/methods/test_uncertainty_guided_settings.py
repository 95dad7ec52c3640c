"""Groups of settings, and the flat settings of version 0.1."""

from __future__ import annotations

import inspect
import json
import warnings

import pytest
from tiny import TinyNet

from unseen import UncertaintyGuided, UnseenError
from unseen.methods import Adversary, LearnedMixup, LossWeights, Noise, RandomMixup
from unseen.schema import construct_settings, plain
from unseen.schema.flat_settings import nest_settings


@pytest.mark.parametrize(
    "group, fields, text",
    [
        (Noise, {"scale": -1}, "noise.scale must be a number above 0, not -1"),
        (Noise, {"kind": "none"}, "noise.kind must be one of learned, random_gaussian"),
        (Noise, {"per": "pixel"}, "noise.per must be one of feature, channel, not 'pixel'"),
        (Noise, {"strength": "pixel"}, "noise.strength must be one of sample, batch, None"),
        (Noise, {"sparse": 0.0}, "noise.sparse must lie between 0 and 1, not 0.0"),
        (Noise, {"depth": "first"}, "noise.depth must be one of all, random"),
        (Noise, {"lr": 0.0}, "noise.lr must be a number above 0"),
        (Adversary, {"beta": -1.0}, "adversary.beta must be a finite number of at least 0"),
        (Adversary, {"steps": 0}, "adversary.steps must be an integer of at least 1"),
        (LearnedMixup, {"rho": 1.5}, "mixup.rho must lie between 0 and 1"),
        (RandomMixup, {"weight": 0.0}, "mixup.weight must be a number above 0"),
        (LossWeights, {"kl": -0.1}, "weights.kl must be a finite number of at least 0"),
    ],
)
def test_group_names_the_wrong_field(group, fields, text):
    with pytest.raises(UnseenError, match=text):
        group(**fields)


@pytest.mark.parametrize(
    "flat, nested",
    [
        ({"noise_scale": 2.0, "lr": 0.1}, {"noise": {"scale": 2.0}, "lr": 0.1}),
        ({"noise_scale": None}, {"noise": {"scale": None}}),
        ({"perturbation": "full"}, {"noise": {"kind": "learned"}}),
        ({"perturbation": "random_mu"}, {"noise": {"kind": "random_mu"}}),
        ({"order": 2}, {"meta": "second"}),
        ({"order": 1, "meta": True}, {"meta": "first"}),
        ({"order": 2, "meta": False}, {"meta": None}),
        ({"meta": True}, {}),
        ({"adversarial": False, "ascent_steps": 3}, {"adversary": None}),
        ({"adversarial": True}, {"adversary": {}}),
        ({"ascent_steps": 3, "beta": 0.1}, {"adversary": {"steps": 3, "beta": 0.1}}),
        ({"mixed_weight": 0.5, "mix_at": "a"}, {"mixup": {"weight": 0.5, "at": "a"}}),
        ({"mixed_weight": 0.0, "rho": 0.7, "mixup": "random"}, {"mixup": None}),
        ({"mixup": "none", "mixed_weight": 1.0}, {"mixup": None}),
        ({"mixup": "learnable", "rho": 0.7}, {"mixup": {"kind": "learned", "rho": 0.7}}),
        ({"kl_weight": 1.0, "source_weight": 0.0}, {"weights": {"kl": 1.0, "source": 0.0}}),
        ({"scale": "sum"}, {"reduction": "sum"}),
        ({"noise": {"scale": 1.0}, "meta": None}, {"noise": {"scale": 1.0}, "meta": None}),
        ({"noise": {"scale": 1.0}, "noise_as": "gain"}, {"noise": {"scale": 1.0, "act": "gain"}}),
    ],
)
def test_nest_settings(flat, nested):
    before = json.dumps(flat)
    assert nest_settings(flat) == nested
    assert json.dumps(flat) == before and nest_settings(nested) == nested


def test_constructor_takes_flat_settings_with_a_warning():
    with pytest.warns(DeprecationWarning, match=r"noise_scale \(now noise\.scale\)"):
        net = UncertaintyGuided(
            TinyNet(), noise_scale=1.5, mixup="random", mixed_weight=0.5, meta=False, order=2
        )
    assert net.noise == Noise(scale=1.5) and net.mixup == RandomMixup(weight=0.5)
    assert net.meta is None and net.adversary == Adversary()


def test_constructor_merges_flat_settings_with_groups():
    with pytest.warns(DeprecationWarning):
        net = UncertaintyGuided(TinyNet(), noise=Noise(per="feature"), noise_sign="positive")
    assert net.noise == Noise(per="feature", sign="positive")


def test_constructor_does_not_warn_about_groups():
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        UncertaintyGuided(TinyNet(), noise=Noise(), adversary=None, mixup=None, meta="second")


def test_settings_survive_json():
    net = UncertaintyGuided(
        TinyNet(), sites=["conv1"], embedding="fc1", mixup=RandomMixup(rho=0.7), adversary=None
    )
    text = json.dumps(plain(net.settings()))
    settings = construct_settings(net.settings_of(), json.loads(text), "test", net.name)
    assert UncertaintyGuided(TinyNet(), **settings).settings() == net.settings()


def test_constructor_has_at_most_15_parameters():
    assert len(inspect.signature(UncertaintyGuided.__init__).parameters) <= 15


def test_groups_are_accepted_as_mappings_and_none():
    net = UncertaintyGuided(
        TinyNet(),
        sites=["conv1"],
        embedding="fc1",
        noise={"scale": 1.0},
        adversary="none",
        mixup={"kind": "random"},
    )
    assert net.noise == Noise(scale=1.0)
    assert net.adversary is None
    assert net.mixup == RandomMixup()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noise": {"scael": 1.0}}, "unknown setting noise.scael; known settings: .*scale"),
        ({"noise": 3}, "noise must be a table of settings"),
        ({"adversary": False}, "adversary must be a table of settings or none, not False"),
        ({"noise_scal": 1.0}, "uncertainty_guided has no setting noise_scal; it has: .*noise"),
    ],
)
def test_wrong_groups_and_unknown_settings_are_named(settings, message):
    with pytest.raises(UnseenError, match=message):
        UncertaintyGuided(TinyNet(), sites=["conv1"], embedding="fc1", **settings)


def test_setting_an_old_and_a_new_name_is_refused():
    with pytest.raises(UnseenError, match=r"noise_scale is the old name of noise.scale"):
        nest_settings({"noise_scale": 1.0, "noise": {"scale": 3.0}})
    with pytest.warns(DeprecationWarning), pytest.raises(UnseenError, match="set it once"):
        UncertaintyGuided(TinyNet(), sites=["conv1"], noise_scale=1.0, noise={"scale": 3.0})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"adversarial": "foo"}, "adversarial must be true or false, not 'foo'"),
        ({"order": True}, "order must be one of 1, 2, not True"),
        ({"order": []}, "order must be one of 1, 2"),
        ({"order": 2, "meta": "first"}, "order is the old name of meta: set only one of them"),
        ({"adversarial": False, "adversary": {"rounds": 3}}, "adversarial is the old name"),
        ({"noise_scale": 1.0, "noise": 3}, "noise must be a table of settings, not 3"),
    ],
)
def test_wrong_values_of_old_switches_are_named(settings, message):
    with pytest.raises(UnseenError, match=message):
        nest_settings(settings)
