"""Many events: a map of flows and events, short names with a key, a sentence about the worst."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from rocelab.report.answers.events import back_clause, event_title, is_storm, worst_event
from rocelab.report.answers.plots import probes_plot, storm_map
from rocelab.report.drill import drill_document
from rocelab.report.palette import LOST
from rocelab.results.probes import Event
from tests.helpers import report_sample
from tests.helpers.documents import printed


def test_six_events_make_a_storm() -> None:
    assert is_storm(report_sample.storm(6))
    assert not is_storm(report_sample.storm(5))
    assert not is_storm(report_sample.repeat(1))


def test_a_map_has_a_row_for_each_flow_and_a_column_for_each_event() -> None:
    drawn = storm_map(report_sample.storm())
    assert drawn is not None
    (axis,) = drawn.axes
    heads = axis.get_xticklabels()
    assert [head.get_text() for head in heads] == [f"E{number}" for number in range(1, 9)]
    assert [head.get_fontweight() for head in heads].count("bold") == 1
    assert heads[2].get_fontweight() == "bold"
    rows = [row.get_text() for row in axis.get_yticklabels()]
    assert len(rows) == 24
    assert rows[0].startswith("f3 ")  # out for 120 ms by E3
    cells = [text.get_text() for text in axis.texts]
    assert cells.count("120 ms") == 8
    assert {to_hex(bar.get_facecolor()) for bar in axis.patches} == {LOST}
    bars = [bar for bar in axis.patches if isinstance(bar, Rectangle)]
    darkest = max(bars, key=lambda bar: bar.get_alpha() or 0.0)
    assert round(darkest.get_x() + 0.48) == 2


def test_a_run_of_few_events_is_drawn_at_its_worst() -> None:
    drawn = probes_plot(report_sample.repeat(1))
    assert drawn is not None
    assert drawn.axes[-1].get_xlabel() == "after E1, ms, lab"


def test_a_map_of_a_run_without_losses_is_none() -> None:
    calm = report_sample.storm()
    untouched = tuple(
        replace(
            flow,
            measurement=replace(
                flow.measurement,
                events=tuple(replace(event, affected=False) for event in flow.measurement.events),
            ),
        )
        for flow in calm.flows
    )
    assert storm_map(replace(calm, flows=untouched)) is None


def test_changes_of_an_event_are_named_by_their_kind_and_node() -> None:
    worst = worst_event(report_sample.storm())
    assert worst is not None
    event = worst.record.event
    assert event_title(event) == "power-loss of ctsw1, blackhole of rtsw1:ctsw2 and 1 more"
    ends = tuple(replace(change, begins=False) for change in event.faults[:1]) * 2
    assert event_title(replace(event, faults=ends)) == "power-loss of ctsw1 ends"
    alone = Event(0, "carrier-down", "end", "rtsw1:ctsw2")
    assert event_title(alone) == "carrier-down of rtsw1:ctsw2 ends"


def test_a_storm_says_whether_every_flow_is_back() -> None:
    run = report_sample.storm()
    assert back_clause(run) == "every flow is back at the end"
    lost = replace(
        run.flows[0],
        measurement=replace(
            run.flows[0].measurement,
            events=tuple(
                replace(event, restored=False) for event in run.flows[0].measurement.events
            ),
        ),
    )
    assert back_clause(replace(run, flows=(lost, *run.flows[1:]))) == (
        "1 of 24 flows not back at the end"
    )


def test_a_terminal_has_the_key_of_the_names() -> None:
    text = printed(drill_document(report_sample.result(report_sample.storm())))
    assert "E3      power-loss of ctsw1, blackhole of rtsw1:ctsw2 and 1 more" in text
    assert "several faults of" not in text[text.index("Flows out") : text.index("Events")]
