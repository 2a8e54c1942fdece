"""The document of a `ProgramReport`: how programs ended, and what their connections carried."""

from __future__ import annotations

from rocelab.base.quantities import Unit, duration
from rocelab.base.wording import counted
from rocelab.report.document import Block, Column, Document, Note, Row, Table, Tone, columns
from rocelab.results.programs import ProgramReport, RankEnd, TcpConnection

MOST_CONNECTIONS = 20


def program_document(report: ProgramReport) -> Document:
    """What `rocelab run` prints when its programs have ended."""
    blocks: tuple[Block, ...] = (
        _ends(report),
        _connections(report),
        *(Note(text, Tone.CAUTION) for text in report.warnings),
    )
    return Document("", (Note(_what(report)), *blocks))


def _what(report: ProgramReport) -> str:
    programs = counted(len(report.ranks), "program")
    bad = [rank for rank in report.ranks if rank.code]
    outcome = f"{len(bad)} of them failed" if bad else "none failed"
    return f"{programs} on lab {report.lab} for {duration(report.lasted_ns)}: {outcome}"


def _ends(report: ProgramReport) -> Table:
    return Table(
        "Programs that did not end well",
        (Column("rank", Unit.NUMBER), *columns(Unit.TEXT, "on", "how"), Column("after", Unit.NS)),
        tuple(
            (rank.rank, rank.name, ended_how(rank), rank.lasted_ns)
            for rank in report.ranks
            if rank.code != 0
        ),
    )


def ended_how(rank: RankEnd) -> str:
    """How a program ended, in words."""
    if rank.failed is not None:
        return f"not started: {rank.failed}"
    if rank.code is None:
        return "ended because another failed"
    return f"signal {-rank.code}" if rank.code < 0 else f"exit code {rank.code}"


def _connections(report: ProgramReport) -> Table:
    return Table(
        f"TCP connections, in the lab's clock; stalls of {duration(report.stall_bin_ns)} and more",
        (
            *columns(Unit.TEXT, "from", "to"),
            Column("ports", Unit.FIGURE, unbroken=True),
            Column("delivered", Unit.BYTES),
            Column("goodput", Unit.BITS_PER_S),
            Column("resent", Unit.SHARE),
            Column("RTT", Unit.NS),
            Column("stalls", Unit.COUNT),
            Column("longest", Unit.NS),
        ),
        tuple(map(_connection, report.connections)),
        names=3,
        most=MOST_CONNECTIONS,
    )


def _connection(connection: TcpConnection) -> Row:
    return (
        connection.source,
        connection.destination,
        f"{connection.source_port}-{connection.destination_port}",
        connection.delivered_bytes,
        connection.goodput_bps,
        connection.resent_share,
        connection.rtt_us * 1000,
        len(connection.stalls),
        connection.longest_stall_ns or None,
    )
