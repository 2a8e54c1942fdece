"""Requests to a served model: when each arrives, how long its prompt and its answer are, and how
much of the prompt is the beginning of an earlier one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rocelab.base.arrays import Bools, Floats, Longs

MOST_TOKENS = 10**8
"""Of a prompt or an answer."""
AT_ONCE_S = 1e-9
"""Requests that arrive within less have no rate."""


@dataclass(frozen=True, eq=False)
class Requests:
    """N requests in the order in which they arrive."""

    arrival_s: Floats
    """From the first."""
    prompt: Longs
    """Tokens, 1 or more."""
    answer: Longs
    """Tokens, 1 or more."""
    reused: Longs
    """Leading tokens of the prompt that earlier requests began with too."""
    warnings: tuple[str, ...] = ()
    """What was assumed or left out."""

    def __len__(self) -> int:
        return len(self.arrival_s)

    def chosen(self, kept: Bools) -> Requests:
        """Some of them, from the first one's arrival."""
        arrival_s = self.arrival_s[kept]
        begin_s = arrival_s[0] if len(arrival_s) else 0.0
        return replace(
            self,
            arrival_s=arrival_s - begin_s,
            prompt=self.prompt[kept],
            answer=self.answer[kept],
            reused=self.reused[kept],
        )

    @property
    def lasts_s(self) -> float:
        """From the first arrival to the last."""
        return float(self.arrival_s[-1]) if len(self) else 0.0

    @property
    def period_s(self) -> float | None:
        """How long so many requests take to arrive at their mean gap, which is a gap more than
        from the first to the last; None if all arrive at once."""
        if self.lasts_s < AT_ONCE_S:
            return None
        return self.lasts_s * len(self) / (len(self) - 1)

    @property
    def rate(self) -> float | None:
        """Requests a second; None if all arrive at once."""
        return None if self.period_s is None else len(self) / self.period_s

    def at_rate(self, rate: float) -> Requests:
        """The same, with all gaps longer or shorter so that so many arrive a second."""
        factor = (self.rate or rate) / rate
        return replace(self, arrival_s=self.arrival_s * factor)


def in_order(
    arrival_s: Floats,
    prompt: Longs,
    answer: Longs,
    reused: Longs,
    warnings: tuple[str, ...] = (),
) -> Requests:
    """Requests by time of arrival, the first at 0."""
    order = np.argsort(arrival_s, kind="stable")
    arrival_s = arrival_s[order]
    begin_s = arrival_s[0] if len(arrival_s) else 0.0
    return Requests(arrival_s - begin_s, prompt[order], answer[order], reused[order], warnings)
