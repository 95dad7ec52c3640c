"""Streams on disk: a kill loses nothing that was acknowledged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import requests
from light_task import samples
from live_service import Client

from unseen.deploy import open_scorer
from unseen.deploy.service import journal as journal_module
from unseen.deploy.service.journal import Journal, unpack
from unseen.deploy.service.settings import Watching
from unseen.deploy.service.state import Entry, Streams
from unseen.errors import UnseenError

SETTINGS = Watching(window=16)


@pytest.fixture(scope="module")
def scorer(light_run):
    return open_scorer(light_run.exported, threads=1)


@pytest.fixture(scope="module")
def entries(scorer):
    seen = {s: scorer.observe(samples("test", s).tensors[0].numpy()) for s in (0.0, 3.0)}
    kept = {}
    for shift, found in seen.items():
        signals = {n: v for n, v in found.signals.items() if n not in ("cot", "cott")}
        kept[shift] = type(found)(found.logits, found.scores, found.features, signals, found.rows)
    return [
        Entry(name, 100.0 + i, kept[shift].take(np.arange(i, i + 5)))
        for i in range(0, 55, 5)
        for name, shift in (("a", 0.0), ("b", 3.0))
    ]


def streams(scorer, folder=None, watching=SETTINGS):
    journal = None if folder is None else Journal(folder, "run")
    return Streams(scorer, watching, scorer.calibration.held_out.shape[1], journal)


def summary(found):
    return {
        name: (s.samples, s.windows, s.alarms, s.waiting, [r.as_dict() for r in s.history])
        for name, s in found.by_domain.items()
    }


def write(found, entries, *, snapshot_after=None):
    for i, entry in enumerate(entries):
        found.update(entry)
        found.journal.append(found.record([entry]))
        if i == snapshot_after:
            found.journal.replace(found.snapshot())


@pytest.mark.parametrize("snapshot_after", [None, 4, 21])
def test_streams_continue_from_their_files(scorer, entries, tmp_path, snapshot_after):
    expected = streams(scorer)
    for entry in entries:
        expected.update(entry)
    write(streams(scorer, tmp_path), entries, snapshot_after=snapshot_after)
    assert summary(streams(scorer, tmp_path)) == summary(expected)
    assert expected.by_domain["b"].alarms and not expected.by_domain["a"].alarms


def test_journal_that_a_kill_has_cut_keeps_its_complete_records(scorer, entries, tmp_path):
    write(streams(scorer, tmp_path), entries)
    path = tmp_path / "run.journal"
    content = path.read_bytes()
    for cut in (1, 100, len(content) // 2):
        path.write_bytes(content[:-cut])
        found = streams(scorer, tmp_path)
        total = sum(s.samples for s in found.by_domain.values())
        assert 0 < total < 5 * len(entries) and total % 5 == 0
    before = summary(streams(scorer, tmp_path))
    assert summary(streams(scorer, tmp_path)) == before  # the tail is gone


def test_kill_between_snapshot_and_journal_counts_nothing_twice(
    scorer, entries, tmp_path, monkeypatch
):
    found = streams(scorer, tmp_path)
    write(found, entries)
    writes = []

    def stop_after_one(path, content):
        if writes:
            raise KeyboardInterrupt
        writes.append(path)
        write_one(path, content)

    write_one = journal_module.write_atomically
    monkeypatch.setattr(journal_module, "write_atomically", stop_after_one)
    with pytest.raises(KeyboardInterrupt):
        found.journal.replace(found.snapshot())
    monkeypatch.undo()
    assert summary(streams(scorer, tmp_path)) == summary(found)


def test_forgotten_domain_stays_forgotten(scorer, entries, tmp_path):
    found = streams(scorer, tmp_path)
    write(found, entries)
    found.journal.append(found.forget("a"))
    assert list(streams(scorer, tmp_path).by_domain) == ["b"]


def test_damaged_snapshot_is_named(scorer, tmp_path):
    (tmp_path / "run.snapshot").write_bytes(b"damaged")
    with pytest.raises(UnseenError, match=r"run\.snapshot is damaged.*move it away"):
        streams(scorer, tmp_path)


def flipped(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize("place", [0, 300])  # the length of the first record, its numbers
def test_damage_before_complete_records_is_named_and_nothing_is_cut(
    scorer, entries, tmp_path, place
):
    write(streams(scorer, tmp_path), entries)
    path = tmp_path / "run.journal"
    path.write_bytes(content := flipped(path.read_bytes(), place))
    with pytest.raises(UnseenError, match=r"run\.journal is damaged after 0 records"):
        streams(scorer, tmp_path)
    assert path.read_bytes() == content


def test_zeros_after_a_power_cut_are_cut(scorer, entries, tmp_path):
    found = streams(scorer, tmp_path)
    write(found, entries)
    with (tmp_path / "run.journal").open("ab") as file:
        file.write(bytes(64))
    assert summary(streams(scorer, tmp_path)) == summary(found)


def test_changed_number_of_a_snapshot_is_named(scorer, entries, tmp_path):
    found = streams(scorer, tmp_path)
    write(found, entries, snapshot_after=len(entries) - 1)
    path = tmp_path / "run.snapshot"
    path.write_bytes(flipped(path.read_bytes(), -1 % path.stat().st_size))
    with pytest.raises(UnseenError, match=r"run\.snapshot is damaged"):
        streams(scorer, tmp_path)


class Process:
    """`unseen serve` as a process of its own."""

    def __init__(self, model, state, *words):
        command = [sys.executable, "-m", "unseen", "serve", model, "--port", "0", "--json"]
        more = ["--state", state, "--window", "16", "--threads", "1", *words]
        self.process = subprocess.Popen(
            [str(word) for word in (*command, *more)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ),
        )  # fmt: skip
        text = ""
        while not text.endswith("}\n"):
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read()
            text += line
        self.client = Client(json.loads(text)["url"], None)

    def end(self, number):
        self.process.send_signal(number)
        _, messages = self.process.communicate(timeout=120)
        return self.process.returncode, messages


def test_kill_loses_no_acknowledged_sample_and_sigterm_finishes(light_run, tmp_path):
    model = tmp_path / "light.onnx"
    model.write_bytes(light_run.exported.read_bytes())
    x = samples("test").tensors[0].numpy()
    first = Process(model, tmp_path / "state")
    acknowledged, sent = [0] * 4, [0] * 4
    enough = threading.Event()

    def load(domain):
        for start in range(10_000):
            sent[domain] += 1
            try:
                first.client.arrays(x[start % 60][None], domain=f"d{domain}")
            except (requests.RequestException, AssertionError):
                return
            acknowledged[domain] += 1
            if sum(acknowledged) >= 60:
                enough.set()

    with ThreadPoolExecutor(4) as pool:
        for domain in range(4):
            pool.submit(load, domain)
        assert enough.wait(120)
        code, _ = first.end(signal.SIGKILL)
    assert code == -signal.SIGKILL
    second = Process(model, tmp_path / "state")
    found = second.client.get("/state").json()["domains"]
    samples_of = {d["domain"]: d["samples"] for d in found}
    for domain in range(4):
        assert acknowledged[domain] <= samples_of[f"d{domain}"] <= sent[domain]
    # What is being answered at SIGTERM is finished, and everything is in the snapshot.
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(second.client.arrays, x, "last")
        time.sleep(0.05)
        code, messages = second.end(signal.SIGTERM)
    assert code == 0 and "stopped after" in messages, messages
    answered = pending.exception() is None
    (snapshot,) = (tmp_path / "state").glob("light-*.snapshot")
    assert snapshot.with_suffix(".journal").stat().st_size == 0
    about, _ = unpack(snapshot.read_bytes(), snapshot)
    assert about["streams"].get("last", {}).get("samples", 0) >= (len(x) if answered else 0)


def test_window_that_cannot_be_judged_is_left_out_also_after_a_restart(
    light_run, tmp_path, monkeypatch
):
    """Its samples may be of several requests: none of them fails, and the service starts again."""
    scorer = open_scorer(light_run.exported, threads=1)
    x = samples("test").tensors[0].numpy()
    features = scorer.calibration.held_out.shape[1]
    score_of = type(scorer).domain_score_of

    def overflow(self, values):
        if np.abs(values).max() > 1e20:
            raise UnseenError("the score of these samples is inf")
        return score_of(self, values)

    monkeypatch.setattr(type(scorer), "domain_score_of", overflow)
    journal = Journal(tmp_path, "light")
    streams = Streams(scorer, SETTINGS, features, journal)
    for number in range(4):  # windows 1 to 4; the second one has a huge sample
        seen = scorer.observe(x[:16])
        if number == 1:
            seen.features[3] = 1e30
        entry = Entry("lab", float(number), seen)
        stream, readings = streams.update(entry)
        journal.append(streams.record([entry]))
        assert len(readings) == (number != 1)
    assert (stream.samples, stream.windows, stream.waiting) == (64, 3, 0)
    again = Streams(scorer, SETTINGS, features, Journal(tmp_path, "light"))
    assert again.by_domain["lab"].compute() == stream.compute()
    np.testing.assert_array_equal(again.by_domain["lab"].sum, stream.sum)
