"""Congestion control: what the packet engine asks of it, and those that it has.

A congestion control is a module with the constants and functions of `Control`, named by a class
that is registered (`rocelab.jobs.congestion`). Functions are `compiled`
(`rocelab.sim.packets.compiling`) and only read and write numbers: `state` is a row of STATE_CELLS
of a queue pair, 0 at first, `rule` a row of RULE_CELLS of its parameters and a NIC's rate. Times
are in picoseconds.

All that are registered are compiled into the engine: behind its own cells a rule has the number of
its control, by which the functions here choose. With one alone there is nothing to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np

from rocelab.base.arrays import Floats
from rocelab.base.errors import PluginError
from rocelab.jobs.congestion import CONTROLS, CongestionSpec
from rocelab.sim.packets.compiling import compile_for, joined


class Control(Protocol):
    """STATE_CELLS, RULE_CELLS: the lengths of the two rows. CNP_PS: the cell of a rule with the
    least time between two CNPs of a receiver, which sends them for packets that came marked."""

    STATE_CELLS: int
    RULE_CELLS: int
    CNP_PS: int

    def rule_of(self, chosen: CongestionSpec, line_bps: float) -> list[float]:
        """The rule of a job's parameters, an object of the registered class, for NICs of a rate.
        The only function that is not compiled."""

    def begin(self, state: Floats, rule: Floats) -> None:
        """A queue pair begins."""

    def rate_bps(self, state: Floats, rule: Floats, now: float) -> float:
        """The rate that it may send at now, on the wire; the time never goes back."""

    def next_rise(self, state: Floats, rule: Floats) -> float:
        """When that rate may rise next though nothing is sent or arrives; inf for never."""

    def on_sent(self, state: Floats, rule: Floats, size_bytes: int, now: float) -> None:
        """A frame of data has left, again or for the first time."""

    def on_cnp(self, state: Floats, rule: Floats, now: float) -> None:
        """A congestion notification has arrived."""


_COMPILED: Mapping[str, tuple[float | int, ...]] = {
    "begin": (),
    "rate_bps": (0.0,),
    "next_rise": (),
    "on_sent": (0, 0.0),
    "on_cnp": (0.0,),
}
"""The compiled functions, with what they take besides two rows."""


def _loaded() -> tuple[dict[str, Control], dict[str, str]]:
    """Every registered control by its kind, and why others are left out: one that does not compile
    would keep the engine from all."""
    controls: dict[str, Control] = {}
    refused: dict[str, str] = {}
    for kind, spec in CONTROLS.all().items():
        try:
            control = cast(Control, import_module(spec.sender))
            if CONTROLS.origin(kind) is not None:
                _try(control)
        except Exception as error:
            if CONTROLS.origin(kind) is None:
                raise
            refused[kind] = f"{type(error).__name__}: {error}".splitlines()[0]
        else:
            controls[kind] = control
    return controls, refused


def _try(control: Control) -> None:
    rows = np.zeros(control.STATE_CELLS), np.zeros(control.RULE_CELLS + 2)
    assert 0 <= control.CNP_PS < control.RULE_CELLS
    for name, others in _COMPILED.items():
        compile_for(getattr(control, name), *rows, *others)


def _chosen(name: str) -> Callable[..., Any]:
    """The function of a rule's control."""
    first, *others = (getattr(control, name) for control in _CONTROLS.values())
    for number, function in enumerate(others, 1):
        first = _either(number, function, first)
    return cast(Callable[..., Any], first)


def _either(
    number: int, function: Callable[..., Any], other: Callable[..., Any]
) -> Callable[..., Any]:
    @joined
    def choose(state, rule, *rest):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002, ANN202
        if rule[-1] == number:
            return function(state, rule, *rest)
        return other(state, rule, *rest)

    return choose


_CONTROLS, _REFUSED = _loaded()
STATE_CELLS = max(control.STATE_CELLS for control in _CONTROLS.values())
RULE_CELLS = max(control.RULE_CELLS for control in _CONTROLS.values()) + 2
CNP_PS = RULE_CELLS - 2

begin, rate_bps, next_rise, on_sent, on_cnp = map(_chosen, _COMPILED)


def rule_of(chosen: CongestionSpec, line_bps: float) -> list[float]:
    """The rule of a job's congestion control for NICs of a rate. Raises InputError for a control
    that cannot be used."""
    if chosen.kind in _REFUSED:
        raise PluginError(
            f"congestion control {chosen.kind} of {CONTROLS.origin(chosen.kind)} cannot be "
            f"simulated: {_REFUSED[chosen.kind]}",
            "fix or uninstall that package",
        )
    control = _CONTROLS[chosen.kind]
    return marked(chosen.kind, control.rule_of(chosen, line_bps))


def marked(kind: str, rule: list[float]) -> list[float]:
    """A rule of a control as the engine reads it, with what it has behind the control's cells."""
    cells = [*rule, *[0.0] * (RULE_CELLS - 2 - len(rule))]
    return [*cells, rule[_CONTROLS[kind].CNP_PS], float(list(_CONTROLS).index(kind))]
