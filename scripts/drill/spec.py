"""What a person writes to describe a drill: lab, traffic, faults, measurement, expectations.

In: a YAML file. Out: a validated `DrillSpec`, or a `JobDrillSpec` where the file has phases; times
in ns and sizes in bytes. Nothing is derived here that needs the lab; `LinkSelector.find` resolves a
link once there is a fabric.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from labs.errors import InputError
from labs.plan.fabric import Fabric, Link
from labs.spec.base import MS, SECOND, Name, SpecModel
from labs.spec.load import validate
from labs.spec.model import SeedPlan
from labs.spec.source import read_source
from labs.spec.wording import RefusedError, shown
from labs.units import DurationNs, SizeBytes, format_duration
from scripts.convergence import Method
from scripts.drill.expectspec import ExpectSpec
from scripts.drill.phases.spec import JobDrillSpec

MAX_DURATION = 600 * SECOND


class TrafficSpec(SpecModel):
    """RoCEv2 flows at a constant rate, from and to servers of the lab."""

    pattern: Annotated[
        Literal["permutation"],
        Field(description="each server sends to one of another rack, and receives from one"),
    ] = "permutation"
    flows: Annotated[int, Field(ge=1, le=4096)] = 20
    rate_pps: Annotated[int, Field(ge=1, le=100_000, description="packets/s of each flow")] = 1000
    payload: Annotated[SizeBytes, Field(ge=32, le=4096, description="RoCE payload of a packet")] = (
        256
    )
    warmup: Annotated[
        DurationNs, Field(ge=0, le=60 * SECOND, description="traffic before time 0, not counted")
    ] = SECOND
    duration: Annotated[
        DurationNs, Field(ge=100 * MS, le=MAX_DURATION, description="counted traffic, from time 0")
    ] = 6 * SECOND
    seed: Annotated[
        int, Field(ge=0, le=2**32 - 1, description="draws the pairs and source ports")
    ] = 1


class LinkSelector(SpecModel):
    """A link: `rtsw1:ctsw2` (node and its interface), or a node and the number of its uplink."""

    node: Annotated[str, Field(min_length=1, max_length=32)]
    interface: Annotated[str | None, Field(min_length=1, max_length=15)] = None
    uplink: Annotated[int | None, Field(ge=1, description="from 1, in build order")] = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, str):
            node, _, interface = value.partition(":")
            if not node or not interface:
                raise RefusedError(
                    f"expected NODE:INTERFACE such as rtsw1:ctsw2, got {shown(value)}"
                )
            return {"node": node, "interface": interface}
        return value

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> Self:
        if (self.interface is None) == (self.uplink is None):
            raise RefusedError("expected interface or uplink, one of the two")
        return self

    def find(self, fabric: Fabric) -> Link:
        """The link meant in `fabric`. Raises InputError, naming what there is, if there is none."""
        if self.node not in fabric.node_by_name:
            raise InputError(
                f"lab {fabric.name} has no node {self.node}",
                hint=f"`rocelab plan {fabric.name}` lists its nodes",
            )
        uplinks = fabric.uplinks(self.node)
        if self.uplink is not None:
            if self.uplink > len(uplinks):
                raise InputError(
                    f"{self.node} has no uplink {self.uplink}", hint=f"it has {len(uplinks)}"
                )
            return uplinks[self.uplink - 1]
        links = {link.port(self.node).interface: link for link in fabric.links_of[self.node]}
        if self.interface not in links:
            raise InputError(
                f"{self.node} has no interface {self.interface}",
                hint=f"it has {', '.join(sorted(links))}",
            )
        return links[self.interface]


class LinkFlapFault(SpecModel):
    """The carrier of a link goes away, as when a cable is pulled, and comes back; or that of
    several links in one event, as when a trunk is cut."""

    kind: Literal["link-flap"]
    at: Annotated[DurationNs, Field(gt=0, le=MAX_DURATION, description="after time 0")]
    link: LinkSelector | None = None
    links: Annotated[
        tuple[LinkSelector, ...],
        Field(strict=False, max_length=64, description="instead of link: all of them in one event"),
    ] = ()
    down_for: Annotated[DurationNs, Field(gt=0, le=MAX_DURATION)]

    @model_validator(mode="after")
    def _one_way_to_name_links(self) -> Self:
        if (self.link is None) == (not self.links):
            raise RefusedError("expected link or links, one of the two")
        return self

    @property
    def end(self) -> int:
        """When the carrier is back, ns after time 0."""
        return self.at + self.down_for

    def find(self, fabric: Fabric) -> tuple[Link, ...]:
        """The links meant in `fabric`, each once. Raises InputError as `LinkSelector.find` does."""
        selectors = self.links if self.link is None else (self.link,)
        return tuple(dict.fromkeys(selector.find(fabric) for selector in selectors))


class MeasureSpec(SpecModel):
    """How convergence is measured; reported with every figure."""

    sampling_interval: Annotated[
        DurationNs,
        Field(
            ge=MS,
            le=10 * SECOND,
            description="Packet Sampling Interval of the rate-derived method (RFC 6412 3.7.4)",
        ),
    ] = 10 * MS
    sustained: Annotated[
        DurationNs,
        Field(
            ge=MS,
            le=60 * SECOND,
            description="Sustained Convergence Validation Time (RFC 6412 3.7.5)",
        ),
    ] = 500 * MS
    event_window: Annotated[
        DurationNs,
        Field(
            gt=0,
            le=MAX_DURATION,
            description="losses this long after an event, at most until the next one, are held "
            "against it; others are reported apart",
        ),
    ] = 10 * SECOND

    @property
    def method(self) -> Method:
        """The part of it that the mathematics takes."""
        return Method(self.sampling_interval, self.sustained)


class DrillSpec(SpecModel):
    """A drill of faults: what runs where, what breaks when, what is measured and expected."""

    name: Name
    title: Annotated[str, Field(max_length=120)] = ""
    description: Annotated[str, Field(max_length=4000)] = ""
    lab: Annotated[str, Field(min_length=1, description="a lab of the catalog, or a file's path")]
    traffic: TrafficSpec = TrafficSpec()
    # A union told apart by `kind` once there is a second kind of fault.
    faults: Annotated[tuple[LinkFlapFault, ...], Field(strict=False, max_length=64)]
    compare_hashing: Annotated[
        tuple[Annotated[SeedPlan, Field(strict=False)], ...],
        Field(
            strict=False,
            description="seed plans under which the traffic also runs, undisturbed; faults run "
            "under the lab's own",
        ),
    ] = ()
    measure: MeasureSpec = MeasureSpec()
    expect: ExpectSpec = ExpectSpec()

    @field_validator("faults")
    @classmethod
    def _something_breaks(cls, faults: tuple[LinkFlapFault, ...]) -> tuple[LinkFlapFault, ...]:
        if not faults:
            raise RefusedError("a drill needs a fault", "the result's time starts at the first one")
        return faults

    @field_validator("compare_hashing")
    @classmethod
    def _each_once(cls, plans: tuple[SeedPlan, ...]) -> tuple[SeedPlan, ...]:
        if len(set(plans)) < len(plans):
            raise RefusedError("a seed plan stands here twice", "name each once")
        return plans

    @model_validator(mode="after")
    def _faults_fit_the_traffic(self) -> Self:
        sustained = self.measure.sustained
        ordered = sorted(self.faults, key=lambda fault: fault.at)
        starts = [fault.at for fault in ordered[1:]] + [self.traffic.duration]
        for fault, following in zip(ordered, starts, strict=True):
            if fault.down_for < sustained or following - fault.end < sustained:
                raise RefusedError(
                    f"the fault at {format_duration(fault.at)} leaves less than measure.sustained "
                    f"({format_duration(sustained)}) before the carrier is back, or from there to "
                    "the next fault or the end of the traffic: recovery could not be told",
                    "lengthen down_for, traffic.duration or the time between faults",
                    keys=["faults"],
                )
        return self

    @model_validator(mode="after")
    def _a_sample_holds_packets(self) -> Self:
        interval = self.measure.sampling_interval
        if interval * self.traffic.rate_pps < 5 * SECOND:
            raise RefusedError(
                f"a sampling interval of {format_duration(interval)} holds fewer than 5 packets of "
                f"a flow at {self.traffic.rate_pps} packets/s",
                f"make measure.sampling_interval at least "
                f"{format_duration(5 * SECOND / self.traffic.rate_pps)}",
                keys=["measure", "traffic"],
            )
        if interval > self.traffic.duration:
            raise RefusedError(
                f"a sampling interval of {format_duration(interval)} is longer than the counted "
                f"traffic, {format_duration(self.traffic.duration)}",
                "shorten measure.sampling_interval or lengthen traffic.duration",
                keys=["measure", "traffic"],
            )
        return self


def load_drill(path: Path) -> DrillSpec | JobDrillSpec:
    """The drill that the file describes: one of jobs where it has the key `phases`, else one of
    faults. Raises SpecError with everything wrong in it."""
    source = read_source(path)
    if isinstance(source.data, dict) and "phases" in source.data:
        return validate(source, JobDrillSpec)
    return validate(source, DrillSpec)
