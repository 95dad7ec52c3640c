"""What a run records of a user's own data. No torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictBool, StrictInt, StrictStr

from unseen.schema.validation import Section

Name = Annotated[StrictStr, Field(min_length=1)]
Count = Annotated[StrictInt, Field(ge=1)]


class RecordedData(Section):
    """The entry "data" of config.json: how the data were read, and the network for them."""

    model_config = ConfigDict(extra="forbid")

    options: dict[str, Any]  # of --data, with an absolute path
    name: Name
    digest: Name  # of the rows of the source
    source: Name
    targets: list[Name]
    unlabelled: list[Name] = []  # noqa: RUF012  targets without any label
    modality: Literal["image", "sound", "text", "array", "table"]
    labels: Literal["classes", "several", "number", "map"]
    classes: list[StrictStr]
    separator: Name
    shape: tuple[Count, ...]  # of a sample
    reader: dict[str, Any]  # arguments of the reader
    network: StrictStr | None = None  # package.module:function
    own_network: StrictBool = False  # whether the network is the user's
    sites: list[StrictStr] | StrictStr
    embedding: StrictStr | None = None
    training_samples: Count
