"""Faults of cables whose carrier stays up: packets are lost, corrupted or late.

Each applies an impairment (`rocelab.dataplane.impairments`) to links, in one direction or both. The
kernel begins and ends it at exact instants. No event reports it: only BFD, a hold timer, or a
counter at the far end shows it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from rocelab.dataplane.impairments.impairment import Impairment, ImpairmentKind
from rocelab.faults.base import LinkFaultSpec, LinksFault, Towards
from rocelab.faults.selectors import directed
from rocelab.lab.lab import RunningLab
from rocelab.linux.bracket import Bracket, spanning
from rocelab.planning.fabric import DirectedLink, Fabric


@dataclass(frozen=True, slots=True)
class CableFault(LinksFault):
    """One impairment on some links at once, towards one node or in both directions.

    It affects all packets, those of BGP and BFD too; for corruption see
    rocelab/dataplane/bpf/impairments.bpf.c. Two of one kind on one direction at the same time are
    one: the later counts, and the first restore ends both.
    """

    kind: str
    impairment: Impairment
    towards: str | None = None

    def prepare(self, lab: RunningLab) -> None:
        impairments = lab.impairments
        for end in self.nodes:
            lab.node(end).keep_ports(self.links_at(end))
        for link in self._impaired():
            impairments.prepare(link, self.impairment.kind)

    def severed(self) -> tuple[DirectedLink, ...]:
        return tuple(self._impaired()) if self.impairment.kind is ImpairmentKind.BLACKHOLE else ()

    def intact(self, lab: RunningLab) -> frozenset[str]:
        impairments = lab.impairments
        return frozenset(
            f"packets of {link} pass unimpaired"
            for link in self._impaired()
            if not impairments.is_impaired(link, self.impairment.kind)
        )

    def inject(self, lab: RunningLab) -> Bracket:
        return self._impair(lab, self.impairment)

    def schedule(self, lab: RunningLab, start_ns: int, end_ns: int | None) -> Bracket:
        """Begin and end by the kernel's clock, CLOCK_MONOTONIC ns."""
        return self._impair(lab, replace(self.impairment, start_ns=start_ns, end_ns=end_ns))

    def restore(self, lab: RunningLab) -> Bracket:
        impairments, kind = lab.impairments, self.impairment.kind
        cleared = [Bracket.of(partial(impairments.clear, link, kind)) for link in self._impaired()]
        for end in self.nodes:
            lab.node(end).mend_ports(self.links_at(end))
        return spanning(cleared)

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        impairments = lab.impairments
        remains = (
            part
            for link in self._impaired()
            for part in impairments.remains(link, self.impairment.kind)
        )
        return tuple(dict.fromkeys(remains))

    def _impair(self, lab: RunningLab, impairment: Impairment) -> Bracket:
        return lab.impairments.impair_all(tuple(self._impaired()), impairment)

    def _impaired(self) -> Iterator[DirectedLink]:
        return directed(self.links, self.towards)


class CableFaultSpec(LinkFaultSpec):
    """A fault of links with one impairment."""

    towards: Towards = None

    @property
    @abstractmethod
    def impairment(self) -> Impairment:
        """What it does to packets."""

    def resolve(self, fabric: Fabric) -> CableFault:
        links = self.find(fabric, self.towards)
        return CableFault(links, self.kind, self.impairment, self.towards)
