"""Who publishes the real data, where, under what licence, and what a whole download weighs. One data set, one file.

Nothing here was fetched while this was written: addresses are those in common use, and a checksum is stated only where it is
published and widely used (torchvision and TensorFlow Datasets state those of MNIST and SVHN). Where none is known it is None:
then the SHA256 of the first download is kept beside the file as <name>.sha256, and later downloads must match it.
"""

from __future__ import annotations

from unseen.data.publishers.amazon_reviews import AMAZON_REVIEWS
from unseen.data.publishers.cifar10 import CIFAR10
from unseen.data.publishers.digits import DIGITS
from unseen.data.publishers.driving import DRIVING
from unseen.data.publishers.google_commands import GOOGLE_COMMANDS
from unseen.data.publishers.parts import DataSet, Part, PublishedFile
from unseen.errors import UnseenError

DATA_SETS: dict[str, DataSet] = {
    data.name: data for data in (DIGITS, CIFAR10, DRIVING, AMAZON_REVIEWS, GOOGLE_COMMANDS)
}


def data_set(name: str) -> DataSet:
    """The data set of that name, or the one that a task of that name reads."""
    task = name.partition("/")[0]
    found = next(
        (data for data in DATA_SETS.values() if task == data.name or task in data.read_by), None
    )
    if found is None:
        raise UnseenError(f'no data set "{name}"; there are: {", ".join(DATA_SETS)}')
    return found


__all__ = ["DATA_SETS", "DataSet", "Part", "PublishedFile", "data_set"]
