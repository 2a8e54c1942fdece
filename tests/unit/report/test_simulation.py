"""The page of a simulation: plots that would show nothing are sentences, flows that are alike are
one, links have names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocelab.base.statistics import spread
from rocelab.report.document import Figure, Note, Section, Table
from rocelab.report.renderers.page import html
from rocelab.report.simulation.answer import simulation_answer
from rocelab.report.simulation.document import simulation_document
from rocelab.report.simulation.plots import finishing, heat, rates
from rocelab.results.job import Headline
from rocelab.results.simulation import FlowOutcome, RateOverTime, SimulationReport
from tests.helpers.page_samples import simulated

MS = 1e6


def section(report: SimulationReport, title: str) -> Section:
    blocks = simulation_document(report).blocks
    return next(one for one in blocks if isinstance(one, Section) and one.title == title)


def test_a_distribution_of_equal_times_is_a_sentence() -> None:
    equal = replace(simulated(), finish_ns=tuple([178 * MS] + [179 * MS] * 99))
    assert finishing(equal) is None
    page = html(simulation_document(equal))
    assert "transfers end within 1% of 179 ms." in page
    apart = replace(equal, finish_ns=(20 * MS, 179 * MS))
    assert finishing(apart) is not None
    assert "end within 1% of" not in html(simulation_document(apart))


def test_a_rate_that_does_not_change_is_a_sentence() -> None:
    report = simulated()
    constant = replace(report, rate=RateOverTime((0.0, 42.2 * MS), (12.9e15, 0.0)))
    assert rates(constant) is None
    assert "All transfers together send 12.9 Pb/s on the wire for 42.2 ms" in html(
        simulation_document(constant)
    )
    rising = RateOverTime((0.0, 1 * MS, 2 * MS), (1e9, 2e9, 0.0))
    assert rates(replace(report, rate=rising)) is not None
    assert rates(replace(simulated("fail rtsw1:ctsw1 at 5us for 20us"))) is not None


def slow_flow(destination: str, longest_ns: float) -> FlowOutcome:
    return replace(simulated().slowest[0], destination=destination, longest_ns=longest_ns)


def test_slowest_flows_that_are_alike_are_one_sentence() -> None:
    source = simulated().slowest[0].source
    inside = f"{source.partition(':')[0]}:2"
    flows = [slow_flow(inside, 179 * MS)] * 18 + [slow_flow("srv9-1:1", 179 * MS)] * 3
    (alike,) = section(replace(simulated(), slowest=tuple(flows)), "Slowest flows").blocks
    assert isinstance(alike, Note)
    assert alike.text == (
        "No flow is slower than others: the slowest transfer of each of the 21 listed in "
        "`result.json` takes 179 ms, 18 of them inside one server."
    )
    flows[0] = slow_flow(inside, 400 * MS)
    blocks = section(replace(simulated(), slowest=tuple(flows)), "Slowest flows").blocks
    assert any(isinstance(block, Table) for block in blocks)


def test_links_of_a_map_have_the_names_of_their_upper_ends() -> None:
    drawn = heat(simulated())
    assert drawn is not None
    names = [text.get_text() for text in drawn.axes[0].get_xticklabels()]
    assert names[:2] == ["ctsw1", "ctsw2"]
    assert not any(name.isdigit() for name in names)


def with_times(times_ns: list[float], latency_ns: float) -> SimulationReport:
    """The sample with such iterations, of which so much is latency."""
    (job,) = simulated().jobs
    headlines = (
        Headline(
            "iteration_time", "time of an iteration", "ns", "iterations", spread(times_ns), None
        ),
        Headline(
            "latency", "latency in an iteration", "ns", "iterations", spread([latency_ns]), None
        ),
    )
    job = replace(job, headlines=headlines, iterations_ns=tuple(times_ns), roofline_ns=42 * MS)
    return replace(simulated(), jobs=(job,))


def test_the_sentence_says_that_latency_is_most_of_the_time() -> None:
    text = simulation_answer(with_times([179 * MS], 137 * MS)).sentence
    assert "179 ms an iteration, 137 ms of it latency (76.5%), not bytes" in text
    text = simulation_answer(with_times([179 * MS], 60 * MS)).sentence
    assert "60 ms of it latency (33.5%)" in text and "not bytes" not in text


@pytest.mark.parametrize(("longest_ms", "is_said"), [(4300.0, True), (180.0, False)])
def test_the_sentence_says_that_iterations_took_far_longer(
    longest_ms: float, is_said: bool
) -> None:
    report = with_times([179 * MS, 179 * MS, longest_ms * MS], 0.0)
    assert (", but up to 4.3 s in 1 of 3" in simulation_answer(report).sentence) is is_said


def test_a_figure_is_the_answers_if_it_draws_the_same_data() -> None:
    def curves(report: SimulationReport) -> list[Figure]:
        blocks = section(report, "Jobs").blocks
        return [block for block in blocks if isinstance(block, Figure)]

    report = simulated("fail rtsw1:ctsw1 at 5us for 20us")
    plot = simulation_answer(report).plot
    assert plot is not None
    assert [figure.is_same(plot) for figure in curves(report)] == [False, True, False]
    assert not any(figure.is_same(plot) for figure in curves(replace(report)))
