"""The replay in a drill's page: its data are complete, its size is bounded, its script is whole."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import collective_job
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.planning.build import plan
from rocelab.report.compare import recorded as compare_recorded
from rocelab.report.compare.recorded import recorded as compared
from rocelab.report.drill import drill_document
from rocelab.report.plots import fib_timeline, svg
from rocelab.report.probes.sections import MAX_ROWS
from rocelab.report.renderers.page import html
from rocelab.report.replay import page as replay_page
from rocelab.report.replay.page import data, modules, script, style
from rocelab.report.replay.recording import (
    MOST_RATES,
    Recording,
    SentFlow,
    recording,
    routes,
)
from rocelab.report.simulation.document import simulation_document
from rocelab.report.simulation.recorded import MOST_NODES_OF_PART, which_flows
from rocelab.report.simulation.recorded import recorded as simulated
from rocelab.results.convergence import Outage
from rocelab.results.drill import DrillResult
from rocelab.results.engines import Engine
from rocelab.results.job import Goodput, SenderGoodput, StepRecords, Times
from rocelab.results.probes import Event, FibChange, Flow, FlowRecord, ProbeRun
from rocelab.results.stages import DetectionCause, Resolution, Stages, SwitchStages
from rocelab.sim.events.event_spec import TimelineSpec
from rocelab.sim.events.sentence import parse_event
from rocelab.sim.options import Options
from rocelab.sim.simulate import simulate
from tests.helpers import phases_sample
from tests.helpers.cells import plain_cells
from tests.helpers.comparison_sample import comparison
from tests.helpers.report_sample import LINK, MS, repeat, result

SECOND = 10**9
PAGE_LIMIT = 5_000_000


def recorded(drill: DrillResult) -> Recording:
    replay = recording(drill)
    assert replay is not None
    return replay


def test_every_valid_run_is_recorded_and_the_representative_one_is_shown_first() -> None:
    replay = recorded(result(repeat(9), repeat(1), repeat(4), repeat(5, problems=("x",))))
    assert [run.title for run in replay.runs] == ["repeat 1", "repeat 2", "repeat 3"]
    assert replay.chosen == 2
    assert recording(result(repeat(1, problems=("x",)))) is None


def test_the_fabric_is_as_the_live_page_has_it() -> None:
    recording = recorded(result(repeat(1)))
    assert {"name": "rtsw1", "role": "rtsw", "tier": 1, "zone": "AI zone 1"} in recording.nodes
    assert {"name": LINK, "a": "rtsw1", "b": "ctsw2"} in recording.links
    assert len(recording.runs[0].loads) == 2 * len(recording.links)
    assert sum(recording.runs[0].loads) == 24 * 2 * 2000


def test_a_fault_begins_and_ends_at_its_link_in_the_event_of_its_number() -> None:
    (run,) = recorded(result(repeat(1))).runs
    faults = [event for event in run.events if event["kind"] == "fault"]
    assert [(fault["t_ns"], fault["begins"], fault["event"]) for fault in faults] == [
        (0, True, 1),
        (2 * SECOND, False, 2),
    ]
    assert {fault["links"] for fault in faults} == {(LINK,)}
    assert [event["t_ns"] for event in run.events] == sorted(event["t_ns"] for event in run.events)


def test_a_result_without_single_changes_shows_its_events() -> None:
    one = repeat(1)
    events = tuple(replace(event, event=replace(event.event, faults=())) for event in one.events)
    (run,) = recorded(result(replace(one, events=events))).runs
    faults = [event for event in run.events if event["kind"] == "fault"]
    assert [(fault["subject"], fault["links"]) for fault in faults] == [(LINK, ())] * 2


def test_all_losses_are_there_with_their_times() -> None:
    one = repeat(1)
    (run,) = recorded(result(one)).runs
    assert sum(lost for flow in run.flows for _, _, lost in flow.outages) == one.overall.lost > 0
    flow = next(flow for flow in run.flows if flow.name == "f4")
    assert [(flow.lost, flow.affected)] == [(25, 1)]
    assert flow.convergence_ns == one.flows[3].measurement.events[0].convergence_ns


def change(at_ms: float, before: int | None, after: int | None, **keys: str) -> FibChange:
    fields = {"node": "rtsw1", "prefix": "a", **keys}
    action = "delete" if after is None else "replace"
    return FibChange(int(at_ms * MS), fields["node"], fields["prefix"], action, before, after)


def test_changes_of_a_switch_that_follow_each_other_are_one_entry_with_what_is_then_missing() -> (
    None
):
    widths = list(
        routes(
            [
                change(1.0, 4, 3),
                change(1.5, 4, None, prefix="b"),
                change(1.6, 4, 2, node="rtsw2"),
                change(9.0, 3, 4),
                change(20.0, None, 4, prefix="b"),
            ]
        )
    )
    assert [
        (row["node"], row["t_ns"] / MS, row["changes"], row["removed"], row["incomplete"])
        for row in widths
    ] == [
        ("rtsw1", 1, 2, 1, 2),
        ("rtsw1", 9, 1, 0, 1),
        ("rtsw1", 20, 1, 0, 0),
        ("rtsw2", 1.6, 1, 0, 1),
    ]


def test_stages_are_entries_after_their_event() -> None:
    switch = SwitchStages(
        "rtsw1", DetectionCause.CARRIER, MS, 2 * MS, 3 * MS, None, 5 * MS, None, "p/24", 1
    )
    one = Stages(1, "an event", Resolution(1000, None, None), (switch,))
    (run,) = recorded(result(replace(repeat(1), stages=(replace(one, switches=()), one)))).runs
    assert [
        (event["t_ns"] - 2 * SECOND, event["text"])
        for event in run.events
        if event["kind"] == "stage"
    ] == [
        (MS, "detects it by carrier"),
        (2 * MS, "bgpd has a BGP session again"),
        (3 * MS, "bgpd has decided on the route to p/24"),
    ]


def large(flows: int, intervals: int) -> ProbeRun:
    """Each flow has two outages, each switch many changes of routes."""
    one = repeat(1)
    first = one.flows[0]
    outages = tuple(Outage(at * SECOND + 12345, at * SECOND + 98765432, 98) for at in (1, 3))
    measurement = replace(first.measurement, outages=outages, lost=196)
    rate = replace(first.rate, sent=(12345,) * intervals, received=(12344,) * intervals)
    records = tuple(
        FlowRecord(
            Flow(f"f{number}", "srv1-1", "srv2-1", "198.18.0.1", "198.18.0.9", number, 4791),
            measurement,
            rate,
            ("srv1-1:rtsw1", "rtsw1:ctsw1", "rtsw2:ctsw1", "srv2-1:rtsw2"),
        )
        for number in range(flows)
    )
    fib = tuple(
        change(place / 50, 4, 3, node=f"rtsw{1 + place % 4}", prefix=f"p{place}")
        for place in range(20_000)
    )
    return replace(one, flows=records, fib=fib)


def test_of_very_many_changes_of_routes_a_mark_is_drawn_where_a_pixel_can_tell() -> None:
    figure = fib_timeline(large(1, 10))
    assert figure is not None
    assert len(svg(figure, "fib")) < 1_000_000


@pytest.mark.long
def test_a_large_page_is_below_5_mb_and_has_every_loss_and_every_change_of_routes() -> None:
    drill = result(*[large(500, 6_000)] * 10)
    page = html(drill_document(drill))
    assert plain_cells(page).count("<td>srv1-1 → srv2-1</td>") == MAX_ROWS
    assert len(page.encode()) < PAGE_LIMIT
    held = re.search(r'id="recording">(.*?)</script>', page)
    assert held is not None
    runs = json.loads(held[1])["runs"]
    assert len(runs) == 10
    for run in runs:
        assert sum(lost for flow in run["flows"] for _, _, lost in flow["outages"]) == 500 * 196
        changes = [event["changes"] for event in run["events"] if event["kind"] == "routes"]
        assert sum(changes) == 20_000


def test_rates_that_are_too_many_are_summed_over_longer_intervals() -> None:
    (run,) = recorded(result(large(100, 6_000))).runs
    together = run.rates.interval_ns // repeat(1).flows[0].rate.interval_ns
    assert together == 6
    assert sum(map(len, run.rates.sent)) + sum(map(len, run.rates.received)) <= MOST_RATES
    assert {sum(row) for row in run.rates.sent} == {6_000 * 12345}
    assert run.totals.interval_ns == repeat(1).flows[0].rate.interval_ns
    assert run.totals.sent == [[100 * 12345] * 6_000]


def test_no_text_of_a_result_ends_the_element_that_holds_it() -> None:
    text = data({"name": "</script><script>alert(1)"})
    assert "<" not in text
    assert json.loads(text) == {"name": "</script><script>alert(1)"}


def test_the_script_has_each_module_once_after_those_that_it_imports() -> None:
    text = modules("replay")
    defined = re.findall(r"^const module_(\w+) = ", text, re.MULTILINE)
    assert len(defined) == len(set(defined))
    assert defined[-1] == "replay"
    for place, name in enumerate(defined):
        of_module = text.split(f"const module_{name} = ")[1].split("\nconst module_")[0]
        assert set(re.findall(r"= module_(\w+);", of_module)) <= set(defined[:place])
    assert not re.search(r"^(import|export)\b", text, re.MULTILINE)
    assert "Permission to use" in script()


def test_a_module_of_another_form_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(replay_page, "HERE", tmp_path)
    (tmp_path / "odd.js").write_text('import * as all from "./format.js";\n')
    with pytest.raises(ValueError, match=r"odd\.js: .*import \* as all"):
        modules("odd")


def test_a_job_has_its_goodput_and_the_measured_iterations_where_they_ended() -> None:
    drill = phases_sample.result()
    idle = next(run for run in drill.repeats[0] if run.phase == "idle")
    assert idle.jobs is not None
    (report,) = idle.jobs.reports
    warmups = report.job["warmup_iterations"]
    ends = [100 * (number + 1) for number in range(warmups + 2)]
    steps = StepRecords(0, ((0, 0),) * len(ends), tuple((end - 5, end) for end in ends), (), (), ())
    event = Event(250, "carrier-down", "begin", "rtsw1:srv1-1")
    senders = (SenderGoodput(0, (1.0, 2.0, 3.0)), SenderGoodput(1, (4.0, 5.0)))
    timed = replace(
        report,
        iterations=(Times(80.0, 8.0), Times(90.0, 9.0)),
        steps=steps,
        events=(event,),
        goodput=Goodput(Times(10.0, 1.0), senders),
    )
    repeats = (
        tuple(
            replace(run, jobs=replace(run.jobs, reports=(timed,))) if run is idle else run
            for run in drill.repeats[0]
        ),
    )
    recording = recorded(replace(drill, repeats=repeats))
    run = next(run for run in recording.runs if run.title.startswith("idle"))
    (job,) = run.jobs
    last = ends[-1]
    assert job.iterations == ((last - 100 - 80, last - 100), (last - 90, last))
    assert (job.interval_ns, job.rates_in) == (10, "GB/s")
    assert [8e9 * rate for rate in job.rates] == pytest.approx([5, 7, 3])
    assert [(event["t_ns"], event["fault"]) for event in run.events] == [(250, "carrier-down")]
    assert run.flows == []


def test_a_cell_of_a_comparison_has_its_flows_and_their_paths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = comparison()
    recording = compared(measured)
    assert recording is not None
    sent = measured.cells[0].runs[0].flows
    names = [link["name"] for link in recording.links]
    (run, *_) = recording.runs
    flows = [flow for flow in run.flows if isinstance(flow, SentFlow)]
    assert run.flows_are.startswith(f"All {len(sent)} flows; ")
    assert [(flow.dest_qp, flow.packets) for flow in flows] == [
        (flow.dest_qp, flow.packets) for flow in sent
    ]
    for flow in flows:
        crossed = [names[number] for number in flow.path]
        assert crossed[0].startswith(flow.source.partition(":")[0])
        assert crossed[-1].startswith(flow.destination.partition(":")[0])

    again = [replace(flow, retransmitted=n % 3, ce=n) for n, flow in enumerate(sent)]
    cells = [
        replace(cell, runs=(replace(cell.runs[0], flows=tuple(again)),)) for cell in measured.cells
    ]
    monkeypatch.setattr(compare_recorded, "MOST_SENT", 3 * len(cells))
    fewer = compared(replace(measured, cells=tuple(cells)))
    assert fewer is not None
    (run, *_) = fewer.runs
    most = sorted(((flow.retransmitted, flow.ce) for flow in again), reverse=True)[:3]
    assert [(flow.retransmitted, flow.ce) for flow in run.flows] == most  # type: ignore[attr-defined]
    assert run.flows_are.startswith(f"The 3 of {len(sent)} flows with the most packets sent again")


def test_a_simulation_has_the_bytes_of_each_link_and_the_rate_over_time() -> None:
    event = parse_event("fail z1-rtsw1:z1-ctsw1 at 5ms for 2s")
    job = collective_job(JobSpec.model_validate({"pattern": "alltoall", "ranks": 8, "size": "8MB"}))
    options = Options(timeline=TimelineSpec(events=(event,)))
    report = simulate(load_spec(find_lab("zones-small")), [job], options)
    recording = simulated(report)
    assert recording is not None
    (run,) = recording.runs
    names = [link["name"] for link in recording.links]
    for busy in report.worst:
        number = names.index(busy.link)
        is_up = busy.sender == recording.links[number]["a"]
        assert run.loads[2 * number + (not is_up)] == busy.bytes
    assert sum(run.loads) == sum(sum(use.bytes) for use in report.uses) > 0
    (rate,) = run.jobs
    assert run.end_ns == pytest.approx(rate.interval_ns * len(rate.rates))
    times, rates = report.rate.time_ns, report.rate.rate_bps
    sent = sum(
        bps * (end - begin) for bps, begin, end in zip(rates, times, times[1:], strict=False)
    )
    assert sum(rate.rates) * rate.interval_ns == pytest.approx(sent, rel=1e-6)
    assert [(event["t_ns"], event["kind"]) for event in run.events if event["kind"] == "fault"] == [
        (5 * MS, "fault"),
        (2005 * MS, "fault"),
    ]
    assert run.events[0]["links"] == ("z1-rtsw1:z1-ctsw1",)
    (failed,) = report.events
    routed = [event["t_ns"] for event in run.events if event["kind"] == "stage"]
    assert routed == [failed.routed_ns] and failed.routed_ns > 5 * MS
    assert run.rates_are == "all transfers on the wire"
    of_packets = simulated(replace(report, method=replace(report.method, engine=Engine.PACKETS)))
    assert of_packets is not None and of_packets.runs[0].rates_are.endswith(", mean")
    nothing = replace(report, rate=replace(report.rate, time_ns=(0.0,), rate_bps=(0.0,)))
    assert simulated(nothing) is None


def test_a_simulation_has_its_flows_with_their_paths_and_the_page_lists_them() -> None:
    job = {"pattern": "pairs", "ranks": 4, "size": "8MB", "transport": {"qps": 2}}
    report = simulate(
        load_spec(find_lab("zone-small")), [collective_job(JobSpec.model_validate(job))]
    )
    recording = simulated(report)
    assert recording is not None
    (run,) = recording.runs
    assert [flow.name for flow in run.flows] == [f"f{n}" for n in range(1, 5)]
    for flow, outcome in zip(run.flows, report.slowest, strict=True):
        assert tuple(recording.links[number]["name"] for number in flow.path) == outcome.links
    assert run.flows_are.startswith("All 4 flows")
    fewer = replace(report, slowest=report.slowest[:3])
    assert which_flows(fewer, 3).startswith("The 3 slowest of 4 flows")
    assert f"<td>{', '.join(report.slowest[0].links)}</td>" in plain_cells(
        html(simulation_document(report))
    )


def test_of_a_fabric_of_thousands_of_nodes_the_part_is_drawn_that_the_slowest_flows_take() -> None:
    job = {"pattern": "alltoall", "ranks": 24, "size": "1MB", "placement": "fragmented"}
    spec = load_spec(find_lab("llama3-24k"))
    report = simulate(spec, [collective_job(JobSpec.model_validate(job))])
    recording = simulated(report)
    assert recording is not None
    (run,) = recording.runs
    assert 0 < len(run.flows) < len(report.slowest)
    assert len(recording.nodes) <= MOST_NODES_OF_PART
    for flow, outcome in zip(run.flows, report.slowest, strict=False):
        assert tuple(recording.links[number]["name"] for number in flow.path) == outcome.links
    assert run.flows_are.startswith(f"The {len(run.flows)} slowest of 552 flows")
    assert f"of the {len(recording.nodes)} nodes on their paths, of 4,764 that" in run.flows_are
    names = {node["name"] for node in recording.nodes}
    drawn = {link.name: link for link in plan(spec).links if {link.a.node, link.b.node} <= names}
    assert set(drawn) == {link["name"] for link in recording.links}
    # Of each link the bytes that the whole fabric's has, up and then down.
    carried = {name: run.loads[2 * n : 2 * n + 2] for n, name in enumerate(drawn)}
    between = [name for name in report.slowest[0].links if drawn[name].a.role.is_switch]
    assert all(max(carried[name]) > 0 for name in between)
    nobody = replace(report, slowest=(replace(report.slowest[0], links=()),))
    assert simulated(nobody) is None


def test_the_page_s_script_and_style_are_there_in_a_locale_of_ascii() -> None:
    read = "from rocelab.report.replay.page import script, style; print(len(script() + style()))"
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", read],
        env=os.environ | ascii_only,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(script() + style())
