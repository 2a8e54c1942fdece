"""The server of the page beside users of the machine who hold connections."""

from __future__ import annotations

import http.client
import socket
from contextlib import ExitStack

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.sync.client import connect

from rocelab.live.server import MOST_CONNECTIONS, HttpServer
from tests.helpers.limits import LIMIT_S


def test_connections_without_a_request_keep_nobody_out() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with listener, HttpServer(PlainTextResponse("here"), listener), ExitStack() as held:
        for _ in range(2 * MOST_CONNECTIONS):
            idle = held.enter_context(socket.create_connection(("127.0.0.1", port)))
            idle.sendall(b"G")
        page = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
        held.callback(page.close)
        page.request("GET", "/")
        answer = page.getresponse()
        assert (answer.status, answer.read()) == (200, b"here")


def test_a_websocket_is_none_of_the_connections_without_a_request() -> None:
    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text(await socket.receive_text())

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    app = Starlette(routes=[WebSocketRoute("/", echo)])
    with listener, HttpServer(app, listener), ExitStack() as held:
        terminal = held.enter_context(connect(f"ws://127.0.0.1:{port}/"))
        for _ in range(2 * MOST_CONNECTIONS):
            held.enter_context(socket.create_connection(("127.0.0.1", port)))
        terminal.send("still here")
        assert terminal.recv(timeout=LIMIT_S) == "still here"
