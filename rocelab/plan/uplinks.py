"""Uplink ratios: a switch's downlink capacity against its uplink capacity, tier by tier.

For each role of switches with both, it gives the capacities and their ratio in the usual notation
(`1:1.125` for a rack with more up than down, `7:1` for a spine with less).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rocelab.plan.fabric import Fabric, Role


@dataclass(frozen=True, slots=True)
class Uplinks:
    """The capacities of one switch of a role that has `switches`."""

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
