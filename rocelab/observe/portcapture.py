"""Captures what ports of a running lab send and receive, as a pcapng stream.

tcpdump captures at each port, in its node. Packets of several ports come in order of time: each is
held back for a moment, since one of another port may be earlier and not yet read.
"""

from __future__ import annotations

import heapq
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from typing import NamedTuple

from rocelab.base.errors import InputError
from rocelab.jobs.placement import find_nic
from rocelab.lab.lab import RunningLab
from rocelab.linux.closing import Holding
from rocelab.observe.pcapng import (
    PCAP_HEADER_BYTES,
    PIECE_BYTES,
    CapturedPacket,
    PcapReader,
    pcapng_header,
    pcapng_packet,
)
from rocelab.observe.tcpdump import await_listening, counts_in, start_tcpdump
from rocelab.planning.fabric import Port

_BUFFER_KIB = 16384
_HOLD_NS = 100_000_000
_WAIT_S = 1.0


class PortName(NamedTuple):
    """An interface of a node."""

    node: str
    interface: str
    """As Linux has it."""

    name: str
    """As on the switch."""

    def __str__(self) -> str:
        return f"{self.node}:{self.name}"

    @classmethod
    def of_port(cls, port: Port) -> PortName:
        return cls(port.node, port.interface, port.name)


def ports_named(lab: RunningLab, text: str) -> tuple[PortName, ...]:
    """The ports that users call `text`: that of `port_named`, or those of a NIC, `srv2-1:2`. Raises
    InputError if the lab has none."""
    name, _, number = text.partition(":")
    node = lab.fabric.node_by_name.get(name)
    if node is None or node.is_switch or not number.isdecimal():
        return (port_named(lab, text),)
    links = find_nic(lab.fabric, text).links
    return tuple(PortName.of_port(link.port(name)) for link in links)


def port_named(lab: RunningLab, text: str) -> PortName:
    """The port that users call `text`, such as `rtsw1:ctsw1`, by its name on the switch or that of
    its interface. Raises InputError if the lab has none."""
    node, colon, written = text.partition(":")
    if not colon:
        raise InputError(f"{text} is no port", hint="a port is NODE:IFACE, such as rtsw1:ctsw1")
    name = lab.node(node).name
    ports = [link.port(name) for link in lab.fabric.links_of[name]]
    for port in ports:
        if written in (port.name, port.interface):
            return PortName.of_port(port)
    if written == "lo":
        return PortName(name, written, written)
    more = " ..." if len(ports) > 8 else ""
    names = ", ".join(port.name for port in ports[:8])
    raise InputError(f"{node} has no interface {written}", hint=f"its interfaces are {names}{more}")


class PortCapture(Holding):
    """Captures within its context; `blocks` has what it captured."""

    def __init__(self, lab: RunningLab, ports: Sequence[PortName]) -> None:
        self._lab = lab
        self._ports = tuple(dict.fromkeys(ports))
        self._processes: list[subprocess.Popen[bytes]] = []
        self.packets = 0
        """Packets in the blocks so far."""
        self.lost = 0
        """Packets that tcpdump lost for lack of buffer or time, known after the last block."""

    def _enter(self, stack: ExitStack) -> None:
        """Raises MachineError if tcpdump cannot capture."""
        options = ("-U", "-B", str(_BUFFER_KIB))
        for port in self._ports:
            netns = self._lab.node(port.node).netns
            process = start_tcpdump(netns, port.interface, *options, output=subprocess.PIPE)
            stack.enter_context(process)
            stack.callback(process.kill)
            self._processes.append(process)
        for process in self._processes:
            await_listening(process)

    def stop(self) -> None:
        """Let the blocks end with what tcpdump holds. Can be called by a signal handler."""
        for process in self._processes:
            process.send_signal(signal.SIGINT)

    def blocks(self, count: int | None = None, seconds: float | None = None) -> Iterator[bytes]:
        """The stream, in pieces of whole blocks, until `count` packets, `seconds` or `stop`.

        A piece comes at least every second; it is empty if there was no packet.
        """
        end = float("inf") if seconds is None else time.monotonic() + seconds
        outputs = [process.stdout.fileno() for process in self._processes if process.stdout]
        readers = [PcapReader(os.read(output, PCAP_HEADER_BYTES)) for output in outputs]
        named = dict(zip(map(str, self._ports), readers, strict=True))
        yield pcapng_header(f"rocelab {version('rocelab')}", named)
        hold_ns = _HOLD_NS if len(readers) > 1 else 0
        held: list[tuple[int, int, int, CapturedPacket]] = []
        read = 0
        is_over = False
        with selectors.DefaultSelector() as selector:
            for number, output in enumerate(outputs):
                selector.register(output, selectors.EVENT_READ, number)
            while selector.get_map():
                due_s = (held[0][0] + hold_ns - time.time_ns()) / 1e9 if held else _WAIT_S
                left_s = _WAIT_S if is_over else end - time.monotonic()
                for key, _ in selector.select(max(min(due_s, _WAIT_S, left_s), 0)):
                    data = os.read(key.fd, PIECE_BYTES)
                    if not data:
                        selector.unregister(key.fd)
                    for packet in readers[key.data].feed(data):
                        read += 1
                        heapq.heappush(held, (packet.time_ns, key.data, read, packet))
                until_ns = time.time_ns() - hold_ns if selector.get_map() else None
                yield self._taken(held, until_ns, count)
                if not is_over and (time.monotonic() >= end or self.packets == count):
                    is_over = True
                    self.stop()
        self._count_lost(is_counted=count is not None)

    def _taken(
        self,
        held: list[tuple[int, int, int, CapturedPacket]],
        until_ns: int | None,
        count: int | None,
    ) -> bytes:
        """The blocks of the held packets up to a time, all if None, and up to `count` in all."""
        blocks = []
        while held and (until_ns is None or held[0][0] <= until_ns):
            _, number, _, packet = heapq.heappop(held)
            if self.packets != count:
                self.packets += 1
                blocks.append(pcapng_packet(packet, number))
        return b"".join(blocks)

    def _count_lost(self, *, is_counted: bool) -> None:
        for process in self._processes:
            assert process.stderr is not None
            counts = counts_in(process.stderr.read())
            # After that many packets it stops: what came meanwhile was not asked for.
            self.lost += counts.dropped if is_counted else counts.dropped + counts.unread
