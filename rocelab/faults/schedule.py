"""The schedule of faults: flapping and campaigns become single timed faults.

Expands faults as written, with a fabric for campaigns to draw from, into `Timed` faults in order of
time. Pure: a seed decides every draw.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.faults.base import SeriesSpec, Timed
from rocelab.faults.fault_spec import FaultSpec
from rocelab.faults.selectors import with_names
from rocelab.planning.fabric import Fabric


def expand(fabric: Fabric, faults: Sequence[FaultSpec]) -> tuple[Timed, ...]:
    """Single faults in the order of their beginnings, with the names of their nodes. Raises
    InputError if the fabric lacks a node that one calls by its place."""
    timed: list[Timed] = []
    for written in faults:
        fault = with_names(written, fabric)
        if isinstance(fault, SeriesSpec):
            timed += fault.singles(fabric)
        else:
            timed.append(Timed(fault, fault.at, fault.at + fault.lasts if fault.lasts else None))
    return tuple(sorted(timed, key=lambda one: one.begins_ns))
