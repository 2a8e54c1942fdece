"""A rack's switch that announces what it learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.errors import InputError
from rocelab.faults import policy
from rocelab.faults.base import NodeFault, SwitchFaultSpec
from rocelab.faults.leaks import (
    announced,
    close_neighbours,
    left_at_neighbours,
    missing_lines,
    open_neighbours,
    still_announced,
)
from rocelab.faults.selectors import check_leaf
from rocelab.lab.lab import RunningLab
from rocelab.linux.bracket import Bracket
from rocelab.planning.fabric import Fabric


@dataclass(frozen=True, slots=True)
class RouteLeak(NodeFault):
    """A rack's switch announces all that it learned, its outbound filter gone.

    A neighbour's filters are its prefix list and the AS-path loop check (RFC 4271 section 9.1.2),
    which refuses every such path as the switches above a rack share one ASN; without `filtered`
    both are off, and maximum-prefix takes effect: it shuts the sessions, and the neighbours cut the
    rack off.
    """

    filtered: bool = True
    kind: str = "route-leak"

    def prepare(self, lab: RunningLab) -> None:
        """Removes the neighbours' filters, which has no effect until something is leaked."""
        if not self.filtered:
            open_neighbours(lab, self.node, accept_own_asn=True)

    def intact(self, lab: RunningLab) -> frozenset[str]:
        return announced(lab, self.node)

    def inject(self, lab: RunningLab) -> Bracket:
        lines = [f"no {entry.line}" for entry in policy.filters(lab.fabric, self.node, "out")]
        return policy.configure(lab, self.node, lines, families=lab.fabric.spec.addresses.families)

    def restore(self, lab: RunningLab) -> Bracket | None:
        """Neighbours may take a while to remove the routes: see `remains`."""
        mended = None
        if policy.has_bgpd(lab, self.node):
            missing = missing_lines(lab, self.node, policy.filters(lab.fabric, self.node, "out"))
            if missing:
                mended = policy.configure(
                    lab, self.node, missing, families=lab.fabric.spec.addresses.families
                )
        close_neighbours(lab, self.node)
        return mended

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        remains: list[str] = []
        if policy.has_bgpd(lab, self.node):
            missing = missing_lines(lab, self.node, policy.filters(lab.fabric, self.node, "out"))
            remains += [f"{self.node} lacks `{line}`" for line in missing]
            remains += still_announced(lab, self.node)
        return tuple(remains) + left_at_neighbours(lab, self.node)


class RouteLeakSpec(SwitchFaultSpec):
    """A rack's switch announces to all what it learned from one."""

    kind: Literal["route-leak"]
    filtered: Annotated[
        bool, Field(description="neighbours keep their filters towards the rack")
    ] = True

    def resolve(self, fabric: Fabric) -> RouteLeak:
        policy.check_rendered(fabric)
        check_leaf(fabric, self.switch)
        if not fabric.network_of(self.switch).valley_free:
            raise InputError(
                f"{self.switch} already announces every route that it learns",
                hint="the lab has routing.valley_free: false",
            )
        return RouteLeak(self.switch, self.filtered)
