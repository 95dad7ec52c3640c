"""A user's data: rows with domains, splits and labels, checked together before anything else."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unseen.data.own_files import checks
from unseen.data.own_files.facts import FileFact, gather_facts
from unseen.data.own_files.folder import read_folder
from unseen.data.own_files.label_maps import check_maps
from unseen.data.own_files.labels import (
    LabelKind,
    class_names,
    is_whole,
    kind_of,
    without_zeros,
)
from unseen.data.own_files.manifest import UNLABELLED, Manifest, Row, read_manifest
from unseen.data.own_files.modality import Modality, modality_of
from unseen.data.own_files.options import DataOptions
from unseen.data.own_files.problems import Problems
from unseen.data.own_files.readers import reader_classes
from unseen.data.own_files.splits import assign_splits, join_groups
from unseen.data.own_files.text import LARGEST as LARGEST_TEXT
from unseen.errors import UnseenError
from unseen.reading import read_text

POOL = 0.5  # of a target without splits, for adaptation


@dataclass(frozen=True)
class Trained:
    """What a run knows of the data it was trained on."""

    source: str
    modality: str
    labels: LabelKind
    classes: tuple[str, ...]
    separator: str
    shape: tuple[int, ...]  # of a sample
    columns: tuple[str, ...] = ()  # feature columns of a table


@dataclass
class Collection:
    """Rows that can be used, what is known of their files, and the problems of all rows."""

    options: DataOptions
    manifest: Manifest
    modality: Modality
    rows: list[Row]
    facts: list[FileFact | None]  # of each row; None without files
    source: str | None  # None: all domains are targets of a run
    label_kind: LabelKind = "classes"
    classes: list[str] = field(default_factory=list)
    seeded_split: bool = False
    contents: list[Any] = field(default_factory=list)  # what a reader reads

    @property
    def problems(self) -> Problems:
        return self.manifest.problems

    @property
    def domains(self) -> list[str]:
        """The names of all domains, the source first."""
        names = dict.fromkeys(row.domain for row in self.rows)
        first = [self.source] if self.source in names else []
        return [*first, *sorted(n for n in names if n != self.source)]

    def indices(self, domain: str, split: str) -> list[int]:
        """Return the numbers of the rows of a split of a domain."""
        pairs = enumerate(self.rows)
        return [i for i, row in pairs if (row.domain, row.split) == (domain, split)]

    def digest(self) -> str:
        """Return a digest of the source: contents, labels and splits. More targets may follow."""
        digest = hashlib.sha256()
        for row, fact in zip(self.rows, self.facts, strict=True):
            if row.domain != self.source:
                continue
            size = None if fact is None else fact.size
            values = [row.content, row.label, row.domain, row.split, row.group, size]
            digest.update(json.dumps(values).encode())
        return digest.hexdigest()[:16]


def open_collection(
    options: DataOptions,
    trained: Trained | None = None,
    *,
    pool: bool = False,
    allow_problems: bool = False,
) -> Collection:
    """Read and check a manifest or folder; everything that is wrong is one error.

    Args:
        trained: of the run whose targets these data are; without it they have a source.
        pool: split targets without splits into halves, for adaptation.
        allow_problems: return the collection with its problems instead, to inspect them.
    """
    path = Path(options.path)
    if not path.exists():
        raise UnseenError(f"{path} does not exist: --data takes a manifest or a folder")
    columns = () if trained is None else trained.columns
    manifest = read_folder(path) if path.is_dir() else read_manifest(path, columns)
    modality = _modality(manifest, trained)
    made = Collection(options, manifest, modality, [], [], None)
    _look_at_files(made)
    if made.rows:
        _name_domains(made, trained)
        _read_labels(made, trained)
        if made.label_kind == "map":
            made.classes = check_maps(made, None if trained is None else len(trained.classes))
        if made.source is not None or trained is not None:
            _split(made, pool)
        checks.check_labels(made, trained)
        checks.check_sizes(made, trained)
        checks.check_sides(made)
    if not allow_problems:
        made.problems.check()
    return made


def _modality(manifest: Manifest, trained: Trained | None) -> Modality:
    modality: Modality | None
    if manifest.kind == "features":
        modality = "table"
    elif manifest.kind == "text":
        modality = "text"
    else:
        counts = Counter(modality_of(row.content) for row in manifest.rows)
        modality = next((m for m, _ in counts.most_common() if m is not None), None)
        for row in manifest.rows:
            if modality is not None and modality_of(row.content) != modality:
                manifest.problems.add(
                    f"files that are no {modality}", f"{row.where}: {row.content}"
                )
        manifest.rows = [r for r in manifest.rows if modality_of(r.content) == modality]
    if modality is None:
        raise UnseenError(
            f"{manifest.path}: the files are no images, WAV, FLAC, .txt or .npy by their names"
        )
    if trained is not None and modality != trained.modality:
        raise UnseenError(
            f"{manifest.path} holds data of kind {modality}, the run was trained on "
            f"{trained.modality}"
        )
    return modality


def _look_at_files(made: Collection) -> None:
    """Keep the rows whose files can be read."""
    manifest, kind = made.manifest, reader_classes()[made.modality]
    if manifest.kind != "path":
        made.rows, made.facts = manifest.rows, [None] * len(manifest.rows)
        made.contents = [row.content for row in made.rows]
        return
    paths = [manifest.file(row) for row in manifest.rows]
    facts = gather_facts(paths, kind, str(manifest.path.resolve()))
    for row, path, fact in zip(manifest.rows, paths, facts, strict=True):
        at = "" if row.where == row.content else f"{row.where}: "
        if fact is None:
            manifest.problems.add("missing files", f"{at}{path} does not exist")
        elif fact.problem:
            kinds = {"image": "unreadable images", "sound": "unreadable sounds"}
            heading = kinds.get(made.modality, "unreadable files")
            manifest.problems.add(heading, f"{at}{row.content}: {fact.problem}")
        else:
            made.rows.append(row)
            made.facts.append(fact)
            made.contents.append(read_text(path, LARGEST_TEXT) if made.modality == "text" else path)


def _name_domains(made: Collection, trained: Trained | None) -> None:
    """Give every row a domain, and choose the source."""
    some_labelled = any(row.label for row in made.rows)
    for row in made.rows:
        if not row.domain:
            alone = trained is None and some_labelled and not row.label
            row.domain = UNLABELLED if alone else made.manifest.name
    if trained is None:
        made.source = _source(made)
    else:  # a second folder of the same name is another domain
        for row in made.rows:
            if row.domain == trained.source:
                row.domain = f"{row.domain}_new"


def _source(made: Collection) -> str | None:
    names = sorted({row.domain for row in made.rows})
    if (chosen := made.options.source) is not None:
        if chosen not in names:
            made.problems.add(
                "no source domain", f'there is no domain "{chosen}"; there is {", ".join(names)}'
            )
            return None
        return chosen
    labelled = sorted({row.domain for row in made.rows if row.label})
    trained_on = sorted({row.domain for row in made.rows if row.split == "train" and row.label})
    for candidates in (names, labelled, trained_on):
        if len(candidates) == 1:
            return candidates[0]
    made.problems.add(
        "no source domain",
        f"name the one to train on: --source NAME, one of {', '.join(names)}; in a grid "
        "data = {path = ..., source = NAME}, as a task data:PATH?source=NAME",
    )
    return None


def _read_labels(made: Collection, trained: Trained | None) -> None:
    options = made.options
    if trained is not None:
        made.label_kind, made.classes = trained.labels, list(trained.classes)
        _unify_whole_numbers(made, trained.classes)
        return
    given = [row.label for row in made.rows if row.domain == made.source and row.label]
    files = made.manifest.kind == "path"
    made.label_kind = options.labels or kind_of(given, options.separator, files)  # type: ignore[assignment]
    _unify_whole_numbers(made, set(given))
    if made.label_kind in ("classes", "several"):
        of_source = [row.label for row in made.rows if row.domain == made.source]
        made.classes = class_names(of_source, made.label_kind, options.separator)


def _unify_whole_numbers(made: Collection, known: Iterable[str]) -> None:
    """Name the class 1 that some rows call 1.0: a column with a gap is often saved as floats."""
    if made.label_kind == "classes" and all(map(is_whole, known)):
        for row in made.rows:
            row.label = without_zeros(row.label)


def _split(made: Collection, pool: bool) -> None:
    """Give every row a split; rows of a target are for testing unless they say otherwise."""
    keys = [checks.content_key(made, i) for i in range(len(made.rows))]
    for domain in made.domains:
        chosen = [i for i, row in enumerate(made.rows) if row.domain == domain]
        rows = [made.rows[i] for i in chosen]
        splits = {row.split for row in rows}
        if domain != made.source:
            halves = pool and "train" not in splits
            if halves:
                _assign(made, chosen, keys, {"test": 1 - POOL})
            else:
                for row in rows:
                    row.split = "train" if row.split == "train" else "test"
            continue
        if splits == {""}:
            made.seeded_split = True
            _assign(made, chosen, keys, None)
            continue
        for row in rows:
            row.split = row.split or "train"
        parts = {s: 0.15 for s in ("val", "test") if s not in splits}
        if parts:
            train = [i for i in chosen if made.rows[i].split == "train"]
            made.seeded_split = True
            _assign(made, train, keys, parts)


def _assign(
    made: Collection,
    chosen: list[int],
    keys: list[Any],
    parts: dict[str, float] | None,
) -> None:
    rows = [made.rows[i] for i in chosen]
    pairs = zip(rows, chosen, strict=True)
    shared = [([("group", r.group)] if r.group else []) + [("same", keys[i])] for r, i in pairs]
    stratified = made.label_kind == "classes"
    classes = [row.label if stratified else "" for row in rows]
    splits = assign_splits(join_groups(shared), classes, made.options.split_seed, parts)
    for row, split in zip(rows, splits, strict=True):
        row.split = split
