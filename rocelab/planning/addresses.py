"""The address and AS plan of a fabric: what each range of numbers is for, and where it begins and
ends.

In: a fabric. Out: a row for each use, role and zone, such as the loopbacks of the rack switches of
a zone, for `rocelab plan`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_interface, ip_network

from rocelab.base.family import Family
from rocelab.fabrics.addressing import number_of
from rocelab.planning.fabric import Fabric, holds


class AddressUse(StrEnum):
    """What numbers are for. A block is the prefix that a switch, or two that share NICs,
    originate; the links of their NICs and their loopbacks lie in it."""

    ASN = "ASNs"
    LOOPBACK = "loopbacks"
    BLOCK = "blocks"
    NIC = "NICs of several ports"
    LINK = "links"


@dataclass(frozen=True, slots=True)
class AddressRange:
    """Distinct numbers, not necessarily without gaps: ASNs, addresses, or prefixes."""

    use: AddressUse
    family: Family | None
    """None for ASNs."""
    roles: tuple[str, ...]
    """Of the nodes, or of both ends of links, the lower first."""

    zone: int | None
    """That of the nodes or of the lower ends."""

    count: int
    """How many of the numbers from `first` to `last` are used."""

    first: str
    last: str


def address_plan(fabric: Fabric, *, by_zone: bool = True) -> tuple[AddressRange, ...]:
    """All ranges in the order of uses, those of a use in build order; with `by_zone` one for each
    zone, else one for all of them. Unnumbered links have none."""
    members: dict[tuple[AddressUse, Family | None, tuple[str, ...], int | None], set[str]] = {}
    for use, roles, zone, number in _numbers(fabric):
        family = None if use is AddressUse.ASN else Family.of(number)
        members.setdefault((use, family, roles, zone if by_zone else None), set()).add(number)
    ranges = [
        AddressRange(
            use,
            family,
            roles,
            zone,
            len(numbers),
            min(numbers, key=_order),
            max(numbers, key=_order),
        )
        for (use, family, roles, zone), numbers in members.items()
    ]
    uses = list(AddressUse)
    return tuple(sorted(ranges, key=lambda part: uses.index(part.use)))


@dataclass(frozen=True, slots=True)
class PoolUse:
    """How many addresses of a prefix are announced or are on links between switches."""

    prefix: str
    size: int
    used: int


def addresses_in_use(fabric: Fabric) -> tuple[PoolUse, ...]:
    """The use of each of the fabric's pools, and of what is announced outside of them."""
    networks = [ip_network(prefix.prefix) for prefix in fabric.prefixes if not prefix.per_port]
    for link in fabric.trunks:
        addresses = filter(None, (link.a.address, link.a.other_address))
        networks += [ip_interface(address).network for address in addresses]
    pools = [ip_network(text) for text in fabric.space]
    return tuple(
        PoolUse(
            str(pool),
            pool.num_addresses,
            sum(part.num_addresses for part in networks if holds(pool, part)),
        )
        for pool in pools
    )


def _numbers(fabric: Fabric) -> Iterator[tuple[AddressUse, tuple[str, ...], int | None, str]]:
    for node in fabric.switches:
        if node.asn is not None:
            yield AddressUse.ASN, (node.role.name,), node.zone, str(node.asn)
        for loopback in (node.loopback, node.other_loopback):
            if loopback is not None:
                yield AddressUse.LOOPBACK, (node.role.name,), node.zone, loopback
    for prefix in fabric.prefixes:
        origin = fabric.node(prefix.origins[0])
        if prefix.per_port:
            yield AddressUse.NIC, (origin.role.name,), origin.zone, prefix.prefix
        elif prefix.prefix.partition("/")[0] not in (origin.loopback, origin.other_loopback):
            yield AddressUse.BLOCK, (origin.role.name,), origin.zone, prefix.prefix
    for link in fabric.links:
        # The ports of a NIC with several share an address, which is no link's.
        zone = fabric.node(link.a.node).zone
        if link.name in fabric.tenant_by_link:
            continue  # of its tenant's subnet
        for address in (link.a.address, link.a.other_address):
            if address is not None and not link.a.is_shared:
                yield AddressUse.LINK, (link.a.role.name, link.b.role.name), zone, address


def _order(number: str) -> int:
    """The place of an ASN, an address or a prefix among others of its use."""
    if number.isdecimal():
        return int(number)
    return number_of(number.partition("/")[0])
