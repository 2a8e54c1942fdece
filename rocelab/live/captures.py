"""Captures of a port that the page asks for: some seconds of packets as a pcapng file."""

from __future__ import annotations

import threading
from typing import Annotated

from pydantic import Field

from rocelab.base.errors import InputError
from rocelab.lab.lab import RunningLab
from rocelab.labfile.base import SpecModel
from rocelab.observe.portcapture import PortCapture, port_named

MOST_PACKETS = 100_000
MOST_BYTES = 32 << 20
"""Limits a file, which the server holds in memory."""
_turn = threading.Lock()
"""One capture at a time."""


class CaptureRequest(SpecModel):
    """What `POST /capture` asks for: a port, and for how long."""

    port: Annotated[str, Field(max_length=64)]
    seconds: Annotated[int, Field(ge=1, le=30)] = 5


def captured(lab: RunningLab, asked: CaptureRequest) -> tuple[bytes, int]:
    """A pcapng file of what a port sends and receives, and how many packets it has: at most
    MOST_PACKETS, and about MOST_BYTES. Raises InputError if the lab has no such port or a capture
    is under way, MachineError if tcpdump cannot capture."""
    port = port_named(lab, asked.port)
    if not _turn.acquire(blocking=False):
        raise InputError("a capture of this page is under way", hint="wait for its end")
    try:
        with PortCapture(lab, [port]) as capture:
            file = bytearray()
            for blocks in capture.blocks(MOST_PACKETS, asked.seconds):
                file += blocks
                if len(file) > MOST_BYTES:
                    capture.stop()
            return bytes(file), capture.packets
    finally:
        _turn.release()
