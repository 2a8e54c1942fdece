"""Captures what a job's NICs send and receive as one pcapng file with an interface per NIC.

The file is written after the run, packets in order of time. tcpdump in each server captures into an
unnamed file, so that writing costs the run little and a killed run leaves nothing behind.
"""

from __future__ import annotations

import ctypes
import heapq
import re
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

from rocelab.agent.headers import ROCE_PORT
from rocelab.errors import InputError, MachineError
from rocelab.jobs.jobplan import JobPlan
from rocelab.kernel import namespaces
from rocelab.measure.pcapng import Capture, Packet, pcapng_header, pcapng_packet, read_pcap
from rocelab.runtime.lab import Lab
from rocelab.traffic.jobparts import nic_links

_BUFFER_KIB = 4096
_ETHERNET_BYTES = 18
_PR_SET_PDEATHSIG = 1
_STOP_TIMEOUT_S = 10.0
_DRAIN_TIMEOUT_S = 10.0
_LOOK_S = 0.02
_COUNTS = re.compile(
    r"(\d+) packets? captured\D+(\d+) packets? received by filter\D+(\d+) packets? dropped"
)


class _Tap(NamedTuple):
    """One NIC's tcpdump and the file it writes."""

    name: str
    process: subprocess.Popen[bytes]
    file: IO[bytes]


class NicCapture:
    """Captures within its context and writes the file at the end."""

    def __init__(self, lab: Lab, plan: JobPlan, path: Path) -> None:
        self._lab = lab
        self._plan = plan
        self._path = path
        self._taps: list[_Tap] = []
        self._cleanup = ExitStack()
        self.lost = 0
        """Packets that tcpdump lost for lack of buffer or time, known at the end."""

    def __enter__(self) -> Self:
        """Raises MachineError if tcpdump cannot capture."""
        with ExitStack() as undo:
            for link in nic_links([self._plan]):
                netns = self._lab.node(link.a.node).netns
                file = undo.enter_context(tempfile.TemporaryFile())
                process = _tcpdump(netns, link.a.interface, link.mtu, file)
                undo.callback(_end, process)
                self._taps.append(_Tap(link.name, process, file))
            for tap in self._taps:
                _await_listening(tap.process)
            self._cleanup = undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._cleanup:
            for tap in self._taps:
                if error is None:
                    _drain(tap.process)
                counts = _counts(_end(tap.process))
                self.lost += counts.received - counts.written
            if error is None:
                self._write()

    def _write(self) -> None:
        captures = []
        for tap in self._taps:
            tap.file.seek(0)
            captures.append(read_pcap(tap.file))
        application = f"rocelab {version('rocelab')}"
        try:
            with self._path.open("xb") as target:
                for number, (tap, captured) in enumerate(zip(self._taps, captures, strict=True)):
                    header = pcapng_header(application, tap.name, captured)
                    target.write(header if number == 0 else header[_first_block(header) :])
                for number, packet in _merged(captures):
                    target.write(_of_interface(number, pcapng_packet(packet)))
        except OSError as error:
            raise InputError(f"can not write {self._path}: {error.strerror}") from error


def _tcpdump(netns: Path, interface: str, mtu: int, file: IO[bytes]) -> subprocess.Popen[bytes]:
    def begin() -> None:
        # In the child alone: it ends with this process, even a killed one, and is in its node's
        # namespace.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        namespaces.enter(netns)

    # Its ring has room for packets of the given snap length, 256 KiB by default.
    longest = mtu + _ETHERNET_BYTES
    arguments = ["tcpdump", "-i", interface, "-n", "-w", "-", "-s", str(longest)]
    arguments += ["-B", str(_BUFFER_KIB)]
    # Immediate: no packet waits in a block of its ring when it ends. Root: a change of user would
    # clear the parent-death signal (Linux kernel/cred.c commit_creds).
    arguments += ["--time-stamp-precision=nano", "--immediate-mode", "-Z", "root"]
    arguments.append(f"udp port {ROCE_PORT}")
    try:
        return subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.PIPE,
            process_group=0,
            preexec_fn=begin,
        )
    except FileNotFoundError:
        raise MachineError(
            "tcpdump is not installed", hint="install it with `make setup`"
        ) from None


def _await_listening(process: subprocess.Popen[bytes]) -> None:
    assert process.stderr is not None
    said = b""
    while b"listening on" not in said:
        line = process.stderr.readline()
        if not line:
            raise MachineError(f"tcpdump did not start: {said.decode(errors='replace')}")
        said += line


def _drain(process: subprocess.Popen[bytes]) -> None:
    """Let tcpdump read what is left in its ring, which it would drop at its end: a lot if jobs took
    the CPUs. No more packets are coming in."""
    assert process.stderr is not None
    deadline = time.monotonic() + _DRAIN_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        process.send_signal(signal.SIGUSR1)  # It reports its counts: tcpdump(1).
        if _counts(process.stderr.readline().decode(errors="replace")).unread == 0:
            return
        time.sleep(_LOOK_S)


def _end(process: subprocess.Popen[bytes]) -> str:
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
        return ""
    with process.stderr:
        return process.stderr.read().decode(errors="replace")


class _Counts(NamedTuple):
    """Packets by tcpdump's own count: written, received, and dropped (of those received)."""

    written: int
    received: int
    dropped: int

    @property
    def unread(self) -> int:
        return self.received - self.dropped - self.written


def _counts(said: str) -> _Counts:
    """The counts in tcpdump's output, zeros without any."""
    found = _COUNTS.search(said)
    return _Counts(*map(int, found.groups())) if found else _Counts(0, 0, 0)


def _merged(captures: list[Capture]) -> Iterator[tuple[int, Packet]]:
    """Every packet with the number of its interface, in order of time."""

    def numbered(number: int) -> Iterator[tuple[int, int, Packet]]:
        for packet in captures[number].packets:
            yield packet.time_ns, number, packet

    streams = map(numbered, range(len(captures)))
    for _, number, packet in heapq.merge(*streams, key=lambda each: each[:2]):
        yield number, packet


def _first_block(blocks: bytes) -> int:
    """The length of the first of some pcapng blocks."""
    return int(struct.unpack_from("=I", blocks, 4)[0])


def _of_interface(number: int, block: bytes) -> bytes:
    """An enhanced packet block, moved to interface `number`."""
    return block[:8] + struct.pack("=I", number) + block[12:]
