"""Replays a recorded trace as a workload: simulated communications, compute as recorded.

Chakra traces, one per rank or one for all ranks, become a `Workload` whose communications start as
the traces' dependencies, streams and process groups say. Their recorded durations are not used: the
simulation computes them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from rocelab.base.errors import InputError
from rocelab.base.progress import ProgressSink, no_progress
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.merged_sends import sends_of
from rocelab.jobs.parallelism import over_groups
from rocelab.jobs.workload import Sends, Workload
from rocelab.sim.traces.chakra import ChakraNode, CommType, NodeKind, Trace, read_traces
from rocelab.sim.traces.export import exported_workload, is_exported
from rocelab.sim.traces.groups import CommunicatorGroups, Members
from rocelab.sim.traces.order import Communication, condense, topological

MAX_BYTES = 2**44
"""The most bytes of one communication, over all parts of its buffer: 16 TiB."""

_PATTERNS = {
    CommType.ALL_REDUCE: Pattern.ALLREDUCE,
    CommType.REDUCE: Pattern.BROADCAST,
    CommType.ALL_GATHER: Pattern.ALLGATHER,
    CommType.GATHER: Pattern.GATHER,
    CommType.SCATTER: Pattern.GATHER,
    CommType.BROADCAST: Pattern.BROADCAST,
    CommType.ALL_TO_ALL: Pattern.ALLTOALL,
    CommType.REDUCE_SCATTER: Pattern.REDUCESCATTER,
    CommType.REDUCE_SCATTER_BLOCK: Pattern.REDUCESCATTER,
}
_REVERSED = (CommType.REDUCE, CommType.SCATTER)
_ROOTED = (CommType.REDUCE, CommType.GATHER, CommType.SCATTER, CommType.BROADCAST)
_PER_RANK = (CommType.ALL_GATHER, CommType.GATHER)
"""Chakra's comm_size is one rank's input; nccl-tests counts all ranks' parts together."""


def read_workload(
    path: Path,
    ranks: int | None = None,
    *,
    groups: Mapping[str, Sequence[int]] | None = None,
    dimensions: Sequence[int] = (),
    progress: ProgressSink = no_progress,
) -> Workload:
    """`trace_workload` of the traces at `path`: a folder with one file per rank, or one file.

    Raises InputError as `trace_workload` and `rocelab.sim.traces.chakra.read_traces`; MachineError
    if protobuf is not installed.
    """
    traces = read_traces(path, progress)
    return trace_workload(traces, ranks, groups=groups, dimensions=dimensions)


def trace_workload(
    traces: Sequence[Trace],
    ranks: int | None = None,
    *,
    groups: Mapping[str, Sequence[int]] | None = None,
    dimensions: Sequence[int] = (),
) -> Workload:
    """The workload of the traces for `ranks` ranks: as many as there are traces, or any number that
    all follow a single trace.

    - Compute takes the recorded `runtime` (us) if a node has one, else `duration_micros`; memory
      nodes count as compute. Launches of collectives on the CPU (`is_cpu_op`, without `comm_type`)
      are compute.
    - Order: data and control dependencies. If both together form a cycle, as PyTorch's call stacks
      do after their converter has split the callers, data dependencies alone. Nodes of one `stream`
      (or, on the CPU, one `tid`) run one after the other, and so do the collectives of one process
      group, as in NCCL.
    - A collective starts when its last member is there. A send starts with its sender alone.
    - `comm_size` is the bytes of one rank's input: nccl-tests' size, but for AllGather and Gather,
      whose size is n times it. A collective's root is the attribute `root`, else its first member.

    `groups` and `dimensions` are as in `rocelab.sim.traces.groups.Groups`. Traces of `write_trace`
    become their original workload. Raises InputError if traces do not fit together or lack needed
    data.
    """
    if not traces:
        raise InputError("no trace is given", hint="give one for each rank, or one for all")
    if ranks is None:
        ranks = len(traces)
    if len(traces) not in (1, ranks):
        raise InputError(
            f"{len(traces)} traces for {ranks} ranks",
            hint="give one for each rank, or one that all ranks follow",
        )
    if is_exported(traces[0]):
        return exported_workload(traces, ranks)
    if ranks < 2:
        raise InputError(
            f"{traces[0].source} alone is one rank, which has no other to communicate with",
            hint="give the number of ranks that follow this trace",
        )
    graph = _Graph(CommunicatorGroups(ranks, traces, groups or {}, dimensions), len(traces) < ranks)
    for rank, trace in enumerate(traces):
        graph.add(rank, trace)
    graph.warnings += _without_duration(traces)
    graph.pair_sends()
    graph.check_members()
    order = topological(graph.before)
    if len(order) < len(graph.before):
        stuck = min(set(range(len(graph.before))).difference(order))
        raise InputError(
            f"ranks wait for one another in a circle, at {graph.places[stuck]} among others",
            hint="the traces are of different runs, or a rank's process groups are not given",
        )
    steps = condense(graph.seconds, graph.before, order, graph.communications)
    return Workload(ranks, steps, warnings=tuple(graph.warnings))


@dataclass(frozen=True, slots=True)
class _Collective:
    """The properties that all members must agree on."""

    vertex: int
    kind: CommType
    size_bytes: int
    root: int
    ranks: set[int] = field(default_factory=set)


@dataclass
class _Graph:
    """The nodes of all ranks, a collective's nodes as one."""

    groups: CommunicatorGroups
    alike: bool
    seconds: list[float] = field(default_factory=list)
    before: list[list[int]] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    communications: dict[int, Communication] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    _collectives: dict[tuple[Members, int], _Collective] = field(default_factory=dict)
    _done: dict[Members, list[int]] = field(default_factory=lambda: defaultdict(list))
    _sends: dict[tuple[int, int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    _receives: dict[tuple[int, int, int], list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, rank: int, trace: Trace) -> None:
        """Add the nodes of a rank, after their dependencies and the nodes of the same stream."""
        order, before = _ordered(trace)
        self.warnings += _ignored_parts(trace)
        vertices: dict[int, int] = {}
        counts: dict[Members, int] = defaultdict(int)
        last: dict[tuple[object, ...], int] = {}
        for index in order:
            node = trace.nodes[index]
            place = f"{trace.source}: node {node.id} ({node.name[:60]})"
            if node.kind is NodeKind.COLLECTIVE and "comm_type" in node.attrs:
                vertex = self._collective(node, rank, place, counts)
            elif node.kind in (NodeKind.SEND, NodeKind.RECEIVE) and "comm_size" in node.attrs:
                vertex = self._point_to_point(node, rank, place)
            elif node.kind >= NodeKind.SEND and not node.attrs.get("is_cpu_op", False):
                raise InputError(
                    f"{place} communicates, but has no {_missing_attribute(node)}",
                    hint="convert the trace with a newer chakra_converter",
                )
            else:
                vertex = self._vertex(place, _compute_s(node, place))
            vertices[index] = vertex
            waits = {vertices[earlier] for earlier in before[index]}
            lane = _lane(node)
            if lane and lane in last:
                waits.add(last[lane])
            if lane:
                last[lane] = vertex
            self.before[vertex].extend(waits)

    def pair_sends(self) -> None:
        """Let every receive wait for the send that it names. Raises InputError for one without a
        partner."""
        for key in sorted({*self._sends, *self._receives}):
            sends, receives = self._sends[key], self._receives[key]
            source, destination, tag = key
            if len(sends) != len(receives):
                raise InputError(
                    f"rank {source} sends {len(sends)} times to rank {destination} with tag {tag}, "
                    f"which receives {len(receives)} times",
                    hint="give the traces of one run, and of all its ranks",
                )
            for send, receive in zip(sends, receives, strict=True):
                self.before[receive].append(send)

    def check_members(self) -> None:
        """Raises InputError for a collective that some of its members never reach."""
        if self.alike:
            return
        for (members, _), made in self._collectives.items():
            if missing := sorted(set(members) - made.ranks):
                raise InputError(
                    f"{self.places[made.vertex]} hangs: rank{'s' * (len(missing) > 1)} "
                    f"{', '.join(map(str, missing[:5]))}{' ...' * (len(missing) > 5)} of its group "
                    "never reach it",
                    hint="the traces are cut off or of different runs, or a rank's process groups "
                    "are not given",
                )

    def _vertex(self, place: str, seconds: float = 0.0) -> int:
        self.seconds.append(seconds)
        self.before.append([])
        self.places.append(place)
        return len(self.seconds) - 1

    def _collective(
        self, node: ChakraNode, rank: int, place: str, counts: dict[Members, int]
    ) -> int:
        groups = self.groups.of(node, rank, place)
        first = groups[0]
        kind = CommType(_integer(node, "comm_type", place, 0, max(CommType)))
        most = MAX_BYTES // len(first) if kind in _PER_RANK else MAX_BYTES
        size = 0 if kind is CommType.BARRIER else _integer(node, "comm_size", place, 0, most)
        root = _integer(node, "root", place, 0, len(first) - 1) if "root" in node.attrs else 0
        number = counts[first]
        counts[first] += 1
        made = self._collectives.get((first, number))
        if made is None:
            made = _Collective(self._vertex(place), kind, size, root)
            self._collectives[first, number] = made
            self.communications[made.vertex] = Communication(
                node.name, partial(_collective_sends, kind, size, root, groups)
            )
            done = self._done[first]
            self.before[made.vertex].extend(done[-1:])
            done.append(made.vertex)
        elif (made.kind, made.size_bytes, made.root) != (kind, size, root):
            raise InputError(
                f"{place} is {kind.name} of {size:,} bytes, but other ranks of its group do "
                f"{made.kind.name} of {made.size_bytes:,} bytes there "
                f"({self.places[made.vertex]})",
                hint="the traces are of different runs, or a rank's process groups are not given",
            )
        made.ranks.add(rank)
        return made.vertex

    def _point_to_point(self, node: ChakraNode, rank: int, place: str) -> int:
        if self.alike:
            raise InputError(
                f"{place} sends to one rank, which is ambiguous in a trace of all ranks",
                hint="give one trace for each rank",
            )
        size = _integer(node, "comm_size", place, 1, MAX_BYTES)
        attribute = "comm_dst" if node.kind is NodeKind.SEND else "comm_src"
        peer = _integer(node, attribute, place, 0, self.groups.ranks - 1)
        tag = _integer(node, "comm_tag", place, -(2**31), 2**32) if "comm_tag" in node.attrs else 0
        if peer == rank:
            raise InputError(
                f"{place} is between rank {rank} and itself", hint=f"see its {attribute}"
            )
        vertex = self._vertex(place)
        if node.kind is NodeKind.RECEIVE:
            self._receives[peer, rank, tag].append(vertex)
            return vertex
        self._sends[rank, peer, tag].append(vertex)
        self.communications[vertex] = Communication(node.name, partial(_one, rank, peer, size))
        return vertex


def _ordered(trace: Trace) -> tuple[list[int], list[list[int]]]:
    """The nodes' indices in order, and the indices that each depends on. Dependencies on nodes that
    are not in the trace, such as the thread that converters leave out, are no dependencies."""
    index = {node.id: number for number, node in enumerate(trace.nodes)}
    data = [[index[dep] for dep in node.data_deps if dep in index] for node in trace.nodes]
    both = [
        [*waits, *(index[dep] for dep in node.ctrl_deps if dep in index)]
        for node, waits in zip(trace.nodes, data, strict=True)
    ]
    for before in (both, data):
        order = topological(before)
        if len(order) == len(before):
            return order, before
    stuck = min(set(range(len(data))).difference(order))
    raise InputError(
        f"{trace.source}: node {trace.nodes[stuck].id} depends on itself, by way of others",
        hint="convert the trace again; chakra_converter reports such circles too",
    )


def _ignored_parts(trace: Trace) -> list[str]:
    """The ignored parts of a trace, in words."""
    known = {node.id for node in trace.nodes}
    absent = [
        node for node in trace.nodes if not known.issuperset((*node.data_deps, *node.ctrl_deps))
    ]
    invalid = [node for node in trace.nodes if node.kind is NodeKind.INVALID]
    return [
        f"{trace.source}: {what} {len(nodes):,} node{'s' * (len(nodes) > 1)} ({nodes[0].id} first)"
        for what, nodes in (
            ("dependencies on nodes outside the trace are ignored at", absent),
            ("the type is INVALID, which counts as no time, at", invalid),
        )
        if nodes
    ]


def _without_duration(traces: Sequence[Trace]) -> list[str]:
    """A warning of compute and memory nodes that have no duration. Raises InputError if none has
    one: the job would be communication alone. The schema cannot tell a missing from a zero one."""
    computes = [
        (trace, node)
        for trace in traces
        for node in trace.nodes
        if node.kind in (NodeKind.MEM_LOAD, NodeKind.MEM_STORE, NodeKind.COMPUTE)
    ]
    without = [
        (trace, node)
        for trace, node in computes
        if not node.duration_us and "runtime" not in node.attrs
    ]
    if not without:
        return []
    trace, first = without[0]
    place = f"{trace.source}: node {first.id} ({first.name[:60]})"
    if len(without) == len(computes):
        raise InputError(
            f"none of {len(computes):,} compute nodes has a duration, first {place}",
            hint="record `runtime` or `duration_micros`: `num_ops` alone is no time",
        )
    return [
        f"{len(without):,} of {len(computes):,} compute nodes have no duration and count as 0 s, "
        f"so that iterations may be too short; first {place}"
    ]


def _lane(node: ChakraNode) -> tuple[object, ...]:
    """What a node occupies while it runs: a stream of the GPU or a thread of the CPU, if said."""
    on_cpu = bool(node.attrs.get("is_cpu_op", False))
    names = ("tid",) if on_cpu else ("stream", "tid")
    return next(((on_cpu, node.attrs[name]) for name in names if name in node.attrs), ())


def _compute_s(node: ChakraNode, place: str) -> float:
    if node.kind in (NodeKind.INVALID, NodeKind.METADATA):
        return 0.0
    micros = node.attrs.get("runtime", node.duration_us)
    if not isinstance(micros, int | float) or not 0 <= micros < 10**13:
        raise InputError(
            f"{place} takes {micros!r} us",
            hint="expected a duration of at least 0 and below 115 days",
        )
    return micros / 10**6


def _missing_attribute(node: ChakraNode) -> str:
    return "comm_type" if node.kind is NodeKind.COLLECTIVE else "comm_size"


def _integer(node: ChakraNode, name: str, place: str, low: int, high: int) -> int:
    value = node.attrs.get(name)
    if isinstance(value, int) and low <= value <= high:
        return value
    text = "none" if value is None else repr(value)
    raise InputError(f"{place}: expected {name} from {low} to {high:,}, found {text}", hint=_AGAIN)


_AGAIN = "convert the trace again, or look at the node with chakra_jsonizer"


def _one(source: int, destination: int, size_bytes: int) -> Sends:
    return Sends(
        np.array([source], np.int32),
        np.array([destination], np.int32),
        np.array([size_bytes], np.int64),
    )


def _collective_sends(
    kind: CommType, size_bytes: int, root: int, groups: Sequence[Members]
) -> Sends | None:
    """The sends of a collective in every group, all of one size; None without sends."""
    ranks = len(groups[0])
    size = size_bytes * ranks if kind in _PER_RANK else size_bytes
    if kind is CommType.BARRIER or ranks < 2 or not size:
        return None
    members = np.array(groups, np.int32)
    if kind in _ROOTED:
        members = np.roll(members, -root, axis=1)
    sends = over_groups(sends_of(_PATTERNS[kind], ranks, size), members)
    if kind in _REVERSED:
        return replace(sends, source=sends.destination, destination=sends.source)
    return sends
