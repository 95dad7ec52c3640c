"""Read a folder of files into rows: domain/class/file, split/class/file, class/file, or files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from unseen.data.own_files.manifest import SPLITS, Manifest, Row
from unseen.data.own_files.modality import modality_of
from unseen.data.own_files.problems import Problems
from unseen.errors import UnseenError


def read_folder(path: Path) -> Manifest:
    """Read a folder; the names of its folders are the labels, and the domains above them.

    Files without a folder of a class have no label. Where all folders at the top are named train,
    val or test, these are splits.
    """
    made = Manifest(path, "path", [], Problems(path))
    made.rows = [*folder_rows(path, made)]
    _keep_one_modality(made)
    if not made.rows:
        raise UnseenError(
            f"{path} holds no images, sounds, texts or .npy files: expected files as "
            "class/file or domain/class/file"
        )
    return made


def folder_rows(path: Path, made: Manifest) -> Iterator[Row]:
    """Yield a row for every file that can be read; note others and empty folders in `made`."""
    top = _folders(path)
    deep = any(_folders(folder) for folder in top)
    as_splits = deep and all(folder.name.lower() in SPLITS for folder in top)
    yield from _rows(made, _files(path), Row("", ""))
    for folder in top:
        if not deep:
            yield from _class_rows(made, folder, Row("", "", label=folder.name))
            continue
        split = SPLITS[folder.name.lower()] if as_splits else ""
        common = Row("", "", domain="" if as_splits else folder.name, split=split)
        yield from _rows(made, _files(folder), common)
        for inner in _folders(folder):
            yield from _class_rows(
                made, inner, Row("", "", inner.name, common.domain, common.split)
            )


def _class_rows(made: Manifest, folder: Path, common: Row) -> Iterator[Row]:
    empty = True
    for row in _rows(made, _all_files(folder), common):
        empty = False
        yield row
    if empty:
        made.empty_classes.append(str(folder.relative_to(made.path)))


def _rows(made: Manifest, files: Iterable[str], common: Row) -> Iterator[Row]:
    above = os.path.join(made.path, "")
    for file in files:
        name = file.removeprefix(above)
        if modality_of(name) is None:
            made.ignored.append(name)
        else:
            yield Row(name, name, common.label, common.domain, common.split)


def _keep_one_modality(made: Manifest) -> None:
    """Keep the files of the most common modality; a folder of images may hold a readme.txt."""
    counts = Counter(modality_of(row.content) for row in made.rows)
    if len(counts) > 1:
        most = counts.most_common(1)[0][0]
        made.ignored += [r.content for r in made.rows if modality_of(r.content) != most]
        made.rows = [row for row in made.rows if modality_of(row.content) == most]


def _folders(path: Path) -> list[Path]:
    return sorted(Path(entry.path) for entry in _entries(path) if entry.is_dir())


def _files(path: Path) -> list[str]:
    return sorted(entry.path for entry in _entries(path) if entry.is_file())


def _entries(path: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise UnseenError(f"{path} cannot be read: {error.strerror or error}") from None


def _all_files(folder: Path) -> Iterator[str]:
    # As text: a Path for each of 100,000 files takes longer than all the rest.
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (
            os.path.join(parent, name) for name in sorted(files) if not name.startswith(".")
        )
