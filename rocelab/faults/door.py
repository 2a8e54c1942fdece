"""The door of faults: the kinds that are registered, ours and those of installed packages.

An entry point of the group `rocelab.faults` has the name of a kind and its spec:

    blackhole = "rocelab.faults.kinds.blackhole:BlackholeSpec"
"""

from __future__ import annotations

from rocelab.base.doors import Door
from rocelab.base.kinds import kind_model
from rocelab.faults.base import SeriesSpec, SingleFaultSpec, Target, TimedSpec
from rocelab.record import FAULT_KINDS

FaultModel = type[SingleFaultSpec] | type[SeriesSpec]


def _kind(name: str, found: object) -> FaultModel:
    if not (isinstance(found, type) and issubclass(found, SingleFaultSpec | SeriesSpec)):
        raise TypeError("expected a subclass of SingleFaultSpec or SeriesSpec")
    kind_model(name, found, TimedSpec)
    if issubclass(found, SingleFaultSpec) and found.drawn is not None:
        _check_drawn(found, "link" if found.drawn is Target.LINK else "switch")
    return found


def _check_drawn(found: type[SingleFaultSpec], target: str) -> None:
    """Raises ValueError if a kind that campaigns draw needs other keys than its target's."""
    fields = found.model_fields
    if target not in fields:
        raise ValueError(f"a campaign may draw it, and it has no key {target}")
    needed = {key for key, field in fields.items() if field.is_required()} - {"kind", target}
    if needed:
        raise ValueError(f"a campaign may draw it, and {', '.join(sorted(needed))} has no default")


KINDS: Door[FaultModel] = Door(FAULT_KINDS, "kind of fault", _kind)
