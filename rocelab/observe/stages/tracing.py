"""Switches FRR's tracing on in a running lab and off again.

With tracing on, daemons log each step of a route on its way to the kernel. Everything is set over
the daemons' vty sockets; off is the state that `up` made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocelab.base.files import MOST_BYTES, UntrustedFileError, untrusted_size, untrusted_tail
from rocelab.base.workers import workers
from rocelab.lab.lab import RunningLab
from rocelab.observe.stages.frrlog import LogEvent, parse_log
from rocelab.routing import daemons
from rocelab.routing.files import DaemonFiles
from rocelab.routing.frr import vty

# The fewest that give every stage: a daemon logs each line while it should converge.
TRACES: Mapping[str, Sequence[str]] = {
    "zebra": ("debug zebra rib", "debug zebra dplane detailed"),
    "bgpd": ("debug bgp zebra", "debug bgp updates in"),
    "bfdd": ("debug bfd peer",),
}
UNTRACES: Mapping[str, Sequence[str]] = {
    "zebra": ("no debug zebra rib", "no debug zebra dplane"),
    "bgpd": ("no debug bgp zebra", "no debug bgp updates in"),
    "bfdd": ("no debug bfd peer",),
}
LEVEL, TRACING_LEVEL = "informational", "debugging"


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running daemon of a switch."""

    node: str
    name: str
    files: DaemonFiles
    pid: int

    @property
    def log(self) -> Path:
        return self.files.log(self.name)


def running_daemons(lab: RunningLab) -> tuple[Daemon, ...]:
    """The FRR daemons of every switch that run now and have a part in a route's way."""
    nodes = [lab.node(node.name) for node in lab.fabric.switches]
    return tuple(
        Daemon(node.name, name, node.daemon_files, pid)
        for node in nodes
        for name, pid in node.daemons().items()
        if name in TRACES
    )


def set_tracing(daemon_list: Sequence[Daemon], *, on: bool) -> tuple[str, ...]:
    """Switch tracing on or off. Returns the daemons, such as `rtsw1 bgpd`, that did not answer.

    A daemon that has ended is left out: a restarted one does not trace.
    """
    commands = TRACES if on else UNTRACES
    level = TRACING_LEVEL if on else LEVEL

    def ask(daemon: Daemon) -> str | None:
        if not daemons.is_daemon(daemon.pid, daemon.name, daemon.files):
            return None
        setting = ("configure terminal", f"log file {daemon.log} {level}", "end")
        try:
            vty.vty_command(daemon.files, daemon.name, *setting, *commands[daemon.name])
        except OSError:
            return f"{daemon.node} {daemon.name}"
        return None

    with workers(2 * (os.cpu_count() or 1)) as pool:
        return tuple(silent for silent in pool.map(ask, daemon_list) if silent is not None)


def log_sizes(daemon_list: Sequence[Daemon]) -> dict[Path, int]:
    """How many bytes each daemon has logged until now."""
    return {daemon.log: _size(daemon.log) for daemon in daemon_list}


def logged_since(
    daemon_list: Sequence[Daemon], sizes: Mapping[Path, int], most_bytes: int = MOST_BYTES
) -> tuple[LogEvent, ...]:
    """The events of all daemons' logs after `sizes`, in order of time; of each log those in its
    last `most_bytes`."""
    events: list[LogEvent] = []
    for daemon in daemon_list:
        events += parse_log(daemon.node, _text_after(daemon.log, sizes[daemon.log], most_bytes))
    return tuple(sorted(events, key=lambda event: event.time_ns))


def _size(log: Path) -> int:
    try:
        return untrusted_size(log)
    except (FileNotFoundError, UntrustedFileError):
        return 0


def _text_after(log: Path, size: int, most_bytes: int) -> str:
    try:
        return untrusted_tail(log, most_bytes, size).decode(errors="replace")
    except (FileNotFoundError, UntrustedFileError):
        return ""
