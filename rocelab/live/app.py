"""The requests that a lab's live page makes, as an ASGI application behind `rocelab.live.access`.

`GET /`, `/page/NAME`: the page's files. `/fabric.json`, `/events?metric=M`, `/node/NAME`,
`/link?name=NAME`, `/history?link=NAME`, `/kinds`, `/flows`, `/traffic`: what it shows.
`/traffic/impact`: what the traffic of the page felt of faults. `/recording.html`: what was seen, as
a page that needs no server. `POST /faults`, `/faults/N/undo`, `/scheme`, `/path`, `/observe`,
`/reach`, `/capture`, `/traffic`, `/probes`, `/traffic/stop`: what it does.
`/terminal/NODE`, a WebSocket: a root shell, if that is allowed. Every answer but pages and the
stream is JSON; an error has `error` and `hint`, and `problems` if several things of a request are
wrong.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute

from rocelab.base.errors import ExpectationError, InputError, RocelabError, SpecError
from rocelab.base.plugin_errors import plugins_named
from rocelab.drills.drill_spec import TrafficSpec
from rocelab.faults.asked import kinds
from rocelab.jobs.job import JobSpec
from rocelab.lab.inuse import Use, in_use
from rocelab.lab.lab import RunningLab
from rocelab.labfile.base import SpecModel
from rocelab.labfile.load import validate
from rocelab.labfile.schemes.scheme_spec import SchemeChoice
from rocelab.labfile.source import YamlSource
from rocelab.live.access import Access, Guard
from rocelab.live.captures import CaptureRequest, captured
from rocelab.live.details import link_document, node_document
from rocelab.live.faults import FaultRequest, Faults
from rocelab.live.feed import Feed
from rocelab.live.flows import (
    FlowRequest,
    flows_document,
    observed_document,
    path_document,
    reach_document,
)
from rocelab.live.recorded import recorded_page
from rocelab.live.state import METRICS
from rocelab.live.terminal import Terminals
from rocelab.live.traffic import LiveTraffic
from rocelab.record import LabFiles

MOST_BODY_BYTES = 16 << 10
MOST_DIGITS = 10
MOST_TIME_DIGITS = 20
PAGE = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
}

Asked = TypeVar("Asked", bound=SpecModel)
Answer = TypeVar("Answer")
Document = Mapping[str, object]


def live_app(
    feed: Feed,
    faults: Faults,
    traffic: LiveTraffic,
    access: Access,
    *,
    read_only: bool,
    terminal: bool = False,
) -> Guard:
    """The application of a lab that is watched."""
    files = _page_files()

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in files:
            raise HTTPException(404, "the page has no such file")
        content, media_type = files[name]
        return Response(content, media_type=media_type)

    async def fabric(_: Request) -> Response:
        return JSONResponse(feed.hub.snapshot())

    async def node(request: Request) -> Response:
        return await _answered(node_document, feed, request.path_params["name"])

    async def link(request: Request) -> Response:
        return await _answered(link_document, feed, request.query_params.get("name", ""))

    async def history(request: Request) -> Response:
        names = request.query_params.getlist("link")
        return await _answered(feed.history.document, names, _time_ns(request, "since"))

    async def at(request: Request) -> Response:
        t_ns = _time_ns(request, "t_ns")
        return await _answered(feed.history.at, t_ns, _metric(request))

    async def recording(_: Request) -> Response:
        page = await _worked(recorded_page, feed, traffic.document())
        name = f"{feed.lab.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.html"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(page, media_type="text/html", headers=headers)

    async def all_kinds(_: Request) -> Response:
        return JSONResponse([asdict(kind) for kind in kinds()])

    async def inject(request: Request) -> Response:
        asked = await _asked(request, FaultRequest)
        number = await _worked(faults.inject, asked)
        return JSONResponse({"number": number}, status_code=201)

    async def undo(request: Request) -> Response:
        number = request.path_params["number"]
        if not (number.isascii() and number.isdigit() and len(number) < MOST_DIGITS):
            raise HTTPException(404, "there is no such fault")
        await _worked(faults.undo, int(number))
        return JSONResponse({})

    async def scheme(request: Request) -> Response:
        await _worked(_switch, feed.lab, await _asked(request, SchemeChoice))
        return JSONResponse({})

    async def path(request: Request) -> Response:
        asked = await _asked(request, FlowRequest)
        return await _answered(path_document, feed.lab.name, asked)

    async def observed(request: Request) -> Response:
        asked = await _asked(request, FlowRequest)
        return await _answered(observed_document, feed.lab.name, asked)

    async def reach(_: Request) -> Response:
        return await _answered(reach_document, feed.lab)

    async def capture(request: Request) -> Response:
        asked = await _asked(request, CaptureRequest)
        file, packets = await _worked(captured, feed.lab, asked)
        headers = {"x-rocelab-packets": str(packets)}
        return Response(file, media_type="application/x-pcapng", headers=headers)

    async def flows(_: Request) -> Response:
        return await _answered(flows_document, feed.lab)

    async def job(_: Request) -> Response:
        return JSONResponse(traffic.document())

    async def job_result(_: Request) -> Response:
        headers = {"content-disposition": 'attachment; filename="result.json"'}
        return Response(traffic.result(), media_type="application/json", headers=headers)

    async def start_job(request: Request) -> Response:
        await _worked(traffic.start, await _asked(request, JobSpec))
        return JSONResponse({}, status_code=201)

    async def start_probes(request: Request) -> Response:
        await _worked(traffic.probe, await _asked(request, TrafficSpec))
        return JSONResponse({}, status_code=201)

    async def impact(_: Request) -> Response:
        return JSONResponse(traffic.impact())

    async def stop_job(_: Request) -> Response:
        await _worked(traffic.stop)
        return JSONResponse({})

    async def events(request: Request) -> Response:
        since = request.headers.get("last-event-id", request.query_params.get("since"))
        stream = _events(feed, _metric(request), since)
        return StreamingResponse(stream, media_type="text/event-stream")

    routes: list[BaseRoute] = [
        Route("/", page),
        Route("/page/{name:path}", page),
        Route("/fabric.json", fabric),
        Route("/events", events),
        Route("/node/{name}", node),
        Route("/link", link),
        Route("/history", history),
        Route("/history/at", at),
        Route("/recording.html", recording),
        Route("/kinds", all_kinds),
        Route("/faults", inject, methods=["POST"]),
        Route("/faults/{number}/undo", undo, methods=["POST"]),
        Route("/scheme", scheme, methods=["POST"]),
        Route("/flows", flows),
        Route("/path", path, methods=["POST"]),
        Route("/observe", observed, methods=["POST"]),
        Route("/reach", reach, methods=["POST"]),
        Route("/capture", capture, methods=["POST"]),
        Route("/traffic", job),
        Route("/traffic", start_job, methods=["POST"]),
        Route("/traffic/impact", impact),
        Route("/traffic/result.json", job_result),
        Route("/traffic/stop", stop_job, methods=["POST"]),
        Route("/probes", start_probes, methods=["POST"]),
    ]
    if terminal:
        routes.append(WebSocketRoute("/terminal/{node}", Terminals(feed.lab).serve))
    handlers = {RocelabError: _refused, HTTPException: _wrong_request}
    app = Starlette(routes=routes, exception_handlers=handlers)
    return Guard(app, access, feed.lab.name, read_only=read_only, terminal=terminal)


def _page_files() -> Mapping[str, tuple[bytes, str]]:
    """The page's files by their path, read once: a request can name nothing else."""
    return {
        str(path.relative_to(PAGE)): (path.read_bytes(), _TYPES[path.suffix])
        for path in PAGE.rglob("*")
        if path.suffix in _TYPES
    }


def _time_ns(request: Request, name: str) -> int:
    """A time of the query, by default 0. Raises InputError."""
    text = request.query_params.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) < MOST_TIME_DIGITS):
        raise InputError(f"{name} is a time in ns")
    return int(text)


def _metric(request: Request) -> str:
    """The metric of the query, by default the first. Raises InputError."""
    metric = request.query_params.get("metric", METRICS[0])
    if metric not in METRICS:
        raise InputError("there is no such metric", hint=f"take {', '.join(METRICS)}")
    return metric


async def _events(feed: Feed, metric: str, last_id: str | None) -> AsyncIterator[bytes]:
    loop, news = asyncio.get_running_loop(), asyncio.Event()
    client = feed.hub.join(metric, lambda: loop.call_soon_threadsafe(news.set), last_id)
    try:
        yield b"retry: 1000\n\n"
        is_over = False
        while not is_over:
            news.clear()
            is_over = feed.hub.is_closed
            for message in client.take():
                yield message.encoded()
            if not is_over:
                await news.wait()
    finally:
        feed.hub.leave(client)


async def _asked(request: Request, model: type[Asked]) -> Asked:
    """What a request's body asks for. Raises SpecError with every problem, HTTPException."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise HTTPException(415, "the body must be application/json")
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BODY_BYTES:
                raise HTTPException(413, f"the body is larger than {MOST_BODY_BYTES} bytes")
    except ClientDisconnect:
        raise HTTPException(400, "the body has no end") from None
    try:
        data = json.loads(body)
        json.dumps(data, ensure_ascii=False).encode()  # half a character cannot be sent back
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is not JSON") from None
    if not isinstance(data, dict):
        raise HTTPException(400, "the body is not a JSON object")
    return validate(YamlSource("request", data, {}), model)


async def _worked(function: Callable[..., Answer], *arguments: object) -> Answer:
    """What a function returns that takes its time, in a thread. Raises PluginError for an exception
    of a plug-in."""
    with plugins_named():
        return await run_in_threadpool(function, *arguments)


async def _answered(document: Callable[..., Document], *arguments: object) -> Response:
    return JSONResponse(await _worked(document, *arguments))


def _switch(lab: RunningLab, asked: SchemeChoice) -> None:
    """Spread flows in another way, as `rocelab scheme`. Raises as `Steering.set_scheme`."""
    with in_use(LabFiles(lab.name), "a change of scheme", Use.UNSENT), lab.locked():
        lab.steering.set_scheme(asked.scheme)


def _refused(_: Request, error: Exception) -> Response:
    """The answer to a request that the product refuses."""
    assert isinstance(error, RocelabError)
    status = 400 if isinstance(error, InputError) else 409
    if not isinstance(error, InputError | ExpectationError):
        status = 503
    document: dict[str, object] = {"error": error.message, "hint": error.hint}
    if isinstance(error, SpecError):
        # A problem's file is the command line, of which a request has none.
        said = [
            ": ".join(filter(None, (problem.key, problem.message))) for problem in error.problems
        ]
        hints = {problem.hint for problem in error.problems}
        document = {"error": "; ".join(said), "hint": hints.pop() if len(hints) == 1 else None}
        document["problems"] = [
            {"key": problem.key, "error": problem.message, "hint": problem.hint}
            for problem in error.problems
        ]
    return JSONResponse(document, status_code=status)


def _wrong_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail, "hint": None}, status_code=error.status_code)
