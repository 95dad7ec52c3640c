"""Settings: one schema for the command line, grid files and config.json. Needs no torch.

settings.py builds the schema from constructor signatures, validation.py reports errors,
migration.py reads the formats of older versions.
"""

from unseen.reading import read_toml
from unseen.schema.settings import (
    build,
    construct_settings,
    group_defaults,
    group_unions,
    hyperparameters,
    merge,
    parse_settings,
    plain,
    refuse_unknown,
    saved_values,
    settings_schema,
    strict_type,
)
from unseen.schema.validation import Section, validate

__all__ = [
    "Section",
    "build",
    "construct_settings",
    "group_defaults",
    "group_unions",
    "hyperparameters",
    "merge",
    "parse_settings",
    "plain",
    "read_toml",
    "refuse_unknown",
    "saved_values",
    "settings_schema",
    "strict_type",
    "validate",
]
