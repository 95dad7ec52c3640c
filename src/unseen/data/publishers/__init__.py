"""Publishers of the data sets: addresses, licences and sizes, one file per data set.

A checksum is given where one is published, as for MNIST and SVHN in torchvision and TensorFlow
Datasets. Otherwise the SHA256 of the first download is stored as <name>.sha256, and later downloads
must match it.
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
    """Return the data set of that name, or the one read by the task of that name."""
    task = name.partition("/")[0]
    for data in DATA_SETS.values():
        if task == data.name or task in data.read_by:
            return data
    raise UnseenError(f'no data set "{name}"; there are: {", ".join(DATA_SETS)}')


__all__ = ["DATA_SETS", "DataSet", "Part", "PublishedFile", "data_set"]
