"""What happened, in a sentence: each clause is there with its data, and not without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.colors import to_hex

from rocelab.base.statistics import spread
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import collective_job
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.planning.build import build_fabric
from rocelab.report.answers.clauses import and_more, in_words, sentence
from rocelab.report.answers.drill import drill_answer
from rocelab.report.answers.events import (
    event_text,
    hold_clause,
    outage_clause,
    worst_event,
)
from rocelab.report.answers.job import held_back_clause, job_answer
from rocelab.report.answers.plots import worst_event_plot
from rocelab.report.compare.answer import comparison_answer
from rocelab.report.document import Answer, Card
from rocelab.report.drill import drill_document
from rocelab.report.palette import SLOWED, STALLED
from rocelab.report.renderers.page import html
from rocelab.report.repeats import repeat_tables
from rocelab.report.simulation.answer import simulation_answer
from rocelab.report.simulation.costs import cost_plot, outlook_answer, what_if_answer
from rocelab.results.drill import DrillResult
from rocelab.results.job import Headline
from rocelab.results.probes import (
    Disturbance,
    Event,
    FaultChange,
    ProbeRun,
    Timeline,
    probe_run,
)
from rocelab.results.simulation import BusyLink, SimulatedEvent, SimulationReport
from rocelab.results.stages import (
    DetectionCause,
    Resolution,
    Stages,
    SwitchStages,
    holds_until,
)
from rocelab.results.whatif import JobCost, JobOutlook, Outlook, WhatIf
from rocelab.sim.options import Options
from rocelab.sim.simulate import simulate
from rocelab.sim.sweep.answer import sweep_answer
from rocelab.sim.sweep.cells import cells_of
from rocelab.sim.sweep.store import Row
from rocelab.sim.sweep.sweep_spec import read_sweep
from tests.helpers import comparison_sample, phases_sample, report_sample
from tests.helpers.documents import printed
from tests.helpers.report_sample import expecting

MS = 10**6


def switch(node: str, cause: DetectionCause, detected_ms: float, best_ms: float) -> SwitchStages:
    best_ns = round(best_ms * MS)
    return SwitchStages(
        node=node,
        detected_by=cause,
        detected_ns=round(detected_ms * MS),
        session_ns=None,
        best_path_ns=best_ns,
        zebra_ns=best_ns + 10 * MS,
        kernel_ns=best_ns + 11 * MS,
        first_good_packet_ns=None,
        prefix="198.18.0.0/29",
        changes=3,
    )


TWO_HOPS = Stages(
    1,
    "carrier-down of rtsw1:ctsw2",
    Resolution(1000, None, None),
    (
        switch("rtsw1", DetectionCause.CARRIER, 0.74, 62.35),
        switch("ctsw2", DetectionCause.CARRIER, 1.31, 62.50),
        switch("rtsw3", DetectionCause.PEER, 62.86, 112.90),
        switch("rtsw2", DetectionCause.PEER, 62.92, 113.04),
    ),
)
"""The times of docs/convergence.md, "What it shows"."""


def slow(stages: Stages | None = TWO_HOPS) -> ProbeRun:
    """The sample's run with outages of 5, 126 and 127 ms."""
    fabric = build_fabric(report_sample.lab())
    out_ms = {0: 5, 3: 126, 9: 127}
    run = report_sample.repeat(1)
    return replace(
        probe_run(
            {
                flow: report_sample.samples(out_ms, number)
                for number, flow in enumerate(report_sample.flows(fabric))
            },
            Timeline(
                tuple(
                    replace(
                        record.event,
                        t_ns=record.event.t_ns + report_sample.START + 2000 * MS,
                        faults=record.event.faults,
                    )
                    for record in run.events
                ),
                report_sample.START,
                report_sample.START + 6000 * MS,
                report_sample.phase().measure.event_window,
            ),
            report_sample.phase().measure.method,
        ),
        stages=() if stages is None else (stages,),
    )


def answer(result: DrillResult) -> Answer:
    return drill_answer(result, repeat_tables(result))


def test_clauses_make_a_sentence_and_none_makes_none() -> None:
    assert sentence("three flows out", "", "nothing marked") == "Three flows out; nothing marked."
    assert sentence("", "") == ""
    assert and_more(["a", "b", "c"]) == "a and 2 more"
    assert (in_words(2), in_words(12)) == ("two", "12")


def test_an_answer_has_at_most_four_figures() -> None:
    with pytest.raises(AssertionError):
        Answer("", (Card("a", "1"),) * 5)


def test_the_worst_event_says_how_many_flows_were_out_for_how_long() -> None:
    worst = worst_event(report_sample.repeat(1))
    assert worst is not None
    assert outage_clause(worst) == "cable rtsw1:ctsw2 down: 3 of 24 flows out for up to 28 ms"
    untouched = replace(worst.record.convergence, affected_flows=0)
    nothing = replace(worst, record=replace(worst.record, convergence=untouched))
    assert outage_clause(nothing).endswith("down: none of 24 flows lost a packet")
    assert "not back" not in outage_clause(worst)
    assert outage_clause(replace(worst, open=1)).endswith(", 1 of them not back at the end")
    unmeasured = replace(worst, out_ns=None)
    assert outage_clause(unmeasured).endswith("3 of 24 flows out")


def test_a_run_without_events_has_no_worst_one() -> None:
    assert worst_event(replace(report_sample.repeat(1), events=())) is None


def cables(*links: str, nodes: tuple[str, ...] = ()) -> Event:
    faults = tuple(
        FaultChange(0, "carrier-down", True, link, (link,), nodes, dark=True) for link in links
    )
    return Event(0, "carrier-down", "begin", "cables", faults=faults)


def test_cables_are_counted_and_other_faults_keep_their_title() -> None:
    assert event_text(cables("a:b")) == "cable a:b down"
    assert event_text(cables("a:b", "a:b-2")) == "both cables down (a:b, a:b-2)"
    assert event_text(cables("a:b", "a:c", "a:d")) == "three cables down"
    assert event_text(cables("a:b", nodes=("a",))) == "carrier-down of cables"
    assert event_text(replace(cables("a:b"), change="end")) == "carrier-down of cables ends"
    assert event_text(replace(cables("a:b"), faults=())) == "carrier-down of cables"


@pytest.mark.parametrize(("until_ms", "holds"), [(127, 2), (100, 1), (62.4, 1), (30, 0)])
def test_holds_are_counted_up_to_the_last_decision(until_ms: float, holds: int) -> None:
    assert holds_until(TWO_HOPS, until_ms * MS) == holds


def test_a_switch_that_decided_at_once_held_nothing() -> None:
    quick = (switch("rtsw1", DetectionCause.CARRIER, 0.7, 3.0),)
    assert holds_until(replace(TWO_HOPS, switches=quick), 100 * MS) == 0


def test_the_sentence_names_how_much_of_an_outage_is_frrs_hold() -> None:
    text = answer(report_sample.result(slow(), spec=expecting({"restored": True}))).sentence
    assert text == (
        "Cable rtsw1:ctsw2 down: 3 of 24 flows out for up to 127 ms; about 100 ms of it is FRR's "
        "hold of 50 ms at two hops."
    )


def test_an_outage_that_lasts_as_long_as_its_fault_is_not_laid_on_the_routers() -> None:
    run = slow()
    worst = worst_event(run)
    assert worst is not None and worst.ended_ns is not None and worst.ended_ns > 127 * MS
    early = replace(worst, ended_ns=100 * MS)
    assert hold_clause(early) == "the last was back only when the fault had ended, after 100 ms"


def test_without_stages_or_with_a_shorter_outage_no_hold_is_named() -> None:
    for run in (slow(None), replace(report_sample.repeat(1), stages=(TWO_HOPS,))):
        worst = worst_event(run)
        assert worst is not None
        assert hold_clause(worst) == ""


def test_a_drill_names_what_it_missed_once() -> None:
    text = answer(report_sample.result()).sentence
    assert text.endswith("; missed: packets lost 68 where <= 50 is expected.")
    passed = answer(report_sample.result(spec=expecting({"restored": True}))).sentence
    assert "missed" not in passed


def test_a_drill_without_a_valid_repeat_has_no_figures() -> None:
    nothing = answer(report_sample.result(report_sample.repeat(1, ("the clock jumped",))))
    assert nothing.sentence == "Nothing was measured: the repeat is not valid (the clock jumped)."
    assert nothing.figures == ()
    assert nothing.plot is None


def test_the_figures_of_a_drill_are_four_that_were_measured() -> None:
    titles = [card.title for card in answer(report_sample.result()).figures]
    assert titles == [
        "Full convergence",
        "Longest loss of connectivity",
        "Flows affected",
        "Packets lost",
    ]
    assert answer(report_sample.result()).figures[-1].missed == "expectation not met in 3 of 3"
    figures = answer(phases_sample.result()).figures
    assert all(card.value != "not measured" for card in figures)


def test_the_plot_has_the_flows_the_switches_and_the_hold() -> None:
    drawn = worst_event_plot(slow())
    assert drawn is not None
    flows, switches = drawn.axes
    assert flows.get_yticklabels()[0].get_text().startswith("f10")
    assert len(switches.get_yticklabels()) == 4
    assert "BGP's hold of 50 ms" in [text.get_text() for text in drawn.legends[0].get_texts()]
    assert worst_event_plot(replace(slow(), events=())) is None


def test_phases_of_jobs_are_compared_with_the_first() -> None:
    halved = phases_sample.of_jobs("shared", phases_sample.idle(5.5))
    whole = phases_sample.of_jobs("idle", phases_sample.idle())
    assert answer(phases_sample.result((whole, halved))).sentence.startswith(
        "Bus bandwidth 11 GB/s in idle, 5.5 GB/s in shared (-50%); "
        "in phase shared, nothing was dropped, "
    )


def test_a_modelled_phase_says_when_shares_are_fair() -> None:
    text = answer(phases_sample.result()).sentence
    assert "shares are fair after 20.5 ms" in text
    assert "rtsw1:srv1-1 marked 90 packets in a queue of up to 1.9 MB" in text


def test_a_job_says_what_it_reached_and_what_was_seen() -> None:
    text = job_answer(comparison_sample.report()).sentence
    assert text == (
        "Allreduce of 4MB over 4 ranks: busbw 58.8 GB/s, an iteration takes 0.833 times its lower "
        "bound; the busiest rtsw-ctsw link up has 2.00 times the mean."
    )


def test_a_job_names_the_gravest_only() -> None:
    report = comparison_sample.report()
    again = replace(report.roce, retransmitted=7)
    assert held_back_clause(replace(report, transport=again)).startswith("7 of 23,440 packets")
    queue = replace(report.queues[0], dropped_packets=3, marked=9)
    dropped = replace(report, transport=again, queues=(queue,))
    assert held_back_clause(dropped).startswith("3 packets dropped at rtsw1:srv1-1 and the busiest")
    even = replace(report, tiers=())
    assert held_back_clause(even) == "nothing was dropped, sent again, paused or marked"


def test_a_job_that_is_invalid_failed_or_disturbed_says_so() -> None:
    invalid = job_answer(comparison_sample.report(problems=("a NIC stood idle", "b")))
    assert invalid.sentence.endswith("do not count: a NIC stood idle and 1 more.")
    failed = job_answer(comparison_sample.report(errors=("rank 1 gave up",)))
    assert failed == Answer("It failed: rank 1 gave up.")
    fault = Disturbance("carrier-down", "rtsw1:ctsw2", 5 * MS, None)
    disturbed = job_answer(comparison_sample.report(disturbed=(fault,)))
    assert "disturbed by carrier-down of rtsw1:ctsw2" in disturbed.sentence


def test_a_comparison_names_the_best_scheme_and_whether_it_is_told_apart() -> None:
    same = comparison_answer(comparison_sample.comparison()).sentence
    assert same.startswith("ECMP with 1 QP, contiguous, is fastest: busbw 58.8 GB/s")
    assert same.endswith("; the same as Packet spray.")
    first = comparison_sample.run()
    slower = replace(first, jct_ratio=(2.0,))

    def runs(times: int) -> str:
        return comparison_answer(
            comparison_sample.comparison(
                lambda cell: ((slower if cell.scheme.kind == "ecmp" else first),) * times
            )
        ).sentence

    assert runs(1).endswith(
        "; ECMP, the next, takes 140% longer, but 1 run each cannot tell that from chance."
    )
    assert "; 58.3% less time than ECMP, the next (p = " in runs(5)


def test_a_comparison_without_a_measured_cell_says_only_that() -> None:
    run = comparison_sample.run(problems=("a NIC stood idle",))
    nothing = comparison_answer(comparison_sample.comparison(lambda _: (run,)))
    assert nothing.sentence == "No cell was measured."
    assert nothing.figures == ()


COST = JobCost("llama", 16, 0.1, 7, 2.0, 2.5, 12.0, False, 0.0, 0.0, 1800.0, False, 1812.0, 8.05)


def cost(*jobs: JobCost) -> WhatIf:
    return WhatIf(1, "zone", "drain ctsw7", 8, 7200.0, 7200.0, 1.0, "as measured", jobs)


def test_what_an_event_costs_is_said_of_the_job_that_pays_most() -> None:
    text = what_if_answer(cost(COST)).sentence
    assert text == (
        "Hosts take no time: drain ctsw7: llama loses 30.2 min or 8.1 GPU-h; its iterations take "
        "25% longer during the failure; "
        "no job restarts."
    )
    restarts = replace(COST, restarted=True, during_s=None)
    text = what_if_answer(cost(restarts, replace(COST, job="b", gpu_hours=1.0))).sentence
    assert "llama loses most" in text
    assert text.endswith("it makes no progress during the failure; 1 of 2 jobs restart.")
    free = what_if_answer(cost(replace(COST, extra_s=0.0, during_s=2.0)))
    assert free.sentence == "Hosts take no time: drain ctsw7: no job loses time; no job restarts."


def test_months_of_failures_say_how_much_of_the_time_is_work() -> None:
    job = JobOutlook(
        "llama", 16, 100, 1000.0, 900.0, 10.0, 20.0, False, 3, 50.0, 20.0, 0.86, {}, 0.9
    )
    outlook = Outlook(1, "zone", "rates", "", {}, ("a", "b"), (job,))
    assert outlook_answer(outlook).sentence == (
        "Hosts take no time: 2 failures: llama takes 16.7 min instead of 15 min, 86% of it work; "
        "the largest part of the rest is restarting, 50 s."
    )
    saving = replace(outlook, jobs=(replace(job, effective=0.7),))
    assert outlook_answer(saving).sentence.endswith("most of the rest is checkpoints, 3.33 min.")
    never = replace(outlook, jobs=(replace(job, jct_s=None, effective=0.0),))
    assert outlook_answer(never).sentence.startswith(
        "Hosts take no time: 2 failures: llama never ends"
    )


def test_a_terminal_ends_with_the_sentence_and_a_page_begins_with_it() -> None:
    document = drill_document(report_sample.result())
    assert document.card is not None
    words = document.card.sentence[:40]
    lines = printed(document).splitlines()
    assert lines[-2].startswith(words)
    page = html(document)
    assert page.index(words) < page.index("Expectations: ")


def simulated() -> SimulationReport:
    """An AlltoAll of four ranks, without switches that matter."""
    job = JobSpec.model_validate({"pattern": "alltoall", "ranks": 4, "size": "4MB"})
    return simulate(load_spec(find_lab("zone-1-1")), (collective_job(job),), Options())


def with_latency(report: SimulationReport, time_ns: float, latency_ns: float) -> SimulationReport:
    """The report, whose iteration takes `time_ns`, of which some is latency if that is not 0."""
    (job,) = report.jobs
    spreads = {"iteration_time": time_ns} | ({"latency": latency_ns} if latency_ns else {})
    headlines = tuple(
        Headline(name, name, "ns", "iterations", spread([value]), None)
        for name, value in spreads.items()
    )
    return replace(report, jobs=(replace(job, headlines=headlines),), worst=(), events=())


def test_a_simulation_says_how_much_of_the_time_is_latency() -> None:
    report = simulated()
    text = simulation_answer(with_latency(report, 179e6, 137e6)).sentence
    assert "179 ms an iteration" in text
    assert text.endswith("179 ms an iteration, 137 ms of it latency (76.5%), not bytes.")
    assert "latency" not in simulation_answer(with_latency(report, 179e6, 0.0)).sentence
    link = BusyLink("rtsw1:ctsw1", "rtsw1", 10, 4.0, 1.9)
    crowded = replace(with_latency(report, 179e6, 0.0), worst=(link,))
    assert "link rtsw1:ctsw1 carries 1.90 times the mean" in simulation_answer(crowded).sentence
    failure = SimulatedEvent("fail rtsw1:ctsw1", 1e6, 3e6, None)
    failed = replace(with_latency(report, 179e6, 0.0), events=(failure,))
    assert simulation_answer(failed).sentence.endswith(
        "rtsw1:ctsw1 failed at 1 ms; routed around after 2 ms."
    )
    endless = replace(report.jobs[0], iterations_ns=(None,), headlines=())
    never = simulation_answer(replace(report, jobs=(endless,), worst=())).sentence
    assert never.endswith("never ends.")


def test_a_sweep_names_the_key_that_moves_its_figure_most(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "lab: zone-1-1\njob: {pattern: allreduce, ranks: 4, size: 1MB}\n"
        "over:\n  job.transport.qps: [1, 4]\n  job.size: [1MB, 4MB]\n"
    )
    sweep = read_sweep(file)
    sizes = {"1MB": 1e6, "4MB": 4e6}
    rows: list[Row] = [
        {
            **cell.values,
            "iteration_time": sizes[str(cell.values["job.size"])]
            * (1.5 if cell.values["job.transport.qps"] == 1 else 1.0),
            "error": None,
        }
        for cell in cells_of(sweep)
    ]
    text = sweep_answer(sweep, rows, ["iteration_time"], None).sentence
    assert text == (
        "Of the keys, job.size moves iteration most: 4.00 times, from 1.25 ms (1MB) to 5 ms (4MB), "
        "medians over the other keys; job.transport.qps 1.50 times."
    )
    failed: list[Row] = [{**row, "error": "too few"} for row in rows[:1]]
    assert sweep_answer(sweep, [*failed, *rows[1:]], ["iteration_time"], None).sentence.endswith(
        "1 of 4 cells failed."
    )
    assert sweep_answer(sweep, rows, [], None).sentence == ""
    equal: list[Row] = [{**row, "iteration_time": 2.0} for row in rows]
    assert sweep_answer(sweep, equal, ["iteration_time"], None).sentence.startswith(
        "No key moves iteration"
    )


def test_a_key_of_bars_has_their_colours() -> None:
    drawn = cost_plot(cost(COST))
    assert drawn is not None
    colours = [to_hex(line.get_color()) for line in drawn.legends[0].get_lines()]
    assert colours == [STALLED, SLOWED]
    bars = {to_hex(bar.get_facecolor()) for bar in drawn.axes[0].patches}
    assert bars == set(colours)
