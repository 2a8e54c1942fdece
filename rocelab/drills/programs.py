"""A phase of programs: starts them, and carries out the phase's faults meanwhile."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from rocelab.base.outputs import OutputPlace
from rocelab.base.progress import ProgressSink
from rocelab.drills.plan import ProgramPhase
from rocelab.lab.lab import RunningLab
from rocelab.results.programs import ProgramsRun
from rocelab.runs.observers import Observers
from rocelab.runs.programs import Course, Metric, run_programs_under_faults


def run_program_phase(
    lab: RunningLab, phase: ProgramPhase, evidence: OutputPlace | None, progress: ProgressSink
) -> ProgramsRun:
    """Run the phase's programs. `evidence` is the folder for bundles. Raises as
    `run_programs_under_faults` does."""
    traffic, spec = phase.traffic, phase.spec
    observers = Observers(lab, stages=False, health=spec.health, evidence=evidence)
    with observers:
        run = run_programs_under_faults(
            lab,
            phase.programs,
            folder=Path(traffic.folder or "."),
            course=Course(
                None if traffic.ready is None else re.compile(traffic.ready),
                traffic.duration,
                traffic.limit,
            ),
            metrics=[
                Metric(
                    name,
                    re.compile(metric.pattern),
                    metric.unit,
                    None if metric.rank == "all" else metric.rank,
                )
                for name, metric in traffic.metrics.items()
            ],
            faults=phase.faults,
            progress=progress,
        )
        observers.collect_evidence()
    problems = (*run.problems, *observers.problems)
    return replace(run, problems=problems, health=observers.health)
