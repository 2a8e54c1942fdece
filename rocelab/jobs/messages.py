"""The bytes of a send on each queue pair of its connection, as payload and on the wire.

Cuts sends, in sending order, into messages, distributes these over the queue pairs as NCCL does
(`rocelab.agent.rc.connection`), and cuts them into packets with the headers of the lab's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import Longs
from rocelab.jobs.performance import FRAME_OVERHEAD_BYTES
from rocelab.jobs.transport import Strategy, TransportSpec, message_bytes
from rocelab.wire.headers import MOST_EXTENSION_BYTES


@dataclass(frozen=True, eq=False)
class Loads:
    """Of each send on each queue pair of its connection: bytes of payload, bytes on the wire with
    headers, padding and empty packets, packets, and messages. Shape: sends x queue pairs."""

    payload: Longs
    wire: Longs
    packets: Longs
    messages: Longs


@dataclass(frozen=True, eq=False)
class Messages:
    """The messages of X transfers, in sending order, as R runs of equal ones.

    The runs of transfer x are first[x] up to first[x + 1].
    """

    first: Longs
    count: Longs
    """Messages of each run."""
    size_bytes: Longs
    """Payload of each of these."""


def spread_evenly(part_bytes: Longs, transport: TransportSpec) -> bool:
    """Whether no queue pair of a connection gets over a hundredth more of any of these parts than
    an even share of it."""
    longest = message_bytes(transport)
    messages = -(-part_bytes // longest)
    most_bytes = np.minimum(part_bytes, -(-messages // transport.qps) * longest)
    uneven = most_bytes * transport.qps > 1.01 * part_bytes
    return transport.strategy is Strategy.SPLIT or not uneven.any()


def loads_of(
    connection: Longs,
    size_bytes: Longs,
    parts: Longs,
    transport: TransportSpec,
    overhead_bytes: int = FRAME_OVERHEAD_BYTES,
) -> Loads:
    """Distribute sends of `size_bytes`, each the sum of `parts` sends of about one size, in order
    over the queue pairs of their `connection` (by number).

    `split` puts a part of every message on every queue pair; `round-robin` whole messages on one
    after the other, and continues from send to send of a connection. If parts differ the longer
    ones come first; none is empty. `overhead_bytes` is the length of a packet without its payload.
    """
    shape = len(size_bytes), transport.qps
    payload, wire, packets, messages = (np.zeros(shape, np.int64) for _ in range(4))
    for count, message in _runs(connection, size_bytes, parts, transport):
        payload += count * message
        wire += count * on_wire(message, transport.mtu, overhead_bytes)
        packets += count * packets_of(message, transport.mtu)
        messages += count
    return Loads(payload, wire, packets, messages)


def messages_of(
    connection: Longs,
    size_bytes: Longs,
    parts: Longs,
    transport: TransportSpec,
    transfer: Longs,
    transfers: int,
) -> Messages:
    """Cut the sends of `loads_of` into messages. transfer: of each send on each queue pair, sends x
    queue pairs, below `transfers`."""
    parts = np.minimum(parts, size_bytes)
    send = np.repeat(np.arange(len(parts)), parts)
    number = np.arange(len(send)) - np.repeat(np.cumsum(parts) - parts, parts)
    size, longer = np.divmod(size_bytes, parts)
    bytes_each = size[send] + (number < longer[send])
    runs = list(_runs(connection[send], bytes_each, np.ones_like(bytes_each), transport))
    count = np.stack([count for count, _ in runs], axis=-1)
    message = np.stack([np.broadcast_to(column, count.shape[:2]) for _, column in runs], axis=-1)
    of_run = np.broadcast_to(transfer[send][..., None], count.shape)
    sent = count > 0
    order = np.argsort(of_run[sent], kind="stable")
    first = np.searchsorted(of_run[sent][order], np.arange(transfers + 1))
    return Messages(first, count[sent][order], message[sent][order])


def _runs(
    connection: Longs, size_bytes: Longs, parts: Longs, transport: TransportSpec
) -> Iterator[tuple[Longs, Longs]]:
    """Runs of equal messages, of all parts of a send together, whole messages before last ones:
    how many each queue pair gets of each send, sends x queue pairs, and their bytes."""
    pairs = transport.qps
    longest = message_bytes(transport)
    parts = np.minimum(parts, size_bytes)
    size, longer = np.divmod(size_bytes, parts)
    kinds = ((size + 1, longer), (size, parts - longer))
    messages = [-(-length // longest) for length, _ in kinds]
    turn = before_each(
        connection, sum(per_send * n for per_send, (_, n) in zip(messages, kinds, strict=True))
    )
    for (length, number), per_send in zip(kinds, messages, strict=True):
        last_bytes = length - (per_send - 1) * longest
        if transport.strategy is Strategy.SPLIT:
            last = np.broadcast_to(number[:, None], (len(size), pairs))
            whole = last * (per_send[:, None] - 1)
            index = np.arange(pairs)
            whole_bytes = longest // pairs + (index < longest % pairs)
            rest = last_bytes[:, None] // pairs + (index < (last_bytes % pairs)[:, None])
        else:
            last = _last_messages(turn, per_send, number, pairs)
            whole = _message_counts(turn, per_send * number, pairs) - last
            turn = turn + per_send * number
            whole_bytes = np.full(pairs, longest)
            rest = last_bytes[:, None]
        yield whole, whole_bytes
        yield last, rest


def on_wire(message: Longs, mtu: Longs | int, overhead_bytes: int) -> Longs:
    """A message's bytes on the wire: one RETH, one immediate, each packet's payload padded to 4."""
    packets = packets_of(message, mtu)
    last = message - (packets - 1) * mtu
    padded = (packets - 1) * (mtu + -mtu % 4) + last + -last % 4
    wire: Longs = padded + packets * overhead_bytes + MOST_EXTENSION_BYTES
    return wire


def packets_of(message: Longs, mtu: Longs | int) -> Longs:
    """How many packets a message is: an empty one is one too."""
    packets: Longs = np.maximum(1, -(-message // mtu))
    return packets


def before_each(group: Longs, count: Longs) -> Longs:
    """For each element, the sum of `count` over the earlier elements of its group (from 0)."""
    order = np.argsort(group, kind="stable")
    running = np.cumsum(count[order]) - count[order]
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    length = np.diff(first, append=len(order))
    before = np.empty_like(running)
    before[order] = running - np.repeat(running[first], length)
    return before


def _message_counts(turn: Longs, messages: Longs, pairs: int) -> Longs:
    """The number of messages on each queue pair if `messages` are distributed in turn from `turn`
    on."""
    distance = (np.arange(pairs) - turn[:, None]) % pairs
    return (messages[:, None] - distance + pairs - 1) // pairs


def _last_messages(turn: Longs, per_send: Longs, number: Longs, pairs: int) -> Longs:
    """The number of last messages on each queue pair, for `number` sends of `per_send` messages
    each."""
    last = np.zeros((len(turn), pairs), np.int64)
    rows = np.arange(len(turn))
    # After as many sends as there are queue pairs the turn repeats.
    for send in range(min(pairs, int(number.max(initial=0)))):
        at = (turn + (send + 1) * per_send - 1) % pairs
        last[rows, at] += (number - send + pairs - 1) // pairs
    return last
