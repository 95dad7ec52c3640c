"""What the files of a run hold beside its settings: config.json and records.jsonl. No torch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StrictFloat, StrictInt, StrictStr
from pydantic import ValidationError as Invalid

from unseen.errors import UnseenError
from unseen.reading import MissingFile, read_json_lines
from unseen.schema.validation import Section

Name = Annotated[StrictStr, Field(min_length=1)]
Index = Annotated[StrictInt, Field(ge=0)]
Table = dict[str, Any]


class RunFields(Section):
    """Fields of a run's config.json, which also records versions and the machine."""

    model_config = ConfigDict(extra="allow")

    run: Name
    task: Name
    method: Name
    seed: Index
    loop: Any
    settings: Table
    model: Table = {}  # noqa: RUF012
    variant: Name = "default"
    task_word: Name | None = None
    preset: Name | None = None
    class_names: list[StrictStr] = []  # noqa: RUF012
    overrides: Table = {}  # noqa: RUF012
    versions: Table = {}  # noqa: RUF012
    command: StrictStr = ""
    processor: StrictStr | None = None
    adapted: Table | None = None
    data: Table | None = None  # RecordedData, of a user's own files
    trained_on: dict[str, Index] | None = None


class Record(Section):
    """A line of records.jsonl. Runs record finite values; older ones may hold others."""

    model_config = ConfigDict(extra="ignore")

    run: Name
    step: Index
    domain: Name
    split: Name
    metric: Name
    value: StrictFloat


def read_records(path: Path, *, torn: bool = False, finite: bool = False) -> list[dict[str, Any]]:
    """Read records.jsonl.

    Args:
        torn: allow a missing file and an incomplete last line, which a killed process leaves and a
            resumed run rewrites.
        finite: refuse values that are not finite.
    """
    fields, records = tuple(Record.model_fields), list[dict[str, Any]]()
    try:
        for number, (content, complete) in enumerate(read_json_lines(path), start=1):
            try:
                record = Record.model_validate(content)
            except Invalid:
                record = None
            if record is None or (finite and not math.isfinite(record.value)):
                if torn and not complete:
                    break
                kind = "a record with a finite value" if finite else "a record"
                raise UnseenError(
                    f"{path}, line {number} is not {kind}: {', '.join(fields)} as JSON"
                )
            records.append({name: content[name] for name in fields})
    except MissingFile:
        if not torn:
            raise
    return records
