"""The kinds of faults, each a mapping with a `kind`: what files and commands read.

A drill file's `faults`, or one fault for a running lab, become validated specs with times in ns and
shares in parts per million. `resolve` of a spec gives the fault on a fabric.

    {kind: blackhole, link: rtsw1:ctsw2, towards: rtsw1, at: 1s, lasts: 500ms}
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from rocelab.base.kinds import any_of
from rocelab.faults.base import SeriesSpec, SingleFaultSpec
from rocelab.faults.door import KINDS

if TYPE_CHECKING:
    FaultSpec = SingleFaultSpec | SeriesSpec
    _Single = SingleFaultSpec
else:
    FaultSpec = any_of(KINDS)
    _Single = any_of(KINDS, SingleFaultSpec)

SINGLE_FAULT: TypeAdapter[SingleFaultSpec] = TypeAdapter(_Single)
