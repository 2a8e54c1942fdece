"""A table of nccl-tests that was simulated: data of a collective's sizes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SizeRow:
    """A size, its time and bandwidths, and what they stand on."""

    size_bytes: int
    time_ns: float
    algbw_gbs: float
    busbw_gbs: float
    way: str
    """The algorithm and the protocol."""

    method: str
    """How sends were simulated."""


@dataclass(frozen=True, slots=True)
class SizeTable:
    """The sizes of a collective."""

    lab: str
    hosts: str
    pattern: str
    ranks: int
    sizes: tuple[SizeRow, ...]
    warnings: tuple[str, ...]

    @property
    def title(self) -> str:
        """What was simulated."""
        return f"{self.pattern} of {self.ranks:,} ranks on {self.lab}, {self.hosts}"
