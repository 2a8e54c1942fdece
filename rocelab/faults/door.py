"""The door of faults: the kinds that are registered, ours and those of installed packages.

An entry point of the group `rocelab.faults` has the name of a kind and its spec:

    blackhole = "rocelab.faults.kinds.blackhole:BlackholeSpec"
"""

from __future__ import annotations

import sys

from rocelab.base.doors import Door
from rocelab.base.kinds import kind_model
from rocelab.faults.base import SeriesSpec, SingleFaultSpec, Target, TimedSpec
from rocelab.record import FAULT_KINDS

METHODS = ("prepare", "intact", "inject", "restore", "remains")
"""Of a fault."""
FaultModel = type[SingleFaultSpec] | type[SeriesSpec]


def _kind(name: str, value: object) -> FaultModel:
    if not (isinstance(value, type) and issubclass(value, SingleFaultSpec | SeriesSpec)):
        raise TypeError("expected a subclass of SingleFaultSpec or SeriesSpec")
    kind_model(name, value, TimedSpec)
    if missing := _missing_methods(value):
        raise TypeError(f"the fault of {value.__name__} lacks {', '.join(missing)}")
    if issubclass(value, SingleFaultSpec) and value.drawn is not None:
        _check_drawn(value, "link" if value.drawn is Target.LINK else "switch")
    return value


def _missing_methods(model: FaultModel) -> tuple[str, ...]:
    """The methods that the fault of a spec lacks, as far as `resolve` says what it returns."""
    resolve = getattr(model, "resolve", None)
    fault = getattr(resolve, "__annotations__", {}).get("return")
    if isinstance(fault, str):
        fault = getattr(sys.modules[model.__module__], fault, None)
    if not isinstance(fault, type):
        return ()
    return tuple(name for name in METHODS if not hasattr(fault, name))


def _check_drawn(model: type[SingleFaultSpec], target: str) -> None:
    """Raises ValueError if a kind that campaigns draw needs other keys than its target's."""
    fields = model.model_fields
    if target not in fields:
        raise ValueError(f"a campaign may draw it, and it has no key {target}")
    needed = {key for key, field in fields.items() if field.is_required()} - {"kind", target}
    if needed:
        raise ValueError(f"a campaign may draw it, and {', '.join(sorted(needed))} has no default")


KINDS: Door[FaultModel] = Door(FAULT_KINDS, "kind of fault", _kind)
