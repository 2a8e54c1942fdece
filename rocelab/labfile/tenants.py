"""Tenants of a lab, which share its fabric and do not reach each other: the block `tenants`.

A tenant is an Ethernet segment over VXLAN (RFC 7348) that EVPN announces (RFC 8365): NICs in one
subnet, bridged by their leaves. `check_tenants` says what a lab of tenants cannot be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from ipaddress import ip_address, ip_network
from itertools import combinations
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from rocelab.base.family import Family
from rocelab.base.wording import KeyPath, RefusedError, listed, shown
from rocelab.fabrics.graph import overlap
from rocelab.fabrics.layout import Layout
from rocelab.fabrics.numbers import given_addresses
from rocelab.labfile.addresses import AddressesSpec, Pool
from rocelab.labfile.base import SpecModel, check_name
from rocelab.labfile.stacks import DEFAULT_STACK
from rocelab.wire.vxlan import VXLAN_BYTES

LEAST_MTU = 1280
LAST_VNI = 2**24 - 2
MOST_TENANTS = 256
_ROUTED = ("gateway", "irb", "l3vni", "vrf")
"""Keys of others that route tenants."""


class TenantSpec(SpecModel):
    """A tenant: its VXLAN network identifier, its subnet and whose NICs are in it."""

    vni: Annotated[int, Field(ge=1, le=LAST_VNI, description="its VXLAN network identifier")]
    subnet: Annotated[
        Pool,
        Field(
            min_length=1,
            description="the subnet that its NICs have addresses of, or one of each family",
        ),
    ]
    members: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=64)], ...],
        Field(
            strict=False,
            min_length=1,
            description="servers, NICs (srv1-1:2), leaves (the NICs at them) or roles of leaves, "
            "by name or pattern (srv*-1)",
        ),
    ]
    arp_suppression: Annotated[
        bool, Field(description="leaves answer ARP for addresses that EVPN has announced")
    ] = False

    @model_validator(mode="before")
    @classmethod
    def _is_not_routed(cls, value: object) -> object:
        routed = next((key for key in _ROUTED if isinstance(value, Mapping) and key in value), None)
        if routed is not None:
            raise RefusedError(
                f"expected no {routed}: tenants are bridged, not routed to each other",
                "routing between them (EVPN's IRB) needs a VRF each, which rocelab does not make; "
                "many kernels have none (`rocelab doctor` says so)",
                keys=(routed,),
            )
        return value


TenantName = Annotated[str, BeforeValidator(check_name)]
Tenants = Mapping[TenantName, TenantSpec]


def tenant_of_nics(layout: Layout, tenants: Tenants) -> dict[int, str]:
    """The tenant of each NIC that is in one, by the NIC's index in the layout. Raises RefusedError,
    with keys of a lab's file, for a member that is no NIC, in two tenants, or on two leaves."""
    names = _names(layout)
    tenant_of: dict[int, str] = {}
    for name, tenant in tenants.items():
        for place, text in enumerate(tenant.members):
            keys: list[KeyPath] = [("tenants", name, "members", place), ("tenants", name)]
            members = [
                nic for nic, of in enumerate(names) if any(fnmatchcase(one, text) for one in of)
            ]
            if not members:
                raise RefusedError(
                    f"no NIC is {shown(text)}, or at a leaf of that name or role",
                    "`rocelab plan --json` names the nodes",
                    keys=keys,
                )
            for nic in members:
                if tenant_of.setdefault(nic, name) != name:
                    raise RefusedError(
                        f"{names[nic][1]} is in tenant {tenant_of[nic]} and in {name}",
                        "a NIC is in one tenant",
                        keys=keys,
                    )
                if len(layout.attachments[nic].switches) > 1:
                    raise RefusedError(
                        f"{names[nic][1]} has ports on "
                        f"{listed(layout.attachments[nic].switches, 'and')}",
                        "a NIC of a tenant has one port: EVPN's multihoming is not modelled",
                        keys=keys,
                    )
    return tenant_of


def _names(layout: Layout) -> list[tuple[str, ...]]:
    """What each NIC is called in lists of members: its server, itself, its leaves and roles."""
    role_of = {site.name: site.role.name for site in layout.sites}
    numbers: Counter[str] = Counter()
    names = []
    for nic in layout.attachments:
        numbers[nic.server] += 1
        leaves = dict.fromkeys(nic.switches)
        roles = dict.fromkeys((role_of[nic.server], *(role_of[leaf] for leaf in leaves)))
        names.append((nic.server, f"{nic.server}:{numbers[nic.server]}", *leaves, *roles))
    return names


def inner_mtu(layout: Layout, usual: int) -> int:
    """The longest IP packet, in bytes, that a tenant's NICs can send: every link between switches
    carries it with VXLAN's headers. usual: the MTU of links that have none of their own."""
    mtus = [usual if one.wiring.mtu is None else one.wiring.mtu for one in layout.cables]
    return min(mtus, default=usual) - VXLAN_BYTES


def check_tenants(layout: Layout, tenants: Tenants, addresses: AddressesSpec, mtu: int) -> None:
    """Raises RefusedError, with keys of a lab's file, for tenants that the lab's layout, addresses
    or MTUs cannot have. mtu: that of links that have none of their own."""
    if len(tenants) > MOST_TENANTS:
        raise RefusedError(
            f"expected at most {MOST_TENANTS} tenants, got {len(tenants)}", keys=("tenants",)
        )
    if addresses.families[0] is not Family.IPV4:
        raise RefusedError(
            "tenants need loopbacks of IPv4, and the lab has none",
            "FRR's VXLAN tunnels run over IPv4: set addresses.family to ipv4 or dual",
            keys=(("addresses", "family"), ("tenants",)),
        )
    tenant_of = tenant_of_nics(layout, tenants)
    _check_numbers(layout, tenants, addresses, Counter(tenant_of.values()))
    _check_mtus(layout, tenant_of, mtu)


def _check_numbers(
    layout: Layout, tenants: Tenants, addresses: AddressesSpec, sizes: Mapping[str, int]
) -> None:
    for (one_name, one), (name, other) in combinations(tenants.items(), 2):
        if one.vni == other.vni:
            raise RefusedError(
                f"tenants {one_name} and {name} have one VNI, {one.vni}",
                "give each its own",
                keys=(("tenants", name, "vni"),),
            )
    for name, tenant in tenants.items():
        key: KeyPath = ("tenants", name, "subnet")
        families = tuple(map(Family.of, tenant.subnet))
        if set(families) != set(addresses.families):
            raise RefusedError(
                f"the lab has addresses of {listed(addresses.families, 'and')}, and the tenant of "
                f"{listed(families, 'and')}",
                "give a subnet of each family of the lab",
                keys=(key,),
            )
        for subnet in tenant.subnet:
            room = ip_network(subnet).num_addresses - 2
            if room < sizes[name]:
                raise RefusedError(
                    f"{subnet} has {max(0, room)} addresses for {sizes[name]} NICs",
                    "give a shorter prefix",
                    keys=(key,),
                )
            for other_subnet, what in _others(layout, name, tenants, addresses, Family.of(subnet)):
                if overlap(ip_network(subnet), ip_network(other_subnet)):
                    raise RefusedError(
                        f"{subnet} overlaps {what}",
                        "give prefixes apart: rocelab knows a NIC by its address",
                        keys=(key,),
                    )


def _others(
    layout: Layout, name: str, tenants: Tenants, addresses: AddressesSpec, family: Family
) -> Iterator[tuple[str, str]]:
    """The prefixes of a family that a tenant's subnet is apart from, and what they are."""
    for other_name, other in tenants.items():
        if other_name != name:
            yield from ((text, f"{text} of tenant {other_name}") for text in other.subnet)
    for pool in addresses.pools(family).prefixes:
        yield pool, f"{pool}, from which the lab takes addresses"
    for number in given_addresses(layout, family):
        text = str(ip_address(number.to_bytes(family.bits // 8)))
        yield text, f"{text}, the address of a port or a loopback"


def _check_mtus(layout: Layout, tenant_of: Mapping[int, str], usual: int) -> None:
    most = inner_mtu(layout, usual)
    if most < LEAST_MTU:
        raise RefusedError(
            f"links between switches carry {most + VXLAN_BYTES} bytes, of which VXLAN takes "
            f"{VXLAN_BYTES}: {most} are left for a tenant's packets, and IP needs {LEAST_MTU}",
            f"an MTU of {LEAST_MTU + VXLAN_BYTES} or more",
            keys=(("links", "mtu"), ("overrides", "links"), ("fabric", "links"), ("tenants",)),
        )
    for nic, name in tenant_of.items():
        attachment = layout.attachments[nic]
        mtu = attachment.wiring_of(0).mtu
        if mtu is not None and mtu > most:
            raise RefusedError(
                f"{attachment.server} of tenant {name} has an MTU of {mtu}, and links between "
                f"switches carry {most + VXLAN_BYTES}, of which VXLAN takes {VXLAN_BYTES}",
                f"give its link {most} at most, or links between switches more",
                keys=(("overrides", "links"), ("fabric", "links"), ("tenants", name)),
            )


def check_beside_tenants(*, stack: str, scheme: str, policy: str) -> None:
    """Raises RefusedError, with keys of a lab's file, for what does not go with tenants: a routing
    stack, a scheme, a hash policy."""
    reasons: list[tuple[bool, str, str, KeyPath]] = [
        (
            stack != DEFAULT_STACK,
            f"routing.stack {stack} has no EVPN",
            "tenants run with FRR",
            ("routing", "stack"),
        ),
        (
            scheme != "ecmp",
            f"scheme {scheme} reads the headers of RoCE packets, and between leaves VXLAN's are "
            "before them",
            "with tenants the scheme is ecmp: switches hash the outer headers",
            ("scheme",),
        ),
        (
            policy == "custom",
            "hashing.policy custom is another hash for what a leaf sends itself, as VXLAN is",
            "set hashing.policy: l4",
            ("hashing",),
        ),
    ]
    for is_refused, message, hint, key in reasons:
        if is_refused:
            raise RefusedError(message, hint, keys=(key, ("tenants",)))
