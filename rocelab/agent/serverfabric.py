"""What GPUs of a server send each other without the network, in modelled time and without packets.

All sends of a GPU, and all to a GPU, share its rate evenly (max-min); in a mesh those between two
GPUs share the link of these two. Pure: no clock; times are CLOCK_MONOTONIC nanoseconds, rates those
of the lab's clock. Standard library only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable

from rocelab.agent.nic import NEVER_NS, SECOND_NS

Ended = Callable[[int], None]
"""Called when a send has arrived, with the time."""


class LocalSend:
    """A send under way: the rows of capacity that it takes, and the bits that are left."""

    __slots__ = ("bits", "ended", "rate_bps", "rows")

    def __init__(self, rows: tuple[Hashable, ...], bits: float, ended: Ended) -> None:
        self.rows = rows
        self.bits = bits
        self.rate_bps = 0.0
        self.ended = ended


class ServerFabric:
    """The fabric of one server; GPUs have any numbers."""

    def __init__(self, row_bps: float, *, is_mesh: bool) -> None:
        """row_bps: what a GPU sends and at once receives, or in a mesh what the link of two GPUs
        carries each way."""
        self._row_bps = row_bps
        self._is_mesh = is_mesh
        self._begun: list[LocalSend] = []
        self._under_way: list[LocalSend] = []
        self._counted_ns = 0.0

    def begin(self, source: int, destination: int, size_bytes: int, ended: Ended) -> None:
        """Send from one GPU to another, from the next `turn` on."""
        rows: tuple[Hashable, ...] = (("out", source), ("in", destination))
        if self._is_mesh:
            rows = ((source, destination),)
        self._begun.append(LocalSend(rows, 8.0 * size_bytes, ended))

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._begun and not self._under_way

    @property
    def due_ns(self) -> int:
        """When the next send arrives, rounded up; NEVER_NS if none is under way."""
        if not self._under_way:
            return NEVER_NS
        return int(self._counted_ns + min(map(_left_ns, self._under_way))) + 1

    def turn(self, now_ns: int) -> None:
        """End what has arrived, and begin what has been posted, also by what ended."""
        while True:
            if self._under_way:
                over_ns = self._counted_ns + min(map(_left_ns, self._under_way))
                if over_ns <= now_ns:
                    self._count(over_ns)
                    self._end(now_ns)
                    continue
            self._count(now_ns)
            if not self._begun:
                return
            self._under_way += self._begun
            self._begun.clear()
            self._share()

    def _count(self, until_ns: float) -> None:
        for send in self._under_way:
            send.bits -= send.rate_bps * (until_ns - self._counted_ns) / SECOND_NS
        self._counted_ns = until_ns

    def _end(self, now_ns: int) -> None:
        # Rounding leaves a part of a bit.
        over = [send for send in self._under_way if send.bits < 1]
        self._under_way = [send for send in self._under_way if send.bits >= 1]
        self._share()
        for send in over:
            send.ended(now_ns)

    def _share(self) -> None:
        """Give every send its max-min fair rate."""
        users: dict[Hashable, list[LocalSend]] = defaultdict(list)
        for send in self._under_way:
            send.rate_bps = 0.0
            for row in send.rows:
                users[row].append(send)
        left_bps = dict.fromkeys(users, self._row_bps)
        while users:
            row = min(users, key=lambda row: left_bps[row] / len(users[row]))
            rate_bps = left_bps[row] / len(users[row])
            for send in users[row].copy():
                send.rate_bps = rate_bps
                for other in send.rows:
                    left_bps[other] -= rate_bps
                    users[other].remove(send)
            users = {row: sends for row, sends in users.items() if sends}


def _left_ns(send: LocalSend) -> float:
    return send.bits / send.rate_bps * SECOND_NS
