"""BatchScorer: a dictionary of arrays in, one out, on any engine; sums of shards make the verdict.

Spark is not installed for the tests: they follow what the documentation of `predict_batch_udf` and
its source state, in `apply_like_spark`.
"""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest

from unseen.deploy import BatchScorer, merge_sums, open_scorer
from unseen.deploy.batch_scorer import sums_from_bytes, sums_of
from unseen.errors import UnseenError

pytestmark = pytest.mark.usefixtures("quick_estimators")


@pytest.fixture
def x(light_run):
    return light_run.task.domain("far/1").load("test").tensors[0].numpy()


def test_columns_are_those_of_the_scorer(light_run, x):
    score = BatchScorer(light_run.exported, keep=("key",), logits=True, threads=1)
    seen = open_scorer(light_run.exported, threads=1).observe(x)
    columns = score({"x": x, "key": np.arange(len(x)) * 7, "more": x})
    assert list(columns) == [
        *("key", "prediction", "probability", "score", "raw_correctness", "logits"),
    ]
    assert {len(column) for column in columns.values()} == {len(x)}
    np.testing.assert_array_equal(columns["key"], np.arange(len(x)) * 7)
    np.testing.assert_array_equal(columns["prediction"], seen.logits.argmax(1))
    np.testing.assert_array_equal(columns["score"], seen.scores)
    np.testing.assert_array_equal(columns["raw_correctness"], seen.raw_correctness)
    wide = np.exp(seen.logits.astype(np.float64))
    np.testing.assert_allclose(columns["probability"], (wide / wide.sum(1)[:, None]).max(1), 1e-5)


def test_run_folder_gives_the_same_columns_as_its_export(light_run, x):
    ours, theirs = (
        BatchScorer(light_run.folder, task=light_run.task, device="cpu")({"x": x}),
        BatchScorer(light_run.exported, threads=1)({"x": x}),
    )
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-4, err_msg=name)


def test_sums_of_shards_judge_as_one_pass_over_all(light_run, x):
    """Scores agree to 1e-12 relative: only the order of 64-bit additions differs."""
    score = BatchScorer(light_run.exported, sums_by="number", threads=1)
    scorer = score.scorer
    order = np.random.default_rng(0).permutation(len(x))
    shards = [score({"x": x[part], "number": part}) for part in np.array_split(order, 7)]
    column = np.concatenate([shard["sums"] for shard in shards])
    assert len(column) == len(x) and sum(value != b"" for value in column) == 7
    merged = merge_sums(column)
    whole = sums_of(scorer, scorer.observe(x), np.arange(len(x)))
    np.testing.assert_allclose(merged.features, whole.features, rtol=1e-12)
    np.testing.assert_array_equal(merged.sample.numbers, whole.sample.numbers)
    np.testing.assert_allclose(merged.sample.rows, whole.sample.rows, atol=1e-6)
    found, expected = scorer.judge(merged), scorer.verdict(x)
    assert (found.verdict, found.n) == (expected.verdict, expected.n)
    assert found.score == pytest.approx(expected.score, rel=1e-6)  # features pass through 32 bits
    assert found.predicted_accuracy == pytest.approx(expected.predicted_accuracy, abs=1e-6)
    assert found.interval == pytest.approx(expected.interval, abs=1e-6)
    backwards = merge_sums(column[::-1])
    assert scorer.judge(backwards).score == pytest.approx(found.score, rel=1e-12)


def test_equal_numbers_in_a_batch_are_refused(light_run, x):
    score = BatchScorer(light_run.exported, sums_by="number", threads=1)
    with pytest.raises(UnseenError, match="two samples of a batch have the same number"):
        score({"x": x[:3], "number": np.array([4, 1, 4])})


def apply_like_spark(maker, columns, shapes, batch_size):
    """Apply a predict function as Spark does on one executor.

    Spark pickles the maker, calls it without arguments, counts the parameters of what it returns,
    flattens tensors in its columns and restores their shapes, and wants for a struct a dictionary
    of arrays with one row for each input row.
    """
    predict = pickle.loads(pickle.dumps(maker))()
    assert len(inspect.signature(predict).parameters) == len(columns)
    results = []
    for start in range(0, len(columns[0]), batch_size):
        rows = [column[start : start + batch_size].reshape(-1, *shape)
                for column, shape in zip(columns, shapes, strict=True)]  # fmt: skip
        result = predict(*rows)
        assert isinstance(result, dict)
        for name, values in result.items():
            assert isinstance(values, np.ndarray) and len(values) == len(rows[0]), name
        results.append(result)
    return {name: np.concatenate([r[name] for r in results]) for name in results[0]}


def test_spark_contract(light_run, x):
    maker = BatchScorer.predict_fn_maker(light_run.exported, threads=1)
    flat = x.reshape(len(x), -1)
    ours = apply_like_spark(maker, [flat], [x.shape[1:]], 17)
    expected = BatchScorer(light_run.exported, threads=1)({"x": x})
    assert list(ours) == list(expected)
    for name in ours:
        assert ours[name].ndim == 1  # a scalar field of the struct
        np.testing.assert_allclose(ours[name], expected[name], atol=1e-5, err_msg=name)
    two = BatchScorer.predict_fn_maker(light_run.exported, inputs=("a", "b"), threads=1)()
    assert len(inspect.signature(two).parameters) == 2
    with pytest.raises(UnseenError, match=r"takes 2 columns \(a, b\), not 1"):
        two(x)


def test_bad_batches_are_errors_that_name_the_column(light_run, x):
    score = BatchScorer(light_run.exported, inputs="image", sums_by="number", threads=1)
    with pytest.raises(UnseenError, match='no column "image", only x'):
        score({"x": x})
    with pytest.raises(UnseenError, match=r'no column "number".* with sums_by='):
        score({"image": x})
    with pytest.raises(UnseenError, match=r'no column "key".* with keep='):
        BatchScorer(light_run.exported, keep=["key"], threads=1)({"x": x})
    with pytest.raises(UnseenError, match=r"must be 60 whole numbers.* sums_by="):
        score({"image": x, "number": np.zeros(len(x))})
    with pytest.raises(UnseenError, match="no sums to merge"):
        merge_sums([b"", b""])
    sums = score({"image": x, "number": np.arange(len(x))})["sums"][0]
    for damaged in (b"not sums", pickle.dumps({"n": 1}), sums[:100]):
        with pytest.raises(UnseenError, match="not the sums of a batch"):
            sums_from_bytes(damaged)
    for value in (None, "text", 3):  # as of a row that an engine has filled in
        with pytest.raises(UnseenError, match="not the sums of a batch"):
            merge_sums([sums, value])
