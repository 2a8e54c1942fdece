"""A lab whose routing the kit does not decide, with what it had when it was first whole.

Nobody writes what was observed, so the file format of labs does not have it; records and results
do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from rocelab.labfile.base import SpecModel
from rocelab.labfile.model import LabSpec

Words = Annotated[tuple[str, ...], Field(strict=False)]


class ObservedSpec(SpecModel):
    """What a whole lab has, as its kernels and daemons had it."""

    basis: Literal["observed", "declared"]
    """declared: it also met `routing.expect`."""
    still_s: Annotated[float, Field(ge=0)]
    """For how long no route had changed."""
    sessions: Words = ()
    """The names of the links whose ends are BGP neighbours over it."""
    peers: Mapping[str, Words] = Field(default_factory=dict)
    """The neighbours of each switch whose BGP session was up."""
    daemons: Mapping[str, Words] = Field(default_factory=dict)
    """The routing daemons of each switch."""
    routes: Mapping[str, Mapping[str, Words]] = Field(default_factory=dict)
    """By switch and prefix, the interfaces of the next hops."""


class ObservedLabSpec(LabSpec):
    """A lab that was whole once."""

    observed: ObservedSpec


def with_observed(spec: LabSpec, observed: ObservedSpec) -> ObservedLabSpec:
    """The spec with what was observed of its lab."""
    values = {name: getattr(spec, name) for name in LabSpec.model_fields}
    return ObservedLabSpec.model_construct(**values, observed=observed)
