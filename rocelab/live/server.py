"""Serves a lab's live page until the lab goes down or a signal ends this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import closing

import uvicorn

from rocelab.live.access import opened
from rocelab.live.app import live_app
from rocelab.live.faults import Faults
from rocelab.live.feed import Feed
from rocelab.runtime.lab import Lab

MOST_CONNECTIONS = 64
"""Clients of the stream included."""
POLL_S = 0.5


def serve(lab: Lab, port: int | None, *, read_only: bool, ready: Callable[[str], None]) -> None:
    """Serve a lab that is up on loopback, on `port` or a free one. `ready` gets the URL, which has
    the token, once the page can be opened.

    Faults of the page are undone at the end. Raises InputError if the lab is not up or served
    already, MachineError if there is no port, ExpectationError once the lab goes down.
    """
    with (
        opened(lab.name, port) as (access, listener),
        Feed(lab, read_only=read_only) as feed,
        Faults(feed) as faults,
        HttpServer(live_app(feed, faults, access, read_only=read_only), listener),
        closing(feed.hub),
    ):
        ready(access.url)
        while not feed.wait(POLL_S):
            faults.look()
        feed.check()


class HttpServer:
    """uvicorn on a thread of its own: signals stay with the main thread, as everywhere."""

    def __init__(self, app: Callable[..., object], listener: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            loop="asyncio",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
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
        self._server.should_exit = True
        self._thread.join()
