"""Downloads from a local server: complete, resumed, wrong, missing."""

from __future__ import annotations

import gzip
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from unseen.data import catalog, digits, download, publishers
from unseen.data.publishers import DataSet, Part, PublishedFile
from unseen.errors import UnseenError

CONTENT = np.random.default_rng(0).integers(0, 256, 200_000, np.uint8).tobytes()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Publisher(ThreadingHTTPServer):
    """Serves `content`; cuts the next `cuts` answers in their middle; knows Range if `ranges`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.content, self.version, self.ranges, self.cuts, self.refusals = (
            CONTENT,
            '"one"',
            True,
            0,
            0,
        )
        self.asked: list[dict[str, str]] = []
        self.sent: list[tuple[int, int]] = []  # status and bytes of the body

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file.bin"


class Answer(BaseHTTPRequestHandler):
    server: Publisher

    def log_message(self, *_) -> None:
        pass

    def do_GET(self) -> None:
        server = self.server
        server.asked.append(dict(self.headers))
        if "gone" in self.path:
            return self.send_error(404)
        if server.refusals:
            server.refusals -= 1
            return self.send_error(503)
        body, first = server.content, 0
        wanted = self.headers.get("Range")
        if (
            server.ranges
            and wanted
            and self.headers.get("If-Range", server.version) == server.version
        ):
            first = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if first >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.send_header("Content-Length", "0")
                return self.end_headers()
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - first))
        if server.version:
            self.send_header("ETag", server.version)
        self.send_header(
            "Content-Encoding", "x-gzip"
        )  # as some servers say of a .gz that is the file itself
        self.end_headers()
        body = body[first:]
        if server.cuts:
            server.cuts -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)
        server.sent.append((206 if first else 200, len(body)))
        self.close_connection = True


@pytest.fixture
def publisher(monkeypatch):
    monkeypatch.setattr(download, "WAIT", 0.0)
    server = Publisher()
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def file(server: Publisher, sha256: str | None = SHA256, url: str | None = None) -> PublishedFile:
    return PublishedFile("set/file.bin", (url or server.url,), sha256)


def left_in(folder) -> list[str]:
    return sorted(path.name for path in (folder / "set").iterdir())


def test_a_whole_download_and_none_when_it_is_there(publisher, tmp_path):
    path = download.download(file(publisher), tmp_path)
    assert (
        path == tmp_path / "set/file.bin"
        and path.read_bytes() == CONTENT
        and left_in(tmp_path) == ["file.bin"]
    )
    download.download(file(publisher), tmp_path)
    assert len(publisher.asked) == 1


def test_a_cut_connection_goes_on_where_it_was_cut(publisher, tmp_path):
    publisher.cuts = 2
    path = download.download(file(publisher), tmp_path)
    assert path.read_bytes() == CONTENT and left_in(tmp_path) == ["file.bin"]
    assert [headers.get("Range") for headers in publisher.asked] == [
        None,
        "bytes=100000-",
        "bytes=150000-",
    ]
    assert sum(sent for _, sent in publisher.sent) == len(CONTENT), "no byte came twice"


def test_a_program_that_was_stopped_goes_on_the_next_time(publisher, tmp_path, monkeypatch):
    publisher.cuts = 1
    monkeypatch.setattr(download.time, "sleep", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        download.download(file(publisher), tmp_path)
    assert left_in(tmp_path) == ["file.bin.part", "file.bin.part.version"]
    monkeypatch.undo()
    assert download.download(file(publisher), tmp_path).read_bytes() == CONTENT
    assert (
        publisher.asked[1]["Range"] == "bytes=100000-" and publisher.asked[1]["If-Range"] == '"one"'
    )
    assert left_in(tmp_path) == ["file.bin"]


def test_a_part_of_an_older_version_is_not_mixed_with_the_new_one(publisher, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/file.bin.part").write_bytes(b"old" * 100)
    (tmp_path / "set/file.bin.part.version").write_text('"zero"')
    assert download.download(file(publisher, sha256=None), tmp_path).read_bytes() == CONTENT


def test_a_part_that_is_already_whole_or_too_long(publisher, tmp_path):
    for part in (CONTENT, CONTENT + b"more"):
        (tmp_path / "set").mkdir(exist_ok=True)
        (tmp_path / "set/file.bin").unlink(missing_ok=True)
        (tmp_path / "set/file.bin.part").write_bytes(part)
        assert download.download(file(publisher), tmp_path).read_bytes() == CONTENT


def test_a_server_that_knows_no_range_begins_again(publisher, tmp_path):
    publisher.ranges, publisher.version, publisher.cuts = False, "", 1
    assert download.download(file(publisher), tmp_path).read_bytes() == CONTENT
    assert [status for status, _ in publisher.sent] == [200, 200] and left_in(tmp_path) == [
        "file.bin"
    ]


def test_a_server_that_always_cuts_is_given_up_on(publisher, tmp_path):
    publisher.ranges, publisher.cuts = False, 99
    with pytest.raises(UnseenError, match=r"cut|IncompleteRead|incomplete"):
        download.download(file(publisher), tmp_path)
    assert (
        not (tmp_path / "set/file.bin").exists() and len(publisher.asked) == 1 + download.ATTEMPTS
    )


def test_a_passing_refusal_is_tried_again(publisher, tmp_path):
    publisher.refusals = 2
    assert download.download(file(publisher), tmp_path).read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(publisher, tmp_path):
    with pytest.raises(
        UnseenError, match=r"the checksum is not the published one.*or put the file at"
    ):
        download.download(file(publisher, sha256="0" * 64), tmp_path)
    assert left_in(tmp_path) == []


def test_a_wrong_checksum_leaves_an_older_file_as_it_was(publisher, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/file.bin").write_bytes(b"older")
    with pytest.raises(UnseenError, match="checksum"):
        download.download(file(publisher, sha256="0" * 64), tmp_path)
    assert (tmp_path / "set/file.bin").read_bytes() == b"older"


def test_missing_address_fails_at_once(publisher, tmp_path):
    gone = publisher.url.replace("file", "gone")
    with pytest.raises(UnseenError, match=rf"{gone}: the server says 404.*{tmp_path}"):
        download.download(file(publisher, url=gone), tmp_path)
    assert len(publisher.asked) == 1 and left_in(tmp_path) == []


def test_the_second_address_serves_where_the_first_does_not(publisher, tmp_path):
    both = PublishedFile(
        "set/file.bin", (publisher.url.replace("file", "gone"), publisher.url), SHA256
    )
    assert download.download(both, tmp_path).read_bytes() == CONTENT


def test_no_server_at_all(publisher, tmp_path):
    nowhere = "http://127.0.0.1:9/file.bin"  # the discard port: refused at once
    with pytest.raises(
        UnseenError, match=rf"{nowhere}: .*Connection.*tried {download.ATTEMPTS} times"
    ):
        download.download(file(publisher, url=nowhere), tmp_path)


def test_a_folder_that_cannot_be_written_to(publisher, tmp_path):
    (tmp_path / "set").write_text("a file where a folder should be")
    with pytest.raises(UnseenError, match=r"cannot write .*UNSEEN_DATA"):
        download.download(file(publisher), tmp_path)


# ---- fetch: a whole data set


def usps_lines(label: int) -> bytes:
    return gzip.compress((f"{label} " + "0.5 " * 256 + "\n").encode() * 2)


@pytest.fixture
def toy(publisher, monkeypatch) -> DataSet:
    """A data set of one file without a published checksum, and one that a person must get."""
    publisher.content = usps_lines(3)
    parts = (
        Part(
            "usps",
            "test",
            2,
            True,
            "page",
            "licence",
            (PublishedFile("usps/zip.test.gz", (publisher.url,)),),
        ),
        Part(
            "syn",
            "test",
            2,
            False,
            "page",
            "licence",
            by_hand="open http://drive and unpack it in {folder}/syn",
        ),
    )
    made = DataSet("toy", "a toy", parts, publishers.DIGITS.main_file, publishers.DIGITS.count)
    monkeypatch.setitem(publishers.DATA_SETS, "toy", made)
    return made


def test_fetch_reports_state_of_every_part(toy, publisher, tmp_path):
    rows = catalog.fetch("toy", tmp_path)
    assert [(r["state"], r["n"]) for r in rows] == [("fetched", 2), ("by hand", 0)]
    assert rows[1]["problem"] == f"open http://drive and unpack it in {tmp_path}/toy/syn"
    assert digits.read_original("usps", "test", tmp_path / "toy")[1].tolist() == [3, 3]
    assert [r["state"] for r in catalog.fetch("toy", tmp_path)] == ["there", "by hand"] and len(
        publisher.asked
    ) == 1
    assert [r["state"] for r in catalog.check("toy", tmp_path)] == ["ok", "missing"]


def test_the_first_download_sets_the_checksum_where_none_is_published(toy, publisher, tmp_path):
    catalog.fetch("toy", tmp_path)
    path = tmp_path / "toy/usps/zip.test.gz"
    recorded = (tmp_path / "toy/usps/zip.test.gz.sha256").read_text()
    assert recorded == f"{hashlib.sha256(publisher.content).hexdigest()}  zip.test.gz\n"
    path.write_bytes(b"rotten")
    assert (
        catalog.fetch("toy", tmp_path)[0]["state"] == "fetched"
        and path.read_bytes() == publisher.content
    )
    path.unlink()
    publisher.content, publisher.version = usps_lines(4), '"two"'
    row = catalog.fetch("toy", tmp_path)[0]
    assert (
        row["state"] == "failed" and "checksum is not that of the first download" in row["problem"]
    )
    assert "zip.test.gz.sha256" in row["problem"] and not path.exists()


def test_a_page_that_is_no_data_leaves_nothing_and_sets_no_checksum(toy, publisher, tmp_path):
    publisher.content = b"<html>please log in</html>"
    row = catalog.fetch("toy", tmp_path)[0]
    assert row["state"] == "failed" and "is not as published" in row["problem"]
    assert list((tmp_path / "toy/usps").iterdir()) == []
    publisher.content, publisher.version = usps_lines(3), '"two"'
    assert catalog.fetch("toy", tmp_path)[0]["state"] == "fetched"


def test_no_such_data_set(tmp_path):
    for ask in (catalog.check, catalog.fetch):
        with pytest.raises(UnseenError, match='no data set "mars"; there are: digits'):
            ask("mars", tmp_path)


def test_published_checksums_and_addresses_are_well_formed():
    for part in publishers.DIGITS.parts:
        assert bool(part.by_hand) != bool(part.files), f"{part.domain}: fetched, or got by hand"
        for published in part.files:
            assert published.urls and all(
                url.endswith(published.name.split("/")[1]) for url in published.urls
            )
            assert published.sha256 is None or len(bytes.fromhex(published.sha256)) == 32
            assert published.sha256 is not None or part.domain == "usps"


def test_a_failed_download_leaves_a_users_own_file_where_it_was(toy, publisher, tmp_path):
    path = tmp_path / "toy/usps/zip.test.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"of the user's own, and unreadable")
    publisher.content = b"<html>please log in</html>"
    assert catalog.fetch("toy", tmp_path)[0]["state"] == "failed"
    assert path.read_bytes() == b"of the user's own, and unreadable" and list(
        path.parent.iterdir()
    ) == [path]
    publisher.content, publisher.version = usps_lines(3), '"two"'
    assert catalog.fetch("toy", tmp_path)[0]["state"] == "fetched"
    assert (
        path.read_bytes() == publisher.content and not path.with_name("zip.test.gz.broken").exists()
    )
