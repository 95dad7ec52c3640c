"""The reader for a collection, made of its source's training rows."""

from __future__ import annotations

from collections import Counter

from unseen.data.own_files.array import ArrayReader
from unseen.data.own_files.collection import Collection
from unseen.data.own_files.image import ImageReader
from unseen.data.own_files.readers import Reader
from unseen.data.own_files.sound import RESOLUTION, SoundReader
from unseen.data.own_files.table import TableReader
from unseen.data.own_files.text import TextReader
from unseen.errors import UnseenError


def make_reader(made: Collection) -> Reader:
    """Return the reader for these data; what it learns, it learns from the training rows."""
    train = made.indices(str(made.source), "train")
    contents = [made.contents[i] for i in train]
    shapes = [fact.shape for i in train if (fact := made.facts[i]) is not None]
    if made.modality == "image":
        height, width = made.options.size() or Counter(shapes).most_common(1)[0][0]
        return ImageReader(height=height, width=width)
    if made.modality == "sound":
        durations = (shape[0] / RESOLUTION for shape in shapes)
        return SoundReader.of_durations(durations, made.options.seconds)
    if made.modality == "array":
        return ArrayReader.of_file(contents[0])
    if made.modality == "table":
        return TableReader.of_rows(made.manifest.features, contents)
    reader = TextReader.of_texts(contents)
    if not reader.vocabulary:
        raise UnseenError(f"{made.manifest.path}: the training texts have no words")
    return reader
