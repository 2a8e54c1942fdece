"""The flows of a traffic matrix as arrays, and the flows of a job.

A `Matrix`, from plans of jobs (`rocelab.jobs.jobplan`) or rows of a file, has each flow's NICs,
ports, queue pair, payload and data packets, as far as they are known before a run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rocelab.base.arrays import Longs
from rocelab.base.errors import InputError
from rocelab.jobs.flow import ProbeStream
from rocelab.jobs.jobplan import JobPlan, QueuePairEnd
from rocelab.jobs.placement import NicRef
from rocelab.jobs.transport import Strategy
from rocelab.routes.arrays.flows import Flows
from rocelab.routes.arrays.network import Network


class FlowRow(NamedTuple):
    """One flow: `bytes` of payload and data `packets`, None if unknown; it is sent by port
    `leaves_by` (from 0) of its NIC."""

    source: NicRef
    destination: NicRef
    sport: int
    dest_qp: int
    bytes: int | None = None
    packets: int | None = None
    leaves_by: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A traffic matrix: flows by column. `bytes` and `packets` are None if those of one flow
    are unknown."""

    flows: Flows
    bytes: Longs | None
    packets: Longs | None

    def __len__(self) -> int:
        return len(self.flows)


def matrix_of(network: Network, rows: Sequence[FlowRow]) -> Matrix:
    """The matrix of flows. Raises KeyError for a missing NIC, ValueError for no flows."""
    if not rows:
        raise ValueError("no flows")
    number = {
        NicRef(network.node_names[server], nic): index
        for index, (server, nic) in enumerate(
            zip(network.nic_server.tolist(), network.nic_number.tolist(), strict=True)
        )
    }
    source, destination, sport, dest_qp, size_bytes, packets, leaves_by = zip(*rows, strict=True)
    ends = ([number[nic] for nic in end] for end in (source, destination))
    return Matrix(
        Flows(*(np.array(column, np.int32) for column in (*ends, leaves_by, sport, dest_qp))),
        bytes=_column(size_bytes),
        packets=_column(packets),
    )


def _column(values: Sequence[int | None]) -> Longs | None:
    return None if None in values else np.array(values, np.int64)


def rows_of_jobs(plans: Iterable[JobPlan]) -> list[FlowRow]:
    """The data flows of jobs, warm-up included: one per queue pair and direction that sends data.

    ACKs and notifications are not included. A queue pair without messages is no flow. The packets
    are those of a run without retransmission; they are unknown for streams, which send as fast as
    possible, and with admission. If sends of two ranks differ in size and their order may vary, it
    is unknown which of their queue pairs carries which: then the sum over these is right, and each
    may differ by a message. Raises InputError for a job of TCP.
    """
    return [row for plan in plans for row in _rows_of_job(plan)]


def _rows_of_job(plan: JobPlan) -> list[FlowRow]:
    if plan.job.transport.is_tcp:
        raise InputError(
            "a kernel chooses the source ports of TCP, and with them the paths",
            "predict a job of RoCEv2, or run this one and read the counters of its links",
        )
    ends: dict[tuple[int, int], list[QueuePairEnd]] = defaultdict(list)
    for end in plan.ends:
        if not end.control:
            ends[end.rank, end.peer].append(end)
    rows = []
    if plan.over_network is None:
        for stream in plan.streams:
            pair = (stream.source, stream.destination)
            rows += [row_of_end(plan, end) for end in ends[pair]]
        return rows
    sizes: dict[tuple[int, int], list[int]] = defaultdict(list)
    for send in plan.over_network.sends:
        sizes[send.source, send.destination] += _messages(send.size_bytes, plan.message_bytes)
    known = plan.job.transport.admission is None
    for pair, messages in sizes.items():
        loads = _spread(plan, np.array(messages, np.int64))
        for end, size, packets in zip(ends[pair], *loads, strict=True):
            if packets:
                rows.append(row_of_end(plan, end, int(size), int(packets) if known else None))
    return rows


def _messages(size: int, longest: int) -> list[int]:
    whole, rest = divmod(size, longest)
    return [longest] * whole + ([rest] if rest else [])


def _spread(plan: JobPlan, messages: Longs) -> tuple[Longs, Longs]:
    """Bytes and packets of each queue pair of a connection, as `rocelab.agent.rc.connection`
    distributes the messages of all iterations."""
    transport, repeats = plan.job.transport, plan.iterations
    pairs = transport.qps
    if transport.strategy is Strategy.SPLIT:
        part, more = np.divmod(messages[None, :], pairs)
        parts = part + (np.arange(pairs)[:, None] < more)
        packets = np.maximum(1, -(-parts // transport.mtu))
        return parts.sum(axis=1) * repeats, packets.sum(axis=1) * repeats
    dealt = np.tile(messages, repeats)
    pair = np.arange(len(dealt)) % pairs
    size, packets = np.zeros(pairs, np.int64), np.zeros(pairs, np.int64)
    np.add.at(size, pair, dealt)
    np.add.at(packets, pair, -(-dealt // transport.mtu))
    return size, packets


def row_of_end(
    plan: JobPlan, end: QueuePairEnd, size: int | None = None, packets: int | None = None
) -> FlowRow:
    """What an end of a queue pair sends, as a flow."""
    source, destination = plan.places[end.rank], plan.places[end.peer]
    return FlowRow(source, destination, end.sport, end.remote, size, packets, end.port)


def row_of_probe(flow: ProbeStream, packets: int | None = None) -> FlowRow:
    """A flow of probes, of so many packets."""
    source = NicRef(flow.source, flow.source_nic)
    destination = NicRef(flow.destination, flow.destination_nic)
    return FlowRow(
        source, destination, flow.sport, flow.dest_qp, packets=packets, leaves_by=flow.leaves_by
    )
