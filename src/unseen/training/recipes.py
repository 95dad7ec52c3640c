"""Recipes: settings of loop, method and augmentations that work together, for a kind of data.

A recipe has the form of a preset: a mapping under a method's name is for that method only. Settings
that are given explicitly win over it.

`image` was chosen on shifts of handwritten digits and `text` on shifts of reviews (docs/tuning.md).
The others are provisional: they are not chosen on synthetic shifts yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unseen.errors import UnseenError


@dataclass(frozen=True)
class Recipe:
    """Settings for a kind of data, and the method that they were chosen for."""

    name: str
    summary: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def preset(self) -> dict[str, Any]:
        """Return the recipe as a preset of a task."""
        return {"method": self.method, **self.settings}

    def of_method(self, method: str) -> dict[str, Any]:
        """Return the settings for a method, without those of other methods."""
        common = {n: v for n, v in self.settings.items() if not isinstance(v, Mapping)}
        return {**common, **self.settings.get(method, {})}


AFFINE = {"name": "affine", "strength": 1.0}
RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "image",
            "images (N, C, H, W) in 0..1",
            "erm",
            {
                "lr": 1e-3,
                "ema": 0.995,
                "augment": [[], [AFFINE, {"name": "randconv", "share": 1.0}],
                            [AFFINE, "random_kernel"]],
                "views": 3,
                "uncertainty_guided": {"noise": {"scale": 1.0}},
            },
        ),
        Recipe(
            "text",
            "bags of words (N, words)",
            "erm",
            {
                "ema": 0.99,
                "augment": [{"name": "word_dropout", "rate": 0.5}],
                "ball": 1e-3,
                "uncertainty_guided": {"noise": {"sign": "positive", "scale": 4.0}},
            },
        ),
        Recipe(
            "speech",
            "log-mel spectrograms (N, C, bands, frames) in 0..1",
            "uncertainty_guided",
            {"lr": 1e-3, "lr_schedule": "linear", "ema": 0.995, "augment": "specaugment"},
        ),
        Recipe(
            "segmentation",
            "images with label maps",
            "uncertainty_guided",
            {"ema": 0.99, "augment": ["colour", "light"]},
        ),
    )
}  # fmt: skip


def recipe_named(name: str) -> Recipe:
    """Return the recipe of that name."""
    if not isinstance(name, str) or name not in RECIPES:
        raise UnseenError(f'no recipe "{name}"; there are: {", ".join(RECIPES)}')
    return RECIPES[name]
