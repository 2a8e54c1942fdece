"""Addresses and ASNs: by default in 198.18.0.0/15 (RFC 2544) or, of IPv6, 2001:2::/48 (RFC 5180),
and 4-byte private ASNs (RFC 6996).

A space is assigned from its start in blocks: first a prefix per rack (its /31 NIC links and its
RTSW's loopback, rounded up to a power of two), then loopbacks of CTSWs and ATSWs, then a /31 per
switch-to-switch link. Blocks are assigned in build order, so a plan never changes between runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network
from socket import AF_INET, AF_INET6, inet_aton, inet_ntoa, inet_pton

from rocelab.base.family import Family

SPACE_START = (198 << 24) | (18 << 16)
SPACE_SIZE = 2**17
SPACE_TEXT = "198.18.0.0/15"
SPACE6_TEXT = "2001:2::/48"

ASN_BASE = 4_200_000_000
"""First 4-byte private ASN (RFC 6996): for ATSWs; then follow one per zone and one per rack."""

Network = IPv4Network | IPv6Network


def default_space(family: Family) -> str:
    """The space of a lab that names none."""
    return SPACE_TEXT if family is Family.IPV4 else SPACE6_TEXT


class AddressSpaceFullError(ValueError):
    """The fabric needs more addresses than a space has. space: its prefix."""

    def __init__(self, space: str, size: int) -> None:
        super().__init__(f"{space} has {size} addresses and this fabric needs more")
        self.space = space


def dotted(address: int) -> str:
    """An IPv4 address as text, from its 32-bit value."""
    return inet_ntoa(address.to_bytes(4, "big"))


def address_number(text: str) -> int:
    """The 32-bit value of an IPv4 address."""
    return int.from_bytes(inet_aton(text), "big")


def address_text(address: int, family: Family) -> str:
    """An address as text, from its value."""
    return dotted(address) if family is Family.IPV4 else str(IPv6Address(address))


class AddressSpace:
    """Assigns aligned blocks of a space, 198.18.0.0/15 by default, one after another."""

    def __init__(
        self,
        size: int = SPACE_SIZE,
        *,
        start: int = SPACE_START,
        name: str = SPACE_TEXT,
        taken: Iterable[int] = (),
    ) -> None:
        """`size` may be larger than 198.18.0.0/15 if the addresses are never used on a wire.
        taken: addresses that no block may contain."""
        self._start = self._next = start
        self._size = size
        self._name = name
        self._taken = sorted(set(taken))

    @classmethod
    def of(cls, network: Network, taken: Iterable[int] = ()) -> AddressSpace:
        """The space of a prefix."""
        start, size = int(network.network_address), network.num_addresses
        return cls(size, start=start, name=str(network), taken=taken)

    @property
    def used(self) -> int:
        """The addresses before the next free one."""
        return self._next - self._start

    def take(self, size: int) -> int:
        """The first address of a new block of `size` addresses, a power of two, aligned to it.

        Raises AddressSpaceFullError if the space is full.
        """
        start = -(-self._next // size) * size
        while (place := bisect_left(self._taken, start)) < len(self._taken):
            if self._taken[place] >= start + size:
                break
            start = -(-(self._taken[place] + 1) // size) * size
        if start + size > self._start + self._size:
            raise AddressSpaceFullError(self._name, self._size)
        self._next = start + size
        return start


def block_size(addresses: int) -> int:
    """The smallest power of two that holds `addresses`."""
    return 1 << max(0, addresses - 1).bit_length()


def prefix_text(start: int, size: int, family: Family = Family.IPV4) -> str:
    """`198.18.4.0/26` from the first address and the size of a block."""
    return f"{address_text(start, family)}/{family.bits + 1 - size.bit_length()}"


def number_of(text: str) -> int:
    """The value of an address of either family."""
    # A fabric has a hundred thousand; ip_address takes ten times as long.
    return int.from_bytes(inet_pton(AF_INET6 if ":" in text else AF_INET, text), "big")
