"""Faults of cables whose carrier stays up: packets vanish, arrive corrupted, or late.

In: planned links, a direction or both, and what is wrong (`rocelab.runtime.impairments`). Out:
faults that the kernel begins and ends at exact instants. Nobody is told: only BFD, a hold timer, or
a counter at the far end shows them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from rocelab.faults.links import ALL_PPM, directed, ends_of
from rocelab.faults.selectors import named
from rocelab.kernel.bracket import Bracket, spanning
from rocelab.plan.fabric import DirectedLink, Link
from rocelab.runtime.impairments.impairment import Impairment, Kind
from rocelab.runtime.lab import Lab


@dataclass(frozen=True, slots=True)
class CableFault:
    """One impairment on some links at once, towards one node or in both directions.

    Everything that crosses is hit, BGP's and BFD's packets too; of corruption see
    rocelab/runtime/bpf/impairments.bpf.c. Two of one kind on one direction at a time are one: the
    later counts, and the first to be restored ends both.
    """

    kind: str
    links: tuple[Link, ...]
    impairment: Impairment
    towards: str | None = None

    @property
    def subject(self) -> str:
        return named(self.links)

    @property
    def nodes(self) -> tuple[str, ...]:
        return ends_of(self.links)

    def prepare(self, lab: Lab) -> None:
        impairments = lab.impairments
        for link in self._impaired():
            impairments.prepare(link, self.impairment.kind)

    def severed(self) -> tuple[DirectedLink, ...]:
        return tuple(self._impaired()) if self.impairment.kind is Kind.BLACKHOLE else ()

    def intact(self, lab: Lab) -> frozenset[str]:
        impairments = lab.impairments
        return frozenset(
            f"packets of {link} pass as always"
            for link in self._impaired()
            if not impairments.is_impaired(link, self.impairment.kind)
        )

    def inject(self, lab: Lab) -> Bracket:
        return self._impair(lab, self.impairment)

    def schedule(self, lab: Lab, start_ns: int, end_ns: int | None) -> Bracket:
        """Begin and end by the kernel's clock, CLOCK_MONOTONIC ns."""
        return self._impair(lab, replace(self.impairment, start_ns=start_ns, end_ns=end_ns))

    def restore(self, lab: Lab) -> Bracket:
        impairments, kind = lab.impairments, self.impairment.kind
        return spanning(
            [Bracket.of(partial(impairments.clear, link, kind)) for link in self._impaired()]
        )

    def remains(self, lab: Lab) -> tuple[str, ...]:
        impairments = lab.impairments
        found = (
            part
            for link in self._impaired()
            for part in impairments.remains(link, self.impairment.kind)
        )
        return tuple(dict.fromkeys(found))

    def _impair(self, lab: Lab, impairment: Impairment) -> Bracket:
        impairments = lab.impairments
        return spanning([impairments.impair(link, impairment) for link in self._impaired()])

    def _impaired(self) -> Iterator[DirectedLink]:
        return directed(self.links, self.towards)


def blackhole(links: tuple[Link, ...], towards: str | None = None) -> CableFault:
    """Every packet vanishes and the carrier stays."""
    return CableFault("blackhole", links, Impairment(Kind.BLACKHOLE), towards)


def grey_loss(links: tuple[Link, ...], loss_ppm: int, towards: str | None = None) -> CableFault:
    """A share of packets vanishes, drawn one by one."""
    return CableFault("grey-loss", links, Impairment(Kind.LOSS, loss_ppm / ALL_PPM), towards)


def corruption(links: tuple[Link, ...], share_ppm: int, towards: str | None = None) -> CableFault:
    """A bit flips in a share of RoCE packets, and their ICRC fails at the receiver."""
    impairment = Impairment(Kind.CORRUPTION, share_ppm / ALL_PPM)
    return CableFault("corruption", links, impairment, towards)


def delay(links: tuple[Link, ...], delay_ns: int, towards: str | None = None) -> CableFault:
    """Every packet comes later, in order."""
    return CableFault("delay", links, Impairment(Kind.DELAY, delay_ns=delay_ns), towards)
