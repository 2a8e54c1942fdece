"""Uplink ratios: how much capacity a switch has down against up, tier by tier.

In: a `Fabric`. Out: for each role of switches that have both, the capacities and their ratio, as
networks are spoken of (`1:1.125` at a rack with more up than down, `7:1` at a spine with less).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rocelab.plan.fabric import Fabric, Role


@dataclass(frozen=True, slots=True)
class Uplinks:
    """The capacities of each of `switches` switches of a role."""

    role: Role
    switches: int
    down_bps: int
    up_bps: int

    @property
    def ratio(self) -> str:
        """Downlink : uplink capacity, the smaller as 1, to four digits."""
        if self.down_bps <= self.up_bps:
            return f"1:{self.up_bps / self.down_bps:.4g}"
        return f"{self.down_bps / self.up_bps:.4g}:1"


def uplinks_by_tier(fabric: Fabric) -> tuple[Uplinks, ...]:
    """The capacities of every tier that has links down and up, lowest tier first."""
    down_bps: Counter[str] = Counter()
    up_bps: Counter[str] = Counter()
    for link in fabric.links:
        up_bps[link.a.node] += link.rate_bps
        down_bps[link.b.node] += link.rate_bps
    count = Counter(
        (node.role, down_bps[node.name], up_bps[node.name])
        for node in fabric.switches
        if down_bps[node.name] and up_bps[node.name]
    )
    found = (Uplinks(role, switches, *rates) for (role, *rates), switches in count.items())
    return tuple(sorted(found, key=lambda each: each.role.tier))
