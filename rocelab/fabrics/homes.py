"""The blocks of addresses that NICs and their switches take, and the size of a fabric.

A home is a switch of the lowest tier with the NICs below it, or several switches that share NICs
with a port on each. `homes_of` assigns the blocks of a layout. `Counts` says how large a fabric
is, from its keys in microseconds for 32,256 GPUs, or from its layout.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from rocelab.fabrics.addressing import SPACE_START, AddressSpace, block_size
from rocelab.fabrics.layout import Layout

IPV4_END = 2**32


@dataclass(frozen=True, slots=True)
class Home:
    """A switch of the lowest tier, or several that share NICs with a port on each, with its block
    of addresses."""

    switches: tuple[str, ...]
    nics: tuple[int, ...]
    """The NICs below it, by index in the layout. The i-th has the address start + i x step: the
    first address of its link, or the one that its ports share."""
    start: int
    size: int

    @property
    def is_dual(self) -> bool:
        return len(self.switches) > 1

    @property
    def step(self) -> int:
        return 1 if self.is_dual else 2


def homes_of(layout: Layout, space: AddressSpace, numbered: Set[int] = frozenset()) -> list[Home]:
    """The homes of a layout, each with the next block of `space`, in build order. numbered: the
    NICs whose addresses are given, which take none of the block; a home of these alone has none.

    Raises AddressSpaceFullError.
    """
    homes = []
    for switches, below in _nics_of_homes(layout).items():
        nics = [nic for nic in below if nic not in numbered]
        if below and not nics:
            continue
        size = _home_size(len(nics), is_dual=len(switches) > 1)
        homes.append(Home(switches, tuple(nics), space.take(size), size))
    return homes


@dataclass(frozen=True, slots=True)
class HomeCounts:
    """The size of a fabric. A GPU has one NIC; a session is a cable between two switches."""

    switches: int
    servers: int
    nics: int
    sessions: int
    addresses: int
    """What the blocks of its homes and the loopbacks of its other switches take."""


def addresses_of(switches: int, homes: int, nics: int, *, is_dual: bool = False) -> int:
    """The addresses that `switches` switches take if `homes` homes have `nics` NICs each."""
    loopbacks = switches if is_dual else switches - homes
    return homes * _home_size(nics, is_dual=is_dual) + loopbacks


def counted(layout: Layout) -> HomeCounts:
    """The size of a layout."""
    switches = sum(site.role.is_switch for site in layout.sites)
    space = AddressSpace(IPV4_END - SPACE_START)
    homes = homes_of(layout, space)
    return HomeCounts(
        switches=switches,
        servers=len(layout.sites) - switches,
        nics=len(layout.attachments),
        sessions=len(layout.cables),
        addresses=space.used + switches - sum(not home.is_dual for home in homes),
    )


def _home_size(nics: int, *, is_dual: bool) -> int:
    # At least two addresses: a NIC's own prefix is withdrawn with its link, this one never.
    return block_size(max(2, nics) if is_dual else 2 * nics + 1)


def _nics_of_homes(layout: Layout) -> dict[tuple[str, ...], list[int]]:
    """The NICs, by index in the layout, below each switch of the lowest tier; switches that share
    NICs with several ports are one home."""
    shared = {
        name: attachment.switches
        for attachment in layout.attachments
        for name in attachment.switches
    }
    homes: dict[tuple[str, ...], list[int]] = {}
    for site in layout.sites:
        if site.role.tier == 1:
            homes.setdefault(shared.get(site.name, (site.name,)), [])
    for number, attachment in enumerate(layout.attachments):
        homes.setdefault(attachment.switches, []).append(number)
    return homes
