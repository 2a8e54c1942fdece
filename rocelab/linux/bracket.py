"""Times a kernel action: CLOCK_REALTIME read right before and right after the call.

A `Bracket` contains the instant; its width is the uncertainty. Work before the call (a thread, a
lock, a namespace) stays outside. What the machine does between the readings is inside: if the
caller has no CPU, or waits for another thread of Python that has none, the bracket is as wide as
that took, since nothing says on which side of it the kernel acted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Bracket:
    """An instant between two readings of CLOCK_REALTIME, ns."""

    before_ns: int
    after_ns: int

    @property
    def width_ns(self) -> int:
        return self.after_ns - self.before_ns

    @classmethod
    def now(cls) -> Self:
        """The instant of this call, for actions that only begin here."""
        now_ns = realtime_ns()
        return cls(now_ns, now_ns)

    @classmethod
    def of(cls, call: Callable[[], object]) -> Self:
        """Call `call` and bracket it. Raises what `call` raises."""
        before_ns = realtime_ns()
        call()
        return cls(before_ns, realtime_ns())


def spanning(brackets: Sequence[Bracket]) -> Bracket:
    """The bracket from before the first to after the last. Raises ValueError without brackets."""
    return Bracket(
        min(bracket.before_ns for bracket in brackets),
        max(bracket.after_ns for bracket in brackets),
    )


def realtime_ns() -> int:
    """CLOCK_REALTIME."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME)
