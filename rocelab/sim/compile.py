"""Compiles jobs on a network to one program of transfers, which the engine runs.

Takes workloads with the NICs and the transport of their ranks. Returns the flows of their queue
pairs, a `Program` over them, and the job, step and bytes of each task and transfer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rocelab.base.arrays import NONE, Floats, Ints, Longs
from rocelab.hosts.ranks import RankHosts
from rocelab.jobs.flow import FIRST_QP
from rocelab.jobs.jobplanning import check_mtu
from rocelab.jobs.merged_sends import check_exchanged
from rocelab.jobs.messages import Messages, loads_of, messages_of
from rocelab.jobs.performance import FRAME_OVERHEAD_BYTES
from rocelab.jobs.transport import TransportSpec
from rocelab.jobs.tuning import Tuned
from rocelab.jobs.workload import Sends, Workload
from rocelab.routes.arrays.flows import Flows, joined_flows, selected_flows
from rocelab.routes.arrays.network import Network
from rocelab.sim.engine.program import Offsets, Program, Rings
from rocelab.sim.queue_pairs import QueuePairs, queue_pairs
from rocelab.sim.tasks import Tasks, tasks_of


@dataclass(frozen=True, eq=False)
class PlacedJob:
    """A workload, the NIC of each of its ranks, and their transport; `seed` draws source ports."""

    workload: Workload
    places: Ints
    transport: TransportSpec
    seed: int = 1
    hosts: RankHosts | None = None
    """None: hosts take no time, and all sends use the network."""
    costs: Tuned | None = None
    """What a collective costs as NCCL does it; None: what the hosts' model says."""


@dataclass(frozen=True, eq=False)
class Chains:
    """C chains of sends, each send after the one before it."""

    of_transfer: Ints
    """The chain of each transfer, NONE for none, X."""
    hops: Ints
    """How many of its hops each transfer stands for, X."""
    task: Longs
    """Of each chain, C."""
    rounds: Longs
    """Of each chain, C."""
    tokens: Longs
    """Chunks that begin on each hop if a chain is a ring, else 0, C."""
    ranks: Longs
    """How many ranks send in each ring, 0 for other chains, C."""

    @property
    def longer(self) -> Chains:
        """Those of several rounds, and rings, without their transfers."""
        kept = (self.rounds > 1) | (self.tokens > 0)
        columns = (column[kept] for column in (self.task, self.rounds, self.tokens, self.ranks))
        return Chains(self.of_transfer[:0], self.hops[:0], *columns)

    def timed(self, program: Program, flow_s: Floats) -> Program:
        """The program with the latency of its chains: rounds times the mean of `flow_s` (F) over
        the chain's hops. A chain adds it at the end of its task, a ring only that of its longest
        hop: chunks hide the others from one another. The last chunk of a ring is one that leaves
        the shortest hop out of each time round.

        A chunk of a ring takes its share of what hops take: of k chunks that begin on one at once,
        the last waits for the others there, and then follows them.
        """
        columns, count = (self.of_transfer, self.hops, program.flow), len(self.task)
        if len(program.flow) and self.of_transfer.min() == NONE:
            members = self.of_transfer != NONE
            columns = (self.of_transfer[members], self.hops[members], program.flow[members])
        chain, weight, flow = columns
        hop_s, own_s = flow_s[flow], np.zeros(program.tasks)
        hops = np.maximum(np.bincount(chain, weight, count), 1)
        mean_s = np.bincount(chain, weight * hop_s, count) / hops
        chain_s = self.rounds * mean_s
        is_ring = self.tokens > 0
        if not is_ring.any():
            np.maximum.at(own_s, self.task, chain_s)
            return replace(program, latency_s=program.latency_s + own_s)
        least_s, most_s = np.full(count, np.inf), np.zeros(count)
        np.minimum.at(least_s, chain, hop_s)
        np.maximum.at(most_s, chain, hop_s)
        turns = self.rounds / np.maximum(self.ranks - 1, 1)
        chunks = hops * self.tokens
        length = np.maximum(np.bincount(chain, minlength=count), 1)
        together = np.maximum(chunks / length, 1)
        most_hops = np.zeros(count)
        np.maximum.at(most_hops, chain, weight)
        np.maximum.at(own_s, self.task, np.where(is_ring, most_s, chain_s))
        number = np.append(np.where(is_ring, np.cumsum(is_ring) - 1, NONE), NONE)
        rings = Rings(
            number[self.of_transfer].astype(np.int32),
            ((1 + (together - 1) / np.maximum(self.rounds, 1)) / np.maximum(chunks, 1))[is_ring],
            (chain_s - most_s + turns * (mean_s - least_s))[is_ring],
            (most_hops > hops / length)[is_ring],
        )
        return replace(program, latency_s=program.latency_s + own_s, rings=rings)


@dataclass(frozen=True, eq=False)
class Clearing:
    """Queue pairs of jobs with admission that clear others to send, G."""

    flows: Flows
    """What they send."""
    answers: Flows
    """What the other end of each sends back."""
    job: Longs
    """Of each."""
    of_flow: Longs
    """Of each flow that carries data, F, the one that it waits for, NONE without admission."""


@dataclass(frozen=True, eq=False)
class Compiled:
    """A program and what its numbers mean."""

    flows: Flows
    answers: Flows | None
    """For packets only, else None: what the other end of each flow sends back."""
    clearing: Clearing | None
    """For packets only, else None."""
    program: Program
    job: Ints
    """Of each task, T; the tasks of a step are together, in the order of steps."""
    step: Ints
    """Of each task, T; the tasks of a step are together, in the order of steps."""
    first_task: Offsets
    """The tasks of step s, counted over all jobs, are first_task[s] up to first_task[s + 1]; the
    last ends when the step does."""
    chains: Chains
    """Sends that wait for one another; `program` leaves their latency out."""
    first_flow: Offsets
    """The flows of job j are first_flow[j] up to first_flow[j + 1]."""
    payload_bytes: Longs
    """Of each transfer, X, without headers."""
    packets: Longs
    """Of each transfer, X."""
    posted: Longs
    """The messages that each flow's sender posts, F; empty without hosts."""
    messages: Messages | None
    """Of each transfer; for packets only, else None."""


def compile_jobs(
    network: Network,
    jobs: Sequence[PlacedJob],
    *,
    overhead_bytes: int = FRAME_OVERHEAD_BYTES,
    for_packets: bool = False,
) -> Compiled:
    """One program of all jobs; all begin at once.

    A send's payload is cut into messages and dealt to the queue pairs of its ranks' connection,
    round-robin in the order of the steps. The bytes of a step on one queue pair are one transfer. A
    queue pair that carries nothing is no flow. Without hosts ranks of one server send over the
    network too, as in the lab. A packet is `overhead_bytes` longer than its payload: Ethernet,
    IPv4, UDP, BTH and ICRC (a cable's preamble, FCS and gap are 24 more); a message also has RETH
    and immediate. Left out: latency (`Chains`), acknowledgements, clear-to-sends, and the wait for
    both.

    Raises InputError when a transport's packets do not fit the links or queue pair numbers run out,
    ValueError when places do not fit the ranks.
    """
    compiled: list[_Job] = []
    number, created = FIRST_QP, np.zeros(network.nics, np.int32)
    for job in jobs:
        check_mtu(job.transport, int(network.mtu.min()), network.family)
        part = _compiled(network, job, number, created, overhead_bytes, for_packets)
        number, created = part.next_qp, part.created
        compiled.append(part)
    return _joined(jobs, compiled)


@dataclass(frozen=True, eq=False)
class _Job:
    """A job's part of the program: its transfers by task. Flow, task and chain numbers start at
    0."""

    flows: Flows
    answers: Flows | None
    clearing: Clearing | None
    next_qp: int
    created: Ints
    tasks: Tasks
    transfers: Longs
    flow: Longs
    payload_bytes: Longs
    wire_bytes: Longs
    packets: Longs
    posted: Longs
    chains: Chains
    messages: Messages | None


def _compiled(
    network: Network,
    job: PlacedJob,
    first_qp: int,
    created: Ints,
    overhead_bytes: int,
    for_packets: bool,
) -> _Job:
    workload, ranks, qps = job.workload, job.workload.ranks, job.transport.qps
    if len(job.places) != ranks:
        raise ValueError(f"{len(job.places)} places for {ranks} ranks")
    sends = [step.sends for step in workload.steps if step.sends]
    counts = [0 if step.sends is None else len(step.sends.source) for step in workload.steps]
    own_turns = [NONE if send.turn is None else send.turn for send in sends]
    turn = _column([len(send.source) for send in sends], own_turns)
    check_exchanged(int(np.count_nonzero(turn != NONE)))
    hosts = job.hosts
    costs = job.costs
    launch_ns = 0.0 if hosts is None else hosts.model.launch_ns
    launch_s = (launch_ns if costs is None else costs.launch_ns + costs.fill_ns) / 1e9
    tasks = tasks_of(workload.steps, np.repeat(np.arange(len(counts)), counts), turn, launch_s)
    task = tasks.task
    source = _joint([send.source for send in sends])
    destination = _joint([send.destination for send in sends])
    size = _joint([send.size_bytes for send in sends])
    own_parts = [1 if send.parts is None else send.parts for send in sends]
    parts = _column([len(send.source) for send in sends], own_parts)

    used = source * ranks + destination
    connection = np.arange(len(used))
    if not workload.own_queue_pairs and np.any(np.diff(used) <= 0):
        used, connection = np.unique(used, return_inverse=True)
    pairs = queue_pairs(
        network,
        job.places,
        used,
        job.transport,
        job.seed,
        first_qp,
        created,
        shared=not workload.own_queue_pairs,
    )
    count, flows, next_qp, created = len(used) * qps, pairs.flows, pairs.next_qp, pairs.created
    of_packets = pairs if for_packets else None
    local = np.zeros(len(size), np.bool_)
    if hosts is not None:
        local = hosts.same_domain(source, destination)
    # Of millions of sends each column is hundreds of megabytes.
    del pairs, used, source, destination
    loads = loads_of(connection, size, parts, job.transport, overhead_bytes)
    payload, carried_bytes = loads.payload.reshape(-1), size
    if costs is not None and min(costs.local_share, costs.network_share) < 1:
        # Flags and what a switch leaves of its rate count as bytes.
        carried_bytes = costs.carried_bytes(size, local)
        loads = loads_of(connection, carried_bytes, parts, job.transport, overhead_bytes)
    chains = _chains(sends, task)
    chain, hops = np.repeat(chains.of_transfer, qps), np.repeat(chains.hops, qps)
    flow = (connection[:, None] * qps + np.arange(qps)).reshape(-1)
    if not for_packets:
        del connection, size, parts
    task = np.repeat(task, qps)
    # What does not use the network has no headers.
    wire = np.where(local[:, None], loads.payload, loads.wire).reshape(-1)
    packets = loads.packets.reshape(-1)
    posted = np.zeros(0, np.int64)
    if hosts is not None:
        posted = np.bincount(flow, loads.messages.reshape(-1), count).astype(np.int64)
    del loads
    key = task * max(1, count) + flow
    place = None
    # A step may have several sends of a pair, and queue pairs may get nothing of a send.
    if np.any(np.diff(key) <= 0):
        merged, place = np.unique(key, return_inverse=True)
        payload = _added(payload, place, len(merged))
        wire = _added(wire, place, len(merged))
        packets = _added(packets, place, len(merged))
        task, flow = np.divmod(merged, count)
        of_merged = np.full(len(merged), NONE, np.int32)
        np.maximum.at(of_merged, place, chain)
        chain, hops = of_merged, _added(hops, place, len(merged)).astype(np.int32)
    del key
    kept = wire > 0
    transfers, sending = int(np.count_nonzero(kept)), np.zeros(count, bool)
    messages = answers = clearing = None
    if transfers < len(kept):
        task, flow, payload, wire = task[kept], flow[kept], payload[kept], wire[kept]
        packets, chain, hops = packets[kept], chain[kept], hops[kept]
    sending[flow] = True
    if of_packets is not None:
        transfer = np.cumsum(kept) - 1
        transfer = (transfer if place is None else transfer[place]).reshape(-1, qps)
        messages = messages_of(connection, carried_bytes, parts, job.transport, transfer, transfers)
        answers = selected_flows(of_packets.answers, sending)
        clearing = _clearing(of_packets, sending, job.transport)
    return _Job(
        selected_flows(flows, sending),
        answers,
        clearing,
        next_qp,
        created,
        tasks,
        np.bincount(task, minlength=len(tasks.step)),
        (np.cumsum(sending) - 1)[flow],
        payload,
        wire,
        packets,
        posted if hosts is None else posted[sending],
        replace(chains, of_transfer=chain, hops=hops),
        messages,
    )


def _clearing(
    pairs: QueuePairs, sending: npt.NDArray[np.bool_], transport: TransportSpec
) -> Clearing:
    of_flow = np.repeat(pairs.cleared_by, transport.qps)[sending]
    if transport.admission is None:
        of_flow = np.full_like(of_flow, NONE)
    job = np.zeros(len(pairs.control), np.int64)
    return Clearing(pairs.control, pairs.control_answers, job, of_flow)


def _chains(sends: Sequence[Sends], of_send_task: Longs) -> Chains:
    """The chains of steps; each send is one transfer, and the sends of a chain are of one task."""
    counts = [len(send.source) for send in sends]
    rounds = _column(counts, [send.rounds for send in sends])
    owns = [_chain(send) for send in sends]
    numbers = _column(counts, owns)
    last = [chain if isinstance(chain, int) else chain.max(initial=NONE) for chain in owns]
    chains = 1 + np.array(last, np.int64)
    of_send = np.where(
        numbers == NONE, NONE, numbers + np.repeat(np.cumsum(chains) - chains, counts)
    )
    (members,) = np.nonzero(numbers != NONE)
    task, most = np.zeros((2, chains.sum()), np.int64)
    task[of_send[members]] = of_send_task[members]
    np.maximum.at(most, of_send[members], rounds[members])
    tokens = np.array([send.tokens for send in sends], np.int64)
    hops = _column(counts, [1 if send.hops is None else send.hops for send in sends])
    tokens = np.repeat(tokens, chains)
    members = members[tokens[of_send[members]] > 0]
    ends = (
        of_send[members].astype(np.int64) * 2**32 + _joint([send.source for send in sends])[members]
    )
    ranks = np.bincount(np.unique(ends) // 2**32, minlength=len(task))
    columns = of_send.astype(np.int32), hops.astype(np.int32)
    return Chains(*columns, task, most, tokens, ranks)


def _added(values: Longs | Ints, place: Longs, places: int) -> Longs:
    total = np.zeros(places, np.int64)
    np.add.at(total, place, values)
    return total


def _joined(jobs: Sequence[PlacedJob], compiled: Sequence[_Job]) -> Compiled:
    tasks = [part.tasks for part in compiled]
    first_task = _offsets([len(task.step) for task in tasks])
    first_flow = _offsets([len(part.flows) for part in compiled])
    answers = [part.answers for part in compiled if part.answers is not None]
    delay_s = np.concatenate([np.empty(0), *(task.delay_s for task in tasks)])
    return Compiled(
        flows=joined_flows([part.flows for part in compiled]),
        answers=joined_flows(answers) if answers else None,
        clearing=_all_clearing([part.clearing for part in compiled if part.clearing is not None]),
        program=Program(
            after_start=_offsets(_joint([np.diff(task.after_start) for task in tasks])),
            after=_following([task.after for task in tasks], first_task).astype(np.int32),
            delay_s=delay_s,
            latency_s=np.zeros(len(delay_s)),
            first_transfer=_offsets(_joint([part.transfers for part in compiled])),
            flow=_following([part.flow for part in compiled], first_flow).astype(np.int32),
            size_bits=_joint([8 * part.wire_bytes for part in compiled]).astype(np.float64),
        ),
        job=np.repeat(np.arange(len(jobs), dtype=np.int32), np.diff(first_task)),
        step=_joint([task.step for task in tasks]).astype(np.int32),
        first_task=_offsets(_joint([np.diff(task.first) for task in tasks])),
        chains=_all_chains([part.chains for part in compiled], first_task),
        first_flow=first_flow,
        payload_bytes=_joint([part.payload_bytes for part in compiled]),
        packets=_joint([part.packets for part in compiled]),
        posted=_joint([part.posted for part in compiled]),
        messages=_all_messages([part.messages for part in compiled if part.messages]),
    )


def _all_clearing(jobs: Sequence[Clearing]) -> Clearing | None:
    if not jobs:
        return None
    counts = [len(job.flows) for job in jobs]
    begin = zip(jobs, _offsets(counts).tolist(), strict=False)
    return Clearing(
        joined_flows([job.flows for job in jobs]),
        joined_flows([job.answers for job in jobs]),
        np.repeat(np.arange(len(jobs)), counts),
        _joint([np.where(job.of_flow == NONE, NONE, job.of_flow + of) for job, of in begin]),
    )


def _all_messages(jobs: Sequence[Messages]) -> Messages | None:
    if not jobs:
        return None
    return Messages(
        _offsets(_joint([np.diff(job.first) for job in jobs])),
        _joint([job.count for job in jobs]),
        _joint([job.size_bytes for job in jobs]),
    )


def _all_chains(jobs: Sequence[Chains], first_task: Offsets) -> Chains:
    first = _offsets([len(job.task) for job in jobs])
    of_transfer = [
        np.where(job.of_transfer == NONE, NONE, job.of_transfer + before)
        if before
        else job.of_transfer
        for job, before in zip(jobs, first.tolist(), strict=False)
    ]
    return Chains(
        _joint(of_transfer).astype(np.int32, copy=False),
        _joint([job.hops for job in jobs]).astype(np.int32, copy=False),
        _following([job.task for job in jobs], first_task),
        _joint([job.rounds for job in jobs]),
        _joint([job.tokens for job in jobs]),
        _joint([job.ranks for job in jobs]),
    )


def _following(columns: Iterable[Longs], first: Offsets) -> Longs:
    """Numbers counted from each column's first one, in one column."""
    pairs = zip(columns, first.tolist(), strict=False)
    return _joint([column + begin if begin else column for column, begin in pairs])


def _chain(sends: Sends) -> int | Ints:
    """The chains of sends; without any, each is one."""
    if sends.chain is not None:
        return sends.chain
    return 0 if len(sends.source) == 1 else np.arange(len(sends.source), dtype=np.int32)


def _column(counts: Sequence[int], values: Sequence[int | Longs | Ints]) -> Longs:
    """The values of all sends, by step: as many as it has, or one for all of its sends."""
    # A list of flows has very many steps of one send.
    if all(isinstance(value, int) for value in values):
        return np.repeat(np.array(values, np.int64), counts)
    return _joint(np.broadcast_to(*pair) for pair in zip(values, counts, strict=True))


def _joint(columns: Iterable[npt.NDArray[np.integer[Any]]]) -> Longs:
    every = list(columns)
    if len(every) == 1:
        return every[0].astype(np.int64, copy=False)
    return np.concatenate([np.empty(0, np.int64), *every])


def _offsets(counts: npt.ArrayLike) -> Offsets:
    return np.concatenate(([0], np.cumsum(np.asarray(counts, np.int64))))
