"""Read texts as bags of words: the logarithm of one plus the count of each word."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from unseen.data.own_files.readers import Array, Fact, Reader
from unseen.errors import UnseenError
from unseen.reading import read_text

WORDS = 5000  # in the vocabulary at most
LARGEST = 2**24  # bytes of a text
_WORD = re.compile(r"\w+")


class TextReader(Reader):
    """Counts the words of a vocabulary, which is taken from the training texts."""

    modality: ClassVar = "text"
    from_files: ClassVar = False

    def __init__(self, *, vocabulary: Sequence[str]) -> None:
        self.vocabulary = list(vocabulary)
        self.index = {word: i for i, word in enumerate(self.vocabulary)}
        self.shape, self.dtype = (len(self.vocabulary),), np.dtype(np.float32)

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> TextReader:
        """Return a reader with the words that most texts have; rare ties in alphabetical order."""
        counts = Counter(word for text in texts for word in set(words_of(text)))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(vocabulary=sorted(ranked[:WORDS]))

    def state(self) -> dict[str, Any]:
        return {"vocabulary": self.vocabulary}

    def read(self, content: str) -> Array:
        counts = np.zeros(self.shape, np.float32)
        for word in words_of(content):
            if (place := self.index.get(word)) is not None:
                counts[place] += 1
        return np.log1p(counts)

    @staticmethod
    def look(path: Path, whole: bool) -> Fact:
        try:
            text = read_text(path, LARGEST)
        except UnseenError as error:
            return Fact((), str(error).removeprefix(f"{path} "))
        return Fact((len(text),)) if text.strip() else Fact((), "the text is empty")


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return _WORD.findall(text.lower())
