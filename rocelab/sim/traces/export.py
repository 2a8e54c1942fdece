"""Writes a workload as Chakra execution traces, one file per rank, and reads it back.

Chakra's feeder (ASTRA-sim and others) reads the files: computes, sends and receives of each rank
with their dependencies. Attributes that begin with `rocelab_` hold what a trace cannot express, so
that the files read back into the same workload.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np

from rocelab.base.arrays import NONE, Ints
from rocelab.base.errors import InputError
from rocelab.base.outputs import open_folder
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.jobs.workload import Sends, Step, Workload
from rocelab.sim.traces.chakra import (
    MAX_NODES,
    SCHEMA_VERSION,
    ChakraNode,
    Metadata,
    NodeKind,
    Trace,
    Value,
    write_trace_to,
)

_RANKS, _STEPS, _ORDERED = "rocelab_ranks", "rocelab_steps", "rocelab_ordered"
_STEP, _AFTER, _COMPUTE = "rocelab_step", "rocelab_after", "rocelab_compute_s"
_ITERATION, _SEND, _PARTS = "rocelab_iteration", "rocelab_send", "rocelab_parts"
_ROUNDS, _CHAIN = "rocelab_rounds", "rocelab_chain"
_FILL, _TOKENS, _TURN = "rocelab_fill_bytes", "rocelab_tokens", "rocelab_turn"
_HOPS = "rocelab_hops"


def write_trace(
    workload: Workload, folder: Path, *, name: str = "rocelab", progress: ProgressSink = no_progress
) -> tuple[Path, ...]:
    """Write `workload` as files `folder`/NAME.RANK.et, one per rank; `folder` is created if
    missing.

    A send is a COMM_SEND node of its sender and a COMM_RECV node of its receiver, tagged with the
    step's number; a collective is written as its sends, each after the one before it in its turn.
    `compute_s` is a node of each sender; for a step without sends, of the senders of the steps that
    wait for it. A node depends only on nodes of its own rank, so other programs start a rank's part
    of a step without waiting for other ranks; this simulator starts all of a step together.
    Durations are rounded to microseconds, Chakra's unit.

    Raises InputError if the folder has traces already, cannot be written, or the workload is too
    large; MachineError without protobuf.
    """
    parts = _Parts(workload)
    nodes = parts.count()
    if nodes > MAX_NODES:
        raise InputError(
            f"the trace would have {nodes:,} nodes; at most {MAX_NODES:,} are written",
            hint="export fewer ranks, fewer iterations or a smaller collective",
        )
    metadata = Metadata(
        SCHEMA_VERSION,
        {
            _RANKS: workload.ranks,
            _STEPS: len(workload.steps),
            _ORDERED: workload.ordered,
        },
    )
    paths = []
    try:
        with open_folder(folder, make=True) as opened:
            if any(present.endswith(".et") for present in opened.names()):
                raise InputError(
                    f"{folder} has traces already",
                    hint="give a folder without .et files, or a new one",
                )
            for rank in range(workload.ranks):
                paths.append(folder / f"{name}.{rank}.et")
                trace = Trace(str(paths[-1]), metadata, parts.of_rank(rank))
                with opened.create(paths[-1].name) as file:
                    write_trace_to(file, trace)
                progress(Progress("writing traces", rank + 1, workload.ranks))
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written: {error.strerror}", hint="give a folder of your own"
        ) from None
    return tuple(paths)


def is_exported(trace: Trace) -> bool:
    """Whether `write_trace` wrote it."""
    return _RANKS in trace.metadata.attrs


def exported_workload(traces: Sequence[Trace], ranks: int) -> Workload:
    """The workload that `write_trace` made these traces of.

    Raises InputError if ranks are missing or traces were changed.
    """
    attrs = traces[0].metadata.attrs
    if attrs[_RANKS] != ranks or len(traces) != ranks:
        raise InputError(
            f"{traces[0].source} is of a job of {attrs[_RANKS]!r} ranks, but {len(traces)} traces "
            f"for {ranks} ranks are given",
            hint="give the folder that was exported, and its number of ranks",
        )
    read: dict[int, _Read] = defaultdict(_Read)
    for rank, trace in enumerate(traces):
        for node in trace.nodes:
            if node.kind is not NodeKind.RECEIVE:
                _take(read, node, rank, f"{trace.source}: node {node.id}")
    steps = attrs.get(_STEPS)
    if sorted(read) != list(range(steps if isinstance(steps, int) else -1)):
        raise _changed(traces[0].source, "steps are missing")
    return Workload(
        ranks,
        tuple(read[number].step(f"{traces[0].source}: step {number}") for number in sorted(read)),
        bool(attrs.get(_ORDERED, False)),
    )


class _Parts:
    """What each rank does in each step."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._computing: list[Ints] = _computing(workload)
        self._steps_of: list[list[int]] = [[] for _ in range(workload.ranks)]
        self._sent: list[dict[int, list[int]]] = []
        self._received: list[dict[int, list[int]]] = []
        for number, step in enumerate(workload.steps):
            self._sent.append(_places(step.sends.source) if step.sends else {})
            self._received.append(_places(step.sends.destination) if step.sends else {})
            members = {*self._sent[-1], *self._received[-1], *map(int, self._computing[number])}
            for rank in members:
                self._steps_of[rank].append(number)

    def count(self) -> int:
        """The nodes of all ranks."""
        sends = sum(2 * len(step.sends.source) for step in self._workload.steps if step.sends)
        return sends + sum(len(ranks) for ranks in self._computing)

    def of_rank(self, rank: int) -> tuple[ChakraNode, ...]:
        """A rank's nodes, sends of a step before its receives."""
        ids = count()
        nodes: list[ChakraNode] = []
        ends: dict[int, list[int]] = {}
        for number in self._steps_of[rank]:
            step = self._workload.steps[number]
            about: dict[str, Value] = {
                _STEP: number,
                _AFTER: step.after,
                _COMPUTE: float(step.compute_s),
                _ITERATION: step.iteration,
            }
            waits = self._ends_before(number, ends)
            start = waits
            ends[number] = []
            if rank in self._computing[number]:
                start = (next(ids),)
                ends[number] = [*start]
                micros = round(step.compute_s * 1e6) or int(step.compute_s > 0)
                computed = {"is_cpu_op": False, **about}
                nodes.append(
                    ChakraNode(start[0], step.name, NodeKind.COMPUTE, (), waits, micros, computed)
                )
            if step.sends is None:
                continue
            sent, received = self._sent[number].get(rank, []), self._received[number].get(rank, [])
            if sent:
                ends[number] = []
            rounds = np.broadcast_to(step.sends.rounds, len(step.sends.source))
            last: dict[int, tuple[int, ...]] = {}
            for place in sent:
                attrs = {**_message(step.sends, place, number), **about, _SEND: place}
                attrs[_ROUNDS] = int(rounds[place])
                if step.sends.chain is not None:
                    attrs[_CHAIN] = int(step.sends.chain[place])
                attrs[_FILL], attrs[_TOKENS] = step.sends.fill_bytes, step.sends.tokens
                for name, column in ((_PARTS, step.sends.parts), (_HOPS, step.sends.hops)):
                    if column is not None:
                        attrs[name] = int(column[place])
                before, node_id = start, next(ids)
                turn = NONE if step.sends.turn is None else int(step.sends.turn[place])
                if turn != NONE:
                    attrs[_TURN] = turn
                    before, last[turn] = last.get(turn, start), (node_id,)
                nodes.append(ChakraNode(node_id, step.name, NodeKind.SEND, (), before, 0, attrs))
                ends[number].append(node_id)
            for place in received:
                attrs = _message(step.sends, place, number)
                nodes.append(
                    ChakraNode(next(ids), step.name, NodeKind.RECEIVE, (), waits, 0, attrs)
                )
                ends[number].append(nodes[-1].id)
        return tuple(nodes)

    def _ends_before(self, number: int, ends: dict[int, list[int]]) -> tuple[int, ...]:
        """The rank's last nodes before step `number`: of the steps it waits for; for a step in
        which the rank has no part, of that step's own predecessors."""
        members: set[int] = set()
        seen: set[int] = set()
        left = [*self._workload.steps[number].after]
        while left:
            step = left.pop()
            if step in seen:
                continue
            seen.add(step)
            if step in ends:
                members.update(ends[step])
            else:
                left.extend(self._workload.steps[step].after)
        return tuple(sorted(members))


def _computing(workload: Workload) -> list[Ints]:
    """The ranks that do each step's compute: none if it takes no time and sends follow."""
    steps = workload.steps
    everyone = np.arange(workload.ranks, dtype=np.int32)
    senders = [None if step.sends is None else np.unique(step.sends.source) for step in steps]
    later: list[list[Ints]] = [[] for _ in steps]
    doing: list[Ints] = [everyone[:0]] * len(steps)
    for number in range(len(steps) - 1, -1, -1):
        sends = senders[number]
        doing[number] = _union(later[number]) if sends is None else sends
        for earlier in steps[number].after:
            later[earlier].append(doing[number])
    for number, step in enumerate(steps):
        if not len(doing[number]):
            ranks = _union([doing[earlier] for earlier in step.after])
            doing[number] = ranks if len(ranks) else everyone
    return [
        everyone[:0] if step.sends is not None and not step.compute_s else ranks
        for step, ranks in zip(steps, doing, strict=True)
    ]


def _union(ranks: Sequence[Ints]) -> Ints:
    members: Ints = np.unique(np.concatenate(ranks)) if ranks else np.empty(0, np.int32)
    return members


def _places(ranks: Ints) -> dict[int, list[int]]:
    """The positions of each rank in a column."""
    places: dict[int, list[int]] = defaultdict(list)
    for place, rank in enumerate(ranks.tolist()):
        places[rank].append(place)
    return dict(places)


def _message(sends: Sends, place: int, number: int) -> dict[str, Value]:
    """The attributes that Chakra's feeder expects of a send or a receive."""
    return {
        "is_cpu_op": False,
        "comm_size": int(sends.size_bytes[place]),
        "comm_src": int(sends.source[place]),
        "comm_dst": int(sends.destination[place]),
        "comm_tag": number,
    }


@dataclass(frozen=True, slots=True)
class _Send:
    source: int
    destination: int
    size_bytes: int
    rounds: int
    parts: int | None
    chain: int | None
    hops: int | None
    turn: int


@dataclass
class _Read:
    """A step as read from its nodes."""

    about: tuple[str, tuple[int, ...], float, int] | None = None
    sends: dict[int, _Send] = field(default_factory=dict)
    fill_bytes: int = 0
    tokens: int = 0

    def step(self, place: str) -> Step:
        assert self.about is not None
        name, after, compute_s, iteration = self.about
        if not self.sends:
            return Step(name, after, compute_s, None, iteration)
        if sorted(self.sends) != list(range(len(self.sends))):
            raise _changed(place, "sends are missing")
        rows = [self.sends[index] for index in range(len(self.sends))]
        parts = [row.parts for row in rows if row.parts is not None]
        chain = [row.chain for row in rows if row.chain is not None]
        hops = [row.hops for row in rows if row.hops is not None]
        for attribute, column in ((_PARTS, parts), (_CHAIN, chain), (_HOPS, hops)):
            if len(column) not in (0, len(rows)):
                raise _changed(place, f"some sends have no {attribute}")
        turn = np.array([row.turn for row in rows], np.int32)
        sends = Sends(
            np.array([row.source for row in rows], np.int32),
            np.array([row.destination for row in rows], np.int32),
            np.array([row.size_bytes for row in rows], np.int64),
            np.array([row.rounds for row in rows], np.int64),
            np.array(parts, np.int64) if parts else None,
            np.array(chain, np.int32) if chain else None,
            np.array(hops, np.int64) if hops else None,
            self.fill_bytes,
            self.tokens,
            turn if (turn != NONE).any() else None,
        )
        return Step(name, after, compute_s, sends, iteration)


def _take(read: dict[int, _Read], node: ChakraNode, rank: int, place: str) -> None:
    """Add a node to its step."""
    attrs = node.attrs
    number = _whole(node, _STEP, place)
    step = read[number]
    after, compute_s = attrs.get(_AFTER), attrs.get(_COMPUTE)
    if not isinstance(after, tuple) or not isinstance(compute_s, float) or not compute_s >= 0:
        raise _changed(place, f"{_AFTER} or {_COMPUTE} is missing")
    earlier = tuple(entry for entry in after if isinstance(entry, int) and 0 <= entry < number)
    about = (node.name, earlier, compute_s, _whole(node, _ITERATION, place))
    if len(earlier) < len(after) or step.about not in (None, about):
        raise _changed(place, f"it does not fit the other nodes of step {number}")
    step.about = about
    if node.kind is not NodeKind.SEND:
        return
    destination, size = _whole(node, "comm_dst", place), _whole(node, "comm_size", place)
    index = _whole(node, _SEND, place)
    if destination == rank or not size or index in step.sends:
        raise _changed(place, "it is a send that cannot be")
    parts = _whole(node, _PARTS, place) if _PARTS in attrs else None
    chain = _whole(node, _CHAIN, place, NONE) if _CHAIN in attrs else None
    hops = _whole(node, _HOPS, place) if _HOPS in attrs else None
    turn = _whole(node, _TURN, place, NONE) if _TURN in attrs else NONE
    rounds = _whole(node, _ROUNDS, place)
    step.fill_bytes, step.tokens = _whole(node, _FILL, place), _whole(node, _TOKENS, place)
    step.sends[index] = _Send(rank, destination, size, rounds, parts, chain, hops, turn)


def _whole(node: ChakraNode, name: str, place: str, least: int = 0) -> int:
    value = node.attrs.get(name)
    if not isinstance(value, int) or not least <= value < 2**53:
        raise _changed(place, f"{name} is {value!r}")
    return value


def _changed(place: str, what: str) -> InputError:
    return InputError(
        f"{place}: {what}", hint="the trace was changed after rocelab wrote it: export it again"
    )
