"""Merged sends of AlltoAll(v)s that go on rails: by GPUs of a server that relay for others.

`relayed` is NCCL's PXN: a message to another server first goes over NVLink to the rank of the
sender's server at the receiver's place, which sends it by its own NIC, on the receiver's rail
(NCCL, src/graph/paths.cc, PATH_PXN; its blog `Doubling all2all performance with NCCL 2.12`).
`in_two_levels` does the same in two phases: all that a rank relays is one message to each other
server, after the last has arrived (Rajbhandari et al. 2022, `DeepSpeed-MoE`, hierarchical
AlltoAll).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rocelab.base.arrays import Longs
from rocelab.jobs.workload import Sends


def relayed(sizes: Longs, group: int) -> Sends:
    """An AlltoAllv of bytes [source][destination], ranks x ranks, of servers of `group` consecutive
    ranks: NVLink and network at the same time, as pieces pass both. What ranks keep is not sent."""
    servers = len(sizes) // group
    (source, relay, local, messages), (leaving, arriving, over, parts) = _ways(sizes, group)
    # A chain is a way into a relay and one out of it.
    chain = np.concatenate((relay, leaving))
    hops = np.repeat([max(1, servers - 1), group - 1], [len(source), len(leaving)])
    return _sent(
        Sends(
            np.concatenate((source, leaving)).astype(np.int32),
            np.concatenate((relay, arriving)).astype(np.int32),
            np.concatenate((local, over)),
            2,
            np.concatenate((messages, parts)),
            chain.astype(np.int32),
            hops,
        )
    )


def in_two_levels(sizes: Longs, group: int, in_flight: int | None) -> tuple[Sends, Sends]:
    """The phases of an AlltoAllv as `relayed` takes it: in servers, then on rails, where a rank
    sends to `in_flight` servers at once (None: to all)."""
    (source, relay, local, _), (leaving, arriving, over, _) = _ways(sizes, group)
    servers = len(sizes) // group
    turn = None
    if in_flight is not None and in_flight < servers - 1:
        distance = (arriving - leaving) // group % servers
        order = np.lexsort((leaving, distance))
        leaving, arriving, over = leaving[order], arriving[order], over[order]
        turn = (leaving * in_flight + (distance[order] - 1) % in_flight).astype(np.int32)
    within = Sends(source.astype(np.int32), relay.astype(np.int32), local)
    between = Sends(leaving.astype(np.int32), arriving.astype(np.int32), over, turn=turn)
    return _sent(within), _sent(between)


_Way = tuple[Longs, Longs, Longs, Longs]


def _ways(sizes: Longs, group: int) -> tuple[_Way, _Way]:
    """Source, destination, bytes and messages of what goes in servers and between them."""
    servers = len(sizes) // group
    server, place = np.arange(servers), np.arange(group)
    by_server = sizes.reshape(servers, group, servers, group)
    over = by_server.sum(axis=1).transpose(0, 2, 1)
    messages = (by_server > 0).sum(axis=1).transpose(0, 2, 1)
    relays = by_server.sum(axis=2)
    counts = (by_server > 0).sum(axis=2)
    first = (server * group)[:, None, None]
    source, relay = first + place[:, None], first + place
    shape = (servers, group, group)
    is_other = np.broadcast_to(place[:, None] != place, shape)
    within = tuple(np.broadcast_to(column, shape)[is_other] for column in (source, relay))
    leaving = first + place[:, None]
    arriving = (server * group) + place[:, None]
    shape = (servers, group, servers)
    is_away = np.broadcast_to(server[:, None, None] != server, shape)
    between = tuple(np.broadcast_to(column, shape)[is_away] for column in (leaving, arriving))
    return (
        (within[0], within[1], relays[is_other], counts[is_other]),
        (between[0], between[1], over[is_away], messages[is_away]),
    )


def _sent(sends: Sends) -> Sends:
    """Those that have bytes."""
    (sent,) = np.nonzero(sends.size_bytes)
    columns = {
        name: column[sent]
        for name in ("source", "destination", "size_bytes", "parts", "chain", "hops", "turn")
        if (column := getattr(sends, name)) is not None
    }
    return replace(sends, **columns)
