"""What lossless classes take of a switch's memory: reserved parts, and headroom for what arrives
after a pause.

`queues.pfc` of a lab's file is refused if they leave nothing to share, so this is beside it;
`rocelab.planning.pfc` plans a fabric's switches with it. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocelab.base import quantities
from rocelab.base.wording import KeyPath, RefusedError
from rocelab.labfile.base import SECOND
from rocelab.labfile.pfc import PfcSpec
from rocelab.labfile.switchports import LosslessMemory
from rocelab.wire.headers import IP_OFFSET

QUANTUM_BYTES = 64
"""A quantum of a pause frame is 512 bit times (IEEE 802.3 annex 31B)."""

RESPONSE_QUANTA = {40 * 10**9: 118, 100 * 10**9: 394, 200 * 10**9: 453, 400 * 10**9: 905}
"""The time that a sender may take to stop, by its rate in bit/s: of a slower link that of the next
in this list, of a faster one in proportion to the last. Source: the peer response times of SONiC's
dynamic buffer calculation."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """What may still arrive for a class after its port has crossed XOFF, in bytes, term by term."""

    rate_bps: int
    mtu: int
    frame: int
    """One that the port itself has begun to send, before its pause."""
    begun: int
    """One that the peer has begun when it stops."""
    cable: int
    """What is on the way, in both directions."""
    response: int
    """What the peer sends before it stops."""
    cell_factor: float

    @property
    def total(self) -> int:
        """Source: SONiC's dynamic buffer calculation, without gearboxes."""
        return self.begun + round(self.cell_factor * (self.frame + self.cable + self.response))

    @property
    def obeyed_ns(self) -> int:
        """The modelled time from a threshold crossed until nothing arrives any more."""
        return round((self.cable + self.response) * 8 * SECOND / self.rate_bps)


Links = Sequence[tuple[Headroom, int]]
"""The links of a switch: what each kind needs, and how many there are."""


def headroom_of(pfc: PfcSpec, rate_bps: int, mtu: int, one_way_ns: int) -> Headroom:
    """What a link of this rate needs, whose cable takes this long."""
    frame = mtu + IP_OFFSET
    on_the_cable = 2 * one_way_ns * rate_bps / 8e9
    return Headroom(
        rate_bps=rate_bps,
        mtu=mtu,
        frame=frame,
        begun=frame,
        cable=round(on_the_cable),
        response=QUANTUM_BYTES * response_quanta(pfc, rate_bps),
        cell_factor=pfc.cell_factor,
    )


def response_quanta(pfc: PfcSpec, rate_bps: int) -> int:
    """The time in which a sender at this rate obeys a pause."""
    if pfc.response is not None:
        return pfc.response
    fastest = max(RESPONSE_QUANTA)
    for listed_bps, quanta in sorted(RESPONSE_QUANTA.items()):
        if rate_bps <= listed_bps:
            return quanta
    return round(RESPONSE_QUANTA[fastest] * rate_bps / fastest)


@dataclass(frozen=True, slots=True)
class Share:
    """What lossless classes take of a switch's memory for each of `ports` equal ports, in bytes."""

    ports: int
    reserved: int
    """Of each class."""
    headroom: int
    """Of each class."""
    is_dedicated: bool = False
    """Whether the headroom is the port's own, rather than of the switch's pool."""


def divided(pfc: PfcSpec, shares: Sequence[Share]) -> tuple[int, int, int]:
    """The memory of a switch with these ports, what of it is reserved for lossless classes, and
    their pool of headroom, in bytes."""
    ports, classes = sum(share.ports for share in shares), len(pfc.classes)
    held = sum(share.ports * share.headroom for share in shares)
    reserved = sum(share.ports * share.reserved for share in shares) * classes
    return pfc.memory * ports, reserved, round(held * classes / pfc.oversubscription)


def divided_by_profile(
    memory: LosslessMemory, classes: int, oversubscription: float, shares: Sequence[Share]
) -> tuple[int, int, int]:
    """As `divided`, of a switch whose profile says what is shared. Headroom is a pool of the
    profile's size, if it has one, and what is the ports' own."""
    reserved = sum(share.ports * share.reserved for share in shares) * classes
    dedicated = sum(share.ports * share.headroom for share in shares if share.is_dedicated)
    rest = sum(share.ports * share.headroom for share in shares if not share.is_dedicated)
    pooled = memory.headroom or round(rest * classes / oversubscription)
    pool = dedicated * classes + (pooled if rest or not dedicated else 0)
    return memory.shared + reserved + pool, reserved, pool


def check_shared_memory(pfc: PfcSpec, links: Links) -> None:
    """Raises RefusedError, with keys of a lab's file, if a switch with these links has no memory
    left to share."""
    shares = [Share(count, pfc.reserved, pfc.headroom or need.total) for need, count in links]
    memory, reserved, pool = divided(pfc, shares)
    if memory > reserved + pool:
        return
    ports = sum(count for _, count in links)
    raise RefusedError(
        f"a switch has no memory left to share: of {quantities.size(pfc.memory)} a port, "
        f"{quantities.size(round(pool / ports))} are headroom and "
        f"{quantities.size(reserved // ports)} are reserved",
        "more queues.pfc.memory, fewer classes, less reserved, or less headroom: a shorter "
        "links.delay or an oversubscription",
        keys=_responsible(pfc, links),
    )


def _responsible(pfc: PfcSpec, links: Links) -> tuple[KeyPath, ...]:
    """The key of what takes most of the memory, then those of what it is and for how many."""
    needed = max((need for need, _ in links), key=lambda need: need.total)
    takes: dict[KeyPath, int] = {("queues", "pfc", "reserved"): pfc.reserved}
    if pfc.headroom is not None:
        takes["queues", "pfc", "headroom"] = pfc.headroom
    else:
        takes["links", "delay"] = needed.cable
        takes["queues", "pfc", "response"] = needed.response
    rest = ("memory", "classes", "cell_factor")
    return (
        max(takes, key=takes.__getitem__),
        *(("queues", "pfc", key) for key in rest),
        ("queues", "pfc"),
    )
