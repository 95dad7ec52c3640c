"""A small Hub on loopback: creates repositories, takes commits and gives files, over HTTP."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0" * 40


class Hub(ThreadingHTTPServer):
    """Files by repository and name; `asked` lists what was requested."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.files: dict[str, dict[str, bytes]] = {}
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def local_hub() -> Iterator[Hub]:
    """Run a hub until the context ends."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _plan(file: dict[str, Any]) -> dict[str, Any]:
    """Ask for the content of a file within the commit."""
    return {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}


class _Answers(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(f"POST {path}")
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            self.server.files.setdefault(name, {})
            self._json({"url": f"{self.server.address}/{name}", "name": name})
        elif path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif "/preupload/" in path:
            files = [_plan(file) for file in json.loads(body)["files"]]
            self._json({"files": files})
        elif "/commit/" in path:
            self._commit(path, body)
        else:
            self._json({"error": path}, 404)

    def _commit(self, path: str, body: bytes) -> None:
        repo = path.removeprefix("/api/models/").partition("/commit/")[0]
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                content = base64.b64decode(line["value"]["content"])
                self.server.files[repo][line["value"]["path"]] = content
        address = f"{self.server.address}/{repo}/commit/{COMMIT}"
        self._json({"success": True, "commitOid": COMMIT, "commitUrl": address, "hookOutput": ""})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(f"{self.command} {path}")
        for repo, files in self.server.files.items():
            if path.startswith(f"/api/models/{repo}/tree/"):
                return self._json(
                    [
                        {"type": "file", "path": name, "size": len(content), "oid": _hash(content)}
                        for name, content in files.items()
                    ]
                )
            if path.startswith(f"/api/models/{repo}"):
                about = {"id": repo, "sha": COMMIT, "siblings": [{"rfilename": n} for n in files]}
                return self._json(about)
            name = path.partition(f"/{repo}/resolve/")[2].partition("/")[2]
            if name in files:
                more = {"ETag": f'"{_hash(files[name])}"', "X-Repo-Commit": COMMIT}
                return self._send(files[name], "application/octet-stream", more)
        self._json({"error": "not found"}, 404, {"X-Error-Code": "RepoNotFound"})

    def _json(self, value: Any, code: int = 200, more: dict[str, str] | None = None) -> None:
        self._send(json.dumps(value).encode(), "application/json", more or {}, code)

    def _send(self, body: bytes, kind: str, more: dict[str, str], code: int = 200) -> None:
        self.send_response(code)
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), **more}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
