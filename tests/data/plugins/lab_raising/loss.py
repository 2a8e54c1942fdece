"""The KPI."""

from __future__ import annotations

from rocelab.results.kpi import Kpi, Quantity
from rocelab.results.probes import ProbeRun


def _lost(run: ProbeRun) -> float:
    return run.overall.lost / (len(run.flows) - len(run.flows))


KPI = Kpi("broken_loss", Quantity.RATIO, "Raising", "a share of nothing", of_probes=_lost)
