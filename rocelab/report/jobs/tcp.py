"""A job's TCP as a section of a document: what the kernel did, and each connection."""

from __future__ import annotations

from rocelab.base.quantities import Unit, duration, share
from rocelab.report.document import Cell, Column, Section, Table, Value
from rocelab.report.programs import connections_table
from rocelab.results.job import JobReport


def tcp_section(report: JobReport) -> Section:
    """The figures of all connections, then each of them."""
    tcp = report.tcp
    assert tcp is not None
    return Section(
        f"TCP ({tcp.congestion_control})",
        (
            _figures(report),
            connections_table(tcp.connections, tcp.stall_bin_ns, tcp.least_trips),
        ),
    )


def _figures(report: JobReport) -> Table:
    tcp, trips, dilation = report.tcp, report.round_trips, report.clock.dilation
    assert tcp is not None
    cells: list[tuple[str, Cell]] = [
        ("connections", Value(len(tcp.connections), Unit.COUNT)),
        ("payload sent again", "" if tcp.resent_share is None else share(tcp.resent_share)),
        ("connections that stalled", Value(tcp.stalled, Unit.COUNT)),
    ]
    if tcp.longest_stall_ns:
        cells.append(("longest stall", duration(tcp.longest_stall_ns / dilation)))
    if trips is not None:
        times = (("p50", trips.p50), ("p99", trips.p99), ("maximum", trips.maximum))
        cells += [
            (f"smoothed round trip, {name}", Value(time.modelled_ns, Unit.NS))
            for name, time in times
        ]
    return Table(
        "All connections, times modelled",
        (Column(""), Column("", Unit.FIGURE)),
        tuple(cells),
        sortable=False,
    )
