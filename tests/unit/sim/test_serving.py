"""Requests in a simulation: every engine carries their caches, and reports say what they feel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rocelab.base.documents import to_json
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.jobs.served import Carried, Served
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.report.renderers.page import html
from rocelab.report.servedplots import served_plot
from rocelab.report.simulation.document import simulation_document
from rocelab.results.engines import Engine
from rocelab.results.simulation import SimulationReport, from_json
from rocelab.sim.events.event_spec import TimelineSpec
from rocelab.sim.events.sentence import parse_event
from rocelab.sim.options import Options
from rocelab.sim.simulate import Simulation, simulate

LAB = load_spec(find_lab("rail-small"))
SERVING: dict[str, Any] = {
    "model": "llama3-8b",
    "gpu": "h100",
    "tensor": 2,
    "prefill": 4,
    "decode": 4,
    "requests": {"rate": 200, "first": 12, "prompt": {"p50": 40, "p99": 90}, "output": 8},
    "ttft": "100ms",
}


def report_of(options: Options | None = None, **keys: Any) -> SimulationReport:
    job = SimulatedJob.model_validate({"name": "chat", "serving": {**SERVING, **keys}})
    return simulate(LAB, [job], options)


def cut(rails: int, lasts: str = "") -> Options:
    """Leaves of the first unit lose their spines while caches travel."""
    lines = [
        f"fail link su1-leaf{rail}:spine{spine} at 5ms{lasts}"
        for rail in range(1, rails + 1)
        for spine in (1, 2)
    ]
    return Options(timeline=TimelineSpec(events=tuple(map(parse_event, lines))))


def served_of(report: SimulationReport) -> Served:
    served = report.jobs[0].served
    assert served is not None
    return served


def test_every_engine_carries_the_caches_in_about_the_same_time() -> None:
    transfer_ns = []
    for engine in Engine:
        served = served_of(report_of(Options(engine=engine)))
        assert served.by(Carried.CARRIED).answered == 12
        transfer_ns.append(served.by(Carried.CARRIED).latency("transfer").mean_ns or 0)
    assert min(transfer_ns) > 0
    assert transfer_ns == pytest.approx([transfer_ns[0]] * len(transfer_ns), rel=0.15)


def test_a_report_reads_back_and_its_page_says_what_requests_feel() -> None:
    report = report_of()
    again = from_json(to_json(report))
    assert served_of(again) == served_of(report)
    page = html(simulation_document(report))
    assert "What requests feel" in page and "Goodput, with TTFT of at most 100 ms: 100%" in page


def test_the_plot_has_a_line_for_each_network_and_none_where_none_is_answered() -> None:
    served = served_of(report_of())
    figure = served_plot(served)
    assert figure is not None
    assert [len(axis.lines) for axis in figure.axes] == [3, 3]
    carried = served.by(Carried.CARRIED)
    assert (carried.ttft_ns[50], carried.ttft_ns[99]) == (
        carried.latency("ttft").p50_ns,
        carried.latency("ttft").p99_ns,
    )
    silent = replace(carried, answered=0)
    assert served_plot(replace(served, by_network=(silent, *served.by_network[1:]))) is None


def test_headlines_are_those_of_the_requests() -> None:
    report = report_of()
    carried = served_of(report).by(Carried.CARRIED)
    headlines = {one.name: one.modelled.median for one in report.jobs[0].headlines}
    assert headlines["ttft_p99"] == carried.latency("ttft").p99_ns
    assert headlines["itl_p99"] == carried.latency("itl").p99_ns
    assert headlines["request_goodput"] == 100


def test_a_link_that_fails_makes_the_slowest_first_tokens_later() -> None:
    """Every spine of a rail is cut while caches travel, and comes back."""
    whole, failed = served_of(report_of()), served_of(report_of(cut(2, " for 60ms")))
    before, after = (one.by(Carried.CARRIED).latency("ttft") for one in (whole, failed))
    assert after.p99_ns is not None and before.p99_ns is not None
    assert after.p99_ns > before.p99_ns + 20e6
    assert failed.by(Carried.NONE) == whole.by(Carried.NONE)


def test_a_network_that_never_heals_leaves_requests_without_an_answer() -> None:
    report = report_of(cut(4))
    carried = served_of(report).by(Carried.CARRIED)
    assert carried.answered < 12
    assert carried.latency("ttft").mean_ns is None
    assert "never" in html(simulation_document(report))


def test_what_rounding_leaves_of_a_rate_carries_nothing() -> None:
    job = SimulatedJob.model_validate({"name": "chat", "serving": SERVING})
    simulation = Simulation(LAB, [job], cut(4))
    outcome = simulation.run()
    rates = np.where(outcome.rate_bps < 1, -2e-3, outcome.rate_bps)
    assert (
        simulation.report(replace(outcome, rate_bps=rates)).uses == simulation.report(outcome).uses
    )


def test_replicas_that_do_both_load_no_link() -> None:
    report = report_of(decode=None)
    assert served_of(report).together
    assert report.jobs[0].payload_bytes == 0
    assert "no cache travels" in html(simulation_document(report))


@pytest.mark.parametrize("engine", list(Engine))
def test_replicas_that_do_both_send_nothing_in_any_engine(engine: Engine) -> None:
    served = served_of(report_of(Options(engine=engine), decode=None))
    assert served.together and served.by(Carried.CARRIED).answered == 12


@pytest.mark.parametrize(("first", "is_slowest"), [(99, True), (100, False)])
def test_a_p99_that_is_the_slowest_request_is_said_to_be(first: int, is_slowest: bool) -> None:
    report = report_of(requests={"rate": 20, "first": first, "prompt": 40, "output": 2})
    ttft = served_of(report).by(Carried.CARRIED).latency("ttft")
    text = "p99 of fewer than 100 requests, here 99, is the slowest"
    assert (text in html(simulation_document(report))) is is_slowest
    assert not is_slowest or ttft.p99_ns == ttft.highest_ns
