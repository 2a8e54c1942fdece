"""The pytest kit: labs, faults and convergence times in suites of your own (docs/pytest.md).

The names here are for annotations; pytest finds the fixtures by itself once rocelab is installed.

    def test_a_cable(lab: Lab, traffic: TrafficMaker, fault: FaultMaker, measure: MeasureMaker): ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocelab.runtime.lab import Lab
    from scripts.testkit.duration import Duration
    from scripts.testkit.kit import FaultMaker, MeasureMaker, TrafficMaker
    from scripts.testkit.measurement import (
        InvalidRunError,
        Measurement,
        NotMeasuredError,
        Traffic,
    )

__all__ = [
    "Duration",
    "FaultMaker",
    "InvalidRunError",
    "Lab",
    "MeasureMaker",
    "Measurement",
    "NotMeasuredError",
    "Traffic",
    "TrafficMaker",
]

_HOMES = {
    "Duration": "scripts.testkit.duration",
    "FaultMaker": "scripts.testkit.kit",
    "InvalidRunError": "scripts.testkit.measurement",
    "Lab": "rocelab.runtime.lab",
    "MeasureMaker": "scripts.testkit.kit",
    "Measurement": "scripts.testkit.measurement",
    "NotMeasuredError": "scripts.testkit.measurement",
    "Traffic": "scripts.testkit.measurement",
    "TrafficMaker": "scripts.testkit.kit",
}


def __getattr__(name: str) -> object:
    # Late, since pytest imports this package in every suite, and labs take a second to import.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
