"""The preview of a drill as a document: its lab, its traffic, the times of its faults, and its
expectations. Needs no root and no running lab."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rocelab.drills.drill_spec import PhaseSpec
from rocelab.drills.listing import row_of
from rocelab.drills.plan import JobPhase, PlannedDrill, PlannedPhase
from rocelab.results.kpis import KPIS

_NS_PER_S = 10**9


@dataclass(frozen=True, slots=True)
class Span:
    """One active time of a fault, ns after time 0."""

    begins_ns: int
    ends_ns: int | None
    """None for the end of all; for an instant, its beginning."""


@dataclass(frozen=True, slots=True)
class FaultRow:
    """A fault and all its active times, from the start of the counted probes, or of the jobs."""

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


def document_of(drill: PlannedDrill) -> dict[str, object]:
    """The document of `rocelab drill show --json`; `drill` is the file, with defaults."""
    fabric, spec = drill.fabric, drill.spec
    return {
        **asdict(row_of(spec)),
        "description": spec.description.strip(),
        "size": {
            "name": fabric.name,
            "switches": len(fabric.switches),
            "links": len(fabric.links),
            "servers": len(fabric.servers),
        },
        "phases": [_phase(phase) for phase in drill.phases],
        "drill": spec.model_dump(mode="json", exclude_none=True),
    }


def _phase(phase: PlannedPhase) -> dict[str, object]:
    traffic = None if isinstance(phase, JobPhase) else phase.traffic
    return {
        "name": phase.name,
        "conditions": conditions_of(phase.spec),
        "traffic": None if traffic is None else traffic.model_dump(mode="json"),
        "jobs": [job.model_dump(mode="json", exclude_none=True) for job in phase.spec.jobs],
        "faults": [fault.document() for fault in fault_rows(phase)],
        "expectations": [
            {
                "kpi": expectation.kpi,
                "title": KPIS[expectation.kpi].title,
                "expectation": expectation.written,
                "meaning": KPIS[expectation.kpi].meaning,
            }
            for expectation in phase.spec.expect.expectations()
        ],
    }


def conditions_of(phase: PhaseSpec) -> list[str]:
    """The differences from the lab's file, as text."""
    conditions = []
    if phase.scheme is not None:
        conditions.append(f"scheme {phase.scheme.kind}")
    if phase.seed is not None:
        conditions.append(f"hash seeds {phase.seed}")
    if phase.links_down:
        conditions.append(f"without {', '.join(phase.links_down)}")
    return conditions


def fault_rows(phase: PlannedPhase) -> tuple[FaultRow, ...]:
    """A row per fault, in order of their first beginnings; a recurring fault is one row."""
    rows: dict[tuple[str, str], FaultRow] = {}
    for timed in phase.faults:
        fault = timed.spec.resolve(phase.lab)
        before = rows.get((fault.kind, fault.subject))
        span = Span(timed.begins_ns, timed.begins_ns if timed.spec.instant else timed.ends_ns)
        rows[fault.kind, fault.subject] = FaultRow(
            fault.kind, fault.subject, fault.nodes, (*(before.spans if before else ()), span)
        )
    return tuple(rows.values())
