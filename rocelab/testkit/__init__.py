"""The pytest kit: labs, faults and convergence times in suites of your own (docs/pytest.md).

The names here are for annotations; pytest finds the fixtures by itself once rocelab is installed.

    def test_a_cable(traffic: TrafficMaker, fault: FaultMaker, measure: MeasureMaker): ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocelab.lab.lab import RunningLab
    from rocelab.testkit.duration import Duration
    from rocelab.testkit.kit import FaultMaker, MeasureMaker, TrafficMaker
    from rocelab.testkit.measurement import InvalidRunError, Measurement, NotMeasuredError
    from rocelab.testkit.traffic import Traffic

__all__ = [
    "Duration",
    "FaultMaker",
    "InvalidRunError",
    "MeasureMaker",
    "Measurement",
    "NotMeasuredError",
    "RunningLab",
    "Traffic",
    "TrafficMaker",
]

_HOMES = {
    "Duration": "rocelab.testkit.duration",
    "FaultMaker": "rocelab.testkit.kit",
    "InvalidRunError": "rocelab.testkit.measurement",
    "MeasureMaker": "rocelab.testkit.kit",
    "Measurement": "rocelab.testkit.measurement",
    "NotMeasuredError": "rocelab.testkit.measurement",
    "RunningLab": "rocelab.lab.lab",
    "Traffic": "rocelab.testkit.traffic",
    "TrafficMaker": "rocelab.testkit.kit",
}


def __getattr__(name: str) -> object:
    # Late, since pytest imports this package in every suite, and labs take a second to import.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
