"""The preview of a drill: its lab, its traffic, the times of its faults, and its expectations.

A `DrillView`, made from a drill file, is the source of the terminal's page and of the JSON. Needs
no root and no running lab.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rocelab.drills.listing import DrillRow, row_of
from rocelab.drills.plan import PlannedPhase, lab_spec, plan_drill
from rocelab.drills.spec import MeasureSpec, TrafficSpec, load_drill
from rocelab.faults.schedule import Timed
from rocelab.plan.build import plan
from rocelab.plan.fabric import Fabric
from rocelab.results.expectations import Expectation
from rocelab.results.kpis import KPIS

_NS_PER_S = 10**9


@dataclass(frozen=True, slots=True)
class Span:
    """One active time of a fault, ns after time 0. ends_ns: None for the end of all; for an
    instant, its beginning."""

    begins_ns: int
    ends_ns: int | None


@dataclass(frozen=True, slots=True)
class FaultRow:
    """A fault and all its active times."""

    kind: str
    subject: str
    nodes: tuple[str, ...]
    spans: tuple[Span, ...]

    def document(self) -> dict[str, object]:
        """The fault as JSON values, times in seconds."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "nodes": self.nodes,
            "spans": [
                {
                    "begins_s": span.begins_ns / _NS_PER_S,
                    "ends_s": None if span.ends_ns is None else span.ends_ns / _NS_PER_S,
                }
                for span in self.spans
            ],
        }


@dataclass(frozen=True, slots=True)
class ExpectationRow:
    """An expectation as text."""

    kpi: str
    title: str
    expectation: str
    meaning: str


@dataclass(frozen=True, slots=True)
class PhaseView:
    """A phase of a drill. conditions: the differences from the lab's file, as text. probes: the
    spec of its traffic, span_ns: the counted time; jobs: the specs of its jobs, as JSON values.
    Times of `faults` are from the start of the counted traffic, or of the jobs."""

    name: str
    conditions: tuple[str, ...]
    probes: TrafficSpec | None
    jobs: tuple[dict[str, Any], ...]
    compare_hashing: tuple[str, ...]
    measure: MeasureSpec
    faults: tuple[FaultRow, ...]
    expectations: tuple[ExpectationRow, ...]

    def document(self) -> dict[str, object]:
        """The phase as JSON values."""
        return {
            "name": self.name,
            "conditions": self.conditions,
            "traffic": None if self.probes is None else self.probes.model_dump(mode="json"),
            "jobs": self.jobs,
            "faults": [fault.document() for fault in self.faults],
            "expectations": [asdict(expectation) for expectation in self.expectations],
        }


@dataclass(frozen=True, slots=True)
class LabSize:
    """The size of the drill's lab."""

    name: str
    switches: int
    links: int
    servers: int


@dataclass(frozen=True, slots=True)
class DrillView:
    """A drill for readers. spec: the file, with defaults."""

    row: DrillRow
    description: str
    size: LabSize
    phases: tuple[PhaseView, ...]
    spec: dict[str, Any]

    def document(self) -> dict[str, object]:
        """The document of `rocelab drill show --json`."""
        return {
            **asdict(self.row),
            "description": self.description,
            "size": asdict(self.size),
            "phases": [phase.document() for phase in self.phases],
            "drill": self.spec,
        }


def view_of(path: Path) -> DrillView:
    """The drill in the file `path`. Raises SpecError, and InputError if it does not fit its lab."""
    spec = load_drill(path)
    fabric = plan(lab_spec(spec, path))
    drill = plan_drill(spec, fabric)
    return DrillView(
        row=row_of(spec),
        description=spec.description.strip(),
        size=LabSize(fabric.name, len(fabric.switches), len(fabric.links), len(fabric.servers)),
        phases=tuple(map(_phase, drill.phases)),
        spec=spec.model_dump(mode="json", exclude_none=True),
    )


def fault_rows(fabric: Fabric, faults: Sequence[Timed]) -> tuple[FaultRow, ...]:
    """A row per fault, in order of their first beginnings; a recurring fault is one row."""
    rows: dict[tuple[str, str], FaultRow] = {}
    for timed in faults:
        fault = timed.spec.resolve(fabric)
        before = rows.get((fault.kind, fault.subject))
        span = Span(timed.begins_ns, timed.begins_ns if timed.spec.instant else timed.ends_ns)
        rows[fault.kind, fault.subject] = FaultRow(
            fault.kind, fault.subject, fault.nodes, (*(before.spans if before else ()), span)
        )
    return tuple(rows.values())


def _phase(planned: PlannedPhase) -> PhaseView:
    phase, conditions = planned.spec, []
    if phase.scheme is not None:
        conditions.append(f"scheme {phase.scheme.kind}")
    if phase.seed is not None:
        conditions.append(f"hash seeds {phase.seed}")
    if phase.links_down:
        conditions.append(f"without {', '.join(phase.links_down)}")
    return PhaseView(
        name=phase.name,
        conditions=tuple(conditions),
        probes=phase.probes,
        jobs=tuple(job.model_dump(mode="json", exclude_none=True) for job in phase.jobs),
        compare_hashing=tuple(phase.compare_hashing),
        measure=phase.measure,
        faults=fault_rows(planned.fabric, planned.faults),
        expectations=_in_words(phase.expect.expectations()),
    )


def _in_words(expectations: Sequence[Expectation]) -> tuple[ExpectationRow, ...]:
    return tuple(
        ExpectationRow(
            expectation.kpi,
            KPIS[expectation.kpi].title,
            expectation.written,
            KPIS[expectation.kpi].meaning,
        )
        for expectation in expectations
    )
