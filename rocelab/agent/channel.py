"""The control channel between a traffic session and the agent in a server.

A message is a JSON object followed by binary data: frames to the agent, columns of numbers from it.
One stream socket carries both directions.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_LENGTHS = struct.Struct("!IQ")


class ChannelClosedError(Exception):
    """The other end is gone."""


class ChannelMessage(NamedTuple):
    """A message as received: `fields` from its JSON, `payload` the bytes behind it."""

    fields: dict[str, Any]
    payload: bytes


class Channel:
    """Whole messages over a connected stream socket. Both calls block until the message is
    complete."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream

    def fileno(self) -> int:
        return self._stream.fileno()

    def close(self) -> None:
        self._stream.close()

    def send(self, fields: Mapping[str, object], payload: bytes = b"") -> None:
        """Send one message. Raises ChannelClosedError."""
        text = json.dumps(fields).encode()
        try:
            self._stream.sendall(_LENGTHS.pack(len(text), len(payload)) + text)
            # Of an empty one nothing: who has received all may have ended by then.
            if payload:
                self._stream.sendall(payload)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ChannelClosedError from error

    def receive(self) -> ChannelMessage:
        """Receive one message. Raises ChannelClosedError; TimeoutError after the socket's
        timeout."""
        text_bytes, payload_bytes = _LENGTHS.unpack(self._exactly(_LENGTHS.size))
        fields = json.loads(self._exactly(text_bytes))
        return ChannelMessage(fields, self._exactly(payload_bytes))

    def _exactly(self, size: int) -> bytes:
        received = bytearray(size)
        view = memoryview(received)
        while view:
            try:
                count = self._stream.recv_into(view)
            except ConnectionResetError as error:
                raise ChannelClosedError from error
            if count == 0:
                raise ChannelClosedError
            view = view[count:]
        return bytes(received)


def join(parts: Sequence[bytes]) -> tuple[list[int], bytes]:
    """The sizes of `parts` and their concatenation, for a message's fields and payload."""
    return [len(part) for part in parts], b"".join(parts)


def split(sizes: Sequence[int], payload: bytes) -> list[bytes]:
    """The parts that `join` concatenated. Raises ValueError if the sizes do not add up."""
    if sum(sizes) != len(payload):
        raise ValueError(f"{len(payload)} bytes of payload do not split into {sum(sizes)}")
    parts, start = [], 0
    for size in sizes:
        parts.append(payload[start : start + size])
        start += size
    return parts
