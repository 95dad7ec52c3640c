"""Migrate the configuration of older runs to the current format. Needs no torch.

Format 1, up to version 0.1, had other names for some loop settings, and all settings of a method in
one flat mapping. The identifier of a run is not migrated: it stays what its records say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from unseen.errors import UnseenError
from unseen.schema.flat_settings import nest_settings

FORMAT = 2
LOOP_NAMES = {"batch": "batch_size", "decay": "lr_schedule", "keep": "num_checkpoints"}

Migration = Callable[[dict[str, Any]], dict[str, Any]]

# By method: from the flat settings of format 1 to those of format 2. Must accept any part of them.
SETTINGS: dict[str, Migration] = {"uncertainty_guided": nest_settings}


def migrate_loop(loop: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the loop settings of format 1; newer names pass through."""
    return {LOOP_NAMES.get(name, name): value for name, value in loop.items()}


def migrate_settings(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a method's settings of format 1 in format 2."""
    return SETTINGS.get(method, dict)(dict(settings))


def migrate_config(
    config: Mapping[str, Any], where: str, settings: Migration | None = None
) -> dict[str, Any]:
    """Return a run's configuration in the current format.

    `where` names its file. `settings` migrates those of a method that SETTINGS does not have.
    A configuration without a format, as in published results, is of format 1.
    """
    version = config.get("format", 1)
    if version == FORMAT:
        return dict(config)
    if version != 1:
        raise UnseenError(f"{where}: format is {version!r}, this version reads 1 and {FORMAT}")
    result = {**config, "format": FORMAT}
    if isinstance(config.get("loop"), Mapping):
        result["loop"] = migrate_loop(config["loop"])
    if isinstance(config.get("settings"), Mapping):
        convert = settings or SETTINGS.get(str(config.get("method")), dict)
        result["settings"] = convert(dict(config["settings"]))
    return result
