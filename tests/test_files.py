"""Atomic writes and folder locks."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from faults import dead_process, faulty

from unseen.data.cache import cached_arrays
from unseen.data.location import CACHE_VARIABLE
from unseen.errors import UnseenError
from unseen.files import (
    append,
    complete_writes,
    is_locked,
    locked,
    read_together,
    replace_files,
    write_atomically,
)
from unseen.nn.tensor_files import read_tensors, write_tensors


def test_full_disk_keeps_the_old_file_and_leaves_no_other(tmp_path):
    path = tmp_path / "model.safetensors"
    write_tensors(path, {"a": torch.ones(3)})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(
            UnseenError, match=r"cannot write .*model.safetensors: .*; free space there"
        ):
            write_tensors(path, {"a": torch.ones(1_000_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]
    assert read_tensors(path)["a"].tolist() == [1, 1, 1]


def test_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnseenError, match="cannot write"):
        write_atomically(tmp_path / "file" / "model", b"x")
    with (
        pytest.raises(UnseenError, match=r"cannot write .*\.run\.lock"),
        locked(tmp_path / "file" / "run"),
    ):
        pass


def test_write_never_changes_the_umask(tmp_path, monkeypatch):
    """The umask belongs to the whole process: another thread could create a file meanwhile."""
    before = os.umask(0o027)
    try:
        monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask was changed"))
        write_atomically(tmp_path / "file", b"x")
    finally:
        monkeypatch.undo()
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_lock_excludes_another_process_until_it_ends(tmp_path):
    code = (
        "import sys; from pathlib import Path; from unseen.files import locked\n"
        "with locked(Path(sys.argv[1])): print('locked', flush=True); input()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout.readline() == "locked\n"
        with (
            pytest.raises(UnseenError, match="is being written by another process"),
            locked(tmp_path / "run"),
        ):
            pass
        other.kill()
    with locked(tmp_path / "run"):
        pass
    assert [p.name for p in tmp_path.iterdir()] == [".run.lock"]


def test_lock_is_held_by_one_at_a_time(tmp_path):
    """Each holder creates a marker that must not exist yet."""
    folder, marker = tmp_path / "run", tmp_path / "marker"
    acquired, violations, deadline = [], [], time.monotonic() + 2.0

    def compete():
        while time.monotonic() < deadline and len(acquired) < 200 and not violations:
            try:
                with locked(folder):
                    try:
                        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
                    except FileExistsError:
                        violations.append("two holders")
                        return
                    time.sleep(0)
                    marker.unlink()
                    acquired.append(1)
            except UnseenError:
                pass

    threads = [threading.Thread(target=compete) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert acquired and not violations


def test_a_symbolic_link_shares_the_lock_of_its_folder(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with (
        locked(tmp_path / "run"),
        pytest.raises(UnseenError, match="written by another process"),
        locked(tmp_path / "link"),
    ):
        pass


def test_the_thread_that_holds_a_lock_may_nest_it(tmp_path):
    with locked(tmp_path / "run"), locked(tmp_path / "run", nested=True):
        assert is_locked(tmp_path / "run")
    assert not is_locked(tmp_path / "run") and not is_locked(tmp_path / "other")


def test_temporary_files_of_dead_processes_are_removed_and_others_kept(tmp_path):
    dead, alive = f".file.{dead_process()}-01234567.tmp", f".file.{os.getpid()}-01234567.tmp"
    folders = [tmp_path, tmp_path / "run", tmp_path / "run/figures"]
    for folder in folders:
        folder.mkdir(exist_ok=True)
        for name in (dead, alive, ".other"):
            (folder / name).write_text("")
    with locked(tmp_path / "run"):
        pass
    write_atomically(tmp_path / "file", b"x")
    for folder in folders:
        names = {p.name for p in folder.iterdir() if p.name.startswith(".")}
        assert names - {".run.lock"} == {alive, ".other"}


@pytest.mark.parametrize("name", ["../kept", "{outside}/kept", "link/kept", "folder/../../kept"])
def test_a_foreign_journal_cannot_reach_out_of_its_folder(tmp_path, name):
    """A downloaded folder may hold anything: a journal in it moves and removes only its files."""
    run, outside = tmp_path / "run", tmp_path / "outside"
    (run / "folder").mkdir(parents=True)
    outside.mkdir()
    (run / "link").symlink_to(outside)
    for path in (outside / "kept", tmp_path / "kept"):
        path.write_text("mine")
    name = name.format(outside=outside)
    temporary = f".x.{os.getpid()}-01234567.tmp"
    for plan in (
        {"files": {}, "remove": [name], "index": None},
        {"files": {name: temporary}, "remove": [], "index": None},
        {"files": {"x": name}, "remove": [], "index": None},
        {"files": {"x": "folder"}, "remove": [], "index": None},
        {"files": {}, "remove": [], "index": name},
        {"files": [], "remove": 3},
        [],
    ):
        (run / temporary).write_text("theirs")
        (run / ".replacing-01234567.json").write_text(json.dumps(plan))
        with pytest.raises(UnseenError, match="was interrupted and cannot be completed"):
            complete_writes(run)
    assert all(p.read_text() == "mine" for p in (outside / "kept", tmp_path / "kept"))


def test_readers_never_see_files_of_two_versions(tmp_path):
    """One thread replaces two files over and over, another reads them."""
    stop, seen = threading.Event(), set()

    def write():
        for version in range(10_000):
            if stop.is_set():
                return
            replace_files(tmp_path, {"a": str(version).encode(), "b": str(version).encode()})

    replace_files(tmp_path, {"a": b"0", "b": b"0"})
    writer = threading.Thread(target=write)
    writer.start()
    deadline = time.monotonic() + 1.0
    try:
        while time.monotonic() < deadline:
            a, b = read_together(
                tmp_path, "a", lambda: [(tmp_path / name).read_bytes() for name in ("a", "b")]
            )
            assert a == b
            seen.add(a)
    finally:
        stop.set()
        writer.join()
    assert len(seen) > 1


def test_a_failed_append_leaves_the_file_as_it_was(tmp_path):
    append(tmp_path / "records", b"one\n")
    with faulty(at=2), pytest.raises(UnseenError, match=r"cannot write .*records: No space left"):
        append(tmp_path / "records", b"two\n")
    assert (tmp_path / "records").read_bytes() == b"one\n"


def test_a_killed_process_leaves_no_part_of_the_cache_for_long(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    make = {"data": "toys", "title": "toy", "depends_on": 1}
    cached_arrays(**make, compute=lambda: {"x": np.ones(3)})
    (path,) = (p for p in tmp_path.rglob("*") if p.is_file())
    path.rename(path.with_name(f".{path.name}.{dead_process()}-01234567.tmp"))
    cached_arrays(**make, compute=lambda: {"x": np.ones(3)})
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]
