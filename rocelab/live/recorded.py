"""The last minutes of a lab as a page of its own, which replays them without a server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rocelab.base.errors import InputError
from rocelab.base.quantities import Unit, formatted
from rocelab.base.templates import template
from rocelab.live.feed import Feed
from rocelab.live.history import Moment, carriers
from rocelab.live.state import METRICS
from rocelab.live.values import NS_PER_S
from rocelab.planning.fabric import Fabric
from rocelab.report.document import Column, Row, Table, columns
from rocelab.report.renderers.page import ROOMS, grid
from rocelab.report.replay.page import data, script, style
from rocelab.report.replay.recording import (
    Entry,
    RecordedJob,
    RecordedRun,
    Recording,
    Samples,
    rate_over_time,
    recording_of,
)

MOST_VALUES = 300_000
"""Values of links in a page of about 5 MB: a longer history leaves out samples, but no event."""
NAMED_VALUES = 3
"""A carrier or a state, with the name of its link or node, is as long as so many values."""
LATEST_NS = 10 * NS_PER_S
"""After the newest sample an event is of now; FRR's user may write any time into a log."""
MOST_ROWS = 500
"""Events in the table for readers without a script; the page has them all."""
MOST_LINKS = 10

HEADLINES = (
    Column("modelled network"),
    *columns(Unit.FIGURE, "median", "minimum", "maximum", "n"),
)
OUTAGES = (
    *columns(Unit.TEXT, "flow", "from", "to"),
    *columns(Unit.FIGURE, "out", "packets"),
    Column("at"),
)
LINKS = (*columns(Unit.TEXT, "link", "sent by"), Column("mean load", Unit.SHARE))
EVENTS = (Column("at", Unit.FIGURE), *columns(Unit.TEXT, "kind", "values"))

Value = TypeVar("Value")


def recorded_page(feed: Feed, traffic: Mapping[str, Any]) -> str:
    """The page, with the figures of the newest `traffic` of the live page
    (`rocelab.live.traffic.LiveTraffic.document`). Raises InputError if there are not two samples
    yet."""
    lab, moments = feed.lab, in_order(feed.history.moments())
    if len(moments) < 2:
        raise InputError("nothing has been seen yet", hint="ask again in a second")
    recording = recorded(lab.fabric, moments, events_of(moments, feed.hub.kept()))
    (run,) = recording.runs
    return template("report/live.html.j2").render(
        lab=lab.name,
        scheme=feed.state.scheme["kind"],
        began=_clock(moments[0].t_ns),
        ended=_clock(moments[-1].t_ns),
        version=version("rocelab"),
        dilation=run.dilation,
        traffic=traffic if traffic["state"] not in (None, "running") else None,
        headlines=Table("", HEADLINES, tuple(map(_headline, traffic.get("headlines", ())))),
        outages=Table("", OUTAGES, tuple(map(_outage, traffic.get("outages", ())))),
        links=Table("", LINKS, busiest(lab.fabric, moments)),
        events=Table("", EVENTS, tuple(map(_row, run.events[-MOST_ROWS:]))),
        earlier=max(0, len(run.events) - MOST_ROWS),
        grid=grid,
        rooms=ROOMS,
        style=style(),
        script=script(),
        recording=data(recording.document()),
    )


def in_order(moments: Sequence[Moment]) -> Sequence[Moment]:
    """The samples since the clock was last set back."""
    steps = [n for n, (old, new) in enumerate(pairwise(moments), 1) if new.t_ns <= old.t_ns]
    return moments[steps[-1] :] if steps else moments


def events_of(
    moments: Sequence[Moment], kept: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    """The events of these samples in order of time, after the faults that were there before."""
    began_ns, ends_ns = moments[0].t_ns, moments[-1].t_ns + LATEST_NS
    events, faults = [], {}
    for event in sorted(kept, key=lambda event: event["t_ns"]):
        if began_ns <= event["t_ns"] <= ends_ns:
            events.append(event)
        elif event["t_ns"] < began_ns and event["kind"] == "fault":
            faults[event["number"]] = event
    return [*(fault for fault in faults.values() if fault["begins"]), *events]


def recorded(
    fabric: Fabric, moments: Sequence[Moment], events: Sequence[Mapping[str, Any]]
) -> Recording:
    """The recording of at least two samples, and of their events; times count from the first
    sample."""
    began_ns = moments[0].t_ns
    happened = [_since(event, began_ns) for event in events]
    ends_ns = [event["until_ns"] if "until_ns" in event else event["t_ns"] for event in happened]
    run = RecordedRun(
        title="",
        dilation=fabric.spec.dilation,
        begin_ns=0,
        end_ns=max([moments[-1].t_ns - began_ns, *ends_ns]),
        events=happened,
        loads=[],
        loads_are="",
        rates_are="sent by all servers on the wire",
        jobs=[_rate(fabric, moments)],
        samples=_samples(fabric, moments),
    )
    return recording_of(fabric, [run])


def busiest(fabric: Fabric, moments: Sequence[Moment]) -> tuple[tuple[str, str, float], ...]:
    """The directions with the greatest mean load: link, sender and that load."""
    mean = np.array([_row_of(fabric, moment) for moment in moments[1:]]).mean(axis=0)
    first = np.argsort(-mean, kind="stable")[:MOST_LINKS].tolist()
    sent = fabric.directed_links
    return tuple((sent[n].link.name, sent[n].sender, float(mean[n])) for n in first if mean[n])


def _since(event: Mapping[str, Any], began_ns: int) -> Entry:
    """The event as the replay takes it."""
    times = {key: event[key] - began_ns for key in ("t_ns", "until_ns") if key in event}
    if event["kind"] != "fault":
        return {**event, **times}
    # What a fault did is in the samples.
    return {**event, **times, "event": event["number"], "links": (), "nodes": (), "dark": False}


def _rate(fabric: Fabric, moments: Sequence[Moment]) -> RecordedJob:
    """What servers sent, in bit/s of the modelled network."""
    rates = np.array(
        [
            0 if fabric.node(direction.sender).is_switch else direction.link.rate_bps
            for direction in fabric.directed_links
        ]
    )
    sent = np.array([_row_of(fabric, moment) @ rates for moment in moments[1:]])
    times = np.array([moment.t_ns - moments[0].t_ns for moment in moments], np.float64)
    return rate_over_time("all servers", times, sent)


def _row_of(fabric: Fabric, moment: Moment) -> NDArray[np.float32]:
    """The loads of all directions."""
    row = moment.values.get("load")
    return np.zeros(len(fabric.directed_links), np.float32) if row is None else row


def _samples(fabric: Fabric, moments: Sequence[Moment]) -> Samples:
    total = sum(int(np.count_nonzero(row)) for moment in moments for row in moment.values.values())
    for named in ([moment.dark for moment in moments], [moment.states for moment in moments]):
        total += NAMED_VALUES * sum(len(change) for change in _changes(named) if change)
    kept = moments[:: -(1 + total // MOST_VALUES)][::-1]
    return Samples(
        t_ns=[moment.t_ns - moments[0].t_ns for moment in kept],
        values=[
            {metric: moment.used(metric) for metric in METRICS if metric in moment.values}
            for moment in kept
        ],
        carrier=[
            None if dark is None else dict(carriers(fabric, dark))
            for dark in _changes(moment.dark for moment in kept)
        ],
        states=list(_changes(moment.states for moment in kept)),
    )


def _changes(values: Iterable[Value]) -> Iterator[Value | None]:
    """None in place of what is equal to what was before it."""
    last: Value | None = None
    for value in values:
        yield None if value == last else value
        last = value


def _headline(line: Mapping[str, Any]) -> Row:
    return tuple(str(line[key]) for key in ("title", "median", "minimum", "maximum", "n"))


def _row(event: Entry) -> Row:
    """Time in s, kind and what else there is, as the stream has it (docs/live.md)."""
    left_out = ("t_ns", "until_ns", "kind", "event", "links", "nodes", "dark")
    said = (f"{key} {value}" for key, value in event.items() if key not in left_out)
    return f"{event['t_ns'] / NS_PER_S:.3f} s", event["kind"], ", ".join(said)


def _outage(outage: Mapping[str, Any]) -> Row:
    """A flow of the newest traffic that was out, as `rocelab.live.impact` has it, in words."""
    out_ns, lost = outage["out_ns"], outage["lost"]
    out = "-" if outage["restored"] else "to the end"
    if out_ns is not None:
        out = formatted(out_ns, Unit.NS, outage["resolution_ns"])
    packets = f"{outage['retransmitted']:,} sent again" if lost is None else f"{lost:,} lost"
    ends = outage["flow"], outage["source"], outage["destination"]
    return (*ends, out, packets, outage["event"] or "no fault")


def _clock(t_ns: int) -> str:
    return f"{datetime.fromtimestamp(t_ns / NS_PER_S, UTC):%Y-%m-%d %H:%M:%S} UTC"
