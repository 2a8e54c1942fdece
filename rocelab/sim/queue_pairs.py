"""The queue pairs of a job as flows, with the numbers and ports that the lab gives them.

Takes the NICs of ranks and the pairs that send to each other. Returns the flows of the queue pairs
that carry data, and where the numbering of the next job continues.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import NONE, Ints, Longs
from rocelab.base.errors import InputError
from rocelab.jobs.flow import FIRST_QP
from rocelab.jobs.messages import before_each
from rocelab.jobs.sport import QPN_LIMIT, base_port, unchecked_source_port
from rocelab.jobs.transport import TransportSpec
from rocelab.routes.arrays.flows import Flows, joined_flows
from rocelab.routes.arrays.network import Network

PIECE = 2**20
"""Flows made at a time: what they are made from is wider than they are."""


@dataclass(frozen=True, eq=False)
class QueuePairs:
    """The queue pairs of connections, the flows of pair p of which are p * qps to (p + 1) * qps -
    1, by queue pair."""

    network: Network
    places: Ints
    transport: TransportSpec
    base: int
    first_qp: int
    source: Longs
    """Ranks of each pair that sends."""
    destination: Longs
    """Ranks of each pair that sends."""
    connection: Longs
    """Of each pair."""
    ends: Longs
    """Ranks of both ends of each connection, the lower first."""
    earlier: Longs
    """Queue pairs that each end's NIC has before those of the connection, as `ends`."""
    next_qp: int
    """The first free number."""
    created: Ints
    """How many queue pairs each NIC now has, n."""

    @property
    def flows(self) -> Flows:
        """What pairs send."""
        return self._sent(self.connection, self.source, self.destination, self._data)

    @property
    def answers(self) -> Flows:
        """What the queue pair at the other end of each flow sends back."""
        return self._sent(self.connection, self.destination, self.source, self._data)

    @property
    def control(self) -> Flows:
        """With admission, the flows by which each end of each connection clears the other to send:
        the lower end's is flow 2c of connection c."""
        return self._sent(*self._control_ends, self._control)

    @property
    def control_answers(self) -> Flows:
        """What acknowledges `control`."""
        connection, source, destination = self._control_ends
        return self._sent(connection, destination, source, self._control)

    @property
    def cleared_by(self) -> Longs:
        """Which flow of `control` those of each pair wait for."""
        return 2 * self.connection + (self.destination > self.source)

    @property
    def _data(self) -> Longs:
        return np.arange(self.transport.qps)

    @property
    def _control(self) -> Longs:
        return np.arange(self.transport.qps, self.transport.queue_pairs)

    @property
    def _control_ends(self) -> tuple[Longs, Longs, Longs]:
        connection = np.repeat(np.arange(len(self.ends)), 2)
        return connection, self.ends.reshape(-1), self.ends[:, ::-1].reshape(-1)

    def _sent(self, connection: Longs, source: Longs, destination: Longs, index: Longs) -> Flows:
        """What the ends of connections at `source` send on their queue pairs of these numbers."""
        pairs = max(1, PIECE // max(1, len(index)))
        pieces = (slice(begin, begin + pairs) for begin in range(0, max(1, len(connection)), pairs))
        return joined_flows(
            [self._piece(connection[at], source[at], destination[at], index) for at in pieces]
        )

    def _piece(self, connection: Longs, source: Longs, destination: Longs, index: Longs) -> Flows:
        links = self.network.nic_links
        low = self.first_qp + 2 * (self.transport.queue_pairs * connection[:, None] + index)
        end = (source > destination).astype(np.int64)
        local, remote = low + end[:, None], low + 1 - end[:, None]
        nics = self.places[source]
        ports = np.count_nonzero(links[nics] != NONE, axis=1)
        number = self.earlier[connection, end][:, None] + index
        sport = unchecked_source_port(self.transport.source_port, local, remote, self.base)
        return Flows(
            source=np.repeat(nics, len(index)).astype(np.int32),
            destination=np.repeat(self.places[destination], len(index)).astype(np.int32),
            port=(number % ports[:, None]).reshape(-1).astype(np.int32),
            sport=sport.reshape(-1).astype(np.int32),
            dest_qp=remote.reshape(-1).astype(np.int32),
        )


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
    """The queue pairs of ordered pairs of ranks (source * ranks + destination, ascending, each
    once).

    Two ranks share one connection for both directions; its queue pairs, both ends of each and those
    for clear-to-sends, are numbered from `first_qp` connection by connection. Each end gets its
    NIC's next port, after those of the `created` (n) queue pairs that the NIC has already. The
    numbers, source ports and NIC ports are those of `rocelab.jobs.jobplan`. If connections are not
    `shared`, pairs may come in any order and repeat, and each has a connection of its own. Raises
    InputError if the numbers run out.
    """
    ranks = len(places)
    source, destination = np.divmod(pairs, ranks)
    connections = np.minimum(source, destination) * ranks + np.maximum(source, destination)
    connection = np.arange(len(connections))
    if shared:
        connections, connection = np.unique(connections, return_inverse=True)
    count = transport.queue_pairs
    next_qp = first_qp + 2 * count * len(connections)
    if next_qp > QPN_LIMIT:
        raise InputError(
            f"{next_qp:,} queue pairs, and a queue pair's number has 24 bits",
            hint="use fewer ranks, or a smaller transport.qps",
        )
    ends = np.stack(np.divmod(connections, ranks), axis=1)
    if created is None:
        created = np.zeros(network.nics, np.int32)
    before = before_each(ends.reshape(-1), np.full(ends.size, count)).reshape(-1, 2)
    total = created.copy()
    total[places] += (count * np.bincount(ends.reshape(-1), minlength=ranks)).astype(np.int32)
    return QueuePairs(
        network,
        places,
        transport,
        base_port(seed),
        first_qp,
        source,
        destination,
        connection,
        ends,
        created[places[ends]] + before,
        next_qp,
        total,
    )
