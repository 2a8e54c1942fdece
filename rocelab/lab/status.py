"""The state of a lab that is up, as the kernel and FRR report it, compared with its plan.

`read_status` returns per node the live daemons, the BGP sessions, the routes at their full ECMP
width and the memory. Anything that does not answer counts as missing: a dead daemon never ends the
report. `rocelab health` asks the same: `LabStatus.problems` says which processes do not work.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from rocelab.base.doors import registered
from rocelab.base.wording import listed
from rocelab.base.workers import workers
from rocelab.dataplane.impairments import cables
from rocelab.dataplane.pfc.overview import LosslessOverview, read_overview
from rocelab.dataplane.steering.scheme import lacks_controller
from rocelab.fabrics.roles import Role
from rocelab.lab.lab import RunningLab
from rocelab.lab.node import NamespaceNode
from rocelab.lab.segments import LeafSegment, read_segments
from rocelab.lab.settings import Deviation, read_deviations, sentences
from rocelab.linux import fib, namespaces, netlink, processes
from rocelab.planning.fabric import Node, RouteBasis
from rocelab.planning.routes import expected_routes, expected_width
from rocelab.record import (
    FAULT_KINDS,
    DamagedRecordError,
    LabFiles,
    State,
    is_locked,
    made_nodes,
    read_record,
    recorded_faults,
    recorded_labs,
)
from rocelab.routing.answers import ANSWER_TIMEOUT_S, UnreadableAnswerError
from rocelab.routing.frr.kind import FrrMemory
from rocelab.routing.frr.peers import evpn_sessions

_KIB = 1024


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node. Servers have no daemons, sessions or routes to wait for."""

    name: str
    role: Role
    daemons: Mapping[str, int | None]
    """The process id of each daemon that should run, None if it does not."""

    sessions_established: int
    sessions_expected: int
    routes_complete: int
    """Routes that the kernel holds with every next hop of the plan, each with carrier."""

    routes_expected: int
    pss_bytes: int
    problem: str | None = None
    """Names a daemon that a signal has stopped, or whose answer cannot be read."""
    networks: tuple[str, ...] = ()
    """Those that it is in, of a lab with several."""

    @property
    def converged(self) -> bool:
        """Whether every daemon lives and answers, every session is up and every route complete."""
        return (
            None not in self.daemons.values()
            and self.problem is None
            and self.sessions_established == self.sessions_expected
            and self.routes_complete == self.routes_expected
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """Its daemons that do not run or do not answer."""
        dead = [
            f"{name} of {self.name} does not run" for name, pid in self.daemons.items() if not pid
        ]
        return (*dead, *(() if self.problem is None else (self.problem,)))


@dataclass(frozen=True, slots=True)
class KnownFault:
    """A fault in the lab, with its number in the lab's record."""

    number: int
    kind: str
    missing: str | None = None
    """The package of its kind, if that is not installed any more: nothing can restore it."""


@dataclass(frozen=True, slots=True)
class EvpnSessions:
    """A switch's BGP sessions that carry EVPN's routes."""

    established: int
    expected: int


@dataclass(frozen=True, slots=True)
class LabStatus:
    """Every node of a lab, in build order, its active faults and its lossless classes, if any."""

    lab: str
    nodes: tuple[NodeStatus, ...]
    faults: tuple[KnownFault, ...] = ()
    lossless: LosslessOverview | None = None
    broken_cables: tuple[str, ...] = ()
    """Switches whose cables, or those of them that a fault delays, let nothing through, as their
    delay line has ended or is stopped."""
    lacks_controller: bool = False
    """The scheme's does not run, so that nothing answers failures and load."""
    deviations: tuple[Deviation, ...] = ()
    """Kernel settings that are not as planned."""
    frr_memory: str | None = FrrMemory.PLAIN
    """How FRR's daemons use memory, None with another stack."""
    basis: RouteBasis = RouteBasis.PLANNED
    """How it is known what the lab has when it is whole."""
    segments: tuple[LeafSegment, ...] = ()
    """What each leaf knows of each of its tenants."""
    evpn_sessions: Mapping[str, EvpnSessions] = field(default_factory=dict)
    """Of each switch of a lab of tenants."""

    @property
    def converged(self) -> bool:
        """Whether every node is as planned, its kernel's settings too, cables carry, lossless
        classes are paused and the scheme's controller runs."""
        pauses = self.lossless is None or self.lossless.is_alive
        runs = pauses and not self.broken_cables and not self.lacks_controller
        works = runs and not self.deviations and self.tenants_whole
        return works and all(node.converged for node in self.nodes)

    @property
    def tenants_whole(self) -> bool:
        """Whether leaves know the other leaves of their tenants, and switches tell of them."""
        sessions = self.evpn_sessions.values()
        return all(segment.is_whole for segment in self.segments) and all(
            one.established == one.expected for one in sessions
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong in sentences, but for sessions and routes: processes and settings."""
        return (*self.broken_processes, *sentences(self.deviations))

    @property
    def broken_processes(self) -> tuple[str, ...]:
        """The processes of the lab that do not run, or do not answer as they should."""
        problems = [problem for node in self.nodes for problem in node.problems]
        if self.lossless is not None and not self.lossless.is_alive:
            problems.append("lossless classes: the PFC process does not run")
        if self.broken_cables:
            problems.append(f"cables of {', '.join(self.broken_cables)} let no packet through")
        if self.lacks_controller:
            problems.append(
                "the controller of the scheme does not run (`rocelab scheme` starts it again)"
            )
        return tuple(problems)

    @property
    def pss_bytes(self) -> int:
        """Memory of all daemons, shared pages divided among their users."""
        return sum(node.pss_bytes for node in self.nodes)

    @property
    def pss_of_roles(self) -> Mapping[Role, float]:
        """The mean of a switch's memory, in bytes, for each role of switches."""
        by_role: dict[Role, list[int]] = {}
        for node in self.nodes:
            if node.role.tier:
                by_role.setdefault(node.role, []).append(node.pss_bytes)
        return {role: sum(sizes) / len(sizes) for role, sizes in by_role.items()}

    def document(self) -> dict[str, object]:
        """The document of `rocelab status --json`."""
        pfc = {} if self.lossless is None else {"pfc": self.lossless.document()}
        return {
            "lab": self.lab,
            "converged": self.converged,
            "faults": [asdict(fault) for fault in self.faults],
            "broken_cables": self.broken_cables,
            "lacks_controller": self.lacks_controller,
            "settings": [asdict(deviation) for deviation in self.deviations],
            "frr_memory": self.frr_memory,
            "basis": self.basis,
            **({"tenants": self._tenants()} if self.segments else {}),
            "nodes": [
                {
                    "name": node.name,
                    "role": node.role.name,
                    "converged": node.converged,
                    "daemons": dict(node.daemons),
                    "sessions": {
                        "established": node.sessions_established,
                        "expected": node.sessions_expected,
                    },
                    "routes": {
                        "complete": node.routes_complete,
                        "expected": node.routes_expected,
                    },
                    "pss_bytes": node.pss_bytes,
                    "problem": node.problem,
                    **({"networks": node.networks} if node.networks else {}),
                }
                for node in self.nodes
            ],
            "totals": {
                "sessions": {
                    "established": sum(node.sessions_established for node in self.nodes),
                    "expected": sum(node.sessions_expected for node in self.nodes),
                },
                "routes": {
                    "complete": sum(node.routes_complete for node in self.nodes),
                    "expected": sum(node.routes_expected for node in self.nodes),
                },
                "pss_bytes": self.pss_bytes,
                "pss_bytes_of_a_switch": {
                    role.name: round(size) for role, size in self.pss_of_roles.items()
                },
            },
            **pfc,
        }

    def _tenants(self) -> dict[str, object]:
        return {
            "evpn_sessions": {name: asdict(one) for name, one in self.evpn_sessions.items()},
            "leaves": [
                {
                    "leaf": segment.leaf,
                    "tenant": segment.tenant.name,
                    "vni": segment.tenant.vni,
                    "far_leaves": {
                        "known": segment.far_leaves,
                        "expected": segment.far_leaves_expected,
                    },
                    "macs": {"known": segment.macs, "expected": segment.macs_expected},
                    "misplaced": segment.misplaced,
                }
                for segment in self.segments
            ],
        }


def read_status(lab: RunningLab, answer_s: float = ANSWER_TIMEOUT_S) -> LabStatus:
    """Read the state of every switch of a running lab. A daemon that does not answer within
    `answer_s` is a problem of its switch.

    Raises PermissionError without the rights to enter its namespaces.
    """
    fabric = lab.fabric
    expected = {
        name: {prefix: expected_width(fabric, links) for prefix, links in routes.items()}
        for name, routes in expected_routes(fabric).items()
    }
    sessions = fabric.session_ends

    def read(node: Node) -> NodeStatus:
        if node.is_switch:
            status = _read_switch(lab, node, expected[node.name], sessions[node.name], answer_s)
        else:
            status = NodeStatus(node.name, node.role, {}, 0, 0, 0, 0, 0)
        return replace(status, networks=fabric.networks_of[node.name])

    with workers(4 * (os.cpu_count() or 1)) as pool:
        nodes = tuple(pool.map(read, fabric.nodes))
    files = lab.runtime.files
    broken = (*cables.broken(fabric, files), *lab.impairments.broken())
    recorded = recorded_faults(files).items()
    faults = tuple(_known_fault(number, document) for number, document in recorded)
    overview = read_overview(fabric)
    controller = any(lacks_controller(LabFiles.of(network)) for network in fabric.networks)
    deviations = read_deviations(fabric, files)
    memory = lab.memory_text
    return LabStatus(
        lab.name,
        nodes,
        faults,
        overview,
        broken,
        controller,
        deviations,
        memory,
        fabric.basis,
        read_segments(fabric, lab.node),
        _evpn_sessions(lab, answer_s) if fabric.tenants else {},
    )


def _evpn_sessions(lab: RunningLab, answer_s: float) -> dict[str, EvpnSessions]:
    def read(node: Node) -> EvpnSessions:
        established = 0
        # A daemon that does not answer is its switch's problem.
        with suppress(OSError):
            established = evpn_sessions(lab.node(node.name).daemon_files, answer_s)
        return EvpnSessions(established, lab.fabric.session_ends[node.name])

    switches = lab.fabric.switches
    with workers(4 * (os.cpu_count() or 1)) as pool:
        sessions = tuple(pool.map(read, switches))
    return {node.name: one for node, one in zip(switches, sessions, strict=True)}


def _known_fault(number: int, document: Mapping[str, Any]) -> KnownFault:
    kind = document["spec"]["kind"]
    missing = None if kind in registered(FAULT_KINDS) else document.get("package")
    return KnownFault(number, kind, missing)


def _read_switch(
    lab: RunningLab, node: Node, expected: Mapping[str, int], sessions: int, answer_s: float
) -> NodeStatus:
    handle = lab.node(node.name)
    # A process that was killed and not yet reaped still has its id and its name, but no memory.
    pids = handle.daemons()
    memory = {name: _pss_bytes(pid) for name, pid in pids.items()}
    alive = {name: pid for name, pid in pids.items() if memory[name]}
    widths = _widths(handle.netns)
    established, problem = (
        _established(handle, answer_s) if handle.stack.speaker in alive else (0, None)
    )
    stopped = [name for name, pid in alive.items() if processes.is_stopped(pid)]
    if stopped:
        problem = f"a signal has stopped {listed(stopped, 'and')} of {node.name}"
    return NodeStatus(
        name=node.name,
        role=node.role,
        daemons={name: alive.get(name) for name in lab.daemons_of(node.name)},
        sessions_established=established,
        sessions_expected=sessions,
        routes_complete=sum(widths.get(prefix, 0) >= width for prefix, width in expected.items()),
        routes_expected=len(expected),
        pss_bytes=sum(memory.values()),
        problem=problem,
    )


def _widths(netns: Path) -> dict[str, int]:
    """The number of next hops with carrier of each prefix in the main table; empty if the node has
    gone."""
    if not netns.exists():
        return {}

    def read() -> dict[str, int]:
        with netlink.open_socket(receive_buffer_bytes=4 << 20) as channel:
            return fib.live_widths(fib.read_routes(channel))

    return namespaces.inside(netns, read)


def _established(handle: NamespaceNode, answer_s: float) -> tuple[int, str | None]:
    """The number of sessions that are up, and the problem with its daemon's answer, if any."""
    try:
        peers = handle.stack.peers(handle.daemon_files, answer_s)
    except UnreadableAnswerError as error:
        return 0, str(error)
    except OSError as error:
        return (
            0,
            f"{handle.stack.speaker} of {handle.name} does not answer: {error.strerror or error}",
        )
    return sum(peer.established for peer in peers.values()), None


def _pss_bytes(pid: int) -> int:
    """Proportional set size of a process (Linux Documentation/filesystems/proc.rst)."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * _KIB for line in lines if line.startswith("Pss:")), 0)


class Presence(StrEnum):
    """Which parts of a lab exist on this machine."""

    RUNNING = "running"
    STARTING = "starting"
    LEFT_BEHIND = "left behind"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class KnownLab:
    """A lab that has a record, or the remains of one. `nodes` to `runtime` are None without a
    usable record."""

    name: str
    state: Presence
    nodes: int | None
    """None also for a user who may not see them."""

    started_unix_s: float | None
    version: str | None
    runtime: str | None
    problem: str | None = None
    """Why there is no usable record."""


_ROOTS = "only root may read what is on record of it"


def known_labs() -> tuple[KnownLab, ...]:
    """Every lab that is up, coming up or left behind by a killed command."""
    return tuple(_known(name) for name in recorded_labs())


def _known(name: str) -> KnownLab:
    files = LabFiles(name)
    try:
        record = read_record(name)
    except DamagedRecordError as error:
        return KnownLab(name, Presence.DAMAGED, None, None, None, None, error.message)
    except PermissionError:
        return KnownLab(name, Presence.UNREADABLE, None, None, None, None, _ROOTS)
    if record is None:
        return KnownLab(name, Presence.LEFT_BEHIND, None, None, None, None)
    presence = Presence.LEFT_BEHIND
    nodes = made_nodes(files)
    if record.state is State.STARTING and is_locked(files.lock):
        presence = Presence.STARTING
    elif record.state is State.RUNNING and nodes != 0:
        presence = Presence.RUNNING
    return KnownLab(name, presence, nodes, record.started_unix_s, record.version, record.runtime)
