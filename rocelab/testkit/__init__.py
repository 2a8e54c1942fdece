"""The pytest plugin, and the blocks of a running lab that it gives to tests (docs/pytest.md)."""

from __future__ import annotations

OLD_NAMES = (
    "Duration",
    "FaultMaker",
    "InvalidRunError",
    "MeasureMaker",
    "Measurement",
    "NotMeasuredError",
    "Traffic",
    "TrafficMaker",
)


def __getattr__(name: str) -> object:
    if name not in OLD_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import warnings
    from importlib import import_module

    message = f"rocelab.testkit.{name} will go: import {name} from rocelab"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return getattr(import_module("rocelab"), name)
