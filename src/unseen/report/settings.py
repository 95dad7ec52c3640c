"""Settings of a run under dotted names such as noise.kind, whatever the format of its config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unseen.schema.augment import format_augment, parse_augment
from unseen.schema.flat_settings import nest_settings
from unseen.schema.migration import migrate_config, migrate_loop

# These decide what is recorded and how much memory is used, not what is learned.
WITHOUT_EFFECT = ("log_every", "checkpoint_every", "num_checkpoints", "chunk", "ignore_label")


def read_config(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the configuration in the current format, its settings and overrides flattened."""
    result = migrate_config(config, where)
    if isinstance(result.get("overrides"), Mapping):
        result["overrides"] = migrate_loop(result["overrides"])
    for group in ("loop", "model", "settings", "overrides"):
        if isinstance(result.get(group), Mapping):
            nested = {**result[group]}
            if "augment" in nested:
                nested["augment"] = parse_augment(nested["augment"])
            if result["method"] == "uncertainty_guided":
                nested = nest_settings(nested)
            result[group] = flatten(nested)
    return result


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings under dotted names."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def differences(settings: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that `base` does not have, or has with another value.

    A group that only one side switches off counts as one difference, not one for each field.
    """
    names = [*settings, *(name for name in base if name not in settings)]
    changed = {
        name: settings.get(name)
        for name in names
        if (name in settings) != (name in base) or settings.get(name) != base.get(name)
    }
    for group in {name.partition(".")[0] for name in changed if "." in name}:
        if group not in changed:
            continue
        fields = [name for name in changed if name.startswith(f"{group}.")]
        switched_on = group not in settings
        value = settings.get(f"{group}.kind", "on") if switched_on else None
        changed = {
            name: value if name == group else old
            for name, old in changed.items()
            if name not in fields
        }
    return changed


def format_value(value: Any) -> str:
    """Return a setting's value as it appears in a label."""
    if isinstance(value, list | tuple):
        if any(isinstance(item, list | Mapping) for item in value):  # augment
            return format_augment(list(value))
        return " and ".join(map(str, value))
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
