"""Serves a lab's live page until the lab goes down or a signal ends this process."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from asyncio import Transport
from collections.abc import Callable
from contextlib import closing

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from rocelab.lab.lab import RunningLab
from rocelab.live.access import opened
from rocelab.live.app import live_app
from rocelab.live.faults import Faults
from rocelab.live.feed import Feed
from rocelab.live.traffic import LiveTraffic

MOST_CONNECTIONS = 64
"""Clients of the stream included."""
MOST_WAITING = 32
"""Connections without a complete request, which anybody on this machine can open."""
MOST_TYPED_BYTES = 1 << 20
"""Limits a message to a terminal."""
BACKLOG = 16
"""Connections that are accepted at once."""
POLL_S = 0.5


def serve(
    lab: RunningLab,
    port: int | None,
    *,
    read_only: bool,
    terminal: bool = False,
    ready: Callable[[str], None],
) -> None:
    """Serve a lab that is up on loopback, on `port` or a free one. `ready` gets the URL, which has
    the token, once the page can be opened. `terminal`: whether it has root's terminals.

    Faults of the page are undone at the end, and its job is stopped. Raises InputError if the lab
    is not up or served already, MachineError if there is no port, ExpectationError once the lab
    goes down.
    """
    with (
        opened(lab.name, port) as (access, listener),
        Feed(lab, read_only=read_only, terminal=terminal) as feed,
        Faults(feed) as faults,
        LiveTraffic(feed) as traffic,
        HttpServer(
            live_app(feed, faults, traffic, access, read_only=read_only, terminal=terminal),
            listener,
        ),
        closing(feed.hub),
    ):
        ready(access.url)
        while not feed.wait(POLL_S):
            faults.refresh()
            traffic.refresh()
        feed.end()
        feed.check()


def _protocol() -> type[H11Protocol]:
    """A protocol that closes the oldest connection that has sent no request, if there are many."""
    waiting: dict[H11Protocol, None] = {}

    class Protocol(H11Protocol):
        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            waiting[self] = None
            if len(waiting) > MOST_WAITING:
                oldest = next(iter(waiting))
                del waiting[oldest]
                oldest.transport.abort()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None or self.transport.get_protocol() is not self:
                waiting.pop(self, None)

        def connection_lost(self, exc: Exception | None) -> None:
            waiting.pop(self, None)
            super().connection_lost(exc)

    return Protocol


def until_the_end(app: ASGIApp) -> ASGIApp:
    """An application whose requests are answered also if the server ends before they are done:
    uvicorn cancels them, and would print a traceback for each."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        newest: Message = {}

        async def noted(message: Message) -> None:
            nonlocal newest
            newest = message
            await send(message)

        try:
            await app(scope, receive, noted)
        except asyncio.CancelledError:
            if scope["type"] != "http":
                return
            if not newest:
                over = {"error": "the page has ended", "hint": None}
                await JSONResponse(over, status_code=503)(scope, receive, send)
            elif newest["type"] == "http.response.start" or newest.get("more_body"):
                await send({"type": "http.response.body"})

    return answer


class HttpServer:
    """uvicorn on a thread of its own: signals stay with the main thread, as everywhere."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        config = uvicorn.Config(
            until_the_end(app),
            http=_protocol(),
            backlog=BACKLOG,
            loop="asyncio",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws=WebSocketsSansIOProtocol,
            ws_max_size=MOST_TYPED_BYTES,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listener]}, name="http", daemon=True
        )

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        # From here on it would only log that it cancels requests.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._server.should_exit = True
        self._thread.join()
