"""The door of faults: the kinds that are registered, ours and those of installed packages.

An entry point of the group `rocelab.faults` has the name of a kind and its spec:

    blackhole = "rocelab.faults.kinds.blackhole:BlackholeSpec"
"""

from __future__ import annotations

from inspect import isabstract
from typing import get_args

from rocelab.base.doors import Door
from rocelab.faults.base import SeriesSpec, SingleFaultSpec, Target
from rocelab.record import FAULT_KINDS

FaultModel = type[SingleFaultSpec] | type[SeriesSpec]


def _kind(name: str, found: object) -> FaultModel:
    if not (isinstance(found, type) and issubclass(found, SingleFaultSpec | SeriesSpec)):
        raise TypeError("expected a subclass of SingleFaultSpec or SeriesSpec")
    if isabstract(found):
        raise TypeError(f"{found.__name__} lacks {', '.join(sorted(found.__abstractmethods__))}")
    if get_args(found.model_fields["kind"].annotation) != (name,):
        raise ValueError(f'{found.__name__} needs `kind: Literal["{name}"]`')
    target = getattr(found, "drawn", None)
    keys = {"kind", "link"} if target is Target.LINK else {"kind", "switch"}
    needed = {key for key, field in found.model_fields.items() if field.is_required()} - keys
    if target is not None and needed:
        raise ValueError(f"a campaign may draw it, and {', '.join(sorted(needed))} has no default")
    return found


KINDS: Door[FaultModel] = Door(FAULT_KINDS, "kind of fault", _kind)
