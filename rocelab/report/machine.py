"""The machine that measured something, as a section of a page."""

from __future__ import annotations

from rocelab.base.quantities import memory
from rocelab.report.document import Column, Section, Table
from rocelab.results.environment import Environment


def machine_section(environment: Environment) -> Section:
    """CPU, memory and software."""
    rows = (
        ("CPU", f"{environment.cpu_count} x {environment.cpu_model}"),
        ("memory", memory(environment.memory_bytes)),
        ("kernel", environment.kernel),
        ("routing", environment.routing_text),
        ("runtime", environment.runtime_text),
        ("Python", environment.python),
        ("rocelab", environment.tool_text),
    )
    table = Table("", (Column(""), Column("")), rows, sortable=False)
    return Section("Machine", (table,), page_only=True)
