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
from rocelab.labfile.headroom import Headroom, divided, headroom_of
from rocelab.labfile.model import LabSpec
from rocelab.labfile.pfc import PfcSpec
from rocelab.labfile.queues import ACK_DSCP, CNP_DSCP, DATA_DSCP, QueuesSpec
from rocelab.planning.fabric import Fabric
from rocelab.planning.queues import burst_bytes, class_of_dscp


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
    """Of each port and class, by the rate of its link."""
    headroom_pool: int
    """Of all of them."""
    xoff: int
    """The threshold of the first class that fills, while nothing else is held; a dynamic one falls
    as others hold packets."""
    xon: int
    marked_below: int
    """Where marks begin below this depth of an egress queue, they begin before pauses."""

    @property
    def shared(self) -> int:
        """The memory that is left for all ports."""
        return self.memory - self.reserved - self.headroom_pool


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
    one_way_ns = fabric.spec.links.cable_ns
    carvings = (
        carving(pfc, role, count, ports, one_way_ns) for (role, ports), count in kinds.items()
    )
    return tuple(sorted(carvings, key=lambda carving: carving.role.tier))


def carving_of(fabric: Fabric, pfc: PfcSpec, switch: str) -> Carving:
    """The memory of one switch."""
    links = Counter((link.rate_bps, link.mtu) for link in fabric.links_of[switch])
    role, one_way_ns = fabric.node(switch).role, fabric.spec.links.cable_ns
    return carving(pfc, role, 1, sorted(links.items()), one_way_ns)


def carving(
    pfc: PfcSpec,
    role: Role,
    switches: int,
    links: Sequence[tuple[tuple[int, int], int]],
    one_way_ns: int,
) -> Carving:
    """The memory of each of `switches` equal switches. links: of one of them, with their rate in
    bit/s and MTU, and how many there are."""
    ports = sum(count for _, count in links)
    needs = tuple(
        (headroom_of(pfc, rate_bps, mtu, one_way_ns), count) for (rate_bps, mtu), count in links
    )
    memory, reserved, pool = divided(pfc, needs)
    shared = memory - reserved - pool
    if pfc.xoff is None:
        # A class with q bytes is paused at q = a x (shared - q), and resumed at the offset less.
        share = 2.0**pfc.dynamic_th
        xoff = round(shared * share / (1 + share))
        xon = round((shared * share - pfc.xon_offset) / (1 + share))
        # DCQCN (SIGCOMM 2015), section 4, with the lossless classes for its eight.
        marked_below = round(shared * share / (1 + share) / (len(pfc.classes) * ports))
    else:
        xoff = min(pfc.xoff, shared)
        xon = xoff - pfc.xon_offset
        # All egress queues may hold packets of one ingress port (ibid.).
        marked_below = min(xoff // ports, shared // (len(pfc.classes) * ports))
    return Carving(
        role=role,
        switches=switches,
        ports=ports,
        memory=memory,
        reserved=reserved,
        headroom=needs,
        headroom_pool=pool,
        xoff=xoff,
        xon=max(0, xon),
        marked_below=marked_below,
    )


def warnings(
    queues: QueuesSpec, pfc: PfcSpec, carvings: Sequence[Carving], nics: Sequence[Headroom]
) -> tuple[str, ...]:
    """Why lossless classes may lose packets, be paused before they are marked or for too long, or
    hold other packets than they should. nics: as of `nic_headrooms`."""
    notes = [*_of_switches(pfc, carvings), *_of_nics(pfc, nics)]
    for carving in carvings:
        full = carving.ports * len(pfc.classes) * (pfc.xoff or 0)
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
        if carving.xon < max(needed.frame for needed, _ in carving.headroom):
            notes.append(
                f"{carving.role}: a port resumes only when it holds less than a packet, as "
                f"xon_offset ({quantities.size(pfc.xon_offset)}) is too large for an XOFF of "
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
    notes += _of_dscps(queues, pfc)
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
        (link.rate_bps, link.mtu)
        for link in fabric.links
        if not (link.a.role.is_switch and link.b.role.is_switch)
    )
    one_way_ns = fabric.spec.links.cable_ns
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
            f"a headroom of {quantities.size(pfc.headroom)} cannot hold the "
            f"{quantities.size(most.total)} that may arrive after a pause: lossless classes lose "
            "packets"
        )
    for carving in carvings:
        one = max(needed.total for needed, _ in carving.headroom)
        if pfc.oversubscription > 1 and carving.headroom_pool < one:
            yield (
                f"{carving.role}: the headroom pool ({quantities.size(carving.headroom_pool)}) "
                f"cannot hold the {quantities.size(one)} that may arrive at one port after a "
                "pause: lossless classes lose packets"
            )


def _of_nics(pfc: PfcSpec, nics: Sequence[Headroom]) -> Iterator[str]:
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


def _of_dscps(queues: QueuesSpec, pfc: PfcSpec) -> Iterator[str]:
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
