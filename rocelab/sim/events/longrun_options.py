"""What fails in a long run, and how jobs recover: each with the option of `rocelab longrun`.

It loads no model of a file, which `--help` would wait for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rocelab.base.options import option

_WHEN = "What fails"
_POLICY = "In place of the timeline's or the preset's."


@dataclass(frozen=True, slots=True)
class LongRunOptions:
    """Times are texts, which the models of `rocelab.sim.events.event_spec` read."""

    timeline: Path | None = option(
        None,
        "Events as YAML: a list `events` of such as {at: 2s, fail: link rtsw1:ctsw2}.",
        metavar="FILE",
        panel=_WHEN,
    )
    rates: str | None = option(
        None,
        "Instead: failures drawn at published rates, hpn or llama3.",
        metavar="PRESET",
        panel=_WHEN,
    )
    repair: str = option(
        "1h", "With --rates: how long a failure lasts.", metavar="TIME", panel=_WHEN
    )
    draw: int = option(1, "With --rates: the seed.", metavar="N", panel=_WHEN, minimum=0)
    checkpoint_every: str | None = option(None, _POLICY, metavar="TIME", panel=_WHEN)
    checkpoint_takes: str | None = option(None, _POLICY, metavar="TIME", panel=_WHEN)
    restart_takes: str | None = option(None, _POLICY, metavar="TIME", panel=_WHEN)
    work: str = option(
        "1d",
        "The work of each job: as many iterations as take this long without failures.",
        metavar="TIME",
        panel=_WHEN,
    )

    @property
    def policy(self) -> dict[str, str]:
        """The keys of recovery that are given."""
        texts = {
            "checkpoint_every": self.checkpoint_every,
            "checkpoint_takes": self.checkpoint_takes,
            "restart_takes": self.restart_takes,
        }
        return {key: text for key, text in texts.items() if text is not None}
