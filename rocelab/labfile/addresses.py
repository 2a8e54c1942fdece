"""Where a lab's addresses and AS numbers come from: the block `addresses`.

Without it they are in the spaces for benchmarks, as `rocelab.fabrics.addressing` has them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, ip_interface, ip_network
from itertools import combinations, pairwise
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from rocelab.base.family import Family
from rocelab.base.models import SHORT_FORM, SpecModel
from rocelab.base.wording import KeyPath, RefusedError, described, shown
from rocelab.fabrics.addressing import AddressSpaceFullError, default_space
from rocelab.fabrics.asns import AsnRange, AsnsExhaustedError, Each
from rocelab.fabrics.graph import (
    MAX_ASN,
    RoleName,
    check_asn,
    check_unicast,
    one_a_family,
    overlap,
)
from rocelab.fabrics.layout import Layout, Site
from rocelab.fabrics.numbers import Numbers, Pools, numbers_of

_ONE_NUMBER = "a number of four bytes is one number: 1.10 is 65546"
POOLS = ("loopbacks", "links", "servers")


class Families(StrEnum):
    """The families of a lab's addresses."""

    IPV4 = "ipv4"
    IPV6 = "ipv6"
    DUAL = "dual"


def _network(text: object) -> str:
    try:
        return str(ip_network(str(text)))
    except ValueError:
        hint = "a prefix is an address and a length"
        with suppress(ValueError):
            hint = f"did you mean {ip_network(str(text), strict=False)}?"
        raise RefusedError(
            f"expected a prefix such as 10.0.0.0/16 or fd00::/48, got {shown(text)}", hint
        ) from None


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Pool = Annotated[
    tuple[Annotated[str, AfterValidator(_network), AfterValidator(check_unicast)], ...],
    BeforeValidator(_listed, json_schema_input_type=str | tuple[str, ...]),
    AfterValidator(one_a_family),
    Field(strict=False),
]


class AsnSpec(SpecModel):
    """AS numbers of a role: `65000` for all, `65001-65100` for one each."""

    model_config = ConfigDict(
        json_schema_extra={SHORT_FORM: {"anyOf": [{"type": "integer"}, {"type": "string"}]}}
    )

    first: Annotated[int, Field(ge=1, le=MAX_ASN, description="the first of them")]
    last: Annotated[int, Field(ge=1, le=MAX_ASN, description="the last of them")]
    each: Annotated[
        Each,
        Field(strict=False, description="who has one of its own: each node, each zone or the role"),
    ] = Each.NODE

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        if isinstance(value, int) and not isinstance(value, bool):
            return {"first": value, "last": value, "each": "role"}
        if isinstance(value, str):
            match = re.fullmatch(r"([0-9]{1,10}) ?- ?([0-9]{1,10})", value)
            if match is None:
                raise RefusedError(
                    f"expected an AS number or a range such as 65001-65100, got {shown(value)}",
                    _ONE_NUMBER,
                )
            return {"first": int(match[1]), "last": int(match[2])}
        if isinstance(value, Mapping | AsnSpec):
            return value
        raise RefusedError(
            f"expected an AS number or a range such as 65001-65100, got {described(value)}",
            _ONE_NUMBER,
        )

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.last < self.first:
            raise RefusedError(
                f"expected the last AS number not to be below the first, got "
                f"{self.first}-{self.last}",
                keys=("last",),
            )
        if self.first == self.last:
            check_asn(self.first)
        return self

    @property
    def range(self) -> AsnRange:
        """Its numbers, and who has one each."""
        return AsnRange(self.first, self.last, self.each)


class AddressesSpec(SpecModel):
    """Pools of addresses, one of each family, and AS numbers by role."""

    family: Annotated[
        Families,
        Field(
            strict=False,
            description="ipv4, ipv6, or dual: both, with RoCE over IPv4",
        ),
    ] = Families.IPV4
    loopbacks: Annotated[Pool, Field(description="switches' loopbacks")] = ()
    links: Annotated[
        Pool, Field(description="links between switches, a /31 or a /127 of it each")
    ] = ()
    servers: Annotated[
        Pool, Field(description="NICs' links, a /31 or a /127 each; a block of it a switch")
    ] = ()
    router_ids: Annotated[
        Annotated[str, AfterValidator(_network)] | None,
        Field(description="BGP identifiers of an IPv6 lab; an IPv4 prefix"),
    ] = None
    asns: Annotated[
        Mapping[RoleName, AsnSpec],
        Field(description="AS numbers by role: {leaf: 65001-65100, spine: 65000}"),
    ] = Field(default_factory=dict)

    @property
    def families(self) -> tuple[Family, ...]:
        """The families of the lab's addresses, that of RoCE first."""
        if self.family is Families.DUAL:
            return Family.IPV4, Family.IPV6
        return (Family(self.family.value),)

    def pools(self, family: Family) -> Pools:
        """The pools of a family; those that are not given are the space for benchmarks."""
        usual = default_space(family)
        named = (
            next((text for text in getattr(self, pool) if Family.of(text) is family), usual)
            for pool in POOLS
        )
        return Pools(family, *named)

    @model_validator(mode="after")
    def _pools_are_of_its_families(self) -> Self:
        for key, text in self._given():
            if Family.of(text) not in self.families:
                raise RefusedError(
                    f"{text} is {Family.of(text)}, and the lab is {self.family}",
                    "set addresses.family: dual, or leave it out",
                    keys=(key,),
                )
        if self.router_ids is not None and Family.of(self.router_ids) is Family.IPV6:
            raise RefusedError(
                f"expected an IPv4 prefix, got {self.router_ids}",
                "a BGP identifier has four bytes (RFC 4271)",
                keys=("router_ids",),
            )
        return self

    @model_validator(mode="after")
    def _pools_do_not_overlap(self) -> Self:
        for (one_key, one), (other_key, other) in combinations(self._given(), 2):
            if one == other or Family.of(one) is not Family.of(other):
                continue
            first, second = ip_network(one), ip_network(other)
            if overlap(first, second):
                raise RefusedError(
                    f"{other_key} {other} overlaps {one_key} {one}",
                    "give them prefixes apart, or the same one to share",
                    keys=(other_key,),
                )
        return self

    def _given(self) -> Iterator[tuple[str, str]]:
        for key in POOLS:
            for text in getattr(self, key):
                yield key, text


def check_numbers(
    lay_out: Callable[[], Layout], addresses: AddressesSpec, *, numbered: bool
) -> None:
    """Raises RefusedError, with keys of a lab's file, for AS numbers and addresses that do not
    suffice or that clash."""
    try:
        layout = lay_out()
    except AsnsExhaustedError as error:
        key: KeyPath = ("addresses", "asns", error.role)
        raise RefusedError(str(error), "give a longer range", keys=(key,)) from None
    _check_neighbours(layout, addresses)
    _check_router_ids(layout, addresses)
    loopbacks: dict[str, str] = {}
    for family in addresses.families:
        pools = addresses.pools(family)
        try:
            numbers = numbers_of(layout, pools, numbered=numbered)
        except AddressSpaceFullError as error:
            pool = next(key for key in POOLS if getattr(pools, key) == error.space)
            raise RefusedError(
                str(error),
                f"give addresses.{pool} a shorter prefix, or leave it out",
                keys=(("addresses", pool), ("addresses",)),
            ) from None
        _check_distinct(numbers)
        if family is Family.IPV4:
            loopbacks = numbers.loopbacks
    _check_distinct_router_ids(layout, loopbacks)


def _check_neighbours(layout: Layout, addresses: AddressesSpec) -> None:
    sites = {site.name: site for site in layout.sites}
    for cable in layout.cables:
        lower, upper = sites[cable.lower], sites[cable.upper]
        if lower.asn == upper.asn:
            keys: list[KeyPath] = [("addresses", "asns", lower.role.name), ("addresses", "asns")]
            raise RefusedError(
                f"{lower.name} and its neighbour {upper.name} have one AS number, {lower.asn}",
                "an eBGP session is between two: give one of them another",
                keys=[*keys, ("overrides", "nodes", lower.name), ("fabric", "nodes", lower.name)],
            )


def _check_router_ids(layout: Layout, addresses: AddressesSpec) -> None:
    """Raises RefusedError if the pool of BGP identifiers has too few."""
    if addresses.router_ids is None:
        return
    pool = IPv4Network(addresses.router_ids)
    switches = [site.router_id for site in layout.sites if site.role.is_switch]
    fixed = {text for text in switches if text is not None}
    free = pool.num_addresses - sum(IPv4Address(text) in pool for text in fixed)
    if free < switches.count(None):
        raise RefusedError(
            f"{pool} has {free} BGP identifiers, and {switches.count(None)} switches need one",
            "give a shorter prefix",
            keys=(("addresses", "router_ids"),),
        )


def _check_distinct_router_ids(layout: Layout, loopbacks: Mapping[str, str]) -> None:
    """Raises RefusedError for two switches of one BGP identifier: their own, or an IPv4
    loopback."""
    first: dict[str, str] = {}
    for site in layout.sites:
        identifier = site.router_id or loopbacks.get(site.name)
        if not site.role.is_switch or identifier is None:
            continue
        other = first.setdefault(identifier, site.name)
        if other != site.name:
            named = site if site.router_id is not None else _site(layout, other)
            raise RefusedError(
                f"{other} and {site.name} have one BGP identifier, {identifier}",
                "give each its own router_id, or leave it out: then it is the IPv4 loopback",
                keys=[
                    *((place, "nodes", named.name, "router_id") for place in _PLACES),
                    *((place, "nodes", named.name) for place in _PLACES),
                    ("fabric",),
                ],
            )


_PLACES = ("overrides", "fabric")


def _site(layout: Layout, name: str) -> Site:
    return next(site for site in layout.sites if site.name == name)


def _check_distinct(numbers: Numbers) -> None:
    """Raises RefusedError if two ports or loopbacks have one address, or the networks of two links
    are one or overlap."""
    ends = [end for nic in numbers.nics for pair in nic if len(nic) == 1 for end in pair]
    ends += [end for pair in numbers.cables if pair is not None for end in pair]
    counts = Counter(str(ip_interface(end).ip) for end in ends)
    counts.update(numbers.loopbacks.values())
    twice = next((address for address, count in counts.items() if count > 1), None)
    if twice is not None:
        raise RefusedError(
            f"{twice} is the address of {counts[twice]} ports or loopbacks",
            "give each its own",
            keys=(("fabric", "links"), ("overrides",), ("addresses",)),
        )
    networks = Counter(
        ip_interface(first).network
        for first, _ in (
            *(nic[0] for nic in numbers.nics if len(nic) == 1),
            *(pair for pair in numbers.cables if pair is not None),
        )
    )
    spans = sorted(
        (int(network.network_address), -network.num_addresses, str(network)) for network in networks
    )
    for (first, size, wide), (other, _, inner) in pairwise(spans):
        if other < first - size:
            raise RefusedError(
                f"a link has addresses of {wide}, which holds the {inner} of another link",
                "each link is a network of its own, such as a /31: give it a longer prefix, or "
                "the lab pools that lie apart",
                keys=(("fabric", "links"), ("overrides",), ("addresses",)),
            )
    shared = next((network for network, count in networks.items() if count > 1), None)
    if shared is not None:
        raise RefusedError(
            f"{networks[shared]} links have addresses of {shared}",
            "each link is a network of its own, such as a /31; ports are not bridged",
            keys=(("fabric", "links"), ("overrides",), ("addresses",)),
        )
