"""The packet engine's sends between GPUs of a domain: ports behind those of the network.

They queue without limits, mark nothing and are not paused, as NICs' ports are; their queue pairs
have no congestion control, and windows that hold none of them back.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rocelab.base.arrays import NONE, Bools, Longs
from rocelab.sim.packets.pausing import BufferDrain, Pausing
from rocelab.sim.packets.sending import Queues, Sending

WINDOW = 4096
"""Packets: 16 MiB under way, more than any GPU's fabric holds in its time."""


def with_rows(queues: Queues, sends: int, ports: int) -> Queues:
    """The queues of as many ports, of which those from number `sends` on are not of the network."""
    more = ports - sends
    pausing = queues.pausing
    return replace(
        queues,
        kind=_padded(queues.kind, more),
        burst_bytes=_padded(queues.burst_bytes, more),
        pausing=None if pausing is None else _with_rows(pausing, more),
        unlimited=np.arange(ports) >= sends,
    )


def unlimited(sending: Sending, local: Bools) -> Sending:
    """The senders, of which these flows, F, do not use the network."""
    return replace(
        sending,
        window=np.where(local, np.maximum(sending.window, WINDOW), sending.window),
        control=np.where(local, NONE, sending.control),
        reach=np.where(local, 0, sending.reach),
        selective=np.where(local, 0, sending.selective),
    )


def _with_rows(pausing: Pausing, more: int) -> Pausing:
    drain = pausing.drain
    if drain is not None:
        columns = (drain.rate_bps, drain.size, drain.xoff, drain.xon)
        drain = BufferDrain(*(np.pad(column, (0, more)) for column in columns))
    return replace(
        pausing,
        pool=np.pad(pausing.pool, (0, more), constant_values=NONE),
        headroom=np.pad(pausing.headroom, (0, more)),
        # None asks for a pause: no delay of its own, which would be a ring of events.
        delay_ps=np.pad(pausing.delay_ps, (0, more), constant_values=pausing.delay_ps[0]),
        reserved=_padded(pausing.reserved, more),
        xoff=_padded(pausing.xoff, more),
        dynamic_th=_padded(pausing.dynamic_th, more),
        xon_offset=_padded(pausing.xon_offset, more),
        xon=_padded(pausing.xon, more),
        drain=drain,
    )


def _padded(column: Longs | int, more: int) -> Longs | int:
    return column if isinstance(column, int) else np.pad(column, (0, more))
