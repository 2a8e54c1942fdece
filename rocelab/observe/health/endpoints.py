"""The counters of the servers' agents, summed over all runs since the first look.

Reads the files that agents write while they run (`rocelab.agent.live`); the sum per server only
grows. A run may be shorter than the time between two samples, so agents are read more often. In a
lab with several networks the sum is of a server and of the networks in which its runs send, by what
they publish (`rocelab.traffic.demand`): an agent counts all of a run together.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple

from rocelab.agent.live import RECORD_BYTES, LiveCounters, unpacked
from rocelab.planning.fabric import Fabric
from rocelab.record import LabFiles
from rocelab.traffic.demand import read_published
from rocelab.traffic.session import LIVE_FOLDER

LOOK_INTERVAL_S = 0.15
"""The time between looks. An agent whose file was seen once is counted to its end: a run lasts
longer than this, as agents start before it and wait for its last packets
(`rocelab.traffic.session.QUIET_NS`)."""


_IN, _AND = " in ", " and "


def endpoint_name(server: str, networks: Sequence[str] = ()) -> str:
    """The name of a server's endpoints as a place: `srv1-1`, or `srv1-1 in backend and
    frontend`."""
    return f"{server}{_IN}{_AND.join(networks)}" if networks else server


def split_endpoint(where: str) -> tuple[str, tuple[str, ...]]:
    """Server and networks of such a name."""
    server, _, networks = where.partition(_IN)
    return server, tuple(networks.split(_AND)) if networks else ()


class EndpointTracker:
    """Follows the agents of a lab. A file that was seen stays open, so that its last content is
    read even after its removal."""

    def __init__(self, files: LabFiles, fabric: Fabric | None = None) -> None:
        """`fabric`: the whole of a lab with several networks; else its networks are not told
        apart."""
        self._files = files
        self._folder = files.root / LIVE_FOLDER
        self._open: dict[str, int] = {}
        self._latest: dict[str, LiveCounters] = {}
        self._ended: dict[str, LiveCounters] = {}
        """By the names of endpoints."""
        self._fabric = fabric if fabric is not None and fabric.parts else None
        parts = () if self._fabric is None else self._fabric.parts
        self._nics = {
            nic.ip: (server.name, part.network_name or "")
            for part in parts
            for server in part.servers
            for nic in part.nics(server.name)
        }
        self._networks: dict[str, tuple[str, ...]] = {}
        """Of the servers whose run is known."""

    def update(self) -> None:
        """Read the counters of running agents, and the last ones of agents that have ended."""
        for server, file in list(self._open.items()):
            # In this order: no agent writes to a removed file.
            removed = os.fstat(file).st_nlink == 0
            self._take(server, file)
            if removed:
                os.close(self._open.pop(server))
        with suppress(FileNotFoundError):
            for path in self._folder.iterdir():
                if path.name not in self._open:
                    with suppress(FileNotFoundError):
                        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                        self._open[path.name] = file
                        self._take(path.name, file)
        if self._fabric is not None and any(name not in self._networks for name in self._open):
            self._networks = self._running() | self._networks

    def close(self) -> None:
        """Close the files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def totals(self) -> dict[str, LiveCounters]:
        """The sums, by the names of endpoints; time and process are those of the last run."""
        totals = dict(self._ended)
        for server, latest in self._latest.items():
            if self._fabric is not None and server in self._open and server not in self._networks:
                continue  # its run has not begun: there is nothing to count
            name = self._name(server)
            totals[name] = added(latest, self._ended.get(name))
        return totals

    def _take(self, server: str, file: int) -> None:
        record = unpacked(os.pread(file, RECORD_BYTES, 0))
        if record is None:
            return
        before = self._latest.get(server)
        if before is not None and before.pid != record.pid:
            name = self._name(server)
            self._ended[name] = added(before, self._ended.get(name))
            self._networks.pop(server, None)
        self._latest[server] = record

    def _name(self, server: str) -> str:
        """The name of a server's endpoints; of a run that ended unseen, in all its networks."""
        if self._fabric is None:
            return server
        of_server = self._networks.get(server) or self._fabric.networks_of.get(server, ())
        return endpoint_name(server, of_server)

    def _running(self) -> dict[str, tuple[str, ...]]:
        """The networks in which each server's run sends or receives, in the lab's order."""
        assert self._fabric is not None
        networks_of: dict[str, set[str]] = {}
        for flow in read_published(self._files):
            for ip in (flow.source_ip, flow.destination_ip):
                if ip in self._nics:
                    server, network = self._nics[ip]
                    networks_of.setdefault(server, set()).add(network)
        return {
            server: tuple(name for name in self._fabric.networks_of[server] if name in networks)
            for server, networks in networks_of.items()
        }


def added(counters: LiveCounters, more: LiveCounters | None) -> LiveCounters:
    """The sum of two; time and process are those of the first."""
    if more is None:
        return counters
    _, _, *first = astuple(counters)
    _, _, *second = astuple(more)
    sums = [a + b for a, b in zip(first, second, strict=True)]
    return LiveCounters(counters.pid, counters.time_ns, *sums)
