"""The zones of a fabric: the tiers in each kind of zone, and the word for it.

A node's zone is a number; whether it is an AI zone, a unit, a segment, a pod or a plane follows
from the tiers with the same division. `divisions` returns them, top tier first, for tables and
pictures.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocelab.fabrics.roles import Role
from rocelab.planning.fabric import Fabric, Node

_ZONE = "zone"


@dataclass(frozen=True, slots=True)
class Division:
    """Tiers with the same division, upper first: no link between them leaves its zone.

    `zones` is empty, and `word` None, if a tier joins all zones below it.
    """

    roles: tuple[Role, ...]
    zones: tuple[int, ...]
    word: str | None

    def counted(self, count: int) -> str:
        """`2 segments`."""
        return f"{count:,} {self.word}{'' if count == 1 else 's'}"


def divisions(fabric: Fabric) -> tuple[Division, ...]:
    """The divisions of a fabric from its top tier down. Servers are in the lowest."""
    by_role: dict[Role, list[Node]] = {}
    for node in fabric.nodes:
        by_role.setdefault(node.role, []).append(node)
    roles = sorted(by_role, key=lambda role: role.tier)
    crossed = {
        fabric.node(link.b.node).role
        for link in fabric.trunks
        if fabric.node(link.a.node).zone != fabric.node(link.b.node).zone
    }
    groups: list[list[Role]] = []
    for role in roles:
        if groups and role not in crossed:
            groups[-1].insert(0, role)
        else:
            groups.append([role])
    return tuple(_division(fabric, by_role, group) for group in reversed(groups))


def zone_titles(fabric: Fabric) -> dict[str, str]:
    """The zone of each node that is in one, by name: `zone 2`, `plane 1`, `segment 3`. In a lab
    with several networks the network goes before it: `frontend, zone 2`, or `frontend` alone."""
    if fabric.parts:
        titles: dict[str, str] = {}
        for part in fabric.parts:
            zones = zone_titles(part)
            for node in part.nodes:
                names = (part.network_name or "", zones.get(node.name, ""))
                titles.setdefault(node.name, ", ".join(filter(None, names)))
        return titles
    word_of = {role: division.word for division in divisions(fabric) for role in division.roles}
    return {
        node.name: f"{word_of[node.role]} {node.zone}"
        for node in fabric.nodes
        if node.zone is not None
    }


def _division(fabric: Fabric, by_role: dict[Role, list[Node]], roles: list[Role]) -> Division:
    zones = sorted({node.zone for role in roles for node in by_role[role] if node.zone is not None})
    if not zones:
        return Division(tuple(roles), (), None)
    lowest = next(role for role in reversed(roles) if role.is_switch)
    return Division(tuple(roles), tuple(zones), fabric.spec.fabric.zone_words.get(lowest, _ZONE))
