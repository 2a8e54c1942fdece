"""Requests that are not done when the server of a page ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from starlette.types import Message, Receive, Scope, Send

from rocelab.live.server import until_the_end

App = Callable[[Scope, Receive, Send], Awaitable[None]]


async def waits(_: Scope, receive: Receive, send: Send) -> None:
    await asyncio.Event().wait()


async def streams(_: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"some", "more_body": True})
    await asyncio.Event().wait()


def sent_by(app: App, kind: str = "http") -> list[Message]:
    """What an application sends that is cancelled while it waits."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    async def cancelled() -> None:
        task = asyncio.ensure_future(until_the_end(app)({"type": kind}, receive, send))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await task

    asyncio.run(cancelled())
    return sent


def test_a_request_that_is_not_answered_is_told_that_the_page_has_ended() -> None:
    start, body = sent_by(waits)
    assert start["status"] == 503
    assert json.loads(body["body"]) == {"error": "the page has ended", "hint": None}


def test_a_stream_ends() -> None:
    *_, last = sent_by(streams)
    assert last["type"] == "http.response.body"
    assert not last.get("more_body")


@pytest.mark.parametrize("app", [waits])
def test_a_terminal_ends(app: App) -> None:
    assert sent_by(app, "websocket") == []
