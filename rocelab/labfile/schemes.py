"""How a lab spreads flows over equal paths: the key `scheme` of its file, and what holds of each
scheme wherever it runs.

`scheme: spray` is short for `scheme: {kind: spray}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar, Literal, NamedTuple, get_args

from pydantic import BeforeValidator, Field

from rocelab.base.errors import InputError
from rocelab.base.units import DurationNs
from rocelab.labfile.base import MS, SECOND, SpecModel

US = 1000


class Unpredictable(NamedTuple):
    """Why no flow's path is known before it is sent; of a path and of the loads of links, what
    follows and what to do."""

    why: str
    path: tuple[str, str]
    loads: tuple[str, str]

    def error(self, of: Literal["path", "loads"]) -> InputError:
        """The error for who asks for a flow's path, or for loads."""
        then, hint = self.path if of == "path" else self.loads
        return InputError(f"{self.why}: {then}", hint)


def _drawn(why: str) -> Unpredictable:
    return Unpredictable(
        why,
        ("a flow's path cannot be predicted", "`rocelab scheme LAB ecmp` gives paths that can"),
        ("loads cannot be predicted", "`rocelab compare` measures them"),
    )


class Scheme(SpecModel):
    """A scheme; its class says what distinguishes it from hashing by each switch."""

    title: ClassVar[str]
    """Its name in tables that compare schemes."""
    is_steered: ClassVar[bool] = True
    """Whether switches set a packet's hash, for which the kernel must hash by `l4`; otherwise the
    kernel's is unchanged."""
    has_entries: ClassVar[bool] = False
    """Whether a controller tells switches the next hop of each flow."""
    divides_flows: ClassVar[bool] = False
    """Whether a flow takes several paths, so that its packets arrive in any order."""
    unpredictable: ClassVar[Unpredictable | None] = None
    """None if tables and flows alone decide paths, or entries if it has them."""

    @property
    def controller_period_s(self) -> float | None:
        """Seconds between rounds of its controller without events, None without a controller."""
        return None


class EcmpScheme(Scheme):
    """The kernel's own choice, as `hashing` sets it."""

    title = "ECMP (baseline)"
    is_steered = False
    kind: Annotated[Literal["ecmp"], Field(description="the scheme")] = "ecmp"


class EEcmpScheme(Scheme):
    """E-ECMP: every switch also hashes the destination QP of RoCE packets (BTH)."""

    title = "E-ECMP (destination QP in the hash)"
    kind: Annotated[Literal["e-ecmp"], Field(description="the scheme")]


class PathPinningScheme(Scheme):
    """The lowest tier sends by the uplink whose number is the destination's port in its rack."""

    title = "Path pinning"
    kind: Annotated[Literal["path-pinning"], Field(description="the scheme")]


class FlowletScheme(Scheme):
    """The lowest tier lets a flow choose anew after a pause."""

    title = "DLB (flowlet)"
    divides_flows = True
    unpredictable = _drawn("under flowlet each flowlet draws its path at random")
    kind: Annotated[Literal["flowlet"], Field(description="the scheme")]
    gap: Annotated[
        DurationNs,
        Field(
            ge=US,
            le=SECOND,
            description="a pause after which a flow may change its path, of the modelled network",
        ),
    ] = 256 * US


class SprayScheme(Scheme):
    """Every packet of RoCE data chooses for itself, at every switch."""

    title = "Packet spray"
    divides_flows = True
    unpredictable = _drawn("under spray each packet draws its path at random")
    kind: Annotated[Literal["spray"], Field(description="the scheme")]


class ResilientScheme(Scheme):
    """Next-hop groups of the kernel that move only the flows of members that come or go."""

    title = "ECMP, resilient groups"
    is_steered = False
    unpredictable = Unpredictable(
        "paths under resilient depend on which buckets each switch has moved",
        (
            "they cannot be predicted",
            "--probe cannot check one either; count packets per link instead",
        ),
        (
            "loads cannot be predicted",
            "while nothing has failed they are as even as ecmp's: take --scheme ecmp, or measure "
            "with `rocelab compare`",
        ),
    )
    kind: Annotated[Literal["resilient"], Field(description="the scheme")]
    buckets: Annotated[
        int, Field(ge=8, le=4096, description="buckets that flows are hashed over, per group")
    ] = 128

    @property
    def controller_period_s(self) -> float:
        return 1.0  # only lost events wait for it


class TeEngine(StrEnum):
    """What places flows on paths."""

    CSPF = "cspf"
    LP = "lp"


class TeScheme(Scheme):
    """Centralised traffic engineering: a controller places each flow; hashing places the rest."""

    title = "Traffic engineering"
    has_entries = True
    unpredictable = Unpredictable(
        "te places flows while the lab runs",
        (
            "a planned lab has no paths yet",
            "bring the lab up, and ask again while it carries traffic",
        ),
        ("these flows have no paths yet", "measure it with `rocelab compare`"),
    )
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

    @property
    def controller_period_s(self) -> float:
        return self.period / SECOND


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


SCHEMES: Mapping[str, type[Scheme]] = {
    get_args(model.model_fields["kind"].annotation)[0]: model
    for model in get_args(get_args(SchemeSpec)[0])
}
"""Every scheme by its kind."""


def scheme_kinds() -> dict[str, str]:
    """What each kind of scheme does, by its name."""
    return {kind: " ".join((model.__doc__ or "").split()) for kind, model in SCHEMES.items()}


def predictable_kinds() -> list[str]:
    """The kinds whose paths follow from tables and flows alone."""
    return [kind for kind, model in SCHEMES.items() if model.unpredictable is None]
