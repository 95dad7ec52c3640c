"""Every setting is explained once, in a sentence."""

from __future__ import annotations

from command_line import unseen

from unseen import METHODS
from unseen.cli.options import dotted
from unseen.methods.explanations import LOOP, SETTINGS
from unseen.schema import plain
from unseen.training.config import LoopSettings


def test_every_setting_is_explained_and_nothing_else():
    known = {
        name
        for method in METHODS.values()
        for name, _ in dotted({n: plain(p.default) for n, p in method.settings_of().items()})
    }
    assert set(SETTINGS) == known and set(LOOP) == set(LoopSettings.model_fields)
    for meaning, advice in [*SETTINGS.values(), *LOOP.values()]:
        assert meaning[0].isupper() or meaning.split()[0] in ("adam", "learned,", "cross_entropy,")
        assert all(text.endswith(".") for text in (meaning, advice) if text)


def test_methods_command_shows_meaning_and_advice():
    result = unseen("methods", "uncertainty_guided", "--json").json()
    scale = result["explanations"]["settings"]["noise.scale"]
    assert "standard deviations" in scale["meaning"] and "0.5 to 16" in scale["advice"]
    assert result["explanations"]["loop"]["ema"]["meaning"]
    assert "fictitious" in unseen("methods", "gud").stdout
