"""The file format of failures and maintenance: a timeline, and how jobs recover.

    events:
      - {at: 2s, fail: link rtsw40:ctsw3, lasts: 10s}
      - {at: 1h, drain: switch ctsw7, lasts: 2h}

Specs come validated from a YAML file or from `rocelab.sim.events.sentence`, times in ns.
`rocelab.sim.events.timeline` resolves them on a network.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from rocelab.base.units import SHARE, SharePpm, UnitScale
from rocelab.base.wording import RefusedError, listed, shown
from rocelab.labfile.base import MS, SECOND, SpecModel
from rocelab.labfile.model import MAX_SEED
from rocelab.sim.events.targets import parse_target

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
MAX_SPAN = 3660 * DAY
MAX_EVENTS = 10_000

SPAN = UnitScale(
    expected="a time such as 150ms, 10s or 2h",
    base_unit="nanoseconds",
    hint="a time is a number and ns, us, ms, s, m (minutes), h (hours) or d (days)",
    units={"s": SECOND, "ms": MS, "us": 10**3, "ns": 1, "m": MINUTE, "h": HOUR, "d": DAY},
    examples=("10s", "2h"),
)
"""Times of maintenance: as `rocelab.base.units.DURATION`, with hours and days."""

SpanNs = Annotated[
    int,
    BeforeValidator(SPAN.parse),
    SPAN,
    WithJsonSchema({"type": "string", "pattern": SPAN.pattern, "examples": list(SPAN.examples)}),
    PlainSerializer(SPAN.written, return_type=str, when_used="json"),
]


class EventKind(StrEnum):
    """What happens to a target."""

    FAIL = "fail"
    BLACKHOLE = "blackhole"
    DRAIN = "drain"
    CRASH = "crash"
    DEGRADE = "degrade"


class ConvergenceStatistic(StrEnum):
    """Which of the lab's convergence times is taken."""

    MEDIAN = "median"
    P95 = "p95"


def _read_reaction(value: object) -> object:
    if isinstance(value, ConvergenceStatistic):
        return value
    if isinstance(value, str) and value in tuple(ConvergenceStatistic):
        return ConvergenceStatistic(value)
    try:
        return SPAN.parse(value)
    except RefusedError:
        raise RefusedError(
            f"expected median, p95 or a time such as 150ms, got {shown(value)}",
            "median and p95 are of the convergence times that the lab measured",
        ) from None


def _written_reaction(value: ConvergenceStatistic | int) -> str:
    return str(value) if isinstance(value, ConvergenceStatistic) else SPAN.written(value)


ReactionTime = Annotated[
    ConvergenceStatistic | int,
    BeforeValidator(_read_reaction),
    WithJsonSchema({"type": "string", "examples": ["median", "p95", "150ms"]}),
    PlainSerializer(_written_reaction, return_type=str, when_used="json"),
]

TargetText = Annotated[
    str,
    BeforeValidator(lambda text: str(parse_target(text))),
    WithJsonSchema({"type": "string", "examples": ["link rtsw40:ctsw3", "2 links of rack 40"]}),
]


class EventSpec(SpecModel):
    """One event: its kind is a key, its target the key's value."""

    at: Annotated[SpanNs, Field(ge=0, le=MAX_SPAN, description="after the jobs' start")] = 0
    fail: Annotated[
        TargetText | None, Field(description="carrier or power is lost: both ends know")
    ] = None
    blackhole: Annotated[
        TargetText | None, Field(description="packets vanish, the carrier stays")
    ] = None
    drain: Annotated[
        TargetText | None, Field(description="routing moves away first, then it is taken out")
    ] = None
    crash: Annotated[
        TargetText | None, Field(description="a switch's bgpd is killed, and its routes with it")
    ] = None
    degrade: Annotated[
        TargetText | None, Field(description="it stays in use at a part of its rate: see `to`")
    ] = None
    to: Annotated[
        SharePpm | None,
        Field(
            gt=0, lt=100 * SHARE.units["%"], description="the remaining share of a degraded rate"
        ),
    ] = None
    lasts: Annotated[
        SpanNs | None,
        Field(gt=0, le=MAX_SPAN, description="duration; left out: permanent"),
    ] = None
    reaction: Annotated[
        ReactionTime | None,
        Field(description="until routing has moved; left out: as the timeline has it"),
    ] = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [kind.value for kind in EventKind if getattr(self, kind) is not None]
        if len(kinds) != 1:
            raise RefusedError(
                f"expected one of {listed(EventKind)}, "
                f"got {listed(kinds, 'and') if kinds else 'none'}",
                keys=kinds[1:],
            )
        if (self.degrade is None) != (self.to is None):
            raise RefusedError(
                "degrade and to belong together", "for example degrade: ..., to: 50%", keys=("to",)
            )
        if self.crash is not None and not self.crash.startswith("switch "):
            raise RefusedError("only a switch has a bgpd that can crash", keys=("crash",))
        return self

    @property
    def kind(self) -> EventKind:
        return next(kind for kind in EventKind if getattr(self, kind) is not None)

    @property
    def target(self) -> str:
        """The target as text that `parse_target` reads."""
        return str(getattr(self, self.kind))


class RetransmissionSpec(SpecModel):
    """How long a queue pair tries: NCCL's defaults (transport/net_ib.cc: NCCL_IB_TIMEOUT 20, which
    is 4.096 us x 2^20, and NCCL_IB_RETRY_CNT 7)."""

    ack_timeout: Annotated[
        SpanNs, Field(gt=0, le=HOUR, description="silence after which packets are sent again")
    ] = 4096 * 2**20
    retries: Annotated[
        int, Field(ge=0, le=15, description="timeouts in a row that a queue pair survives")
    ] = 7


class RestartSpec(SpecModel):
    """How a broken job recovers: from its last checkpoint, on spare hosts if needed.

    HPN (SIGCOMM'24) checkpoints every 2 to 4 hours, which takes about 100 s. The duration of a
    restart is not published: ten minutes are an assumption.
    """

    checkpoint_every: Annotated[
        SpanNs, Field(gt=0, le=MAX_SPAN, description="work between two checkpoints")
    ] = 3 * HOUR
    checkpoint_takes: Annotated[
        SpanNs, Field(ge=0, le=DAY, description="the job stops while it is written")
    ] = 100 * SECOND
    restart_takes: Annotated[
        SpanNs, Field(ge=0, le=DAY, description="from the break until it computes again")
    ] = 10 * MINUTE


class TimelineSpec(SpecModel):
    """Events in time, and how routing, queue pairs and jobs recover from them."""

    events: Annotated[tuple[EventSpec, ...], Field(strict=False, max_length=MAX_EVENTS)] = ()
    reaction: Annotated[
        ReactionTime,
        Field(description="median or p95 of what the lab measured, or a time for all"),
    ] = ConvergenceStatistic.MEDIAN
    retransmission: Annotated[
        RetransmissionSpec | None, Field(description="left out: as the job's transport, or NCCL's")
    ] = None
    restart: RestartSpec = RestartSpec()
    seed: Annotated[int, Field(ge=0, le=MAX_SEED, description="draws random links")] = 1


class RatesSpec(SpecModel):
    """Failures drawn from published rates."""

    preset: Annotated[
        Literal["hpn", "llama3"], Field(description="whose failure rates: HPN's or Llama 3's")
    ]
    repair: Annotated[
        SpanNs, Field(gt=0, le=MAX_SPAN, description="how long a failure lasts, on average")
    ] = HOUR
    seed: Annotated[int, Field(ge=0, le=MAX_SEED, description="draws times and targets")] = 1
