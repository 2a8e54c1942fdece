"""The part of a simulation's page about jobs of large models: where time and memory go, and what
the figures rest on."""

from __future__ import annotations

from rocelab.base.quantities import Unit
from rocelab.report.document import Block, Column, Items, Section, Table
from rocelab.results.simulation import JobOutcome, SimulationReport


def model_section(report: SimulationReport) -> Section:
    """Tables of all such jobs; nothing without any."""
    jobs = [job for job in report.jobs if job.parts or job.memory]
    blocks: list[Block] = []
    for job in jobs:
        blocks += _blocks(job, f" of {job.name}" if len(jobs) > 1 else "")
    return Section("Model", tuple(blocks))


def _blocks(job: JobOutcome, which: str) -> list[Block]:
    parts = Table(
        f"Where an iteration{which} goes: the longest chain of steps, and what it waits for",
        (Column("part"), Column("time", Unit.NS), Column("of the iteration", Unit.SHARE)),
        tuple((part.name, part.time_ns, part.share) for part in job.parts),
        foot=("all", sum(part.time_ns for part in job.parts), 1.0) if job.parts else (),
        sortable=False,
    )
    memory = Table(
        f"Memory of a GPU{which}, of the kind that keeps most",
        (Column("part"), Column("kept", Unit.MEMORY)),
        tuple((use.name, use.bytes) for use in job.memory),
        foot=("all", sum(use.bytes for use in job.memory)) if job.memory else (),
        sortable=False,
    )
    basis = tuple(text[:1].upper() + text[1:] + "." for text in job.basis)
    return [parts, memory, Items(basis)]
