"""Tables of jobs that a drill and a job alone have in common."""

from __future__ import annotations

from rocelab.base.quantities import Unit, duration, share, size
from rocelab.report.document import Column, Row, Table, columns
from rocelab.report.jobs.text import by_distance
from rocelab.results.job import JobReport
from rocelab.results.lossless import propagation
from rocelab.results.shares import FairShares

MOST_PORTS = 12


def pause_table(report: JobReport, title: str) -> Table:
    """Ports that were paused, or dropped of a lossless class, those that waited most first: port,
    class, who asked, how often, time in all and at once, most of the headroom, drops, watchdog."""
    dilation = report.clock.dilation
    ports = () if report.lossless is None else report.lossless.ports
    paused = [port for port in ports if port.transitions or port.dropped_packets or port.watchdog]
    paused.sort(key=lambda port: -port.paused_ns)
    return Table(
        title,
        (
            Column("port"),
            Column("class", Unit.NUMBER),
            Column("by", Unit.FIGURE),
            Column("times", Unit.COUNT),
            *columns(Unit.NS, "in all, modelled", "longest, modelled"),
            Column("headroom", Unit.BYTES),
            *columns(Unit.COUNT, "dropped", "watchdog"),
        ),
        tuple(
            (
                report.fabric.port_name(port.node, port.interface),
                port.traffic_class,
                port.peer,
                port.transitions,
                port.paused_ns / dilation,
                port.longest_ns / dilation,
                port.headroom_max_bytes,
                port.dropped_packets,
                port.watchdog,
            )
            for port in paused
        ),
        most=MOST_PORTS,
    )


def propagation_table(report: JobReport) -> Table:
    """The nodes that pauses spread from, the most costly first: the node, class, time that others
    stopped, and each of these with its distance."""
    rows: tuple[Row, ...] = ()
    if report.lossless is not None:
        lossless = report.lossless
        origins = propagation(lossless.spans, lossless.servers, report.fidelity.elapsed_ns)
        rows = tuple(
            (
                origin.root,
                origin.traffic_class,
                origin.total_ns / report.clock.dilation,
                by_distance(origin),
            )
            for origin in origins
        )
    return Table(
        "Where pauses began",
        (
            Column("node"),
            Column("class", Unit.NUMBER),
            Column("others stopped, modelled", Unit.NS),
            Column("who, by distance", Unit.FIGURE),
        ),
        rows,
        most=MOST_PORTS,
    )


def share_rows(fair: FairShares) -> tuple[Row, ...]:
    """A row per figure of the time to fair shares: its name, lab and model."""
    seeds = ", ".join(_time(time_ns) for time_ns in fair.model_times_ns)
    lab, model = fair.lab_settled, fair.model_settled
    return (
        (
            "from the last start to fair shares",
            _time(fair.lab_ns),
            f"{_time(fair.model_ns)} (seeds: {seeds})",
        ),
        ("use of the port, settled", share(lab.use), share(model.use)),
        ("mean queue, settled", _size(lab.queue_bytes), _size(model.queue_bytes)),
    )


def _time(time_ns: float | None) -> str:
    return "not reached" if time_ns is None else duration(time_ns)


def _size(size_bytes: float | None) -> str:
    return "not sampled" if size_bytes is None else size(size_bytes)
