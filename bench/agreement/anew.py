"""Labs that were measured before beside the simulator as it is now.

In: an `Agreement`. Out: the same with every job simulated again; what labs did is kept, and link
loads, which no engine changes.
"""

from __future__ import annotations

from dataclasses import replace

from bench.agreement.document import Agreement, CellResult, LabResult
from bench.agreement.simulated import simulate_job
from rocelab.jobs.job import JobSpec
from rocelab.spec.model import LabSpec


def simulated_anew(found: Agreement) -> Agreement:
    """Raises InputError for a job that the simulator no longer takes."""
    return replace(found, labs=tuple(_lab(lab) for lab in found.labs))


def _lab(lab: LabResult) -> LabResult:
    return replace(lab, cells=tuple(_cell(lab, cell) for cell in lab.cells))


def _cell(lab: LabResult, cell: CellResult) -> CellResult:
    spec = LabSpec.model_validate(lab.lab | {"scheme": cell.scheme})
    made = simulate_job(spec, JobSpec.model_validate(cell.job))
    return replace(cell, simulated_ns=made.iteration_ns, least_ns=made.least_ns)
