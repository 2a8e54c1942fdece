"""Impairments of a cable, and the hook of a switch port that each direction of a cable passes.

Validates impairments and finds, for a directed link, the port whose program applies them. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from rocelab.base.errors import InputError
from rocelab.planning.fabric import DirectedLink, Fabric

SECOND_NS = 10**9
MAX_DELAY_NS = 10 * SECOND_NS
MAX_SLOT = 0xFFFF
"""A slot is a VLAN tag on its way to the delay line (rocelab/dataplane/bpf/impairments.bpf.c)."""


class ImpairmentKind(IntEnum):
    """Kinds of impairment; a direction may have one of each at the same time."""

    BLACKHOLE = 0
    LOSS = 1
    CORRUPTION = 2
    DELAY = 3


@dataclass(frozen=True, slots=True)
class Impairment:
    """One thing wrong with one direction of a cable, from `start_ns` until before `end_ns`.

    Raises InputError where a number is outside what the kernel takes.
    """

    kind: ImpairmentKind
    share: float = 1.0
    """Of packets, drawn one by one, in steps of 2^-32."""

    delay_ns: int = 0
    """How much later packets come, for Kind.DELAY alone; up to 10 s."""

    start_ns: int = 0
    """CLOCK_MONOTONIC."""

    end_ns: int | None = None
    """CLOCK_MONOTONIC; without an end until it is cleared."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InputError(
                f"a cable cannot impair a share of {self.share:g} of its packets",
                hint="give a share above 0, and 1 at most",
            )
        if self.kind in (ImpairmentKind.BLACKHOLE, ImpairmentKind.DELAY) and self.share != 1:
            raise InputError(
                f"a {self.kind.name.lower()} affects all packets",
                hint="leave share out; kind LOSS drops a share of them",
            )
        delays = self.kind is ImpairmentKind.DELAY
        if (self.delay_ns != 0) != delays or not 0 <= self.delay_ns <= MAX_DELAY_NS:
            raise InputError(
                f"kind {self.kind.name} with a delay of {self.delay_ns} ns",
                hint="kind DELAY takes a delay of up to 10 s, the others take none",
            )
        if self.start_ns < 0 or (self.end_ns is not None and self.end_ns <= self.start_ns):
            raise InputError(
                f"an impairment cannot last from {self.start_ns} to {self.end_ns} ns",
                hint="its times are CLOCK_MONOTONIC, the end after the start",
            )


@dataclass(frozen=True, slots=True)
class Hook:
    """Where packets of a link are met: ingress of the switch they come to, or egress of the switch
    before the server they go to. `slot` is the directed link's number in its fabric, from 1."""

    link: DirectedLink
    node: str
    interface: str
    index: int
    at_egress: bool
    slot: int


class Hooks:
    """The hooks of a fabric's links."""

    def __init__(self, fabric: Fabric) -> None:
        self._links = fabric.directed_links
        self._slot_of = {link: slot for slot, link in enumerate(self._links, 1)}
        self.most = len(self._links)
        """The largest slot."""

    def find(self, link: DirectedLink) -> Hook:
        """The hook of a link. Raises InputError if it is beyond those that can be impaired."""
        at_egress = not link.far.role.is_switch
        end = link.port if at_egress else link.far
        slot = self._slot_of[link]
        if slot > MAX_SLOT:
            raise InputError(
                f"link {link.name} is beyond the {MAX_SLOT // 2:,} that can be impaired",
                hint="break one of the first, or a smaller lab",
            )
        return Hook(link, end.node, end.interface, end.index, at_egress, slot)

    def at(self, slot: int) -> Hook:
        """The hook of that slot."""
        return self.find(self._links[slot - 1])
