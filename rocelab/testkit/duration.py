"""A measured time, which a test compares with a text such as `300ms`.

    assert run.full_convergence <= "300ms"

A failing assertion shows both times.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering

from rocelab.base import quantities
from rocelab.base.errors import InputError
from rocelab.base.units import parse_duration_ns
from rocelab.base.wording import RefusedError


@total_ordering
@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time, in nanoseconds of the lab's clock.

    Compares with another one or with text: `>= "1.5s"`. Raises InputError if the text is not a
    duration.
    """

    ns: float

    @classmethod
    def written(cls, text: str) -> Duration:
        """Parse a duration such as `50ms`, `3s` or `300us`. Raises InputError for anything else."""
        try:
            return cls(parse_duration_ns(text))
        except RefusedError as refusal:
            raise InputError(refusal.message, hint=refusal.hint) from None

    @property
    def ms(self) -> float:
        return self.ns / 1e6

    def __lt__(self, other: Duration | str) -> bool:
        if isinstance(other, str):
            other = Duration.written(other)
        return self.ns < other.ns if isinstance(other, Duration) else NotImplemented

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            other = Duration.written(other)
        return self.ns == other.ns if isinstance(other, Duration) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.ns)

    def __repr__(self) -> str:
        # Not rounded: a failing `<= "300ms"` should not show 300 ms.
        return f"{self.ns / 1e6:.3f} ms"

    def __str__(self) -> str:
        return quantities.duration(self.ns)
