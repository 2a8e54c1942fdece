"""The document of a table of sizes as nccl-tests has it, each with what its figures stand on."""

from __future__ import annotations

from rocelab.base.quantities import Unit
from rocelab.report.document import Column, Document, Note, Table, Tone, columns
from rocelab.results.busbw import SizeTable


def busbw_document(table: SizeTable) -> Document:
    """Sizes, times and bandwidths of a collective."""
    rows = tuple(
        (
            row.size_bytes,
            row.time_ns,
            row.algbw_gbs,
            row.busbw_gbs,
            row.way,
            row.method,
        )
        for row in table.sizes
    )
    return Document(
        table.title,
        (
            *(Note(text, Tone.CAUTION, page_only=True) for text in table.warnings),
            Table(
                "As nccl-tests counts it, on the modelled network",
                (
                    Column("size", Unit.BYTES),
                    Column("time", Unit.NS),
                    *columns(Unit.GB_PER_S, "algbw", "busbw"),
                    Column("as"),
                    Column("simulated"),
                ),
                rows,
            ),
        ),
        kind="rocelab simulate",
        lead="Each size was simulated alone. Nothing was sent on a network.",
    )
