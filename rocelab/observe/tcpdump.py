"""tcpdump on an interface of a node, and what it says of the packets that it had.

It needs root, ends with the process that started it, and is in a process group of its own: Ctrl-C
is for its parent, which ends it and takes what it still holds.
"""

from __future__ import annotations

import ctypes
import re
import signal
import subprocess
from pathlib import Path
from typing import IO, NamedTuple

from rocelab.base.errors import MachineError
from rocelab.linux import namespaces

_PR_SET_PDEATHSIG = 1
_COUNTS = re.compile(
    r"(\d+) packets? captured\D+(\d+) packets? received by filter\D+(\d+) packets? dropped"
)


class CaptureCounts(NamedTuple):
    """Packets that tcpdump wrote, that its filter let pass, and those of them that found no room in
    its ring (pcap_stats(3pcap))."""

    written: int
    received: int
    dropped: int

    @property
    def unread(self) -> int:
        """Packets in the ring, which tcpdump leaves there at its end."""
        return self.received - self.dropped - self.written


def start_tcpdump(
    netns: Path, interface: str, *options: str, output: IO[bytes] | int
) -> subprocess.Popen[bytes]:
    """Start tcpdump, which writes pcap with nanoseconds to `output` and messages to its `stderr`.

    Raises MachineError where it is not installed; `await_listening` says whether it captures.
    """

    def enter() -> None:
        # In the child alone: it ends with us, even killed, and sees what its node sees.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        namespaces.enter(netns)

    # Immediate: nothing waits in a block of its ring when it ends. Root: a change of user would
    # clear the parent-death signal (Linux kernel/cred.c commit_creds).
    arguments = ["tcpdump", "-i", interface, "-n", "-w", "-", "-Z", "root"]
    arguments += ["--time-stamp-precision=nano", "--immediate-mode"]
    try:
        return subprocess.Popen(
            [*arguments, *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            process_group=0,
            preexec_fn=enter,
        )
    except FileNotFoundError:
        raise MachineError(
            "tcpdump is not installed", hint="install it with `make setup`"
        ) from None


def await_listening(process: subprocess.Popen[bytes]) -> None:
    """Return once tcpdump captures. Raises MachineError where it ends instead."""
    assert process.stderr is not None
    messages = b""
    while b"listening on" not in messages:
        line = process.stderr.readline()
        if not line:
            raise MachineError(f"tcpdump did not start: {messages.decode(errors='replace')}")
        messages += line


def counts_in(messages: bytes) -> CaptureCounts:
    """What tcpdump says at its end and on SIGUSR1; zeros where it says nothing of the kind."""
    match = _COUNTS.search(messages.decode(errors="replace"))
    return CaptureCounts(*map(int, match.groups())) if match else CaptureCounts(0, 0, 0)
