"""The HTTP interface."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI, Header, Query
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from unseen.deploy.service.bodies import Part, media_type, parts_of, receive
from unseen.deploy.service.gate import Gate
from unseen.deploy.service.inputs import inputs_of
from unseen.deploy.service.limits import Limits
from unseen.deploy.service.loaded_run import Ask, LoadedRun
from unseen.deploy.service.metrics import Metrics
from unseen.deploy.service.page_state import page_state
from unseen.deploy.service.payloads import Payload, payload_of
from unseen.deploy.service.problems import Problem, failure, invalid
from unseen.deploy.service.runs import ServedRun
from unseen.deploy.service.schemas import BODY, PREDICTED, PROBLEMS, SCORED
from unseen.errors import UnseenError
from unseen.installed import package_version

CONTENT_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
LONGEST_NAME = 100  # of a domain
SMALL = 65_536  # bytes of an array that are read at once, not in another thread

RunName = Annotated[str | None, Query(description="Name of the run; the first one by default.")]
DomainName = Annotated[str | None, Query(description="Name of the domain, as the header.")]
DomainHeader = Annotated[
    str | None,
    Header(description="Samples of one domain are watched together; by default of one address."),
]


class Service:
    """The application, and what it serves."""

    def __init__(
        self, runs: dict[str, ServedRun], limits: Limits, metrics: Metrics, token: str | None
    ) -> None:
        self.runs, self.limits, self.metrics = runs, limits, metrics
        self.stopping = False
        self.stop: Callable[[], None] = lambda: None  # set by the server
        self.app = Gate(self._routes(), limits, metrics, token)

    def run_named(self, name: str | None) -> ServedRun:
        if name is None:
            return next(iter(self.runs.values()))
        if name not in self.runs:
            raise Problem(404, "unknown_run", f"no run {name[:100]!r}, only {', '.join(self.runs)}")
        return self.runs[name]

    async def ask(self, request: Request, verb: Any, run: str | None, domain: str | None) -> Any:
        """Answer POST /predict and /score."""
        if self.stopping:
            raise Problem(503, "stopping", "the service is stopping", retry=5)
        loaded = self.run_named(run).current
        name = domain_name(request, domain)
        body = await receive(request, self.limits)
        kind = media_type(request)
        if kind == "multipart/form-data":
            parts = await parts_of(request, body, self.limits)
        else:
            parts = [Part(body, kind, "the body", whole=True)]
        small = len(body) <= SMALL and kind != "multipart/form-data" and kind[:6] != "image/"
        payload = await _run(self._payload, parts, at_once=small)
        small = small and payload.kind != "images"  # few bytes, also in JSON, may be many pixels
        ask = await _run(self._read, payload, verb, name, loaded, at_once=small)
        return json_response(await loaded.ask(ask))

    def _payload(self, parts: list[Part]) -> Payload:
        if not any(part.content for part in parts):
            raise invalid("the body is empty: send samples")
        return payload_of(parts, self.limits)

    def _read(self, payload: Payload, verb: Any, domain: str, loaded: LoadedRun) -> Ask:
        try:
            x = inputs_of(payload, loaded.scorer.reader)
        except Problem as problem:
            problem.reason = loaded.public(problem.reason)
            raise
        return Ask(verb, domain, x, payload.contents if payload.kind == "texts" else None)

    def _routes(self) -> FastAPI:
        app = FastAPI(
            title="unseen",
            version=package_version(),
            description="Predictions, and whether they can be relied on.",
            docs_url=None,  # its scripts would come from another server
            redoc_url=None,
        )
        _handle_problems(app, self.metrics)
        self._add_models(app)
        self._add_views(app)
        return app

    def _add_models(self, app: FastAPI) -> None:
        @app.post("/predict", openapi_extra=BODY, responses={**PREDICTED, **PROBLEMS})
        async def predict(
            request: Request,
            run: RunName = None,
            domain: DomainName = None,
            domain_header: Annotated[DomainHeader, Header(alias="domain")] = None,
        ) -> Any:
            """Predict samples and add them to the stream of their domain."""
            return await self.ask(request, "predict", run, domain_header or domain)

        @app.post("/score", openapi_extra=BODY, responses={**SCORED, **PROBLEMS})
        async def score(request: Request, run: RunName = None) -> Any:
            """Judge samples of one domain together; no stream changes."""
            return await self.ask(request, "score", run, None)

        @app.delete("/domains/{domain:path}", responses=PROBLEMS)
        async def forget(domain: str, run: RunName = None) -> Any:
            """Forget the stream of a domain."""
            loaded = self.run_named(run).current
            if domain not in loaded.streams.by_domain:
                raise Problem(404, "unknown_domain", f"no domain {domain[:100]!r}")
            return json_response(await loaded.forget(domain))

        @app.post("/reload", responses=PROBLEMS)
        async def reload(run: RunName = None) -> Any:
            """Load a run again if its files have changed; a run that fails leaves the old one."""
            chosen = self.run_named(run)
            try:
                outcome = await asyncio.to_thread(chosen.reload)
            except UnseenError as error:
                raise Problem(409, "not_loaded", chosen.current.public(str(error))) from None
            return {"run": chosen.name, "outcome": outcome}

    def _add_views(self, app: FastAPI) -> None:
        @app.get("/health")
        async def health() -> Any:
            """Return 200 while the process lives."""
            return {"status": "ok"}

        @app.get("/ready", responses=PROBLEMS)
        async def ready() -> Any:
            """Return 200 while requests are accepted."""
            if self.stopping:
                raise Problem(503, "stopping", "the service is stopping", retry=5)
            return {"ready": True}

        @app.get("/runs")
        async def runs() -> Any:
            """Return what each run takes and predicts, and the limits."""
            found = [_about(run) for run in self.runs.values()]
            return {"runs": found, "limits": asdict(self.limits)}

        @app.get("/state", responses=PROBLEMS)
        async def state(run: RunName = None, domain: DomainName = None) -> Any:
            """Return what the page shows."""
            chosen = self.run_named(run)
            found = await asyncio.to_thread(page_state, chosen, self.runs.values(), domain)
            return json_response(found)

        @app.get("/metrics")
        async def metrics() -> Response:
            """Return the metrics for Prometheus."""
            for name, run in self.runs.items():
                self.metrics.queue.labels(name).set(run.current.batcher.waiting)
            return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

        for path, name, kind in (
            ("/", "page.html", "text/html"),
            ("/page.css", "page.css", "text/css"),
            ("/page.js", "page.js", "text/javascript"),
        ):
            app.add_api_route(path, _file(name, kind), include_in_schema=False)


async def _run(function: Callable[..., Any], *args: Any, at_once: bool) -> Any:
    """Call a function; in another thread if it takes long enough to keep other requests waiting."""
    return function(*args) if at_once else await asyncio.to_thread(function, *args)


def domain_name(request: Request, given: str | None) -> str:
    """Return the domain of a request: as stated, or the address of the client."""
    if given is None:
        return request.client.host if request.client else "unknown"
    if not given or len(given) > LONGEST_NAME or not given.isprintable():
        raise invalid(f"the domain must be 1 to {LONGEST_NAME} printable characters")
    return given


def json_response(value: Any) -> Response:
    """Return strict JSON."""
    return Response(json.dumps(value, allow_nan=False), media_type="application/json")


def _about(run: ServedRun) -> dict[str, Any]:
    loaded = run.current
    scorer = loaded.scorer
    return {
        "run": run.name,
        "takes": scorer.reader.modality,
        "shape": list(scorer.reader.shape),
        "predicts": scorer.labels,
        "classes": list(scorer.classes),
        "estimates_accuracy": scorer.estimates_accuracy,
        "watching": asdict(loaded.watching),
        "loaded": loaded.since,
        "problem": None if run.problem is None else loaded.public(run.problem),
    }


def _handle_problems(app: FastAPI, metrics: Metrics) -> None:
    async def refused(request: Request, problem: Exception) -> Response:
        if isinstance(problem, HTTPException):  # of the router: unknown path or method
            code = {404: "not_found", 405: "method_not_allowed"}.get(problem.status_code, "http")
            reason = f"{problem.detail}: /openapi.json lists the routes and their methods"
            problem = Problem(problem.status_code, code, reason)
        if isinstance(problem, RequestValidationError):
            where = problem.errors()[0]
            problem = invalid(f"{'.'.join(map(str, where['loc']))}: {where['msg']}")
        if not isinstance(problem, Problem):  # a bug; the gate logs its traceback
            problem = failure()
        metrics.refused.labels(problem.code).inc()
        headers = dict(problem.headers)
        if problem.status == 408:
            headers["Connection"] = "close"
        return JSONResponse(problem.body, problem.status, headers)

    for kind in (Problem, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, refused)


def _file(name: str, kind: str) -> Any:
    content = (files("unseen.deploy.service") / name).read_bytes()

    async def page() -> Response:
        headers = {"Content-Security-Policy": CONTENT_POLICY}
        return Response(content, media_type=kind, headers=headers)

    return page
