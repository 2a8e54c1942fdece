"""The `expect` block of a drill file: a key per KPI, each with its own form of limit.

In: what a person wrote, such as `full_convergence: "<= 1s"`. Out: `Expectation`s, and the schema
by which an editor checks the block.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from rocelab.results.expectations import Expectation, Quantity, kpi_named, parse_expectation
from rocelab.spec.base import SpecModel

_FORMS: dict[Quantity, dict[str, Any]] = {
    Quantity.TRUTH: {"type": "boolean"},
    Quantity.COUNT: {"type": ["integer", "string"], "examples": [0, "<= 500"]},
    Quantity.SIZE: {"type": "string", "examples": ["<= 3MB"]},
    Quantity.BANDWIDTH: {"type": ["number", "string"], "examples": [">= 40"]},
    Quantity.RATIO: {"type": ["number", "string"], "examples": ["<= 2.5"]},
    Quantity.DURATION: {"type": "string", "examples": ["<= 1s"]},
}


def _as_written(expectation: Expectation | None) -> str | bool | None:
    """What the drill file says, so that a dumped drill reads back."""
    if expectation is None:
        return None
    if kpi_named(expectation.kpi).quantity is Quantity.TRUTH:
        return bool(expectation.limit)
    return expectation.written


def expected(kpi: str) -> tuple[Any, ...]:
    """The annotations of an `expect` key: its parser, its text, and its form for editors."""

    def parse(value: object) -> Expectation:
        return parse_expectation(kpi, value)

    form = _FORMS[kpi_named(kpi).quantity]
    return (
        PlainValidator(parse),
        PlainSerializer(_as_written),
        WithJsonSchema({**form, "description": kpi_named(kpi).meaning}),
    )


class _Expectations(SpecModel):
    def expectations(self) -> tuple[Expectation, ...]:
        """Those that the file states, in the order of the KPIs."""
        stated = [getattr(self, name) for name in type(self).model_fields]
        return tuple(expectation for expectation in stated if expectation is not None)


class ExpectSpec(_Expectations):
    """What the figures of every repeat must come to for the drill to pass. Keys are the KPIs."""

    restored: Annotated[Expectation | None, *expected("restored")] = None
    full_convergence: Annotated[Expectation | None, *expected("full_convergence")] = None
    first_route_convergence: Annotated[Expectation | None, *expected("first_route_convergence")] = (
        None
    )
    loss_derived_convergence: Annotated[
        Expectation | None, *expected("loss_derived_convergence")
    ] = None
    rate_derived_convergence: Annotated[
        Expectation | None, *expected("rate_derived_convergence")
    ] = None
    loss_of_connectivity: Annotated[Expectation | None, *expected("loss_of_connectivity")] = None
    affected_flows: Annotated[Expectation | None, *expected("affected_flows")] = None
    lost_packets: Annotated[Expectation | None, *expected("lost_packets")] = None
    lost_outside_events: Annotated[Expectation | None, *expected("lost_outside_events")] = None
    reordered_packets: Annotated[Expectation | None, *expected("reordered_packets")] = None
    duplicated_packets: Annotated[Expectation | None, *expected("duplicated_packets")] = None
    uplink_mmr: Annotated[Expectation | None, *expected("uplink_mmr")] = None
    uplink_jfi: Annotated[Expectation | None, *expected("uplink_jfi")] = None


class JobExpectSpec(_Expectations):
    """What the figures of a phase must come to in every repeat. Keys are the KPIs of jobs."""

    completed: Annotated[Expectation | None, *expected("completed")] = None
    accounted: Annotated[Expectation | None, *expected("accounted")] = None
    busbw: Annotated[Expectation | None, *expected("busbw")] = None
    jct_ratio: Annotated[Expectation | None, *expected("jct_ratio")] = None
    goodput: Annotated[Expectation | None, *expected("goodput")] = None
    dropped_packets: Annotated[Expectation | None, *expected("dropped_packets")] = None
    retransmitted_packets: Annotated[Expectation | None, *expected("retransmitted_packets")] = None
    naks: Annotated[Expectation | None, *expected("naks")] = None
    timeouts: Annotated[Expectation | None, *expected("timeouts")] = None
    switch_marks: Annotated[Expectation | None, *expected("switch_marks")] = None
    marks_outside_data: Annotated[Expectation | None, *expected("marks_outside_data")] = None
    ce_packets: Annotated[Expectation | None, *expected("ce_packets")] = None
    cnps: Annotated[Expectation | None, *expected("cnps")] = None
    class_5_packets: Annotated[Expectation | None, *expected("class_5_packets")] = None
    class_6_packets: Annotated[Expectation | None, *expected("class_6_packets")] = None
    queue_max: Annotated[Expectation | None, *expected("queue_max")] = None
    rtt_p50: Annotated[Expectation | None, *expected("rtt_p50")] = None
    rtt_p99: Annotated[Expectation | None, *expected("rtt_p99")] = None
    rate_ratio: Annotated[Expectation | None, *expected("rate_ratio")] = None
    sender_jfi: Annotated[Expectation | None, *expected("sender_jfi")] = None
    time_to_fairness: Annotated[Expectation | None, *expected("time_to_fairness")] = None
    model_time_to_fairness: Annotated[Expectation | None, *expected("model_time_to_fairness")] = (
        None
    )
    time_to_fairness_ratio: Annotated[Expectation | None, *expected("time_to_fairness_ratio")] = (
        None
    )
    jct_overhead: Annotated[Expectation | None, *expected("jct_overhead")] = None
    zero_impact: Annotated[Expectation | None, *expected("zero_impact")] = None
    uplink_mmr: Annotated[Expectation | None, *expected("uplink_mmr")] = None
    uplink_jfi: Annotated[Expectation | None, *expected("uplink_jfi")] = None
    unused_links: Annotated[Expectation | None, *expected("unused_links")] = None
    nic_port_share: Annotated[Expectation | None, *expected("nic_port_share")] = None
