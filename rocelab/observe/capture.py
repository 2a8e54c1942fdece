"""Captures what a job's NICs send and receive as one pcapng file with an interface per NIC.

The file is written after the run, packets in order of time. tcpdump in each server captures into an
unnamed file, so that writing costs the run little and a killed run leaves nothing behind.
"""

from __future__ import annotations

import heapq
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from typing import IO, NamedTuple

from rocelab.base.errors import InputError
from rocelab.base.outputs import OutputFile
from rocelab.jobs.jobplan import JobPlan
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
from rocelab.traffic.jobparts import nic_links
from rocelab.wire.headers import ROCE_PORT

_BUFFER_KIB = 4096
_ETHERNET_BYTES = 18
_STOP_TIMEOUT_S = 10.0
_DRAIN_TIMEOUT_S = 10.0
_LOOK_S = 0.02


class _Tap(NamedTuple):
    """One NIC's tcpdump and the file it writes."""

    name: str
    process: subprocess.Popen[bytes]
    file: IO[bytes]


class NicCapture(Holding):
    """Captures within its context and writes the file at the end."""

    def __init__(self, lab: RunningLab, plan: JobPlan, target: OutputFile) -> None:
        self._lab = lab
        self._plan = plan
        self._target = target
        self._taps: list[_Tap] = []
        self.lost = 0
        """Packets that tcpdump lost for lack of buffer or time, known at the end."""

    def _enter(self, stack: ExitStack) -> None:
        """Raises MachineError if tcpdump cannot capture."""
        for link in nic_links([self._plan]):
            netns = self._lab.node(link.a.node).netns
            file = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
            # Its ring has room for packets of the length that it is told, 256 KiB otherwise.
            length = str(link.mtu + _ETHERNET_BYTES)
            options = ("-s", length, "-B", str(_BUFFER_KIB), f"udp port {ROCE_PORT}")
            process = start_tcpdump(netns, link.a.interface, *options, output=file)
            stack.callback(_end, process)
            self._taps.append(_Tap(link.name, process, file))
        for tap in self._taps:
            await_listening(tap.process)
        stack.push(self._conclude)

    def _conclude(self, kind: object, error: BaseException | None, trace: object) -> None:
        for tap in self._taps:
            if error is None:
                _drain(tap.process)
            counts = counts_in(_end(tap.process))
            self.lost += counts.received - counts.written
        if error is None:
            self._write()

    def _write(self) -> None:
        captures = {}
        for tap in self._taps:
            tap.file.seek(0)
            captures[tap.name] = PcapReader(tap.file.read(PCAP_HEADER_BYTES))
        application = f"rocelab {version('rocelab')}"
        files = [tap.file for tap in self._taps]
        try:
            with self._target.create() as target:
                target.write(pcapng_header(application, captures))
                for number, packet in _merged(files, list(captures.values())):
                    target.write(pcapng_packet(packet, number))
        except OSError as error:
            raise InputError(f"cannot write {self._target.path}: {error.strerror}") from error


def _drain(process: subprocess.Popen[bytes]) -> None:
    """Let tcpdump read what is left in its ring, which it would drop at its end: a lot if jobs took
    the CPUs. No more packets are coming in."""
    assert process.stderr is not None
    deadline = time.monotonic() + _DRAIN_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        process.send_signal(signal.SIGUSR1)  # It reports its counts: tcpdump(1).
        if counts_in(process.stderr.readline()).unread == 0:
            return
        time.sleep(_LOOK_S)


def _end(process: subprocess.Popen[bytes]) -> bytes:
    """Make tcpdump flush and end. Returns its stderr since it listened. Idempotent."""
    assert process.stderr is not None
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stderr.closed:
        return b""
    with process.stderr:
        return process.stderr.read()


def _merged(
    files: Sequence[IO[bytes]], captures: Sequence[PcapReader]
) -> Iterator[tuple[int, CapturedPacket]]:
    """Every packet with the number of its interface, in order of time."""

    def numbered(number: int) -> Iterator[tuple[int, int, CapturedPacket]]:
        while data := files[number].read(PIECE_BYTES):
            for packet in captures[number].feed(data):
                yield packet.time_ns, number, packet

    streams = map(numbered, range(len(captures)))
    for _, number, packet in heapq.merge(*streams, key=lambda entry: entry[:2]):
        yield number, packet
