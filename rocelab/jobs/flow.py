"""Flows: sources, destinations, NICs and rates, and the patterns that flows form.

Makes frozen flows on a `Fabric` and resolves the addresses in their frames. Patterns draw only from
a seed, so a run can be repeated flow by flow.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rocelab.base.errors import InputError
from rocelab.jobs.placement import find_nic
from rocelab.jobs.sport import FIRST_SPORT, QPN_LIMIT, SPORTS
from rocelab.planning.fabric import Fabric
from rocelab.planning.tenancy import check_reached, leaf_of, next_hop_mac, tenant_name
from rocelab.wire.headers import IP_OFFSET, frame_overhead_bytes
from rocelab.wire.probe import MIN_PAYLOAD_BYTES, NO_FLOW

FIRST_QP = 2
"""QP 0 and 1 are the management QPs (InfiniBand Architecture Specification 3.9.1)."""


@dataclass(frozen=True, slots=True)
class ProbeStream:
    """A constant-rate stream of probes from one NIC to another; NICs count from 1.

    It uses port `leaves_by` (from 0) of a NIC with two.

    Raises InputError for a number outside the range of the packet field or of the sender.
    """

    id: int
    source: str
    source_nic: int
    destination: str
    destination_nic: int
    sport: int
    dest_qp: int
    rate_pps: int
    payload_bytes: int
    leaves_by: int = 0

    def __post_init__(self) -> None:
        limits = (
            ("id", self.id, 0, NO_FLOW - 1),
            ("sport", self.sport, 1, 2**16 - 1),
            ("dest_qp", self.dest_qp, 0, QPN_LIMIT - 1),
            ("rate_pps", self.rate_pps, 1, 10**6),
            ("payload_bytes", self.payload_bytes, MIN_PAYLOAD_BYTES, 4096),
        )
        for name, value, lowest, highest in limits:
            if not lowest <= value <= highest:
                raise InputError(
                    f"flow {self.id}: {name} is {value}",
                    hint=f"give a value from {lowest} to {highest}",
                )


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses in frames between two NICs, and the interface that sends them.

    `next_hop_mac` is that of the first switch, which gets every packet of a server; within a tenant
    that of the other NIC.
    """

    source: str
    interface: str
    destination: str
    source_mac: str
    next_hop_mac: str
    source_ip: str
    destination_ip: str
    mtu: int


def resolve_endpoints(
    fabric: Fabric,
    source: str,
    destination: str,
    source_nic: int = 1,
    destination_nic: int = 1,
    leaves_by: int = 0,
) -> Endpoints:
    """The addresses between two servers' NICs (from 1), out of port `leaves_by` (from 0).

    Raises InputError if a NIC or port is missing, or the NICs are not of one tenant.
    """
    nic = find_nic(fabric, source, source_nic)
    far = find_nic(fabric, destination, destination_nic)
    if (source, source_nic) == (destination, destination_nic):
        raise InputError(f"{source} would send to itself", hint="name two servers")
    if not 0 <= leaves_by < len(nic.links):
        raise InputError(
            f"{source}'s NIC {source_nic} has no port {leaves_by + 1}",
            hint=f"its ports are 1 to {len(nic.links)}",
        )
    check_reached(fabric, nic, far)
    link = nic.links[leaves_by]
    port = link.a
    return Endpoints(
        source=source,
        interface=port.interface,
        destination=destination,
        source_mac=port.mac,
        next_hop_mac=next_hop_mac(fabric, link, far),
        source_ip=port.ip,
        destination_ip=far.ip,
        mtu=link.mtu,
    )


def resolve_flow(fabric: Fabric, flow: ProbeStream) -> Endpoints:
    """A flow's addresses. Raises InputError if it does not fit the fabric or its MTU."""
    ends = resolve_endpoints(
        fabric,
        flow.source,
        flow.destination,
        flow.source_nic,
        flow.destination_nic,
        flow.leaves_by,
    )
    overhead = frame_overhead_bytes(fabric.family) - IP_OFFSET
    largest = (ends.mtu - overhead) // 4 * 4
    if flow.payload_bytes > largest:
        raise InputError(
            f"flow {flow.id}: {flow.payload_bytes} bytes of payload do not fit the MTU {ends.mtu}",
            hint=f"send {largest} at most (RoCEv2 adds {overhead}), or raise links.mtu",
        )
    return ends


def permutation(
    fabric: Fabric, flows: int, rate_pps: int, payload_bytes: int, seed: int
) -> tuple[ProbeStream, ...]:
    """`flows` flows, each to a server of another rack, from NIC *i* to NIC *i*.

    Flows are dealt in rounds: in each, every server sends to one other and receives from one other,
    until `flows` are dealt; later rounds use further NICs, then their second ports. Source ports
    and QPs are random and, up to 16,384 flows, all distinct.
    In a lab of tenants every pair is of one tenant. Raises InputError if fewer than two racks have
    servers, or no tenant is in two racks.
    """
    if flows < 1:
        raise InputError(f"{flows} flows asked for", hint="ask for one or more")
    rng = random.Random(seed)  # noqa: S311 - repeatable draws, not secrets
    racks = _servers_by_rack(fabric)
    pairs: list[tuple[str, str]] = []
    numbers: list[int] = []
    if fabric.tenants:
        pairs, numbers = _within_tenants(fabric, flows, rng)
    elif len(racks) < 2:
        raise InputError(
            "flows between racks need servers in two racks or more",
            hint="set fabric.racks to 2 or more and fabric.servers_per_rack to 1 or more",
        )
    while len(pairs) < flows:
        pairs += _round(racks, rng)
    sports = [
        port for _ in range(-(-flows // SPORTS)) for port in rng.sample(range(SPORTS), SPORTS)
    ]
    queue_pairs = rng.sample(range(FIRST_QP, QPN_LIMIT), flows)
    per_round = sum(len(rack) for rack in racks)
    dealt = []
    for index, (source, destination) in enumerate(pairs[:flows]):
        rails = min(len(fabric.nics(source)), len(fabric.nics(destination)))
        turn = index // per_round
        nic = turn % rails + 1 if not numbers else numbers[index]
        ports = len(fabric.nics(source)[nic - 1].links)
        dealt.append(
            ProbeStream(
                id=index,
                source=source,
                source_nic=nic,
                destination=destination,
                destination_nic=nic,
                sport=FIRST_SPORT + sports[index],
                dest_qp=queue_pairs[index],
                rate_pps=rate_pps,
                payload_bytes=payload_bytes,
                leaves_by=turn // rails % ports,
            )
        )
    return tuple(dealt)


def _within_tenants(
    fabric: Fabric, flows: int, rng: random.Random
) -> tuple[list[tuple[str, str]], list[int]]:
    """At least `flows` pairs of servers, each of one tenant and of two racks, and the number of
    the NIC of each. Raises InputError if no tenant is in two racks."""
    segments: dict[tuple[str | None, int], dict[str, list[str]]] = {}
    for server in fabric.servers:
        for nic in fabric.nics(server.name):
            racks = segments.setdefault((tenant_name(fabric, nic), nic.number), {})
            racks.setdefault(leaf_of(nic), []).append(server.name)
    usable = {key: list(racks.values()) for key, racks in segments.items() if len(racks) > 1}
    if not usable:
        raise InputError(
            "flows between racks need NICs of one tenant in two racks or more",
            hint="give a tenant members in another rack",
        )
    pairs: list[tuple[str, str]] = []
    numbers: list[int] = []
    while len(pairs) < flows:
        for (_, number), below in usable.items():
            dealt = _round(below, rng)
            pairs += dealt
            numbers += [number] * len(dealt)
    return pairs, numbers


def _servers_by_rack(fabric: Fabric) -> list[list[str]]:
    racks: dict[str, list[str]] = {}
    for server in fabric.servers:
        rtsw = fabric.uplinks(server.name)[0].b.node
        racks.setdefault(rtsw, []).append(server.name)
    return list(racks.values())


def _round(racks: Sequence[Sequence[str]], rng: random.Random) -> list[tuple[str, str]]:
    """Every server with a partner in another rack.

    With racks one after another on a ring, a shift no shorter than the largest rack and no longer
    than the rest of the ring always ends in another rack.
    """
    shuffled = [rng.sample(rack, len(rack)) for rack in rng.sample(racks, len(racks))]
    ring = [server for rack in shuffled for server in rack]
    largest = max(len(rack) for rack in racks)
    if 2 * largest > len(ring):
        raise InputError(
            "one rack has more servers than all others together",
            hint="a permutation between racks needs racks of like size",
        )
    shift = rng.randint(largest, len(ring) - largest)
    partners = ring[shift:] + ring[:shift]
    return rng.sample(list(zip(ring, partners, strict=True)), len(ring))
