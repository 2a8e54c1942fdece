"""The queue pairs of a job as flows, with the numbers and ports that the lab gives them.

Takes the NICs of ranks and the pairs that send to each other. Returns the flows of the queue pairs
that carry data, and where the numbering of the next job continues.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from rocelab.arrays import NONE, Ints, Longs
from rocelab.errors import InputError
from rocelab.jobs.flow import FIRST_QP, FIRST_SPORT, SPORTS
from rocelab.jobs.messages import before_each
from rocelab.jobs.sport import FIRST_PORT, PORTS, QPN_LIMIT, SourcePort
from rocelab.jobs.transport import TransportSpec
from rocelab.sim.fabric.flows import Flows
from rocelab.sim.fabric.network import Network

_GOLDEN_RATIO_32 = 0x61C88647


@dataclass(frozen=True, eq=False)
class QueuePairs:
    """The flows of pair p of `pairs` are p * qps to (p + 1) * qps - 1, by queue pair.

    answers: as a flow of its own, what the queue pair at the other end of each sends back. pairs:
    source * ranks + destination of each ordered pair of ranks, ascending. control: with admission,
    the flows by which each end of each connection clears the other to send, and their answers;
    cleared_by: which of them those of each pair wait for. next_qp: the first free number. created:
    how many queue pairs each NIC now has, n.
    """

    flows: Flows
    answers: Flows
    pairs: Longs
    control: Flows
    control_answers: Flows
    cleared_by: Longs
    next_qp: int
    created: Ints


def queue_pairs(
    network: Network,
    places: Ints,
    pairs: Longs,
    transport: TransportSpec,
    seed: int,
    first_qp: int = FIRST_QP,
    created: Ints | None = None,
    *,
    shared: bool = True,
) -> QueuePairs:
    """The flows of ordered pairs of ranks (source * ranks + destination, ascending, each once).

    Two ranks share one connection for both directions; its queue pairs, both ends of each and those
    for clear-to-sends, are numbered from `first_qp` connection by connection. Each end gets its
    NIC's next port, after those of the `created` (n) queue pairs that the NIC has already. The
    numbers, source ports and NIC ports are those of `rocelab.jobs.jobplan`. If connections are not
    `shared`, pairs may come in any order and repeat, and each has a connection of its own. Raises
    InputError if the numbers run out.
    """
    ranks = len(places)
    source, destination = np.divmod(pairs, ranks)
    ends = np.minimum(source, destination) * ranks + np.maximum(source, destination)
    connections, connection = ends, np.arange(len(ends))
    if shared:
        connections, connection = np.unique(ends, return_inverse=True)
    each = transport.qps + (transport.admission is not None)
    next_qp = first_qp + 2 * each * len(connections)
    if next_qp > QPN_LIMIT:
        raise InputError(
            f"{next_qp:,} queue pairs, and a queue pair's number has 24 bits",
            hint="take fewer ranks, or a smaller transport.qps",
        )
    both = np.stack(np.divmod(connections, ranks), axis=1)
    before = before_each(both.reshape(-1), np.full(both.size, each)).reshape(-1, 2)
    if created is None:
        created = np.zeros(network.nics, np.int32)
    total = created.copy()
    total[places] += (each * np.bincount(both.reshape(-1), minlength=ranks)).astype(np.int32)
    base = FIRST_SPORT + random.Random(seed).randrange(SPORTS)  # noqa: S311 - no secret

    def sent(connection: Longs, source: Longs, destination: Longs, index: Longs) -> Flows:
        """What the ends of connections at `source` send on their queue pairs of these numbers."""
        low = first_qp + 2 * (each * connection[:, None] + index)
        end = (source > destination).astype(np.int64)
        own, remote = low + end[:, None], low + 1 - end[:, None]
        nics = places[source]
        ports = np.count_nonzero(network.nic_links[nics] != NONE, axis=1)
        number = (created[nics] + before[connection, end])[:, None] + index
        sport = _source_ports(transport.source_port, own, remote, base)
        return Flows(
            source=np.repeat(nics, len(index)).astype(np.int32),
            destination=np.repeat(places[destination], len(index)).astype(np.int32),
            port=(number % ports[:, None]).reshape(-1).astype(np.int32),
            sport=sport.reshape(-1).astype(np.int32),
            dest_qp=remote.reshape(-1).astype(np.int32),
        )

    data, control = np.arange(transport.qps), np.arange(transport.qps, each)
    twice, low, high = (
        np.repeat(np.arange(len(both)), 2),
        both.reshape(-1),
        both[:, ::-1].reshape(-1),
    )
    return QueuePairs(
        sent(connection, source, destination, data),
        sent(connection, destination, source, data),
        pairs,
        sent(twice, low, high, control),
        sent(twice, high, low, control),
        2 * connection + (destination > source),
        next_qp,
        total,
    )


def _source_ports(mode: SourcePort, own: Longs, remote: Longs, base: int) -> Longs:
    """`rocelab.jobs.sport.source_port` of each."""
    match mode:
        case SourcePort.FIXED:
            return np.full(own.shape, base)
        case SourcePort.PER_QP:
            return FIRST_PORT + (base + own) % PORTS
        case SourcePort.FLOW_LABEL:
            label = own * remote
            label ^= label >> 20
            label = (label ^ label >> 40) & 0xFFFFF
            return FIRST_PORT | (label & 0x3FFF) ^ (label >> 14)
        case SourcePort.RXE:
            return FIRST_PORT + ((own * _GOLDEN_RATIO_32 & 0xFFFFFFFF) >> 18)
