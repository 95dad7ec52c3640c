"""Score batches of arrays on any engine: Ray Data, Spark, or a loop of one's own.

dataset.map_batches(BatchScorer, fn_constructor_args=("model.onnx",), concurrency=8)

udf = predict_batch_udf(BatchScorer.predict_fn_maker("model.onnx"), ...)

A domain is judged from sums, one for each batch, which merge in any order:

open_scorer("model.onnx").judge(merge_sums(rows["sums"]))
"""

from __future__ import annotations

import inspect
import io
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from os import PathLike
from typing import Any

import numpy as np

from unseen.deploy.reductions import Array
from unseen.deploy.scorer import Scorer
from unseen.deploy.scorers import open_scorer
from unseen.deploy.seen import Seen
from unseen.deploy.sums import Sums
from unseen.errors import UnseenError

Batch = Mapping[str, Array]
PredictFn = Callable[..., dict[str, Array]]


class BatchScorer:
    """From a dictionary of arrays to a dictionary of arrays, all with one row for each sample.

    The model is opened once, when the object is made; engines make one for each worker. Returned
    are `keep`, and what the model predicts:

    | labels | columns |
    | --- | --- |
    | classes | prediction (number of the class), probability |
    | several | probabilities, one for each label |
    | number | prediction |
    | map | prediction (number of the class of each pixel) |

    and always score. With an accuracy estimator also raw_correctness, the probability that a
    prediction is correct before its mean is set to the accuracy of the domain.

    Args:
        path: the folder of a run, or an exported model.onnx.
        inputs: the columns that the model takes, in its order.
        keep: columns to return unchanged, such as a key.
        logits: also return the logits.
        sums_by: column with a different whole number for each sample of the domain. The first row
            of a batch then has the sums of the batch in the column sums, the others an empty value.
        options: of `open_scorer`, such as threads=1.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        inputs: str | Sequence[str] = "x",
        keep: Sequence[str] = (),
        logits: bool = False,
        sums_by: str | None = None,
        **options: Any,
    ) -> None:
        self.inputs = (inputs,) if isinstance(inputs, str) else tuple(inputs)
        self.keep, self.logits, self.sums_by = tuple(keep), logits, sums_by
        self.scorer = open_scorer(path, **options)

    def __call__(self, batch: Batch) -> dict[str, Array]:
        """Return the predictions and scores of a batch."""
        given = [np.asarray(self._column(batch, name, "inputs")) for name in self.inputs]
        seen = self.scorer.observe(given[0] if len(given) == 1 else tuple(given))
        kept = {name: np.asarray(self._column(batch, name, "keep")) for name in self.keep}
        columns = {**kept, **self._predictions(seen), "score": seen.scores}
        if (raw := seen.raw_correctness) is not None:
            columns["raw_correctness"] = raw
        if self.logits:
            columns["logits"] = seen.logits
        if self.sums_by is not None:
            columns["sums"] = np.full(seen.n, b"", object)
            numbers = np.asarray(self._column(batch, self.sums_by, "sums_by"))
            columns["sums"][0] = sums_to_bytes(sums_of(self.scorer, seen, numbers))
        return columns

    def _column(self, batch: Batch, name: str, option: str) -> Array:
        if name not in batch:
            what = "the columns of the model" if option == "inputs" else "columns of the batch"
            raise UnseenError(
                f'the batch has no column "{name}", only {", ".join(batch)}: name {what} with '
                f"{option}=..."
            )
        return batch[name]

    def _predictions(self, seen: Seen) -> dict[str, Array]:
        logits, kind = seen.logits, self.scorer.labels
        if kind == "several":
            return {"probabilities": 1 / (1 + np.exp(-logits))}
        if kind == "number":
            return {"prediction": logits[:, 0] if logits.shape[1:] == (1,) else logits}
        if kind == "map":
            return {"prediction": logits.argmax(1)}
        odds = np.exp(logits - logits.max(1, keepdims=True))
        return {"prediction": logits.argmax(1), "probability": odds.max(1) / odds.sum(1)}

    @classmethod
    def predict_fn_maker(cls, path: str | PathLike[str], **options: Any) -> Callable[[], PredictFn]:
        """Return what Spark's `predict_batch_udf` takes: a function that opens the model.

        Spark sends it to every executor, calls it there once without arguments, and calls what it
        returns with one array for each input column. The result is a dictionary of columns, for a
        return type of a struct.
        """
        return partial(_make_predict_fn, cls, str(path), options)


def _make_predict_fn(scorer: type[BatchScorer], path: str, options: Mapping[str, Any]) -> PredictFn:
    score = scorer(path, **options)

    def predict(*columns: Array) -> dict[str, Array]:
        if len(columns) != len(score.inputs):
            raise UnseenError(
                f"{path} takes {len(score.inputs)} columns ({', '.join(score.inputs)}), not "
                f"{len(columns)}"
            )
        return score(dict(zip(score.inputs, columns, strict=True)))

    # Spark counts the parameters: each is one column.
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(f"column_{i}", kind) for i in range(len(score.inputs))]
    predict.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return predict


def sums_of(scorer: Scorer, seen: Seen, numbers: Array) -> Sums:
    """Return the sums of samples with these numbers, which differ between samples of a domain."""
    if numbers.shape != (seen.n,) or not np.issubdtype(numbers.dtype, np.integer):
        raise UnseenError(
            f"the numbers of {seen.n} samples must be {seen.n} whole numbers, not an array of "
            f"{numbers.dtype} and shape {numbers.shape}: name with sums_by=... a column of "
            "whole numbers that differ between the samples of a domain"
        )
    order = np.argsort(numbers, kind="stable")
    if (np.diff(numbers[order]) == 0).any():
        raise UnseenError(
            "two samples of a batch have the same number: name with sums_by=... a column of "
            "numbers that differ between the samples of a domain"
        )
    return scorer.sums(seen.take(order), numbers[order])


def sums_to_bytes(sums: Sums) -> bytes:
    """Return sums as the bytes of an .npz file; most of their numbers are 0 and take no space."""
    file = io.BytesIO()
    np.savez_compressed(file, **sums.to_arrays())  # type: ignore[arg-type]
    return file.getvalue()


def sums_from_bytes(data: bytes) -> Sums:
    """Read what `sums_to_bytes` wrote. No code in it is run."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return Sums.from_arrays(dict(arrays))
    except (OSError, TypeError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UnseenError(f"these bytes are not the sums of a batch: {error}") from error


def merge_sums(parts: Iterable[bytes | Sums]) -> Sums:
    """Merge the sums of the batches of a domain; empty values are left out."""
    sums = [p if isinstance(p, Sums) else sums_from_bytes(p) for p in parts if p != b""]
    if not sums:
        raise UnseenError("there are no sums to merge: give BatchScorer sums_by=...")
    return reduce(Sums.merge, sums)
