"""The memory of switches with lossless classes (PFC, IEEE 802.1Qbb): who may hold how much of it.

Of a switch's memory some is reserved per lossless class of a port, some is headroom for packets
that arrive after a pause was sent, and all ports share the rest. Pure, and from counts of ports
alone, so that it costs as little for 32,256 GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rocelab.errors import InputError
from rocelab.plan.delays import cable_ns, lab_delay_ns
from rocelab.plan.fabric import Fabric, Role
from rocelab.plan.queues import ETHERNET_HEADER_BYTES, burst_bytes
from rocelab.spec.model import LabSpec
from rocelab.spec.pfc import PfcSpec
from rocelab.spec.queues import QueuesSpec
from rocelab.units import format_size

QUANTUM_BYTES = 64
"""A quantum of a pause frame is 512 bit times (IEEE 802.3 annex 31B)."""

RESPONSE_QUANTA = {40 * 10**9: 118, 100 * 10**9: 394, 200 * 10**9: 453, 400 * 10**9: 905}
"""The time that a sender may take to stop, by its rate in bit/s: of a slower link that of the next
in this list, of a faster one in proportion to the last. Source: the peer response times of SONiC's
dynamic buffer calculation."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """What may still arrive for a class after its port has crossed XOFF, in bytes, term by term.

    frame: one that the port itself has begun to send, before its pause; begun: one that the peer
    has begun when it stops; cable: what is on the way, in both directions; response: what the peer
    sends before it stops.
    """

    rate_bps: int
    mtu: int
    frame: int
    begun: int
    cable: int
    response: int
    cell_factor: float

    @property
    def total(self) -> int:
        """Source: SONiC's dynamic buffer calculation, without gearboxes."""
        return self.begun + round(self.cell_factor * (self.frame + self.cable + self.response))


@dataclass(frozen=True, slots=True)
class Carving:
    """The memory of each of `switches` equal switches, in bytes.

    reserved: of all lossless classes of all ports. headroom: of each port and class, by the rate
    of its link; headroom_pool: of all of them. xoff: the threshold of the first class that fills,
    while nothing else is held; a dynamic one falls as others hold packets.
    marked_below: where marks begin below this depth of an egress queue, they begin before pauses.
    """

    role: Role
    switches: int
    ports: int
    memory: int
    reserved: int
    headroom: tuple[tuple[Headroom, int], ...]
    headroom_pool: int
    xoff: int
    xon: int
    marked_below: int

    @property
    def shared(self) -> int:
        """The memory that is left for all ports."""
        return self.memory - self.reserved - self.headroom_pool


def headroom_of(pfc: PfcSpec, rate_bps: int, mtu: int, one_way_ns: int) -> Headroom:
    """What a link of this rate needs, whose cable takes this long."""
    frame = mtu + ETHERNET_HEADER_BYTES
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


def slack_of(headroom: Headroom, spec: LabSpec) -> int:
    """What a lab adds to a link's headroom, beside the formula: its ports send in bursts, and what
    crosses a cable to a server does so before it is counted for the port that it came in by."""
    burst = burst_bytes(max(8, round(headroom.rate_bps / spec.dilation)), headroom.mtu)
    return burst + (headroom.cable // 2 if lab_delay_ns(spec) else 0)


def nic_thresholds(pfc: PfcSpec, headroom: int) -> tuple[int, int]:
    """The bytes of its receive buffer at which a NIC pauses, and at which it resumes. `headroom`:
    that of its link."""
    nic = pfc.nic
    xoff = nic.xoff if nic.xoff is not None else max(1, nic.buffer - headroom)
    return xoff, max(1, xoff - nic.xon_offset)


def carve(fabric: Fabric, pfc: PfcSpec) -> tuple[Carving, ...]:
    """The memory of every kind of switch: those of one role whose ports are the same, lowest tier
    first. Raises InputError if nothing of it would be left to share."""
    links: dict[str, Counter[tuple[int, int]]] = {node.name: Counter() for node in fabric.switches}
    for link in fabric.links:
        for port in (link.a, link.b):
            if port.role.is_switch:
                links[port.node][link.rate_bps, link.mtu] += 1
    kinds = Counter(
        (node.role, tuple(sorted(links[node.name].items())))
        for node in fabric.switches
        if links[node.name]
    )
    one_way_ns = cable_ns(fabric.spec.links)
    found = (carving(pfc, role, count, ports, one_way_ns) for (role, ports), count in kinds.items())
    return tuple(sorted(found, key=lambda carving: carving.role.tier))


def carving_of(fabric: Fabric, pfc: PfcSpec, switch: str) -> Carving:
    """The memory of one switch. Raises as `carve` does."""
    links = Counter((link.rate_bps, link.mtu) for link in fabric.links_of[switch])
    role, one_way_ns = fabric.node(switch).role, cable_ns(fabric.spec.links)
    return carving(pfc, role, 1, sorted(links.items()), one_way_ns)


def carving(
    pfc: PfcSpec,
    role: Role,
    switches: int,
    links: Sequence[tuple[tuple[int, int], int]],
    one_way_ns: int,
) -> Carving:
    """The memory of each of `switches` equal switches. links: of one of them, with their rate in
    bit/s and MTU, and how many there are. Raises as `carve` does."""
    ports = sum(count for _, count in links)
    classes = len(pfc.classes)
    memory, reserved = pfc.memory * ports, pfc.reserved * ports * classes
    needs = tuple(
        (headroom_of(pfc, rate_bps, mtu, one_way_ns), count) for (rate_bps, mtu), count in links
    )
    held = sum(count * (pfc.headroom or needed.total) for needed, count in needs)
    pool = round(held * classes / pfc.oversubscription)
    shared = memory - reserved - pool
    if shared <= 0:
        raise InputError(
            f"nothing of the memory of a {role} is left to share: of {format_size(memory)}, "
            f"{format_size(pool)} are headroom and {format_size(reserved)} are reserved",
            "more queues.pfc.memory, fewer classes, a shorter links.delay or an oversubscription",
        )
    if pfc.xoff is None:
        # A class with q bytes is paused at q = a x (shared - q).
        share = 2.0**pfc.dynamic_th
        xoff = round(shared * share / (1 + share))
        # DCQCN (SIGCOMM 2015), section 4, with the lossless classes for its eight.
        marked_below = round(shared * share / (1 + share) / (classes * ports))
    else:
        # All egress queues may hold packets of one ingress port (ibid.).
        xoff, marked_below = pfc.xoff, pfc.xoff // ports
    return Carving(
        role=role,
        switches=switches,
        ports=ports,
        memory=memory,
        reserved=reserved,
        headroom=needs,
        headroom_pool=pool,
        xoff=xoff,
        xon=max(0, xoff - pfc.xon_offset),
        marked_below=marked_below,
    )


def warnings(
    queues: QueuesSpec, pfc: PfcSpec, carvings: Sequence[Carving], nics: Sequence[Headroom]
) -> tuple[str, ...]:
    """Why lossless classes may lose packets, or be paused before they are marked. nics: as of
    `nic_headrooms`."""
    found = [*_of_switches(pfc, carvings), *_of_nics(pfc, nics)]
    for carving in carvings:
        full = carving.ports * len(pfc.classes) * carving.xoff
        if pfc.xoff is not None and full > carving.shared:
            found.append(
                f"{carving.role}: the static XOFFs of all ports and classes are "
                f"{format_size(full)}, but only {format_size(carving.shared)} are shared: if more "
                "ports fill than fit, they pause below XOFF"
            )
        if queues.ecn.kmin >= carving.marked_below:
            found.append(
                f"{carving.role}: pauses may come before marks, as kmin "
                f"({format_size(queues.ecn.kmin)}) is not below "
                f"{format_size(carving.marked_below)} (DCQCN paper, section 4)"
            )
    unmarked = [str(number) for number in pfc.classes if number not in queues.marked]
    if unmarked:
        found.append(f"lossless class {', '.join(unmarked)} is not marked: see queues.marked")
    if pfc.oversubscription > 1:
        found.append(
            f"the headroom pool holds 1 of {pfc.oversubscription:g} of all headrooms: if more fill "
            "at once, lossless classes lose packets"
        )
    return tuple(found)


def nic_headrooms(fabric: Fabric, pfc: PfcSpec) -> tuple[Headroom, ...]:
    """What each kind of link between a NIC and a switch needs, in the order of the links."""
    kinds = dict.fromkeys(
        (link.rate_bps, link.mtu)
        for link in fabric.links
        if not (link.a.role.is_switch and link.b.role.is_switch)
    )
    one_way_ns = cable_ns(fabric.spec.links)
    return tuple(headroom_of(pfc, rate_bps, mtu, one_way_ns) for rate_bps, mtu in kinds)


def too_small(fabric: Fabric) -> tuple[str, ...]:
    """Of `warnings`, those for which a lab loses packets that it should not."""
    pfc = fabric.spec.queues.pfc
    if pfc is None:
        return ()
    return (*_of_switches(pfc, carve(fabric, pfc)), *_of_nics(pfc, nic_headrooms(fabric, pfc)))


def _of_switches(pfc: PfcSpec, carvings: Sequence[Carving]) -> Iterator[str]:
    most = max(
        (needed for carving in carvings for needed, _ in carving.headroom),
        key=lambda needed: needed.total,
        default=None,
    )
    if most is not None and pfc.headroom is not None and pfc.headroom < most.total:
        yield (
            f"a headroom of {format_size(pfc.headroom)} cannot hold the {format_size(most.total)} "
            "that may arrive after a pause: lossless classes lose packets"
        )


def _of_nics(pfc: PfcSpec, nics: Sequence[Headroom]) -> Iterator[str]:
    for needed in nics:
        xoff, _ = nic_thresholds(pfc, needed.total)
        room = pfc.nic.buffer - xoff
        if room < needed.total:
            yield (
                f"a NIC that pauses at {format_size(xoff)} of its {format_size(pfc.nic.buffer)} "
                f"cannot hold the {format_size(needed.total)} that may arrive after the pause: a "
                "slow host loses packets"
            )
