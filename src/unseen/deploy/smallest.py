"""Select the k smallest of numbers that do not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from unseen.deploy.reductions import Array

BITS = 16  # of the 64 that one pass decides


@dataclass
class Cut:
    """The bits of the k-th smallest number, and how many that are equal to it belong."""

    bits: int
    equal: int

    def below(self, values: Array) -> Array:
        """Return which of the next numbers are among the smallest; of equal ones the first are."""
        bits = _bits(values)
        ties = bits == np.uint64(self.bits)
        first = ties & (np.cumsum(ties) <= self.equal)
        self.equal -= int(first.sum())
        return np.asarray((bits < np.uint64(self.bits)) | first)


def smallest(passes: Callable[[], Iterable[Array]], k: int) -> Cut:
    """Find the k smallest of numbers that are not negative, by passes over all of them.

    The bits of such a float64 have the order of the numbers: each pass counts the next 16 bits of
    those that agree with what is known so far.
    """
    known, left = 0, k
    for shift in range(64 - BITS, -1, -BITS):
        counts = np.zeros(2**BITS, np.int64)
        for values in passes():
            bits = _bits(values)
            if shift + BITS < 64:
                bits = bits[bits >> np.uint64(shift + BITS) == np.uint64(known)]
            digits = (bits >> np.uint64(shift)) & np.uint64(2**BITS - 1)
            counts += np.bincount(digits.astype(np.int64), minlength=2**BITS)
        totals = np.cumsum(counts)
        digit = int(np.searchsorted(totals, left)) if left else 0
        left -= int(totals[digit - 1]) if digit else 0
        known = (known << BITS) | digit
    return Cut(known, left)


def _bits(values: Array) -> Array:
    return np.ascontiguousarray(values, np.float64).view(np.uint64)
