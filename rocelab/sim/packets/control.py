"""Congestion control: what the packet engine asks of it, and which one it has.

A congestion control is a module with the constants and functions of `Control`. Another one is
another module in place of `dcqcn` below; nothing else of the engine names one. Functions are
`compiled` (`rocelab.sim.packets.compiling`) and only read and write numbers: `state` is a row of
STATE_CELLS of a queue pair, 0 at first, `rule` a row of RULE_CELLS of a parameter set and a NIC's
rate. Times are in picoseconds.
"""

from __future__ import annotations

from typing import Protocol

from rocelab.agent.dcqcn import DcqcnParameters
from rocelab.base.arrays import Floats
from rocelab.sim.packets import dcqcn as chosen


class Control(Protocol):
    """STATE_CELLS, RULE_CELLS: the lengths of the two rows. CNP_PS: the cell of a rule with the
    least time between two CNPs of a receiver, which sends them for packets that came marked."""

    STATE_CELLS: int
    RULE_CELLS: int
    CNP_PS: int

    def rule_of(self, parameters: DcqcnParameters, line_bps: float) -> list[float]:
        """The rule of the parameter set that `transport.dcqcn` names, for NICs of a rate. The only
        function that is not compiled."""

    def begin(self, state: Floats, rule: Floats) -> None:
        """A queue pair begins."""

    def rate_bps(self, state: Floats, rule: Floats, now: float) -> float:
        """The rate that it may send at now, on the wire; the time never goes back."""

    def next_rise(self, state: Floats) -> float:
        """When that rate may rise next though nothing is sent or arrives; inf for never."""

    def on_sent(self, state: Floats, rule: Floats, size_bytes: int, now: float) -> None:
        """A frame of data has left, again or for the first time."""

    def on_cnp(self, state: Floats, rule: Floats, now: float) -> None:
        """A congestion notification has arrived."""


control: Control = chosen
