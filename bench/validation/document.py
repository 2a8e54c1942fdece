"""The validation as data: every value of every repeat.

Frozen dataclasses that `rocelab.base.documents` writes and reads, and the only source of the page
and the plots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from rocelab.base.documents import Format
from rocelab.base.statistics import Spread, spread
from rocelab.results.environment import Environment

SCHEMA_VERSION = 1

Values = tuple[float, ...]


@dataclass(frozen=True)
class Validation:
    """command: its command line. seeds: repeats of everything random. took_s: on this machine.
    values: of each cell, by its key, one per repeat or per job."""

    schema_version: int
    command: str
    environment: Environment
    seeds: int
    took_s: float
    values: Mapping[str, Values]

    def __getitem__(self, key: str) -> Values:
        """The values of a cell. Raises KeyError if there is none with that key."""
        return self.values[key]

    @cached_property
    def _spreads(self) -> dict[str, Spread]:
        return {key: spread(values) for key, values in self.values.items()}

    def spread(self, key: str) -> Spread:
        """The spread of a cell. Raises KeyError if there is none with that key."""
        return self._spreads[key]

    def median(self, key: str) -> float:
        """The median of a cell. Raises KeyError if there is none with that key."""
        return self.spread(key).median


FORMAT = Format(
    Validation,
    SCHEMA_VERSION,
    "a validation",
    "make it again with `make validation`",
)
