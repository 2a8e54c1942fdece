"""The kinds of faults, each a mapping with a `kind`: what files and commands read.

A drill file's `faults`, or one fault for a running lab, become validated specs with times in ns and
shares in parts per million. `resolve` of a spec gives the fault on a fabric.

    {kind: blackhole, link: rtsw1:ctsw2, towards: rtsw1, at: 1s, lasts: 500ms}
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, TypeAdapter

from rocelab.faults.base import SeriesSpec, SingleFaultSpec, TimedSpec
from rocelab.faults.door import KINDS

if TYPE_CHECKING:
    FaultSpec = SingleFaultSpec | SeriesSpec
    _Single = SingleFaultSpec
else:

    def _registered(base):  # noqa: ANN001, ANN202
        """The union of the kinds that are a `base`, of which the key `kind` names one."""
        kinds = [kind for kind in KINDS.all().values() if issubclass(kind, base)]
        return Annotated[reduce(or_, kinds), Field(discriminator="kind")]

    FaultSpec = _registered(TimedSpec)
    _Single = _registered(SingleFaultSpec)

SINGLE_FAULT: TypeAdapter[SingleFaultSpec] = TypeAdapter(_Single)
