"""Amazon reviews: counts and labels of the published files and the raw texts; errors."""

from __future__ import annotations

import gzip
import json
import os
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.naive_bayes import BernoulliNB

from unseen.api import Batch
from unseen.data import amazon_reviews as data
from unseen.data import amazon_shifts as shifts
from unseen.data.location import VARIABLE
from unseen.errors import UnseenError
from unseen.methods import METHODS
from unseen.models import ReviewMLP
from unseen.tasks import amazon_reviews
from unseen.tasks.amazon_reviews import SOURCES, VARIANTS
from unseen.tasks.tuning import amazon_shifts

REAL = Path(os.environ.get(VARIABLE, "")) / "amazon_reviews"
needs_real_data = pytest.mark.skipif(
    not os.environ.get(VARIABLE) or not REAL.is_dir(),
    reason=f"{VARIABLE} names no folder with the real reviews in it",
)


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / "amazon_reviews").mkdir()
    return tmp_path / "amazon_reviews"


def write_npz(
    root: Path, domain: str, split: str, rows: np.ndarray, labels: np.ndarray, **instead
) -> Path:
    """A file as published: the given columns are the first, the others stay empty."""
    m = csr_matrix(rows.astype(np.uint8))
    arrays = {
        "data": m.data,
        "indices": m.indices.astype(np.uint16),
        "indptr": m.indptr.astype(np.int32),
        "shape": np.array([len(rows), 5000]),
        "y": labels.astype(np.int8),
        **instead,
    }
    path = root / f"msda5000_{domain}_{split}.npz"
    np.savez_compressed(
        path, **{name: array for name, array in arrays.items() if array is not None}
    )
    return path


ROWS, Y = np.array([[0, 3, 1], [2, 0, 0], [0, 0, 7]]), np.array([1, -1, 1])


def write_jsonl(root: Path, domain: str, rows: list[dict], pack=gzip.compress) -> Path:
    path = root / f"{domain}.jsonl.gz"
    path.write_bytes(pack("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


# ---- the published counts


def test_published_counts_and_labels(root):
    write_npz(root, "dvd", "test", ROWS, Y)
    x, y = data.published_counts("dvd", "test")
    assert x.shape == (3, 5000) and x.dtype == torch.uint8 and y.dtype == torch.int64
    assert x[:, :3].tolist() == ROWS.tolist() and x[:, 3:].sum() == 0
    assert y.tolist() == [1, 0, 1], "-1 is a review that dislikes: class 0"


def test_svmlight_as_dann_publishes_it_reads_the_same(root):
    (root / "dvd_test.svmlight").write_text("1 1:3 2:1\n-1 0:2\n1 2:7\n")
    from_text = data.published_counts("dvd", "test")
    write_npz(root, "dvd", "test", ROWS, Y)
    assert all(
        torch.equal(a, b)
        for a, b in zip(from_text, data.published_counts("dvd", "test"), strict=True)
    )


def test_counts_are_kept_as_bytes_and_given_as_floats_by_one_index_or_many():
    held = data.Counts(torch.tensor([[0, 200], [3, 1]], dtype=torch.uint8), torch.tensor([1, 0]))
    x, y = held[torch.tensor([1, 0])]
    assert x.dtype == torch.float32 and x.tolist() == [[3, 1], [0, 200]] and y.tolist() == [0, 1]
    assert held[0][0].tolist() == [0, 200]


class Trap:
    """What a malicious file could hold."""

    def __reduce__(self):
        return (print, ("code of a data file was run",))


BROKEN = {
    "a pickle": ({"data": np.array([Trap()], dtype=object)}, "cannot be read"),
    "a missing array": ({"y": None}, "lacks y"),
    "fractions": ({"data": np.array([0.5, 1, 1, 1])}, "data is .* of float64"),
    "zero counts": ({"data": np.array([3, 0, 2, 7])}, "counts range from 0"),
    "large counts": ({"data": np.array([3, 1, 2, 256])}, "counts range from 1 to 256"),
    "negative counts": ({"data": np.array([3, -1, 2, 7])}, "counts range from -1"),
    "another width": ({"shape": np.array([3, 400])}, r"shape is \(3, 400\)"),
    "a column too far": ({"indices": np.array([1, 2, 0, 5000])}, "indices range from 0 to 5000"),
    "a negative column": ({"indices": np.array([1, -2, 0, 3])}, "indices range from -2"),
    "a column twice": ({"indices": np.array([1, 1, 0, 3])}, "same column twice"),
    "rows that end early": ({"indptr": np.array([0, 2, 3, 3])}, "indptr does not divide 4"),
    "rows that go back": ({"indptr": np.array([0, 3, 2, 4])}, "indptr does not divide"),
    "too few rows": ({"indptr": np.array([0, 2, 4])}, "indptr does not divide"),
    "too few indices": ({"indices": np.array([1, 2, 0])}, "4 counts and 3 indices"),
    "stars for labels": ({"y": np.array([1, 4, 5])}, "labels are 1, 4, 5"),
    "too few labels": ({"y": np.array([1, -1])}, "3 reviews and 2 labels"),
    "labels in a column": ({"y": np.array([[1], [-1], [1]])}, r"y is \(3, 1\)"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_npz_is_named(root, name, capsys):
    instead, told = BROKEN[name]
    path = write_npz(root, "dvd", "test", ROWS, Y, **instead)
    with pytest.raises(UnseenError, match=told) as error:
        data.published_counts("dvd", "test")
    assert str(path) in str(error.value) and "expected CSR arrays" in str(error.value)
    assert "code of a data file" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"not a zip", None], ids=["empty", "text", "cut short"])
def test_invalid_npz_is_named(root, content):
    path = write_npz(root, "dvd", "test", ROWS, Y)
    path.write_bytes(path.read_bytes()[:-30] if content is None else content)
    with pytest.raises(UnseenError, match="cannot be read"):
        data.published_counts("dvd", "test")


@pytest.mark.parametrize(
    "line, told",
    [("1 5000:1", "cannot be read"), ("1 7:1.5", "not integers"), ("2 7:1", "labels are 2")],
)
def test_a_broken_svmlight_file_is_named(root, line, told):
    (root / "dvd_test.svmlight").write_text(line + "\n")
    with pytest.raises(UnseenError, match=told):
        data.published_counts("dvd", "test")


def test_missing_files_and_unknown_domains_are_named(root):
    with pytest.raises(
        UnseenError, match=r"msda5000_dvd_test.npz is missing.*unseen data fetch amazon_reviews"
    ):
        data.published_counts("dvd", "test")
    with pytest.raises(UnseenError, match="no music/test; it has: books, dvd"):
        data.published_counts("music", "test")
    with pytest.raises(UnseenError, match=r"dvd.jsonl.gz is missing"):
        data.read_texts("dvd")


def test_held_out_reviews_repeat_neither_a_training_review_nor_each_other(root):
    rows = np.arange(1, 41)[:, None] * np.array([[1, 0, 2]])  # 40 different ones
    write_npz(root, "dvd", "train", rows[:10], np.ones(10))
    again = np.concatenate([rows[5:], rows[30:]])  # 5 were trained on, 10 come twice: 30 are left
    write_npz(root, "dvd", "test", again, np.where(again[:, 0] % 2, 1, -1))
    parts = [data.held_out_counts("dvd", *part) for part in ((0, 12), (12, None))]
    found = [x[:, 0].tolist() for x, _ in parts]
    assert len(found[0]) == 12 and sorted(found[0] + found[1]) == list(range(11, 41))
    assert found[0] != sorted(found[0]), "files may be sorted by label"
    assert all(torch.equal(y, x[:, 0] % 2) for x, y in parts), "labels go with their reviews"
    assert torch.equal(data.held_out_counts("dvd", 0, 12)[0], parts[0][0])
    for part in ((0, 31), (30, None)):
        with pytest.raises(
            UnseenError, match="has 30 reviews that are not in dvd/train; 31 are needed"
        ):
            data.held_out_counts("dvd", *part)


# ---- raw texts


def review(text: str, rating: float = 5.0, **more) -> dict:
    return {"text": text, "rating": rating, "title": "", **more}


def test_labels_follow_the_stars_and_repeated_texts_go(root):
    rows = [
        review("Fine.", 4.0),
        review("So so", 3.0),
        review("fine. ", 1.0),
        review("Bad", 1.0, title="Broken"),
        review("Best"),
    ]
    write_jsonl(root, "dvd", rows)
    texts, labels = data.read_texts("dvd")
    assert [text.strip() for text in texts] == [
        "Fine.",
        "So so",
        "Broken\nBad",
        "Best",
    ] and labels.tolist() == [1, 0, 0, 1]


def test_blitzers_own_layout_reads_the_same(root):
    rows = [review("Bad & worse\n\nreally", 2.0, title="No <b>"), review("Good", 4.0, title="Yes")]
    folder = root / "sorted_data_acl/kitchen_&_housewares"
    folder.mkdir(parents=True)
    for name, row in zip(("negative", "positive"), rows, strict=True):
        parts = {
            "unique_id": "7",
            "rating": row["rating"],
            "title": row["title"],
            "review_text": row["text"],
        }
        block = "".join(f"<{tag}>\n{content}\n</{tag}>\n" for tag, content in parts.items())
        (folder / f"{name}.review").write_bytes(f"<review>\n{block}</review>\n".encode() + b"\xff")
    from_blocks = data.read_texts("kitchen")
    write_jsonl(root, "kitchen", rows)
    from_lines = data.read_texts("kitchen")
    assert from_blocks[0] == from_lines[0] == ["No <b>\nBad & worse\n\nreally", "Yes\nGood"]
    assert from_blocks[1].tolist() == from_lines[1].tolist() == [0, 1]


@pytest.mark.parametrize(
    "row, told",
    [
        ({"text": "a"}, "line 2 is not a review .KeyError: 'rating'"),
        (review("a", 6.0), "rating 6"),
        (review("a", 5.0, label=0), "contradicts its rating"),
        ({"text": 3, "rating": 5}, "has no text"),
        ([1], "line 2 is not a review"),
    ],
)
def test_a_broken_text_file_is_named(root, row, told):
    write_jsonl(root, "dvd", [review("fine"), row])
    with pytest.raises(UnseenError, match=told):
        data.read_texts("dvd")


def test_a_text_file_cut_short_is_named(root):
    path = write_jsonl(root, "dvd", [review("fine")])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UnseenError, match="cannot be read"):
        data.read_texts("dvd")


def test_blitzers_file_cut_short_is_named(root):
    folder = root / "sorted_data_acl/books"
    folder.mkdir(parents=True)
    block = "<review>\n<rating>\n{}\n</rating>\n<review_text>\nfine\n</review_text>\n</review>\n"
    (folder / "negative.review").write_text(3 * block.format(1))
    (folder / "positive.review").write_text((3 * block.format(5))[:-30])
    with pytest.raises(
        UnseenError,
        match=r"positive\.review .*: 3 reviews begin and 2 end: it may be truncated",
    ):
        data.read_texts("books")


def test_the_most_frequent_words_and_pairs_equals_by_the_alphabet():
    texts = [
        "good book good book",
        "bad book",
    ]  # book 3; good, good book 2; bad, bad book, book good 1
    assert data.most_frequent(texts, 5) == ["book", "good", "good book", "bad", "bad book"]


def test_counting_by_hand():
    x = data.count_words(
        ["Good BOOK, good!", "no such words", "book " * 300], ["book", "good", "book good"]
    ).toarray()
    assert x.dtype == np.uint8 and x.shape == (3, 5000) and x[:, 3:].sum() == 0
    assert x[:, :3].tolist() == [[1, 2, 1], [0, 0, 0], [255, 0, 0]]


def test_vocabulary_comes_from_source_training_texts(root):
    for domain in ("books", "dvd"):
        write_jsonl(root, domain, [review(f"{domain}{i}") for i in range(10)])
    trained_on, _ = data.extract_counts("books", 4, "books", 0, 4)
    held_out, _ = data.extract_counts("books", 4, "books", 4, None)
    elsewhere, y = data.extract_counts("books", 4, "dvd", 0, None)
    assert trained_on[:, :4].sum() == 4 and trained_on[:, 4:].sum() == 0, "four reviews, four words"
    assert (
        held_out.shape == (6, 5000)
        and held_out.sum() == 0
        and elsewhere.sum() == 0
        and y.tolist() == [1] * 10
    )
    with pytest.raises(UnseenError, match="has 10 distinct reviews of dvd; 11 are needed"):
        data.extract_counts("books", 4, "dvd", 0, 11)


# ---- the task


def test_the_twelve_transfers_are_named_and_nothing_is_read_before_it_is_asked_for(monkeypatch):
    monkeypatch.setenv(VARIABLE, "/nowhere")
    tasks = [amazon_reviews.task(variant) for variant in VARIANTS]
    transfers = [d.name for task in tasks[:4] for d in task.targets]
    assert len(set(transfers)) == 12 and transfers[:3] == [
        "books->dvd",
        "books->electronics",
        "books->kitchen",
    ]
    assert [d.name for task in tasks[4:] for d in task.targets] == transfers, (
        "the same transfers, other features"
    )
    assert [task.source.name for task in tasks] == [*SOURCES, *SOURCES] and [
        task.variant for task in tasks
    ] == list(VARIANTS)
    assert amazon_reviews.task().variant == VARIANTS[0] == "books"
    for make in (amazon_reviews.task, amazon_shifts.task):
        with pytest.raises(
            UnseenError, match=r'no variant "music".*books, dvd, electronics, kitchen'
        ):
            make("music")
    with pytest.raises(UnseenError, match="no amazon_reviews data"):
        tasks[0].source.load("train")


def test_the_source_is_held_out_and_a_target_is_whole(root, monkeypatch):
    monkeypatch.setattr(amazon_reviews, "HELD_OUT", {"val": (0, 5), "test": (5, None)})
    rows = np.arange(1, 31)[:, None] * np.array([[1, 0, 2]])
    for domain in ("books", "dvd"):
        write_npz(root, domain, "train", rows[:10], np.ones(10))
        write_npz(root, domain, "test", rows[8:], np.ones(22))
    task = amazon_reviews.task("books")
    assert {split: len(task.source.load(split)) for split in ("train", "val", "test")} == {
        "train": 10,
        "val": 5,
        "test": 15,
    }
    assert {split: len(task.domain("books->dvd").load(split)) for split in ("train", "test")} == {
        "train": 10,
        "test": 22,
    }
    with pytest.raises(UnseenError, match='books has no split "dev" here; it has: val, test'):
        task.source.load("dev")


def test_the_model_is_the_papers():
    net = ReviewMLP()
    sizes = [tuple(p.shape) for p in net.parameters()]
    assert sizes == [(50, 5000), (50,), (50, 50), (50,), (2, 50), (2,)]
    x = torch.rand(3, 5000)
    by_hand = net.fc3(net.fc2(net.fc1(x).clamp(min=0)).clamp(min=0))
    assert torch.equal(net(x), by_hand)


IMAGES_ONLY = {"cutout", "autoaugment", "par", "self_super", "jigen"}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_learns_from_counts_or_says_that_it_needs_images(name):
    torch.manual_seed(0)
    task = amazon_reviews.task()
    model, batch = (
        task.model(),
        Batch((torch.randint(0, 3, (8, 5000)).float(),), torch.arange(8) % 2),
    )
    before = model.fc1.weight.detach().clone()
    with (
        pytest.raises(UnseenError, match=r"images|conv layer")
        if name in IMAGES_ONLY
        else nullcontext()
    ):
        logs = METHODS[name](model, sites=task.sites, embedding=task.embedding).step(batch)
        assert torch.isfinite(logs["loss"]) and not torch.equal(model.fc1.weight, before)


# ---- the shifts that settings are chosen on


def test_the_task_keeps_its_own_list_of_shifts():
    assert amazon_shifts.UNSEEN == shifts.SHIFTS


def test_label_association_by_hand():
    used = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]])
    association = shifts.label_association(used, np.array([1, 1, 0, 0]))
    # shares 1 and 0, pooled (2 + 1) / (4 + 2) = 1/2: z = 1 / sqrt(1/4 (1/2 + 1/2)) = 2
    assert association.tolist() == [2.0, 0.0, 0.0]


def test_joined_reviews_share_their_label():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 50)
    x = np.hstack([np.eye(50), np.full((50, 1), 200)]).astype(
        np.uint8
    )  # every review has a word of its own
    long = shifts.join_reviews(x, y, rng)
    partners = (long[:, :50] - x[:, :50]).argmax(1)
    assert (
        (long[:, :50].sum(1) == 2).all()
        and (partners != np.arange(50)).all()
        and (y[partners] == y).all()
    )
    assert sorted(partners) == list(range(50)) and (long[:, 50] == 255).all(), (
        "400 does not fit into a byte"
    )


def test_another_topic_moves_rare_words_that_tell_nothing_and_no_others():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (20, 40)).astype(np.uint8)
    association, frequency = np.repeat([0.0, 5.0], 20), np.tile([0.01, 0.5], 20)
    moved = shifts.permute_topic_words(x, association, frequency, rng)
    topical = np.arange(0, 20, 2)
    others = np.setdiff1d(np.arange(40), topical)
    assert (moved[:, others] == x[:, others]).all() and (moved[:, topical] != x[:, topical]).any()
    assert (np.sort(moved[:, topical], axis=1) == np.sort(x[:, topical], axis=1)).all(), (
        "the same words, in other places"
    )


def test_the_most_telling_words_of_both_kinds_go(monkeypatch):
    monkeypatch.setattr(shifts, "REMOVED", 2)
    x = np.full((2, 4), 7, np.uint8)
    assert (
        shifts.remove_predictive_words(x, np.array([0.1, -3.0, 2.0, 1.0])).tolist()
        == [[7, 0, 0, 7]] * 2
    )
    assert x.min() == 7


# ---- the real reviews


@needs_real_data
def test_the_real_files_are_whole():
    sizes = {d: len(data.published_counts(d, "test")[1]) for d in SOURCES}
    assert sizes == {"books": 4465, "dvd": 3586, "electronics": 5681, "kitchen": 5945}
    for d in SOURCES:
        assert data.published_counts(d, "train")[1].bincount().tolist() == [1000, 1000]


# Accuracy of naive Bayes less a margin; with wrong labels or rows it would be 0.5.
@needs_real_data
@pytest.mark.parametrize(
    "variant, held_out, unseen", [("kitchen", 0.82, 0.66), ("kitchen_raw", 0.8, 0.66)]
)
def test_real_reviews_match_their_labels(variant, held_out, unseen):
    task = amazon_reviews.task(variant)
    x, y = task.source.load("train").tensors
    reader = BernoulliNB().fit(csr_matrix(x.numpy()), y.numpy())

    def read(domain, split):
        x, y = domain.load(split).tensors
        return reader.score(csr_matrix(x.numpy()), y.numpy())

    assert read(task.source, "val") > held_out and read(task.source, "test") > held_out
    scores = {d.name: read(d, "test") for d in task.targets}
    assert all(score > unseen for score in scores.values()), scores
    assert read(task.targets[0], "train") > unseen


@needs_real_data
def test_every_shift_is_the_same_bits_when_made_again_and_touches_no_training_review():
    task = amazon_shifts.task("kitchen")
    held_out = data.held_out_counts("kitchen", shifts.FIRST, shifts.END)
    for domain in task.targets:
        x, y = domain.load("test").tensors
        again = shifts.load_shift("kitchen", domain.name.partition("->")[2])
        assert torch.equal(again[0], x) and torch.equal(again[1], y) and torch.equal(y, held_out[1])
        assert x.shape == (1000, 5000) and (x != held_out[0]).any(1).float().mean() > 0.9, (
            domain.name
        )
    short, long = (
        task.domain(f"kitchen->{name}").load("test").tensors[0].sum()
        for name in ("shorter", "longer")
    )
    assert 0.25 < short / held_out[0].sum() < 0.35 and long == 2 * held_out[0].sum()
    assert len(task.source.load("val")) == 1000 and not set(
        map(bytes, task.source.load("val").tensors[0].numpy())
    ) & set(map(bytes, held_out[0].numpy()))
