"""Compares labs that were measured before with the present simulator.

`simulated_anew` simulates every job of an `Agreement` again. It keeps the labs' results and the
link loads, which do not depend on the engine.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from bench.agreement.document import Agreement, CellResult, LabResult
from bench.agreement.run import simulated_packets
from bench.agreement.simulated import simulate_job
from rocelab import LabSpec


def simulated_anew(agreement: Agreement) -> Agreement:
    """Simulate every job again. Raises InputError for a job that the simulator no longer
    accepts."""
    return replace(agreement, labs=tuple(_lab(lab) for lab in agreement.labs))


def _lab(lab: LabResult) -> LabResult:
    return replace(lab, cells=tuple(_cell(lab, cell) for cell in lab.cells))


def _cell(lab: LabResult, cell: CellResult) -> CellResult:
    spec = LabSpec.model_validate(lab.lab | {"scheme": cell.scheme})
    made = simulate_job(spec, cell.spec)
    fluid = replace(cell, fluid_ns=fmean(made.iteration_ns), least_ns=made.least_ns)
    return simulated_packets(fluid, spec)
