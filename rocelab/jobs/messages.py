"""What each queue pair of a connection carries of a send, as payload and on the wire.

In: sends between pairs of ranks, in the order in which they are sent. Out: bytes per send and queue
pair: cut into messages, dealt to the queue pairs as NCCL deals them
(`rocelab.agent.rc.connection`), cut into packets with the headers that the lab's have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rocelab.arrays import Longs
from rocelab.jobs.jobplan import MOST_EXTENSION_BYTES, message_bytes
from rocelab.jobs.performance import FRAME_OVERHEAD_BYTES
from rocelab.jobs.transport import Strategy, TransportSpec


@dataclass(frozen=True, eq=False)
class Loads:
    """Of each send on each queue pair of its connection: bytes of payload, and bytes on the wire,
    headers, padding and empty packets included. sends x queue pairs."""

    payload: Longs
    wire: Longs


def loads_of(
    connection: Longs,
    size_bytes: Longs,
    parts: Longs,
    transport: TransportSpec,
    overhead_bytes: int = FRAME_OVERHEAD_BYTES,
) -> Loads:
    """How sends of `size_bytes`, each the sum of `parts` sends of about one size, come to lie on
    the queue pairs of their `connection` (by number), in the order given.

    `split` puts a part of every message on every queue pair; `round-robin` whole messages on one
    after the other, and goes on from send to send of a connection where it left off. Of parts that
    differ the longer ones come first; none is empty. `overhead_bytes` is what a packet is longer
    than its payload.
    """
    pairs = transport.qps
    longest = message_bytes(transport)
    parts = np.minimum(parts, size_bytes)
    size, longer = np.divmod(size_bytes, parts)
    kinds = ((size + 1, longer), (size, parts - longer))
    messages = [-(-each // longest) for each, _ in kinds]
    turn = before_each(
        connection, sum(each * n for each, (_, n) in zip(messages, kinds, strict=True))
    )
    payload = np.zeros((len(size), pairs), np.int64)
    wire = np.zeros_like(payload)
    for (each, number), per_send in zip(kinds, messages, strict=True):
        last_bytes = each - (per_send - 1) * longest
        if transport.strategy is Strategy.SPLIT:
            last = np.broadcast_to(number[:, None], payload.shape)
            whole = last * (per_send[:, None] - 1)
            index = np.arange(pairs)
            whole_bytes = longest // pairs + (index < longest % pairs)
            rest = last_bytes[:, None] // pairs + (index < (last_bytes % pairs)[:, None])
        else:
            last = _last_messages(turn, per_send, number, pairs)
            whole = _dealt(turn, per_send * number, pairs) - last
            turn = turn + per_send * number
            whole_bytes = np.full(pairs, longest)
            rest = last_bytes[:, None]
        payload += whole * whole_bytes + last * rest
        wire += whole * _on_wire(whole_bytes, transport.mtu, overhead_bytes)
        wire += last * _on_wire(rest, transport.mtu, overhead_bytes)
    return Loads(payload, wire)


def _on_wire(message: Longs, mtu: int, overhead_bytes: int) -> Longs:
    """A message's bytes on the wire: one RETH, one immediate, each packet's payload padded to 4."""
    packets = np.maximum(1, -(-message // mtu))
    wire: Longs = message + -message % 4 + packets * overhead_bytes + MOST_EXTENSION_BYTES
    return wire


def before_each(group: Longs, count: Longs) -> Longs:
    """The sum of `count` over the elements of the same group (from 0) that are before each."""
    order = np.argsort(group, kind="stable")
    running = np.cumsum(count[order]) - count[order]
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    length = np.diff(first, append=len(order))
    before = np.empty_like(running)
    before[order] = running - np.repeat(running[first], length)
    return before


def _dealt(turn: Longs, messages: Longs, pairs: int) -> Longs:
    """Of so many messages, dealt in turn from `turn` on, those on each queue pair."""
    distance = (np.arange(pairs) - turn[:, None]) % pairs
    return (messages[:, None] - distance + pairs - 1) // pairs


def _last_messages(turn: Longs, per_send: Longs, number: Longs, pairs: int) -> Longs:
    """Of `number` sends of `per_send` messages each, the last messages on each queue pair."""
    last = np.zeros((len(turn), pairs), np.int64)
    rows = np.arange(len(turn))
    # After as many sends as there are queue pairs the turn is where it was.
    for send in range(min(pairs, int(number.max(initial=0)))):
        at = (turn + (send + 1) * per_send - 1) % pairs
        last[rows, at] += (number - send + pairs - 1) // pairs
    return last
