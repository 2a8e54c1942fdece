"""Packets of all traffic in steps of 10 ms, while it is sent, from what its agents publish.

Agents whose run is watched write their counts at instants (`rocelab.agent.ticks`) into their files
in the lab's folder. Between two instants of an agent its packets are spread evenly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rocelab.agent.live import RECORD_BYTES
from rocelab.agent.ticks import TICK_NS, Tick, unpacked
from rocelab.record import LabFiles
from rocelab.traffic.session import LIVE_FOLDER

SILENT_NS = 2 * 10**9
"""An agent whose newest instant is so much older than another's is not waited for."""
MOST_STEPS = 60_000
"""Ten minutes."""


@dataclass(frozen=True, slots=True)
class PacketSteps:
    """Packets in steps of TICK_NS, the first of which begins at `t_ns`, CLOCK_REALTIME."""

    t_ns: int
    sent: Sequence[int]
    received: Sequence[int]
    retransmitted: Sequence[int]

    def document(self) -> Mapping[str, object]:
        """The steps as JSON values."""
        return {
            "t_ns": self.t_ns,
            "step_ns": TICK_NS,
            "sent": list(self.sent),
            "received": list(self.received),
            "retransmitted": list(self.retransmitted),
        }


class TickReader:
    """Follows the agents of a lab."""

    def __init__(self, files: LabFiles) -> None:
        self._folder = files.root / LIVE_FOLDER
        self._end = 0
        """The number of the first step that was not read."""
        self._rows: deque[tuple[int, int, int]] = deque(maxlen=MOST_STEPS)

    def new_steps(self) -> PacketSteps | None:
        """The steps since the last call; None without any."""
        agents = []
        with suppress(FileNotFoundError):
            for path in self._folder.iterdir():
                with suppress(FileNotFoundError):
                    agents.append(unpacked(path.read_bytes()[RECORD_BYTES:]))
        steps = steps_of(agents, self._end)
        if steps is None:
            return None
        if steps.t_ns // TICK_NS != self._end:
            self._rows.clear()
        rows = zip(steps.sent, steps.received, steps.retransmitted, strict=True)
        self._rows.extend(rows)
        self._end = steps.t_ns // TICK_NS + len(steps.sent)
        return steps

    def kept(self) -> PacketSteps | None:
        """The steps of the newest run without a gap; None without any."""
        rows = tuple(self._rows)
        if not rows:
            return None
        sent, received, retransmitted = zip(*rows, strict=True)
        return PacketSteps((self._end - len(rows)) * TICK_NS, sent, received, retransmitted)


def steps_of(agents: Iterable[Sequence[Tick]], first: int) -> PacketSteps | None:
    """The steps from number `first` on, as far as all agents have them; None without any. Where an
    agent's instants begin later, from there."""
    known = [ticks for ticks in agents if ticks]
    if not known:
        return None
    newest_ns = max(ticks[-1].time_ns for ticks in known)
    known = [ticks for ticks in known if newest_ns - ticks[-1].time_ns < SILENT_NS]
    end = min(ticks[-1].time_ns for ticks in known) // TICK_NS
    begin = max(first, -(-max(ticks[0].time_ns for ticks in known) // TICK_NS))
    if begin >= end:
        return None
    edges = np.arange(begin, end + 1) * TICK_NS
    sent, received, retransmitted = (
        _per_step(known, edges, column) for column in ("sent", "received", "retransmitted")
    )
    return PacketSteps(begin * TICK_NS, sent, received, retransmitted)


def _per_step(agents: Iterable[Sequence[Tick]], edges: NDArray[np.int64], column: str) -> list[int]:
    total = np.zeros(len(edges))
    for ticks in agents:
        times = [tick.time_ns for tick in ticks]
        total += np.interp(edges, times, [getattr(tick, column) for tick in ticks])
    whole: list[int] = np.diff(np.rint(total)).astype(int).tolist()
    return whole
