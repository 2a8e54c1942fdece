"""The addresses of a layout, of one family: loopbacks, links and NICs, and what is announced.

Addresses that a layout gives are kept, and no block contains one. Everything else comes from the
pools in build order, so the same layout and pools give the same addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_interface, ip_network

from rocelab.base.family import Family
from rocelab.fabrics.addressing import (
    AddressSpace,
    address_text,
    dotted,
    number_of,
    prefix_text,
)
from rocelab.fabrics.homes import homes_of
from rocelab.fabrics.layout import CableSettings, Layout

Ends = tuple[str, str]
"""The addresses of the lower and of the upper end of a link, with their lengths."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prefix and the switches that announce it.

    `per_port` marks the prefix of a NIC with several ports: each switch announces it while it has
    carrier to the NIC.
    """

    prefix: str
    origins: tuple[str, ...]
    per_port: bool = False

    @property
    def family(self) -> Family:
        return Family.of(self.prefix)


@dataclass(frozen=True, slots=True)
class Pools:
    """The prefixes of one family that addresses come from; those with equal text are one space."""

    family: Family
    loopbacks: str
    links: str
    servers: str

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The distinct pools."""
        return tuple(dict.fromkeys((self.servers, self.loopbacks, self.links)))


@dataclass(frozen=True, slots=True)
class Numbers:
    """The addresses of a layout of one family, each list in build order."""

    family: Family
    loopbacks: dict[str, str]
    """Of each switch, without length."""
    nics: list[tuple[Ends, ...]]
    """Of each NIC, one for each of its ports."""
    cables: list[Ends | None]
    """Of each cable, None if it has none."""
    prefixes: list[Prefix]
    """What switches announce."""


def numbers_of(layout: Layout, pools: Pools, *, numbered: bool) -> Numbers:
    """The addresses of a layout. numbered: whether links between switches have addresses.

    Raises AddressSpaceFullError.
    """
    family = pools.family
    taken = list(given_addresses(layout, family))
    spaces = {text: AddressSpace.of(ip_network(text), taken) for text in pools.prefixes}
    servers = spaces[pools.servers]
    ends_of, blocks, loopback_of = _home_addresses(layout, servers, pools)
    prefixes: list[Prefix] = []
    for site in layout.sites:
        if not site.role.is_switch:
            continue
        if site.name not in loopback_of:
            fixed = _address_of_family(site.loopbacks, family)
            start = spaces[pools.loopbacks].take(1) if fixed is None else number_of(fixed)
            loopback_of[site.name] = address_text(start, family)
            prefixes.append(Prefix(f"{loopback_of[site.name]}/{family.bits}", (site.name,)))
        prefixes += blocks.get(site.name, ())
    nics: list[tuple[Ends, ...]] = []
    for index, nic in enumerate(layout.attachments):
        given_ends = _given(nic.wiring_of(0), family)
        if given_ends is not None:
            prefixes.append(Prefix(str(ip_interface(given_ends[1]).network), nic.switches))
            nics.append((given_ends,))
        elif len(nic.switches) == 1:
            nics.append((_point_to_point(ends_of[index], family),))
        else:
            shared, bits = address_text(ends_of[index], family), family.bits
            nics.append(
                tuple((f"{shared}/{bits}", f"{loopback_of[at]}/{bits}") for at in nic.switches)
            )
    cables: list[Ends | None] = []
    for cable in layout.cables:
        ends = _given(cable.wiring, family)
        if ends is None and numbered:
            ends = _point_to_point(spaces[pools.links].take(2), family)
        cables.append(ends)
    return Numbers(family, loopback_of, nics, cables, prefixes)


def _home_addresses(
    layout: Layout, space: AddressSpace, pools: Pools
) -> tuple[dict[int, int], dict[str, list[Prefix]], dict[str, str]]:
    """The first address of each NIC that has none yet, the prefixes of homes by their first switch,
    and the loopbacks that lie in them."""
    family = pools.family
    numbered = {
        index
        for index, nic in enumerate(layout.attachments)
        if _given(nic.wiring_of(0), family) is not None
    }
    given_loopback = {
        site.name for site in layout.sites if _address_of_family(site.loopbacks, family) is not None
    }
    starts: dict[int, int] = {}
    blocks: dict[str, list[Prefix]] = {}
    loopback_of: dict[str, str] = {}
    for home in homes_of(layout, space, numbered):
        first = home.switches[0]
        if not home.nics and (pools.loopbacks != pools.servers or first in given_loopback):
            continue
        block = blocks.setdefault(first, [])
        block.append(Prefix(prefix_text(home.start, home.size, family), home.switches))
        below = [home.start + index * home.step for index in range(len(home.nics))]
        starts.update(zip(home.nics, below, strict=True))
        if home.is_dual:
            shared = (f"{address_text(start, family)}/{family.bits}" for start in below)
            block += [Prefix(text, home.switches, per_port=True) for text in shared]
        elif pools.loopbacks == pools.servers and first not in given_loopback:
            end = home.start + home.step * len(home.nics)
            loopback_of[first] = address_text(end, family)
    return starts, blocks, loopback_of


def given_addresses(layout: Layout, family: Family) -> Iterator[int]:
    """Every address of a family that a layout gives, by value."""
    for site in layout.sites:
        if (loopback := _address_of_family(site.loopbacks, family)) is not None:
            yield number_of(loopback)
    wirings = [wiring for nic in layout.attachments for wiring in nic.wiring]
    for wiring in (*wirings, *(cable.wiring for cable in layout.cables)):
        for end in _given(wiring, family) or ():
            yield int(ip_interface(end).ip)


def _given(wiring: CableSettings, family: Family) -> Ends | None:
    if not wiring.addresses:
        return None
    return next((ends for ends in wiring.addresses if Family.of(ends[0]) is family), None)


def _address_of_family(addresses: Iterable[str], family: Family) -> str | None:
    return next((text for text in addresses if Family.of(text) is family), None)


def _point_to_point(start: int, family: Family) -> Ends:
    """The two addresses of a /31 (RFC 3021) or a /127 (RFC 6164), the lower end's first."""
    if family is Family.IPV4:
        return f"{dotted(start)}/31", f"{dotted(start + 1)}/31"
    first, second = (address_text(start + step, family) for step in (0, 1))
    return f"{first}/127", f"{second}/127"
