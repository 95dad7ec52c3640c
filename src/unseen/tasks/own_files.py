"""A task made of a user's own files: a manifest or a folder, and a network.

A run records how its data were read. `task_of_run` makes the task again without opening them: the
files are only looked at when a split is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from torch import Tensor, nn

from unseen.api import Domain, Task
from unseen.data.own_files.cache import DecodedSamples
from unseen.data.own_files.collection import Collection, Trained, open_collection
from unseen.data.own_files.label_maps import MapLabels, label_paths
from unseen.data.own_files.labels import IGNORED, IGNORED_PIXEL, label_tensor
from unseen.data.own_files.make_reader import make_reader
from unseen.data.own_files.options import DataOptions
from unseen.data.own_files.readers import Reader, reader_from
from unseen.data.own_files.samples import FileSamples
from unseen.errors import UnseenError
from unseen.schema.own_files import RecordedData
from unseen.schema.validation import validate
from unseen.tasks.own_network import Network, default_network, own_network

log = logging.getLogger("unseen")

NAME = "own_data"  # of every task made of files; its variant is the name of the data
WORD = "data:"  # start of the word of such a task
BATCH = 32
METRICS = {"classes": "accuracy", "several": "map", "number": "mae", "map": "miou"}
LOSSES = {"several": "bce", "number": "mse"}  # others have the default


class OpenedData:
    """A collection with its reader, opened when it is first needed."""

    def __init__(
        self, opened: Callable[[], Collection], reader: Reader | None, trained: Trained | None
    ) -> None:
        self._opened, self._reader, self._trained = opened, reader, trained

    @cached_property
    def collection(self) -> Collection:
        return self._opened()

    @cached_property
    def reader(self) -> Reader:
        return make_reader(self.collection) if self._reader is None else self._reader

    @cached_property
    def trained(self) -> Trained:
        """What a run must know of its data; of the run, if these are its targets."""
        made = self.collection
        return self._trained or Trained(
            source=str(made.source),
            modality=made.modality,
            labels=made.label_kind,
            classes=tuple(made.classes),
            separator=made.options.separator,
            shape=self.reader.shape,
        )

    @cached_property
    def cache(self) -> DecodedSamples | None:
        if not self.reader.worth_caching:
            return None
        made, reader = self.collection, self.reader
        stamps = [
            (str(path), fact.size, fact.changed)
            for path, fact in zip(made.contents, made.facts, strict=True)
            if fact is not None
        ]
        key = [reader.modality, reader.state(), stamps]
        return DecodedSamples(key, len(made.rows), reader.shape, reader.dtype)

    def load(self, domain: str, split: str) -> FileSamples:
        """Return a split of a domain."""
        made = self.collection
        rows = made.indices(domain, split)
        if not rows:
            held = sorted({row.split for row in made.rows if row.domain == domain})
            raise UnseenError(f"{domain} has no rows for {split}, only for: {', '.join(held)}")
        return FileSamples(self.reader, made.contents, rows, self._labels(rows), self.cache)

    def _labels(self, rows: Sequence[int]) -> Tensor | Callable[[int], Tensor]:
        known, made = self.trained, self.collection
        if known.labels == "map":
            height, width = self.reader.shape[1:]
            return MapLabels(label_paths(made), (height, width))
        labels = [made.rows[i].label for i in rows]
        return label_tensor(labels, known.labels, known.classes, known.separator)


def task_from_files(
    options: DataOptions | str,
    *,
    model: str | Callable[..., nn.Module] | None = None,
    sites: Sequence[str] | str | None = None,
    embedding: str | None = None,
) -> Task:
    """Return a task made of a manifest or folder; everything that is wrong with it is one error.

    Args:
        model: function that returns a network, or its name, package.module:function; by default a
            network for the kind of data.
    """
    options = DataOptions(options) if isinstance(options, str) else options
    data = OpenedData(lambda: open_collection(options), None, None)
    made = data.collection
    log.info("%s", describe_source(made))
    network = _network(model, data.reader.shape, data.trained)
    chosen = network.sites if sites is None else sites
    chosen = chosen if isinstance(chosen, str) else tuple(chosen)
    network = Network(network.factory, chosen, embedding or network.embedding)
    recorded = RecordedData(
        options=options.to_json(),
        name=made.manifest.name,
        digest=made.digest(),
        targets=[name for name in made.domains if name != made.source],
        unlabelled=[
            n for n in made.domains if not any(r.label for r in made.rows if r.domain == n)
        ],
        reader=data.reader.state(),
        network=model if isinstance(model, str) else None,
        own_network=model is not None,
        sites=network.sites if isinstance(network.sites, str) else list(network.sites),
        embedding=network.embedding,
        training_samples=len(made.indices(str(made.source), "train")),
        source=data.trained.source,
        modality=data.trained.modality,  # type: ignore[arg-type]
        labels=data.trained.labels,
        classes=list(data.trained.classes),
        separator=data.trained.separator,
        shape=data.trained.shape,
    )
    return _task(recorded, network.factory, data, [(name, data) for name in recorded.targets])


def describe_source(made: Collection) -> str:
    """Return the sentence that names the source and how its splits were made."""
    counts = ", ".join(
        f"{len(made.indices(str(made.source), s))} {s}" for s in ("train", "val", "test")
    )
    seeded = f" (split with seed {made.options.split_seed})" if made.seeded_split else ""
    return f"the source is {made.source}: {counts}{seeded}"


def task_of_run(
    recorded: Any,
    where: str,
    *,
    data: str | None = None,
    model: str | None = None,
    trust_code: bool = False,
    pool: bool = False,
) -> Task:
    """Return the task of a run from what its config.json records; it imports no code by itself.

    Args:
        where: the file, for errors.
        data: other data to use as targets, or the run's own in another place.
        model: the network's name, as recorded; importing it is then allowed.
        trust_code: import the recorded network.
        pool: split targets without splits into halves, for adaptation.
    """
    known = validate(RecordedData, recorded, where)
    try:
        options, reader = DataOptions(**known.options), reader_from(known.modality, known.reader)
    except (TypeError, ValueError) as error:
        raise UnseenError(f'{where}: "data" does not say how to read the data: {error}') from None
    trained = Trained(
        source=known.source,
        modality=known.modality,
        labels=known.labels,
        classes=tuple(known.classes),
        separator=known.separator,
        shape=known.shape,
        columns=getattr(reader, "columns", ()),
    )
    factory = _recorded_factory(known, where, model, trust_code)
    own = OpenedData(partial(_reopen, options, known, pool), reader, trained)
    targets = [(name, own) for name in known.targets]
    if data is not None:
        moved = DataOptions(**{**known.options, "path": data})
        if (same := _same_data(moved, known, pool)) is not None:
            own = OpenedData(lambda: same, reader, trained)
            targets = [(name, own) for name in same.domains if name != known.source]
        else:
            other = OpenedData(partial(open_collection, moved, trained, pool=pool), reader, trained)
            targets = [(name, other) for name in other.collection.domains]
    return _task(known, factory, own, targets)


def _reopen(options: DataOptions, known: RecordedData, pool: bool) -> Collection:
    made = open_collection(options, pool=pool)
    if made.source != known.source or made.digest() != known.digest:
        raise UnseenError(
            f"{options.path} has changed since the run was trained, so its splits are not those "
            "of the run: restore it, or train again"
        )
    return made


def _same_data(moved: DataOptions, known: RecordedData, pool: bool) -> Collection | None:
    """Return the run's own data in another place, or None if these are others."""
    made = open_collection(moved, pool=pool, allow_problems=True)
    if made.source != known.source or made.digest() != known.digest:
        return None
    made.problems.check()
    return made


def _network(
    model: str | Callable[..., nn.Module] | None, shape: tuple[int, ...], trained: Trained
) -> Network:
    outputs = max(1, len(trained.classes))
    if model is None:
        return default_network(trained.modality, trained.labels, shape, outputs)
    return Network(own_network(model, shape, outputs), "auto", "auto")


def _recorded_factory(
    known: RecordedData, where: str, model: str | None, trust_code: bool
) -> Callable[..., nn.Module]:
    """Return the factory of a run's network; a user's own is imported only with permission."""
    if not known.own_network:
        if model is not None:
            raise UnseenError(f"{where}: the run has a network of unseen's: leave out --model")
        outputs = max(1, len(known.classes))
        return default_network(known.modality, known.labels, known.shape, outputs).factory
    if known.network is None and model is None:
        raise UnseenError(
            f"{where}: the run was trained in Python with a model of your own: name a function "
            "that returns it, --model package.module:function"
        )
    if known.network is not None and model not in (None, known.network):
        raise UnseenError(f"{where}: the run was trained with --model {known.network}, not {model}")
    if model is None and not trust_code:
        raise UnseenError(
            f"the run needs your code, {known.network}: add --trust-code to import it, or --model "
            f"{known.network}"
        )
    return own_network(str(model or known.network), known.shape, max(1, len(known.classes)))


def _task(
    known: RecordedData,
    factory: Callable[..., nn.Module],
    source: OpenedData,
    targets: list[tuple[str, OpenedData]],
) -> Task:
    n = known.training_samples
    fast = {"steps": 600, "batch_size": min(BATCH, 2 ** max(0, n.bit_length() - 1)), "lr": 3e-4}
    classes = max(1, len(known.classes))
    return Task(
        name=NAME,
        variant=known.name,
        summary=f"{known.name}: {known.modality}, labels: {known.labels}; source: {known.source}",
        source=Domain(known.source, partial(source.load, known.source)),
        targets=tuple(Domain(name, partial(data.load, name)) for name, data in targets),
        classes=classes,
        class_names=tuple(known.classes),
        model=factory,
        sites=tuple(known.sites) if isinstance(known.sites, list) else known.sites,  # type: ignore[arg-type]
        embedding=known.embedding,  # type: ignore[arg-type]
        ignore_label=IGNORED_PIXEL if known.labels == "map" else IGNORED,
        loss=LOSSES.get(known.labels, "cross_entropy"),  # type: ignore[arg-type]
        metric=METRICS[known.labels],  # type: ignore[arg-type]
        presets={"fast": fast, "reference": {**fast, "steps": 6000}},
        record={"data": known.model_dump()},
    )


# ---- the word of a task, for grids and the command line


def data_word(options: DataOptions, **more: Any) -> str:
    """Return one word for the task of these options, without slashes, for `task_from_word`."""
    given = options.to_json()
    path = given.pop("path")
    values = {**given, **{name: value for name, value in more.items() if value is not None}}
    return f"{WORD}{quote(path, safe='')}" + (f"?{urlencode(values)}" if values else "")


def task_from_word(word: str) -> Task:
    """Return the task of data:PATH or data:PATH?resize=64&model=package.module:function."""
    path, _, query = word.removeprefix(WORD).partition("?")
    values: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
    more = {name: values.pop(name) for name in ("model", "sites", "embedding") if name in values}
    if "sites" in more:
        more["sites"] = str(more["sites"]).split(",")
    fields = DataOptions.__dataclass_fields__
    if unknown := [name for name in values if name not in fields or name == "path"]:
        raise UnseenError(f'{word}: no option "{unknown[0]}"; there are: {", ".join(fields)}')
    try:
        for name, kind in (("seconds", float), ("split_seed", int)):
            if name in values:
                values[name] = kind(values[name])
    except ValueError:
        raise UnseenError(f"{word}: {name} must be a number") from None
    if "allow_duplicates" in values:
        values["allow_duplicates"] = values["allow_duplicates"].lower() == "true"
    return task_from_files(DataOptions(unquote(path), **values), **more)
