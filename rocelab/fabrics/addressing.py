"""Addresses and ASNs: everything inside 198.18.0.0/15 (RFC 2544), 4-byte private ASNs (RFC 6996).

The space is assigned from its start in blocks: first a prefix per rack (its /31 NIC links and its
RTSW's loopback, rounded up to a power of two), then loopbacks of CTSWs and ATSWs, then a /31 per
switch-to-switch link. Blocks are assigned in build order, so a plan never changes between runs.
"""

from __future__ import annotations

from socket import inet_aton, inet_ntoa

SPACE_START = (198 << 24) | (18 << 16)
SPACE_SIZE = 2**17
SPACE_TEXT = "198.18.0.0/15"

ASN_BASE = 4_200_000_000
"""First 4-byte private ASN (RFC 6996): for ATSWs; then follow one per zone and one per rack."""


class AddressSpaceFullError(ValueError):
    """The fabric needs more addresses than 198.18.0.0/15 has."""


def dotted(address: int) -> str:
    """An IPv4 address as text, from its 32-bit value."""
    return inet_ntoa(address.to_bytes(4, "big"))


def address_number(text: str) -> int:
    """The 32-bit value of an IPv4 address."""
    return int.from_bytes(inet_aton(text), "big")


class AddressSpace:
    """Assigns aligned blocks of 198.18.0.0/15 one after another."""

    def __init__(self, size: int = SPACE_SIZE) -> None:
        """`size` may be larger than 198.18.0.0/15 if the addresses are never used on a wire."""
        self._next = SPACE_START
        self._end = SPACE_START + size

    @property
    def used(self) -> int:
        """The addresses before the next free one."""
        return self._next - SPACE_START

    def take(self, size: int) -> int:
        """The first address of a new block of `size` addresses, a power of two, aligned to it.

        Raises AddressSpaceFullError if the space is full.
        """
        start = -(-self._next // size) * size
        if start + size > self._end:
            raise AddressSpaceFullError(
                f"{SPACE_TEXT} has {SPACE_SIZE} addresses and this fabric needs more"
            )
        self._next = start + size
        return start


def block_size(addresses: int) -> int:
    """The smallest power of two that holds `addresses`."""
    return 1 << max(0, addresses - 1).bit_length()


def prefix_text(start: int, size: int) -> str:
    """`198.18.4.0/26` from the first address and the size of a block."""
    return f"{dotted(start)}/{33 - size.bit_length()}"
