"""AS numbers of a layout by role: of each node, of each zone, or of all nodes of a role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from rocelab.fabrics.addressing import ASN_BASE
from rocelab.fabrics.layout import Layout, Site

RESERVED = {
    0: "reserved, RFC 7607",
    23456: "AS_TRANS, RFC 6793",
    65535: "reserved, RFC 7300",
    2**32 - 1: "reserved, RFC 7300",
}
"""ASNs that no router may have, and why."""


class Each(StrEnum):
    """Who has an AS number of its own."""

    NODE = "node"
    ZONE = "zone"
    ROLE = "role"


class AsnsExhaustedError(ValueError):
    """A role needs more AS numbers than its range has."""

    def __init__(self, role: str, needed: int, rule: AsnRange) -> None:
        super().__init__(
            f"the {role} switches need {needed:,} AS numbers, and {rule.first}-{rule.last} has "
            f"{rule.count:,}"
        )
        self.role = role


@dataclass(frozen=True, slots=True)
class AsnRange:
    """The AS numbers of a role, from `first` to `last`."""

    first: int
    last: int
    each: Each

    @property
    def count(self) -> int:
        """The numbers that a router may have."""
        return self.last - self.first + 1 - sum(self.first <= n <= self.last for n in RESERVED)

    def number(self, place: int) -> int:
        """The `place`-th of them, from 0."""
        number = self.first + place
        for reserved in sorted(RESERVED):
            number += self.first <= reserved <= number
        return number


def with_asns(layout: Layout, ranges: Mapping[str, AsnRange]) -> Layout:
    """The layout with the AS numbers of `ranges`, by role. Nodes whose numbers are given keep
    them, and ranges pass over these. Raises AsnsExhaustedError."""
    if not ranges:
        return layout
    kept = {site.asn for site in layout.sites if site.asn_is_given}
    numbers: dict[str, int] = {}
    for role, rule in ranges.items():
        of_role = [
            site for site in layout.sites if site.role.name == role and not site.asn_is_given
        ]
        numbers |= _numbers(role, rule, of_role, kept)
    sites = tuple(
        replace(site, asn=numbers[site.name]) if site.name in numbers else site
        for site in layout.sites
    )
    return replace(layout, sites=sites)


def with_own_asns(layout: Layout) -> Layout:
    """The layout with an AS number of its own for each switch: a path with a valley crosses a tier
    twice."""
    sites = tuple(
        site if site.asn is None else replace(site, asn=ASN_BASE + index)
        for index, site in enumerate(layout.sites)
    )
    return replace(layout, sites=sites)


def with_missing_asns(sites: Mapping[str, Site]) -> dict[str, Site]:
    """The sites by name, each switch with an AS number: one that none has where it was missing."""
    taken = {site.asn for site in sites.values()}
    free = (number for number in range(ASN_BASE, 2**32 - 1) if number not in taken)
    return {
        name: replace(site, asn=next(free)) if site.role.is_switch and site.asn is None else site
        for name, site in sites.items()
    }


def _numbers(role: str, rule: AsnRange, sites: list[Site], kept: set[int | None]) -> dict[str, int]:
    owners = list(dict.fromkeys(_owner(rule.each, site) for site in sites))
    free = (rule.number(place) for place in range(rule.count))
    if rule.each is Each.NODE:
        free = (number for number in free if number not in kept)
    number_of = dict(zip(owners, free, strict=False))
    if len(number_of) < len(owners):
        raise AsnsExhaustedError(role, len(owners), rule)
    return {site.name: number_of[_owner(rule.each, site)] for site in sites}


def _owner(owner: Each, site: Site) -> str | int | None:
    """Who has the AS number of a site."""
    match owner:
        case Each.NODE:
            return site.name
        case Each.ZONE:
            return site.zone
        case Each.ROLE:
            return None
