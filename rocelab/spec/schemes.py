"""The file format of how a lab spreads flows over equal paths: one key, `scheme`.

`scheme: spray` is short for `scheme: {kind: spray}`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from rocelab.spec.base import MS, SECOND, SpecModel
from rocelab.units import DurationNs

US = 1000


class EcmpScheme(SpecModel):
    """The kernel's own choice, as `hashing` sets it."""

    kind: Annotated[Literal["ecmp"], Field(description="the scheme")] = "ecmp"


class EEcmpScheme(SpecModel):
    """E-ECMP: every switch also hashes the destination QP of RoCE packets (BTH)."""

    kind: Annotated[Literal["e-ecmp"], Field(description="the scheme")]


class PathPinningScheme(SpecModel):
    """The lowest tier sends by the uplink whose number is the destination's port in its rack."""

    kind: Annotated[Literal["path-pinning"], Field(description="the scheme")]


class FlowletScheme(SpecModel):
    """The lowest tier lets a flow choose anew after a pause."""

    kind: Annotated[Literal["flowlet"], Field(description="the scheme")]
    gap: Annotated[
        DurationNs,
        Field(
            ge=US,
            le=SECOND,
            description="a pause after which a flow may change its path, of the modelled network",
        ),
    ] = 256 * US


class SprayScheme(SpecModel):
    """Every packet of RoCE data chooses for itself, at every switch."""

    kind: Annotated[Literal["spray"], Field(description="the scheme")]


class ResilientScheme(SpecModel):
    """Next-hop groups of the kernel that move only the flows of members that come or go."""

    kind: Annotated[Literal["resilient"], Field(description="the scheme")]
    buckets: Annotated[
        int, Field(ge=8, le=4096, description="buckets that flows are hashed over, per group")
    ] = 128


class TeEngine(StrEnum):
    """What places flows on paths."""

    CSPF = "cspf"
    LP = "lp"


class TeScheme(SpecModel):
    """Centralised traffic engineering: a controller places each flow; hashing places the rest."""

    kind: Annotated[Literal["te"], Field(description="the scheme")]
    engine: Annotated[
        TeEngine,
        Field(
            strict=False,
            description="cspf: shortest paths with room, flow by flow; lp: the optimum, rounded",
        ),
    ] = TeEngine.CSPF
    period: Annotated[
        DurationNs,
        Field(
            ge=100 * MS,
            le=600 * SECOND,
            description="time between the controller's rounds, on the machine's clock",
        ),
    ] = SECOND


def _short_form(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


SchemeSpec = Annotated[
    EcmpScheme
    | EEcmpScheme
    | PathPinningScheme
    | FlowletScheme
    | SprayScheme
    | ResilientScheme
    | TeScheme,
    Field(discriminator="kind"),
    BeforeValidator(_short_form),
]


class AskedScheme(SpecModel):
    """A scheme alone, as a command names it."""

    scheme: SchemeSpec


def scheme_kinds() -> dict[str, str]:
    """What each kind of scheme does, by its name."""
    models = get_args(get_args(SchemeSpec)[0])
    return {
        get_args(model.model_fields["kind"].annotation)[0]: " ".join((model.__doc__ or "").split())
        for model in models
    }
