"""The terminals of a lab's page: a program in a node at a pseudo terminal, relayed by WebSocket.

Binary messages are what the program writes and what is typed; an empty one from the page says that
a message is on the screen. A text message from the page is the size of its screen (`Size`). A
terminal ends with its program or its connection; `rocelab.live.shell` then ends all of it, also if
this process is killed.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocket, WebSocketDisconnect

from rocelab.base.errors import InputError
from rocelab.lab.lab import RunningLab
from rocelab.labfile.base import SpecModel
from rocelab.linux.background import launch

PROTOCOL = "rocelab"
PROGRAMS = ("vtysh", "shell")
MOST_TERMINALS = 16
READ_BYTES = 16 << 10
MOST_UNSHOWN = 16
"""Messages on their way to the page: a browser would take any number of them into memory."""


class Size(SpecModel):
    """The size of a screen, in characters."""

    columns: Annotated[int, Field(ge=1, le=1000)]
    rows: Annotated[int, Field(ge=1, le=1000)]


class Terminals:
    """The terminals of a lab."""

    def __init__(self, lab: RunningLab) -> None:
        self._lab = lab
        self._open = 0

    async def serve(self, socket: WebSocket) -> None:
        """Relay a terminal until its program or its connection ends; refuse one of a node or a
        program that does not exist, and too many."""
        node = socket.path_params["node"]
        program = socket.query_params.get("program", PROGRAMS[0])
        try:
            self._lab.node(node)
        except InputError:
            program = ""
        if program not in PROGRAMS or self._open == MOST_TERMINALS:
            await socket.close()
            return
        self._open += 1
        try:
            await socket.accept(subprotocol=PROTOCOL)
            terminal = await run_in_threadpool(_Terminal, self._lab.name, node, program)
            try:
                await terminal.relay(socket)
            finally:
                await run_in_threadpool(terminal.close)
        finally:
            self._open -= 1
        with suppress(RuntimeError, WebSocketDisconnect):  # if the connection has ended before
            await socket.close()


class _Terminal:
    """A program that runs, and the master end of its pseudo terminal."""

    def __init__(self, lab: str, node: str, program: str) -> None:
        self._master, slave = os.openpty()
        try:
            os.set_blocking(self._master, False)
            self._keeper = launch(
                "rocelab.live.shell",
                *(str(slave), lab, node, program),
                stdin=subprocess.PIPE,
                pass_fds=(slave,),
            )
        except BaseException:
            os.close(self._master)
            raise
        finally:
            os.close(slave)
        self._unshown = asyncio.Semaphore(MOST_UNSHOWN)

    def close(self) -> None:
        """End the program with all that it has started, and return when it has ended."""
        os.close(self._master)
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        self._keeper.wait()

    async def relay(self, socket: WebSocket) -> None:
        """Return when the program or the connection has ended."""
        relays = [asyncio.create_task(self._show(socket)), asyncio.create_task(self._type(socket))]
        try:
            await asyncio.wait(relays, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for relay in relays:
                relay.cancel()
            await asyncio.gather(*relays, return_exceptions=True)

    async def _show(self, socket: WebSocket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._unshown.acquire()
            await _ready(self._master, loop.add_reader, loop.remove_reader)
            await socket.send_bytes(os.read(self._master, READ_BYTES))

    async def _type(self, socket: WebSocket) -> None:
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if message.get("text") is not None:
                size = Size.model_validate_json(message["text"])
                termios.tcsetwinsize(self._master, (size.rows, size.columns))
            elif message["bytes"]:
                await self._write(message["bytes"])
            else:
                self._unshown.release()

    async def _write(self, typed: bytes) -> None:
        loop = asyncio.get_running_loop()
        while typed:
            await _ready(self._master, loop.add_writer, loop.remove_writer)
            typed = typed[os.write(self._master, typed) :]


async def _ready(
    descriptor: int,
    add: Callable[[int, Callable[[], object]], object],
    remove: Callable[[int], object],
) -> None:
    """Return when a descriptor can be read, or written."""
    ready = asyncio.Event()
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)
