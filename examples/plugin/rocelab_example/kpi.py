"""KPI `lost_per_million`: packets lost of a million sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocelab.results.kpi import Better, Kpi, Quantity

if TYPE_CHECKING:
    from rocelab.results.probes import ProbeRun


def lost_per_million(run: ProbeRun) -> float | None:
    """None if nothing was sent: the KPI then has no value."""
    sent = sum(record.measurement.sent for record in run.flows)
    return 1e6 * run.overall.lost / sent if sent else None


LOST_PER_MILLION = Kpi(
    "lost_per_million",
    Quantity.RATIO,
    "Lost per million",
    "packets lost of a million sent",
    Better.LOWER,
    of_probes=lost_per_million,
)
