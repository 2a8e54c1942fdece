"""The KPIs that ship."""

from __future__ import annotations

from rocelab.results.kpis_of_jobs import JOB_KPIS
from rocelab.results.kpis_of_probes import PROBE_KPIS
from rocelab.results.kpis_of_programs import PROGRAM_KPIS
from rocelab.results.kpis_of_storage import STORAGE_KPIS

KPIS = (*PROBE_KPIS, *JOB_KPIS, *STORAGE_KPIS, *PROGRAM_KPIS)
"""The KPIs in the order in which they are shown."""
