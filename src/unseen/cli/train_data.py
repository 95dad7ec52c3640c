"""Options of `unseen train` and `unseen data inspect` for one's own data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from unseen.cli.options import Count, Flag
from unseen.data.own_files.labels import SEPARATOR
from unseen.data.own_files.options import DataOptions
from unseen.errors import UnseenError
from unseen.tasks.own_files import data_word


@dataclass(frozen=True)
class ReadingOptions:
    """How to read a manifest or folder.

    Parameters
    ----------
    source
        Domain to train on; by default the only one, or the only one with labels or a training
        split.
    resize
        Resize images to this side, 64, or to height and width, 48x64.
    labels
        What labels are; by default what they look like.
    separator
        Between several labels of a sample.
    seconds
        Length of sounds; by default that of the longest, up to 10.
    split_seed
        Seed of the splits where the data have none.
    allow_duplicates
        Accept equal samples in training and test.
    """

    source: str | None = None
    resize: str | None = None
    labels: Literal["classes", "several", "number", "map"] | None = None
    separator: str = SEPARATOR
    seconds: float | None = None
    split_seed: Count = 0
    allow_duplicates: Annotated[bool, Flag] = False

    def options(self, path: Path) -> DataOptions:
        """Return the options for data at a path."""
        return DataOptions(str(path), **self.__dict__)


Reading = Annotated[ReadingOptions | None, Parameter(name="*")]


@dataclass(frozen=True)
class NetworkOptions:
    """The data to train on, and the network.

    Parameters
    ----------
    data
        Manifest (.csv, .tsv, .jsonl, .parquet) or folder (domain/class/file or class/file) to
        train on, instead of a task.
    model
        Function that returns your network, as package.module:function; by default one for the kind
        of data.
    pretrained
        File of weights, .safetensors or .pt, to start from.
    sites
        Layers that noise enters, separated by commas; by default chosen for the network.
    embedding
        The last hidden layer; by default chosen for the network.
    """

    data: Path | None = None
    model: str | None = None
    pretrained: Path | None = None
    sites: str | None = None
    embedding: str | None = None


Network = Annotated[NetworkOptions | None, Parameter(name="*")]


def training_task_word(
    task: str | None, network: NetworkOptions | None, reading: ReadingOptions | None
) -> str:
    """Return the word of the task to train on: TASK, or that of --data."""
    network = network or NetworkOptions()
    if network.data is None:
        given = [n for n in ("model", "sites", "embedding") if getattr(network, n) is not None]
        if given or reading is not None:
            name = given[0] if given else "source, --resize and the like"
            raise UnseenError(f"--{name} belongs to --data: add --data manifest.csv or a folder")
        if task is None:
            raise UnseenError(
                "nothing to train on: name a task, `unseen tasks` lists them, or your own data "
                "with --data manifest.csv or --data folder"
            )
        return task
    if task is not None:
        raise UnseenError(f"train on the task {task} or on --data {network.data}, not on both")
    options = (reading or ReadingOptions()).options(network.data)
    return data_word(options, model=network.model, sites=network.sites, embedding=network.embedding)
