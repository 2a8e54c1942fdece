"""The result document: the figures of a repeat, spread and verdicts, and its JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rocelab.base.documents import to_json
from rocelab.base.errors import InputError
from rocelab.results.drill import SCHEMA_VERSION, EndedEarly, PhaseRun, conclude, from_json
from rocelab.results.expectation_spec import ExpectSpec
from rocelab.results.kpis import probe_figures
from tests.helpers.report_sample import DRILL, drill, repeat, result

MS = 10**6


def test_a_document_plans_its_labs_fabric_once() -> None:
    drill = result()
    assert drill.fabric is drill.fabric
    assert drill.fabric.name == drill.lab["name"]


def test_a_phase_that_measured_nothing_is_no_run() -> None:
    with pytest.raises(ValueError, match="phase one has neither probes, jobs nor programs"):
        _ = PhaseRun("one").problems


def test_a_repeat_is_measured_relative_to_its_first_event() -> None:
    one = repeat(1)
    assert [record.event.t_ns for record in one.events] == [0, 2_000 * MS]
    down, up = (record.convergence for record in one.events)
    # Outages of 6, 25 and 28 packets; the third flow sends 0.36 ms after the event.
    assert (down.affected_flows, down.lost) == (3, 59)
    assert down.first_route_convergence_ns == 6 * MS
    assert down.full_convergence_ns == 28 * MS + 360_000
    assert down.loss_derived_ns == pytest.approx(59 / 3 * MS)
    assert up.affected_flows == 0
    assert one.overall.lost_outside_events == 0
    assert one.valid


def test_throughput_is_binned_with_a_border_at_the_event() -> None:
    rate = repeat(1).flows[0].rate
    assert rate.start_ns == -2_000 * MS
    assert rate.interval_ns == 10 * MS
    assert sum(rate.sent) == 6000
    assert sum(rate.received) == 5994
    assert rate.sent[200] == 10
    assert rate.received[199:202] == (10, 4, 10)


def test_fib_changes_come_in_order_of_time() -> None:
    times = [change.t_ns for change in repeat(1).fib]
    assert times == sorted(times)
    assert times[0] == 3 * MS


def test_uplink_balance_is_that_of_the_labs_own_seed_plan() -> None:
    figures = probe_figures(repeat(1))
    assert figures["uplink_mmr"] == 2.0
    run = next(run for run in repeat(1).hashing if run.own)
    assert figures["uplink_jfi"] == run.tiers[0].all_links.jfi


def test_nothing_converges_where_no_flow_was_affected() -> None:
    """Not applicable, which is not the same as not measured."""
    felt = repeat(1)
    unfelt = replace(
        felt, overall=replace(felt.overall, affected_flows=0, full_convergence_ns=None)
    )
    convergence = {
        *("full_convergence", "first_route_convergence", "loss_of_connectivity"),
        *("loss_derived_convergence", "rate_derived_convergence"),
    }
    assert probe_figures(felt).keys() - probe_figures(unfelt).keys() == convergence
    (phase,) = result(unfelt).phases
    assert not convergence & phase.figures[0].unmeasured.keys()
    (verdict,) = (verdict for verdict in phase.verdicts if verdict.kpi == "full_convergence")
    assert (verdict.passed, verdict.shown()) == (False, "not applicable")


def test_the_spread_and_the_verdicts_cover_the_valid_repeats_only() -> None:
    three = result(repeat(1), repeat(2), repeat(40, problems=("a sender fell behind",)))
    (phase,) = three.phases
    assert phase.figures[0].spread["lost_packets"].n == 2
    assert phase.figures[0].spread["lost_packets"].maximum == 62
    lost = next(verdict for verdict in phase.verdicts if verdict.kpi == "lost_packets")
    assert (lost.observed, lost.expectation, lost.passed) == (62, "<= 50", False)
    assert not three.passed


def test_a_drill_without_a_valid_repeat_does_not_pass() -> None:
    nothing = result(repeat(1, problems=("the clock jumped",)))
    assert nothing.phases[0].figures == ()
    assert not nothing.passed
    assert all(verdict.observed is None for verdict in nothing.phases[0].verdicts)


def test_a_drill_that_expects_nothing_passes_with_a_valid_repeat_only() -> None:
    (phase,) = drill().phases
    silent = phase.model_copy(update={"expect": ExpectSpec()})
    nothing = drill().model_copy(update={"phases": (silent,)})
    assert result(repeat(1), spec=nothing).passed
    assert not result(repeat(1, problems=("the clock jumped",)), spec=nothing).passed


def test_times_and_rates_stand_in_both_clocks() -> None:
    probes = result().phases[0].probes
    assert probes is not None
    scaled = {one.name: one for one in probes.clocks.scaled}
    assert scaled["fault at"].lab == 2e9
    assert scaled["fault at"].modelled == 2e6
    assert scaled["rate of a flow"].modelled == 1e6
    assert any("convergence times" in line for line in probes.clocks.unscaled)


def test_the_document_reads_back_into_the_same_object_and_the_same_bytes() -> None:
    text = to_json(result())
    assert from_json(text) == result()
    assert to_json(from_json(text)) == text
    assert text == to_json(result())


def test_the_document_is_plain_json_with_a_schema_version_and_the_spec() -> None:
    document = json.loads(to_json(result()))
    assert document["schema_version"] == SCHEMA_VERSION
    assert document["drill"]["name"] == DRILL["name"]
    assert document["lab"]["fabric"]["spines"] == 4
    assert document["repeats"][0][0]["probes"]["flows"][0]["measurement"]["outages"] == [
        {
            "end_gap_ns": MS,
            "end_ns": 6 * MS,
            "event": 0,
            "held_ns": 0,
            "stray": False,
            "lost": 6,
            "start_gap_ns": MS,
            "start_ns": 0,
        }
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "not a result document"),
        ("[1]", "no JSON object with keys"),
        ('{"schema_version": 99}', "schema version 99"),
        ('{"schema_version": 3}', "not a result document"),
    ],
)
def test_anything_else_is_an_input_error(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_json(text)


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (EndedEarly("interrupted", failed=False), "ended early"),
        (EndedEarly("a switch has no routes", failed=True), "failed"),
    ],
)
def test_a_drill_that_ended_early_does_not_pass_and_reads_back(
    end: EndedEarly, outcome: str
) -> None:
    whole = result(repeat(1))
    early = conclude(
        drill=whole.drill,
        lab=whole.lab,
        environment=whole.environment,
        dilation=whole.dilation,
        notes=("no hash seeds",),
        repeats=whole.repeats,
        expectations={whole.name: ()},
        probes={whole.name: whole.phases[0].probes} if whole.phases[0].probes else {},
        wanted_repeats=4,
        ended_early=end,
    )
    assert (early.passed, early.outcome) == (False, outcome)
    assert early.remarks == (
        f"ended early, with 1 of 4 valid repeats: {end.why}",
        "no hash seeds",
    )
    assert from_json(to_json(early)) == early
