"""A rack's switch that announces another rack's prefix."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.errors import InputError
from rocelab.base.family import Family
from rocelab.faults import policy
from rocelab.faults.base import NodeFault, SwitchFaultSpec
from rocelab.faults.leaks import (
    announced,
    close_neighbours,
    left_at_neighbours,
    open_neighbours,
    still_announced,
)
from rocelab.faults.selectors import NodeName, check_leaf
from rocelab.lab.lab import RunningLab
from rocelab.linux.bracket import Bracket
from rocelab.planning.fabric import Fabric
from rocelab.routing.frr.configuration import FAMILY_WORDS


@dataclass(frozen=True, slots=True)
class BadPrefix(NodeFault):
    """A rack's switch announces another rack's prefix as its own, and keeps no route to it.

    Neighbours without filters see two equally distant origins and send a share of the traffic to
    the wrong rack. In both cases the switch's own servers no longer reach the other rack.
    """

    prefix: str
    filtered: bool = True
    kind: str = "bad-prefix"

    @property
    def subject(self) -> str:
        return f"{self.prefix} at {self.node}"

    def prepare(self, lab: RunningLab) -> None:
        """Removes the neighbours' filters, which has no effect until something is announced.

        Raises InputError if the prefix is the switch's own.
        """
        if self.prefix in {prefix.prefix for prefix in lab.fabric.prefixes_of[self.node]}:
            raise InputError(
                f"{self.prefix} is {self.node}'s own prefix", hint="name another rack's"
            )
        if not self.filtered:
            open_neighbours(lab, self.node, accept_own_asn=False)

    def intact(self, lab: RunningLab) -> frozenset[str]:
        """What it announces or, where switches pass on all routes, its route to the prefix, which
        its own announcement replaces."""
        if lab.fabric.network_of(self.node).valley_free:
            return announced(lab, self.node)
        route = lab.read_fibs()(self.node).lookup(str(ip_network(self.prefix)[0]))
        has_route = route is not None and route.prefix == self.prefix
        return frozenset({f"{self.node} has a route to {self.prefix}"} if has_route else ())

    def inject(self, lab: RunningLab) -> Bracket:
        policy.configure_globally(lab, self.node, self._permits(lab))
        return policy.configure(lab, self.node, [self._network], families=(Family.of(self.prefix),))

    def restore(self, lab: RunningLab) -> Bracket | None:
        """Neighbours may take a while to remove the routes: see `remains`."""
        mended = None
        if policy.has_bgpd(lab, self.node):
            running = policy.running_lines(lab, self.node)
            if self._network in running:
                without = [f"no {self._network}"]
                mended = policy.configure(
                    lab, self.node, without, families=(Family.of(self.prefix),)
                )
            # As it runs: FRR 10 has a line that was given twice twice.
            permitted = self._permitted(running)
            if permitted:
                policy.configure_globally(lab, self.node, [f"no {line}" for line in permitted])
        close_neighbours(lab, self.node)
        return mended

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        remains: list[str] = []
        if policy.has_bgpd(lab, self.node):
            running = policy.running_lines(lab, self.node)
            lines = self._permitted(running) + [
                line for line in (self._network,) if line in running
            ]
            remains += [f"{self.node} has `{line}`" for line in lines]
            remains += still_announced(lab, self.node)
        return tuple(remains) + left_at_neighbours(lab, self.node)

    @property
    def _network(self) -> str:
        return f"network {self.prefix}"

    def _permits(self, lab: RunningLab) -> list[str]:
        """What lets the prefix through the switch's own filter."""
        names = dict.fromkeys(entry.name for entry in policy.filters(lab.fabric, self.node, "out"))
        return [f"{self._lists} {name} permit {self.prefix}" for name in names]

    @property
    def _lists(self) -> str:
        return f"{FAMILY_WORDS[Family.of(self.prefix)]} prefix-list"

    def _permitted(self, running: frozenset[str]) -> list[str]:
        end = f" permit {self.prefix}"
        return sorted(
            line for line in running if line.startswith(f"{self._lists} ") and line.endswith(end)
        )


class BadPrefixSpec(SwitchFaultSpec):
    """A rack's switch announces the prefix of another rack as its own."""

    kind: Literal["bad-prefix"]
    of: Annotated[NodeName, Field(description="the switch whose prefix it is")]
    filtered: Annotated[
        bool, Field(description="neighbours keep their filters towards the rack")
    ] = True

    def resolve(self, fabric: Fabric) -> BadPrefix:
        """The announcement of the first prefix of the other rack's servers."""
        policy.check_rendered(fabric)
        check_leaf(fabric, self.switch)
        fabric = fabric.network_of(self.switch)
        check_leaf(fabric, self.of)
        if self.of == self.switch:
            raise InputError(
                f"{self.of} announces its own prefix anyway", hint="name another switch in `of`"
            )
        if self.filtered and not fabric.valley_free:
            raise InputError(
                f"{self.switch}'s neighbours have no filters: switches pass on all routes",
                hint="set filtered: false",
            )
        family = fabric.family
        servers = (
            prefix.prefix
            for prefix in fabric.prefixes_of[self.of]
            if prefix.family is family and not prefix.prefix.endswith(f"/{family.bits}")
        )
        prefix = next(servers, None)
        if prefix is None:
            raise InputError(f"{self.of} has no servers", hint="name another switch in `of`")
        return BadPrefix(self.switch, prefix, self.filtered)
