"""What BGP does beside the fabric's own policy: the values of `routing.policy`, by role or node.

Names and words are FRR's. What a list or a route map has in its entries is FRR's own text, without
the name and the sequence number; FRR checks it before anything starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from rocelab.base.units import DURATION, DurationNs
from rocelab.base.wording import RefusedError, listed
from rocelab.labfile.base import SECOND, SpecModel

MINUTE = 60 * SECOND
Asn = Annotated[int, Field(ge=1, le=2**32 - 1)]
ListName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]*$", max_length=64)]
Entry = Annotated[str, Field(pattern=r"^[!-~]+( [!-~]+)*$", max_length=400)]
"""Words of FRR on one line."""
Entries = Annotated[tuple[Entry, ...], Field(strict=False, min_length=1, max_length=1000)]
Community = Annotated[str, Field(pattern=r"^(\d{1,5}:\d{1,5}|[a-z][a-zA-Z-]*)$")]


class LocalAsSpec(SpecModel):
    """The AS number that neighbours see. `local_as: 65100` has the defaults of the other keys."""

    asn: Annotated[Asn, Field(description="the AS number")]
    no_prepend: Annotated[bool, Field(description="paths that come in do not get it in front")] = (
        True
    )
    replace_as: Annotated[
        bool, Field(description="paths that go out have it in place of the switch's own")
    ] = True

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"asn": value} if isinstance(value, int) else value

    @property
    def words(self) -> str:
        """After `local-as`. Only with `no-prepend` does FRR take `replace-as`."""
        words = ("no-prepend", *(("replace-as",) if self.replace_as else ()))
        return " ".join((str(self.asn), *(words if self.no_prepend else ())))


class DampeningSpec(SpecModel):
    """Route flap dampening (RFC 2439). `dampening: true` has the defaults of FRR."""

    half_life: Annotated[
        DurationNs,
        Field(ge=MINUTE, le=45 * MINUTE, description="after which the penalty is half"),
    ] = 15 * MINUTE
    reuse: Annotated[
        int, Field(ge=1, le=20000, description="the penalty below which a route is used again")
    ] = 750
    suppress: Annotated[
        int, Field(ge=1, le=20000, description="the penalty above which a route is not used")
    ] = 2000
    max_suppress: Annotated[
        DurationNs,
        Field(ge=MINUTE, le=255 * MINUTE, description="the longest time without a route"),
    ] = 60 * MINUTE

    @property
    def words(self) -> str:
        """After `bgp dampening`."""
        minutes = self.half_life // MINUTE, self.max_suppress // MINUTE
        return f"{minutes[0]} {self.reuse} {self.suppress} {minutes[1]}"


class Action(StrEnum):
    """What an entry does with the routes that match it."""

    PERMIT = "permit"
    DENY = "deny"


class RouteMapEntry(SpecModel):
    """An entry of a route map; they are numbered 10, 20, ... in their order."""

    action: Annotated[Action, Field(strict=False, description="permit or deny what matches")] = (
        Action.PERMIT
    )
    match: Annotated[
        Annotated[tuple[Entry, ...], Field(strict=False, max_length=50)],
        Field(description="the conditions, such as `community CUSTOMERS`; without one all match"),
    ] = ()
    set: Annotated[
        Annotated[tuple[Entry, ...], Field(strict=False, max_length=50)],
        Field(description="what it sets, such as `community 65000:1 additive`"),
    ] = ()
    call: Annotated[ListName | None, Field(description="another route map, asked first")] = None
    goes_on: Annotated[
        bool, Field(description="go on with the next entry after a match (on-match next)")
    ] = False


class AggregateSpec(SpecModel):
    """A prefix that stands for those within it. A prefix alone has the defaults."""

    prefix: Annotated[
        Entry, Field(pattern=r"^[0-9a-fA-F.:]+/\d{1,3}$", description="such as 10.2.0.0/16")
    ]
    summary_only: Annotated[bool, Field(description="those within it are not announced")] = False
    as_set: Annotated[bool, Field(description="its path has the AS numbers of theirs")] = False

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"prefix": value} if isinstance(value, str) else value

    @property
    def words(self) -> str:
        """After `aggregate-address`."""
        extra = (("as-set", self.as_set), ("summary-only", self.summary_only))
        return " ".join((self.prefix, *(word for word, wanted in extra if wanted)))


MapName = ListName | Mapping[str, ListName]
"""A route map for all neighbours, or one by their role."""


class PolicySpec(SpecModel):
    """The values of a role or a node; what is left out is the fabric's."""

    local_as: Annotated[
        LocalAsSpec | None, Field(description="the AS number that neighbours see")
    ] = None
    keepalive: Annotated[
        Annotated[DurationNs, Field(ge=SECOND, le=21845 * SECOND)] | None,
        Field(description="time between BGP keepalives"),
    ] = None
    hold: Annotated[
        Annotated[DurationNs, Field(ge=3 * SECOND, le=65535 * SECOND)] | None,
        Field(description="silence after which a BGP session is down"),
    ] = None
    connect_retry: Annotated[
        Annotated[DurationNs, Field(ge=SECOND, le=65535 * SECOND)] | None,
        Field(description="time between attempts to open a session"),
    ] = None
    advertisement_interval: Annotated[
        Annotated[DurationNs, Field(ge=0, le=600 * SECOND)] | None,
        Field(description="least time between two announcements to a neighbour"),
    ] = None
    dampening: Annotated[
        DampeningSpec | None,
        Field(description="route flap dampening (RFC 2439); true: FRR's default values"),
    ] = None
    graceful_shutdown: Annotated[
        bool, Field(description="announce all routes with the community of RFC 8326")
    ] = False
    gtsm: Annotated[
        bool,
        Field(description="take packets of direct neighbours only (RFC 5082), at both ends"),
    ] = False
    password: Annotated[
        Annotated[str, Field(pattern=r"^[!-~]{1,80}$")] | None,
        Field(description="of TCP MD5 (RFC 2385), at both ends of each session"),
    ] = None
    maximum_prefix: Annotated[
        Annotated[int, Field(ge=1, le=2**32 - 1)] | None,
        Field(description="most prefixes of a neighbour; with more its session goes down"),
    ] = None
    communities: Annotated[
        Annotated[tuple[Community, ...], Field(strict=False, max_length=32)],
        Field(description="of the prefixes that the switch originates"),
    ] = ()
    prefix_lists: Annotated[
        Mapping[ListName, Entries],
        Field(description="by name, entries such as `permit 10.0.0.0/8 le 32`"),
    ] = Field(default_factory=dict)
    community_lists: Annotated[
        Mapping[ListName, Entries],
        Field(description="by name, entries such as `permit 65000:1`"),
    ] = Field(default_factory=dict)
    as_path_lists: Annotated[
        Mapping[ListName, Entries],
        Field(description="by name, entries such as `permit ^65001_`"),
    ] = Field(default_factory=dict)
    route_maps: Annotated[
        Mapping[ListName, Annotated[tuple[RouteMapEntry, ...], Field(strict=False, min_length=1)]],
        Field(description="by name, its entries"),
    ] = Field(default_factory=dict)
    route_map_in: Annotated[
        MapName | None,
        Field(description="the route map of what neighbours announce, or one by their role"),
    ] = None
    route_map_out: Annotated[
        MapName | None,
        Field(description="the route map of what is announced, or one by role of the neighbour"),
    ] = None
    aggregates: Annotated[
        Annotated[tuple[AggregateSpec, ...], Field(strict=False, max_length=100)],
        Field(description="prefixes that stand for those within them"),
    ] = ()

    @field_validator("dampening", mode="before")
    @classmethod
    def _dampening_on_or_off(cls, value: object) -> object:
        if isinstance(value, bool):
            return DampeningSpec() if value else None
        return value

    @field_validator("keepalive", "hold", "connect_retry", "advertisement_interval")
    @classmethod
    def _whole_seconds(cls, value: int | None) -> int | None:
        if value is not None and value % SECOND:
            raise RefusedError(f"expected whole seconds, got {DURATION.written(value)}")
        return value

    @model_validator(mode="after")
    def _maps_exist(self) -> Self:
        for key in ("route_map_in", "route_map_out"):
            value = getattr(self, key)
            names = [value] if isinstance(value, str) else list((value or {}).values())
            unknown = [name for name in names if name not in self.route_maps]
            if unknown:
                raise RefusedError(
                    f"there is no route map {listed(unknown)}",
                    f"route_maps has {listed(self.route_maps) if self.route_maps else 'none'}",
                    keys=(key,),
                )
        return self

    @property
    def decides_routes(self) -> bool:
        """Whether switches may have other routes with it than those of shortest paths."""
        return bool(
            self.local_as
            or self.graceful_shutdown
            or self.route_map_in
            or self.route_map_out
            or self.aggregates
        )

    def over(self, other: PolicySpec) -> PolicySpec:
        """These values in front of those of `other`."""
        return other.model_copy(update={key: getattr(self, key) for key in self.model_fields_set})

    def map_for(self, way: str, role: str) -> str | None:
        """The route map of that way, `in` or `out`, for neighbours of that role."""
        value = self.route_map_in if way == "in" else self.route_map_out
        return value if isinstance(value, str) or value is None else value.get(role)


NO_POLICY = PolicySpec()


def policy_of(policies: Mapping[str, PolicySpec], node: str, role: str) -> PolicySpec:
    """The values of a node: its own, then those of its role."""
    of_role = policies.get(role, NO_POLICY)
    return policies[node].over(of_role) if node in policies else of_role
