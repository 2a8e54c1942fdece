"""The two versions of IP that a lab's packets can be of, by the names that lab files use."""

from __future__ import annotations

import socket
from enum import StrEnum


class Family(StrEnum):
    """A version of IP."""

    IPV4 = "ipv4"
    IPV6 = "ipv6"

    @classmethod
    def of(cls, address: str) -> Family:
        """The family of an address or a prefix in text form."""
        return cls.IPV6 if ":" in address else cls.IPV4

    @property
    def number(self) -> int:
        """The kernel's number of it: AF_INET or AF_INET6."""
        return socket.AF_INET6 if self is Family.IPV6 else socket.AF_INET

    @property
    def bits(self) -> int:
        """The length of an address."""
        return 128 if self is Family.IPV6 else 32

    @property
    def ethertype(self) -> int:
        """The EtherType of its packets."""
        return 0x86DD if self is Family.IPV6 else 0x0800
