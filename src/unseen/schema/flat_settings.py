"""Flat settings of `uncertainty_guided` up to version 0.1, now nested in groups. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unseen.errors import UnseenError

RENAMED = {
    "perturbation": "noise.kind",
    "noise_over": "noise.per",
    "noise_sign": "noise.sign",
    "noise_as": "noise.act",
    "noise_scale": "noise.scale",
    "heads_read": "noise.head_input",
    "minimize_heads": "noise.minimize",
    "head_lr": "noise.lr",
    "ascent_rounds": "adversary.rounds",
    "ascent_every": "adversary.every",
    "ascent_steps": "adversary.steps",
    "ascent_lr": "adversary.lr",
    "beta": "adversary.beta",
    "mixed_weight": "mixup.weight",
    "mix_at": "mixup.at",
    "detach_mix": "mixup.detach",
    "rho": "mixup.rho",
    "temperature": "mixup.temperature",
    "source_weight": "weights.source",
    "perturbed_weight": "weights.perturbed",
    "kl_weight": "weights.kl",
    "scale": "reduction",
    "adversarial": "adversary",
    "order": "meta",
}
_KINDS = {"full": "learned", "learnable": "learned"}
_META = {1: "first", 2: "second"}


def deprecated_names(settings: Mapping[str, Any]) -> list[str]:
    """Return the settings whose name or value is of version 0.1."""
    return [
        name
        for name, value in settings.items()
        if name in RENAMED
        or (name == "meta" and isinstance(value, bool))
        or (name == "mixup" and isinstance(value, str))
    ]


def nest_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Move flat settings into their groups; nested ones pass through.

    Any subset of the flat settings is accepted, such as the fields of one preset.
    """
    flat = {name: settings[name] for name in deprecated_names(settings)}
    nested = {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in settings.items()
        if name not in flat
    }
    _check_switches(flat, nested)
    for name, value in flat.items():
        group, _, field = RENAMED.get(name, name).partition(".")
        if name == "perturbation" and isinstance(value, str):
            value = _KINDS.get(value, value)
        if field and field in (settings.get(group) or {}):
            raise UnseenError(f"{name} is the old name of {group}.{field}: set only one of them")
        if name == "scale":
            nested["reduction"] = value
        elif field and nested.get(group, {}) is not None:
            nested.setdefault(group, {})[field] = value
    # A switch and its parameters were separate settings; a group that is None is now the switch.
    if "adversarial" in flat:
        nested["adversary"] = nested.get("adversary", {}) if flat["adversarial"] else None
    if flat.get("mixup") == "none" or ("mixed_weight" in flat and flat["mixed_weight"] == 0):
        nested["mixup"] = None
    elif "mixup" in flat:
        kind = _KINDS.get(flat["mixup"], flat["mixup"])
        nested["mixup"] = {"kind": kind, **nested.get("mixup", {})}
    if flat.get("meta") is False:
        nested["meta"] = None
    elif "order" in flat:
        nested["meta"] = _META[flat["order"]]
    return nested


def _check_switches(flat: Mapping[str, Any], nested: Mapping[str, Any]) -> None:
    """Check the old switches, whose values the schema does not see."""
    if not isinstance(flat.get("adversarial", True), bool):
        raise UnseenError(f"adversarial must be true or false, not {flat['adversarial']!r}")
    if "order" in flat and (isinstance(flat["order"], bool) or flat["order"] not in (1, 2)):
        raise UnseenError(f"order must be one of 1, 2, not {flat['order']!r}")
    for old, new in (("adversarial", "adversary"), ("order", "meta"), ("scale", "reduction")):
        if old in flat and new in nested:
            raise UnseenError(f"{old} is the old name of {new}: set only one of them")
    for group in ("noise", "adversary", "mixup", "weights"):
        if not isinstance(nested.get(group), Mapping | str | None):
            raise UnseenError(f"{group} must be a table of settings, not {nested[group]!r}")
