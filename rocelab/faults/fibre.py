"""A broken fibre: one end of a link loses its light, and the other end does not notice.

The end without light loses its carrier and no packet crosses; the far end keeps its carrier, and
notices by BFD or the hold timer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rocelab.dataplane.impairments.impairment import Impairment, ImpairmentKind
from rocelab.faults.base import LinksFault
from rocelab.faults.ports import read_ports, running_ports
from rocelab.faults.selectors import directed, named
from rocelab.lab import wiring
from rocelab.lab.lab import RunningLab
from rocelab.linux.bracket import Bracket, spanning
from rocelab.planning.fabric import Fabric


@dataclass(frozen=True, slots=True)
class BrokenFibre(LinksFault):
    """One fibre of two breaks, on links without remote fault indication.

    A veth pair has one carrier for both ends, so the end at `side` is made dormant: it loses the
    flag IFF_RUNNING, which zebra treats like a lost carrier. The kernel still has the carrier and
    uses the port until zebra has removed the routes. A port without light does not send either, so
    packets are dropped in both directions: the far end does not even get the notification that ends
    the session.
    """

    side: str
    kind: str = "carrier-down"

    @property
    def subject(self) -> str:
        return f"{named(self.links)} at {self.side}"

    def prepare(self, lab: RunningLab) -> None:
        """Raises MachineError if this machine cannot drop packets."""
        for node in self.nodes:
            lab.node(node).keep_ports(self.links_at(node))
        for link in directed(self.links):
            lab.impairments.prepare(link, ImpairmentKind.BLACKHOLE)

    def dark_ports(self, fabric: Fabric) -> tuple[tuple[str, str], ...]:
        return tuple((self.side, link.port(self.side).interface) for link in self.links)

    def intact(self, lab: RunningLab) -> frozenset[str]:
        whole = (
            f"packets of {link.name} reach {link.receiver}"
            for link in directed(self.links)
            if not lab.impairments.is_impaired(link, ImpairmentKind.BLACKHOLE)
        )
        lit = running_ports(lab, [(self.side, link.port(self.side)) for link in self.links])
        return frozenset(whole) | lit

    def inject(self, lab: RunningLab) -> Bracket:
        # Drop packets first: bgpd sends a notification as soon as the carrier goes.
        holes = tuple(directed(self.links))
        dark = lab.impairments.impair_all(holes, Impairment(ImpairmentKind.BLACKHOLE))
        return spanning([dark, self._set_dormant(lab, dormant=True)])

    def restore(self, lab: RunningLab) -> Bracket:
        lit = [
            Bracket.of(partial(lab.impairments.clear, link, ImpairmentKind.BLACKHOLE))
            for link in directed(self.links)
        ]
        lit.append(self._set_dormant(lab, dormant=False))
        for node in self.nodes:
            lab.node(node).mend_ports(self.links_at(node))
        return spanning(lit)

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        remains: list[str] = []
        for link in directed(self.links):
            remains += lab.impairments.remains(link, ImpairmentKind.BLACKHOLE)
        ports = read_ports(lab.node(self.side))
        names = {link.port(self.side).interface for link in self.links} & ports.keys()
        return (
            *remains,
            *(f"{self.side}:{name} is dormant" for name in names if ports[name].dormant),
        )

    def _set_dormant(self, lab: RunningLab, *, dormant: bool) -> Bracket:
        indexes = {port.index for port in read_ports(lab.node(self.side)).values()}
        ports = indexes.intersection(link.port(self.side).index for link in self.links)
        return lab.node(self.side).send(
            [wiring.set_dormant(index, dormant=dormant) for index in ports]
        )
