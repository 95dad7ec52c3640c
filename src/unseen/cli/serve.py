"""`unseen serve`."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from unseen.cli.arguments import Count, CountOrNone, Device, Json, OwnData, TaskWord
from unseen.cli.messages import say
from unseen.cli.output import emit
from unseen.deploy import open_scorer
from unseen.deploy.service.limits import Limits
from unseen.deploy.service.settings import Batching, Watching
from unseen.errors import UnseenError

if TYPE_CHECKING:
    from unseen.deploy.scorer import Scorer

TOKEN = "UNSEEN_TOKEN"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(
    *runs: Annotated[Path, Parameter(help="Folders of finished runs, or exported .onnx files.")],
    host: str = "127.0.0.1",
    port: Count = 8000,
    state: Path | None = None,
    webhook: Annotated[list[str] | None, Parameter(negative="")] = None,
    recent: Count = 24,
    reload_seconds: float = 2.0,
    stop_seconds: float = 30.0,
    watching: Annotated[Watching, Parameter(name="*")] = Watching(),  # noqa: B008
    batching: Annotated[Batching, Parameter(name="*")] = Batching(),  # noqa: B008
    limits: Annotated[Limits, Parameter(name="*")] = Limits(),  # noqa: B008
    task: TaskWord = None,
    own: OwnData = None,
    device: Device = "auto",
    threads: CountOrNone = None,
    json_: Json = False,
) -> None:
    """Serve runs over HTTP, with alarms by domain, metrics for Prometheus and a page.

    POST /predict and /score take images, arrays and texts; GET / is the page, /openapi.json the
    description. If UNSEEN_TOKEN is set, requests need it as a bearer token. SIGTERM stops the
    service after what it has, SIGHUP reloads runs. It needs `pip install 'unseen[serve]'`.

    Parameters
    ----------
    host
        Address to listen on; other machines can reach the service at 0.0.0.0 only.
    port
        Port to listen on; 0 takes a free one.
    state
        Folder to keep streams in. A sample is saved before its answer is sent, and a restart
        continues.
    webhook
        URL to post to when a domain begins or ends to raise alarms; repeatable.
    recent
        Number of inputs to keep in memory for the page; 0 keeps none.
    reload_seconds
        How often to look whether the files of a run have changed.
    stop_seconds
        Time to finish requests after SIGTERM.
    threads
        Threads of onnxruntime, for exported models.
    """
    if not runs:
        raise UnseenError("name at least one run: unseen serve RUN")
    start = _import_serve()
    token = os.environ.get(TOKEN)
    if host not in LOOPBACK and token is None:
        say(f"warning: everybody who can reach {host} may use this service; set {TOKEN}")
    given: dict[str, Any] = {} if own is None else asdict(own)

    def open_run(path: Path) -> Scorer:
        return open_scorer(
            path, rate=watching.rate, device=device, threads=threads, task=task, **given
        )

    def started(url: str, service: Any) -> None:
        about = {"url": url, "runs": list(service.runs), "token": token is not None}
        if not emit({**about, "state": None if state is None else str(state)}, json_):
            say(f"serving {', '.join(service.runs)} at {url}; the page is there too")

    from unseen.deploy.service.server import ServiceSettings

    settings = ServiceSettings(
        host=host,
        port=port,
        token=token,
        state=state,
        webhooks=tuple(webhook or ()),
        recent=recent,
        reload_seconds=reload_seconds,
        stop_seconds=stop_seconds,
        limits=limits,
        watching=watching,
        batching=batching,
    )
    answered = start(list(runs), open_run, settings, started)
    say(f"stopped after {answered} requests")


def _import_serve() -> Any:
    try:
        from unseen.deploy.service.server import serve as start
    except ImportError as error:
        raise UnseenError(
            f"the service needs {error.name}, which is not installed: pip install 'unseen[serve]'"
        ) from error
    return start
