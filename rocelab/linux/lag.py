"""The two ports of a NIC as one, like RoCE LAG: which port sends what, and when senders move.

Each queue pair and probe flow of a NIC has a home port, assigned in turn in order of creation. It
uses the other port while its home port has no carrier.

Source: the mlx5 driver of Linux. A queue pair's port is a counter modulo the ports (commit
c6a21c3864fc, "IB/mlx5: Change TX affinity assignment in RoCE LAG mode"); a port that is down is
mapped to one that is up, and back (`mlx5_infer_tx_affinity_mapping`, `mlx5_modify_lag` in
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
    """The port (from 0) of a NIC's next queue pair after `created` others."""
    return created % ports


class LagMember(Protocol[WayTaken]):
    """A sender on a port that can move to another."""

    def move(self, way: WayTaken, macs: bytes) -> None:
        """Send by `way` from now on; frames begin with `macs`."""
        ...


@dataclass(frozen=True, slots=True)
class LagPort(Generic[Way]):
    """A port of a NIC: where its frames go, and the addresses they begin with."""

    interface: str
    way: Way
    macs: bytes


class Lag(Generic[Way]):
    """The ports of one NIC and their members."""

    def __init__(self, ports: Sequence[LagPort[Way]]) -> None:
        """All ports are assumed to have carrier."""
        self.ports = tuple(ports)
        self._carrier = [True] * len(self.ports)
        self._members: list[LagMember[Way]] = []
        self._homes: list[int] = []
        self._at: list[int] = []

    def add(self, member: LagMember[Way], home: int) -> None:
        """Add `member`, which uses port `home` (from 0) and has that port's addresses."""
        self._members.append(member)
        self._homes.append(home)
        self._at.append(home)

    def carrier(self, interface: str, present: bool) -> None:
        """Handle a port that has gained or lost carrier; other NICs' interfaces are ignored."""
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
        """The home port, else any with carrier; if there is none, the present port."""
        if self._carrier[home]:
            return home
        return self._carrier.index(True) if True in self._carrier else now
