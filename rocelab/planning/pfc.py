"""The memory of switches with lossless classes (PFC, IEEE 802.1Qbb): who may hold how much of it.

Of a switch's memory some is reserved per lossless class of a port, some is headroom for packets
that arrive after a pause was sent, and all ports share the rest. Pure, and from counts of ports
alone, so that it costs as little for 32,256 GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rocelab.base import quantities
from rocelab.fabrics.roles import Role
from rocelab.labfile.headroom import (
    Headroom,
    Share,
    divided,
    divided_by_profile,
    headroom_of,
)
from rocelab.labfile.model import LabSpec
from rocelab.labfile.pfc import PfcSpec
from rocelab.labfile.portsettings import PortPauses, PortSettings
from rocelab.labfile.queues import ACK_DSCP, CNP_DSCP, DATA_DSCP, QueuesSpec
from rocelab.labfile.switchports import PlaceOfPort
from rocelab.planning.fabric import Fabric, Link, Port
from rocelab.planning.queues import burst_bytes, class_of_dscp, place_of


@dataclass(frozen=True, slots=True)
class Carving:
    """The memory of each of `switches` equal switches, in bytes."""

    role: Role
    switches: int
    ports: int
    memory: int
    reserved: int
    """Of all lossless classes of all ports."""
    headroom: tuple[tuple[Headroom, int], ...]
    """What each port and class needs, by the rate of its link."""
    pauses: tuple[PortPauses, ...]
    """Of each of `headroom`."""
    headroom_pool: int
    """Of all of them."""
    xoff: int
    """The lowest threshold of the first class that fills, while nothing else is held; a dynamic one
    falls as others hold packets."""
    xon: int
    marked_below: int
    """Where marks begin below this depth of an egress queue, they begin before pauses."""

    @property
    def shared(self) -> int:
        """The memory that is left for all ports."""
        return self.memory - self.reserved - self.headroom_pool

    @property
    def is_dynamic(self) -> bool:
        """Whether some threshold depends on what others hold."""
        return not all(pauses.xoff for pauses in self.pauses)


@dataclass(frozen=True, slots=True)
class LosslessPort:
    """A port of a switch, for its share of the memory. cable_ns: one way, modelled."""

    place: PlaceOfPort
    mtu: int
    cable_ns: int

    def headroom(self, pfc: PfcSpec) -> Headroom:
        """What its link needs."""
        return headroom_of(pfc, self.place.rate_bps, self.mtu, self.cable_ns)


def slack_of(headroom: Headroom, spec: LabSpec) -> int:
    """What a lab adds to a link's headroom, beside the formula: its ports send in bursts, and what
    crosses a cable to a server does so before it is counted for the port that it came in by."""
    burst = burst_bytes(max(8, round(headroom.rate_bps / spec.dilation)), headroom.mtu)
    return burst + (headroom.cable // 2 if spec.has_delays else 0)


def nic_thresholds(pfc: PfcSpec, headroom: int) -> tuple[int, int]:
    """The bytes of its receive buffer at which a NIC pauses, and at which it resumes. `headroom`:
    that of its link."""
    nic = pfc.nic
    xoff = nic.xoff if nic.xoff is not None else max(1, nic.buffer - headroom)
    return xoff, max(1, xoff - nic.xon_offset)


def carve(fabric: Fabric, pfc: PfcSpec) -> tuple[Carving, ...]:
    """The memory of every kind of switch: those of one role whose ports are the same, lowest tier
    first."""
    settings = settings_with(fabric.spec, pfc)
    ports: dict[str, Counter[LosslessPort]] = {node.name: Counter() for node in fabric.switches}
    for link in fabric.links:
        for end in (link.a, link.b):
            if end.role.is_switch:
                ports[end.node][_lossless_port(settings, link, end)] += 1
    kinds = Counter(
        (node.role, frozenset(ports[node.name].items()))
        for node in fabric.switches
        if ports[node.name]
    )
    carvings = (
        carving(settings, role, switches, list(counts))
        for (role, counts), switches in kinds.items()
    )
    return tuple(sorted(carvings, key=lambda carving: carving.role.tier))


def carving_of(fabric: Fabric, pfc: PfcSpec, switch: str) -> Carving:
    """The memory of one switch."""
    settings = settings_with(fabric.spec, pfc)
    ports = Counter(
        _lossless_port(settings, link, link.port(switch)) for link in fabric.links_of[switch]
    )
    return carving(settings, fabric.node(switch).role, 1, list(ports.items()))


def settings_with(spec: LabSpec, pfc: PfcSpec) -> PortSettings:
    """The settings of a lab's ports, with these lossless classes."""
    queues = spec.queues
    return PortSettings(queues if pfc is queues.pfc else queues.model_copy(update={"pfc": pfc}))


def _lossless_port(settings: PortSettings, link: Link, end: Port) -> LosslessPort:
    return LosslessPort(settings.place(place_of(link, end)), link.mtu, link.cable_ns)


def carving(
    settings: PortSettings, role: Role, switches: int, ports: Sequence[tuple[LosslessPort, int]]
) -> Carving:
    """The memory of each of `switches` equal switches. ports: of one of them, and how many there
    are of each."""
    pfc = settings.pfc(PlaceOfPort(role.name, 0))
    assert pfc is not None
    ordered = sorted(
        ports,
        key=lambda kind: (
            kind[0].place.rate_bps,
            kind[0].mtu,
            kind[0].cable_ns,
            str(kind[0].place),
        ),
    )
    rows = [(port.headroom(pfc), _pauses(settings, port.place), count) for port, count in ordered]
    shares = [
        Share(count, pauses.reserved, pauses.headroom or need.total, pauses.is_dedicated)
        for need, pauses, count in rows
    ]
    by_profile = settings.memory(role.name)
    if by_profile is None:
        memory, reserved, pool = divided(pfc, shares)
    else:
        oversubscription = settings.oversubscription(role.name)
        memory, reserved, pool = divided_by_profile(
            by_profile, len(pfc.classes), oversubscription, shares
        )
    shared, total = memory - reserved - pool, sum(count for _, _, count in rows)
    thresholds = [thresholds_of(pauses, shared) for _, pauses, _ in rows]
    return Carving(
        role=role,
        switches=switches,
        ports=total,
        memory=memory,
        reserved=reserved,
        headroom=tuple((need, count) for need, _, count in rows),
        pauses=tuple(pauses for _, pauses, _ in rows),
        headroom_pool=pool,
        xoff=min(xoff for xoff, _ in thresholds),
        xon=min(xon for _, xon in thresholds),
        marked_below=min(
            _marked_below(pauses, shared, len(pfc.classes) * total, total) for _, pauses, _ in rows
        ),
    )


def thresholds_of(pauses: PortPauses, shared: int) -> tuple[int, int]:
    """XOFF and XON of the first class that fills, while nothing else is held."""
    if pauses.xoff:
        xoff = min(pauses.xoff, shared)
        return xoff, max(0, pauses.xon, xoff - pauses.xon_offset)
    # A class with q bytes is paused at q = a x (shared - q), and resumed at the offset less.
    share = 2.0**pauses.dynamic_th
    xon = round((shared * share - pauses.xon_offset) / (1 + share))
    return round(shared * share / (1 + share)), max(0, pauses.xon, xon)


def _marked_below(pauses: PortPauses, shared: int, classes: int, ports: int) -> int:
    """The depth of an egress queue below which marks begin before pauses. classes: of all ports."""
    if pauses.xoff:
        # All egress queues may hold packets of one ingress port (DCQCN, SIGCOMM 2015, section 4).
        return min(min(pauses.xoff, shared) // ports, shared // classes)
    share = 2.0**pauses.dynamic_th
    # Ibid., with the lossless classes for its eight.
    return round(shared * share / (1 + share) / classes)


def _pauses(settings: PortSettings, place: PlaceOfPort) -> PortPauses:
    pauses = settings.pauses(place)
    assert pauses is not None
    return pauses


def warnings(
    queues: QueuesSpec, pfc: PfcSpec, carvings: Sequence[Carving], nics: Sequence[Headroom]
) -> tuple[str, ...]:
    """Why lossless classes may lose packets, be paused before they are marked or for too long, or
    hold other packets than they should. nics: as of `nic_headrooms`."""
    notes = [*_switch_problems(pfc, carvings), *_nic_problems(pfc, nics)]
    for carving in carvings:
        full = len(pfc.classes) * sum(
            count * pauses.xoff
            for pauses, (_, count) in zip(carving.pauses, carving.headroom, strict=True)
        )
        if full > carving.shared:
            notes.append(
                f"{carving.role}: the static XOFFs of all ports and classes are "
                f"{quantities.size(full)}, but only {quantities.size(carving.shared)} are shared: "
                "if more ports fill than fit, they pause below XOFF"
            )
        marked = set(pfc.classes) & set(queues.marked)
        if marked and queues.ecn.kmin >= carving.memory:
            notes.append(
                f"{carving.role}: no packet of a lossless class is ever marked, as kmin "
                f"({quantities.size(queues.ecn.kmin)}) is not below a switch's memory "
                f"({quantities.size(carving.memory)})"
            )
        elif queues.ecn.kmin >= carving.marked_below:
            notes.append(
                f"{carving.role}: pauses may come before marks, as kmin "
                f"({quantities.size(queues.ecn.kmin)}) is not below "
                f"{quantities.size(carving.marked_below)} (DCQCN paper, section 4)"
            )
        reserved = min(pauses.reserved for pauses in carving.pauses)
        if carving.xon + reserved < max(needed.frame for needed, _ in carving.headroom):
            notes.append(
                f"{carving.role}: a port resumes only when it holds less than a packet, as "
                f"xon_offset ({quantities.size(_offset(carving))}) is too large for an XOFF of "
                f"{quantities.size(carving.xoff)}"
            )
    for needed in nics:
        xoff, _ = nic_thresholds(pfc, needed.total)
        if pfc.nic.xon_offset >= xoff:
            notes.append(
                f"a NIC resumes only when its buffer is empty, as nic.xon_offset "
                f"({quantities.size(pfc.nic.xon_offset)}) is not below its XOFF "
                f"({quantities.size(xoff)})"
            )
    notes += _dscp_problems(queues, pfc)
    unmarked = [str(number) for number in pfc.classes if number not in queues.marked]
    if unmarked:
        notes.append(f"lossless class {', '.join(unmarked)} is not marked: see queues.marked")
    if pfc.oversubscription > 1:
        notes.append(
            f"the headroom pool holds 1 of {pfc.oversubscription:g} of all headrooms: if more fill "
            "at once, lossless classes lose packets"
        )
    if pfc.watchdog is not None:
        links = (needed for carving in carvings for needed, _ in carving.headroom)
        obeyed_ns = max((needed.obeyed_ns for needed in links), default=0)
        if pfc.watchdog.detection <= obeyed_ns:
            notes.append(
                f"the watchdog mistakes ordinary pauses for storms, as its detection "
                f"({quantities.duration(pfc.watchdog.detection)}) is not longer than a sender "
                f"takes to obey a pause ({quantities.duration(obeyed_ns)})"
            )
    return tuple(notes)


def nic_headrooms(fabric: Fabric, pfc: PfcSpec) -> tuple[Headroom, ...]:
    """What each kind of link between a NIC and a switch needs, in the order of the links."""
    kinds = dict.fromkeys(
        (link.rate_bps, link.mtu, link.cable_ns)
        for link in fabric.links
        if not (link.a.role.is_switch and link.b.role.is_switch)
    )
    return tuple(headroom_of(pfc, *kind) for kind in kinds)


def too_small(fabric: Fabric) -> tuple[str, ...]:
    """Of `warnings`, those for which a lab loses packets that it should not."""
    if fabric.parts:
        return tuple(
            f"network {part.network_name}: {text}"
            for part in fabric.parts
            for text in too_small(part)
        )
    pfc = fabric.spec.queues.pfc
    if pfc is None:
        return ()
    return (
        *_switch_problems(pfc, carve(fabric, pfc)),
        *_nic_problems(pfc, nic_headrooms(fabric, pfc)),
    )


def _offset(carving: Carving) -> int:
    return min(pauses.xon_offset for pauses in carving.pauses)


def _switch_problems(pfc: PfcSpec, carvings: Sequence[Carving]) -> Iterator[str]:
    small = dict.fromkeys(
        (pauses.headroom, needed.total)
        for carving in carvings
        for pauses, (needed, _) in zip(carving.pauses, carving.headroom, strict=True)
        if pauses.headroom is not None and pauses.headroom < needed.total
    )
    if small:
        headroom, needed = max(small, key=lambda pair: pair[1] - pair[0])
        yield (
            f"a headroom of {quantities.size(headroom)} cannot hold the "
            f"{quantities.size(needed)} that may arrive after a pause: lossless classes lose "
            "packets"
        )
    for carving in carvings:
        one = max(
            min(needed.total, pauses.headroom or needed.total)
            for pauses, (needed, _) in zip(carving.pauses, carving.headroom, strict=True)
        )
        if carving.headroom_pool < one:
            yield (
                f"{carving.role}: the headroom pool ({quantities.size(carving.headroom_pool)}) "
                f"cannot hold the {quantities.size(one)} that may arrive at one port after a "
                "pause: lossless classes lose packets"
            )


def _nic_problems(pfc: PfcSpec, nics: Sequence[Headroom]) -> Iterator[str]:
    for needed in nics:
        xoff, _ = nic_thresholds(pfc, needed.total)
        room = pfc.nic.buffer - xoff
        if room < needed.total:
            yield (
                f"a NIC that pauses at {quantities.size(xoff)} of its "
                f"{quantities.size(pfc.nic.buffer)} cannot hold the "
                f"{quantities.size(needed.total)} that may arrive after the pause: a slow host "
                "loses packets"
            )


def _dscp_problems(queues: QueuesSpec, pfc: PfcSpec) -> Iterator[str]:
    """Of jobs that leave their DSCPs at the defaults."""
    classes = class_of_dscp(queues.dscp)
    if classes[DATA_DSCP] not in pfc.classes:
        yield (
            f"data (DSCP {DATA_DSCP}, unless a job has another) is in class {classes[DATA_DSCP]}, "
            "which is not lossless: see queues.dscp"
        )
    for dscp, packets in ((CNP_DSCP, "CNPs"), (ACK_DSCP, "ACKs and NAKs")):
        if classes[dscp] in pfc.classes:
            yield (
                f"{packets} (DSCP {dscp}) are in lossless class {classes[dscp]}: pauses stop them "
                "too, see queues.dscp"
            )
