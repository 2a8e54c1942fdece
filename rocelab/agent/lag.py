"""The two ports of a NIC as one, as RoCE LAG does it: who leaves by which, and who moves when.

In: the ports of a NIC, what leaves by them (queue pairs, probe flows), and which have carrier. Out:
everything on a port that can carry it. Each has a port of its own, given in turn in order of
creation; it leaves by the other while its own has no carrier.

Source: the mlx5 driver of Linux. A queue pair's port is a counter modulo the ports (commit
c6a21c3864fc, "IB/mlx5: Change TX affinity assignment in RoCE LAG mode"); a port that is down is
mapped to one that is not, and back (`mlx5_infer_tx_affinity_mapping`, `mlx5_modify_lag` in
drivers/net/ethernet/mellanox/mlx5/core/lag/lag.c). Newer firmware can choose the port by a hash of
the packet instead; that mode is not modelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

Way = TypeVar("Way")
WayTaken = TypeVar("WayTaken", contravariant=True)


def affinity(created: int, ports: int) -> int:
    """The port (from 0) of a queue pair before which its NIC has `created` others."""
    return created % ports


class Member(Protocol[WayTaken]):
    """What leaves by a port and can change to another."""

    def move(self, way: WayTaken, macs: bytes) -> None:
        """Go on by `way`; frames begin with `macs` from now on."""
        ...


@dataclass(frozen=True, slots=True)
class Port(Generic[Way]):
    """A port of a NIC: what frames go into there, and the addresses they begin with."""

    interface: str
    way: Way
    macs: bytes


class Lag(Generic[Way]):
    """The ports of one NIC and what leaves by them."""

    def __init__(self, ports: Sequence[Port[Way]]) -> None:
        """All ports are taken to have carrier."""
        self.ports = tuple(ports)
        self._carrier = [True] * len(self.ports)
        self._members: list[Member[Way]] = []
        self._homes: list[int] = []
        self._at: list[int] = []

    def add(self, member: Member[Way], home: int) -> None:
        """`member` leaves by port `home` (from 0) and has that port's addresses."""
        self._members.append(member)
        self._homes.append(home)
        self._at.append(home)

    def carrier(self, interface: str, present: bool) -> None:
        """A port has got or lost carrier; an interface that is not this NIC's changes nothing."""
        for number, port in enumerate(self.ports):
            if port.interface == interface and self._carrier[number] != present:
                self._carrier[number] = present
                self._settle()

    def _settle(self) -> None:
        for place, (member, home) in enumerate(zip(self._members, self._homes, strict=True)):
            number = self._usable(home, self._at[place])
            if number != self._at[place]:
                self._at[place] = number
                member.move(self.ports[number].way, self.ports[number].macs)

    def _usable(self, home: int, now: int) -> int:
        """Its own port, else any with carrier; without one it stays where it is and tries on."""
        if self._carrier[home]:
            return home
        return self._carrier.index(True) if True in self._carrier else now
