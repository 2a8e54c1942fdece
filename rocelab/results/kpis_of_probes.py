"""The KPIs that only a run of probes has."""

from __future__ import annotations

from rocelab.results.kpi import Better, Kpi, Quantity
from rocelab.results.probes import ProbeRun


def _has_effect(run: ProbeRun) -> bool:
    """Whether a flow was affected, so that there was something to recover from."""
    return run.overall.affected_flows > 0


PROBE_KPIS = (
    Kpi(
        "restored",
        Quantity.TRUTH,
        "Restored",
        "every affected flow recovered, and no flow ended in an outage",
        better=Better.HIGHER,
        of_probes=lambda run: run.overall.restored,
    ),
    Kpi(
        "full_convergence",
        Quantity.DURATION,
        "Full convergence",
        "event to recovery of the last affected flow (RFC 6412 section 3.6.1), worst event",
        better=Better.LOWER,
        of_probes=lambda run: run.overall.full_convergence_ns,
        applies_to_run=_has_effect,
    ),
    Kpi(
        "first_route_convergence",
        Quantity.DURATION,
        "First route convergence",
        "event to recovery of the first affected flow (RFC 6412 section 3.6.2), worst event",
        better=Better.LOWER,
        of_probes=lambda run: run.overall.first_route_convergence_ns,
        applies_to_run=_has_effect,
    ),
    Kpi(
        "loss_derived_convergence",
        Quantity.DURATION,
        "Loss-derived convergence",
        "packets lost over the rate offered to the affected flows (RFC 6412 section 3.6.4)",
        better=Better.LOWER,
        of_probes=lambda run: run.overall.loss_derived_ns,
        applies_to_run=_has_effect,
    ),
    Kpi(
        "rate_derived_convergence",
        Quantity.DURATION,
        "Rate-derived convergence",
        "event until throughput is back and stays (RFC 6412 section 3.5.1), last affected flow",
        better=Better.LOWER,
        of_probes=lambda run: run.overall.rate_derived_ns,
        applies_to_run=_has_effect,
    ),
    Kpi(
        "loss_of_connectivity",
        Quantity.DURATION,
        "Longest loss of connectivity",
        "longest Route Loss of Connectivity Period of any flow (RFC 6412 section 3.6.5)",
        better=Better.LOWER,
        of_probes=lambda run: run.overall.loss_of_connectivity_ns,
        applies_to_run=_has_effect,
    ),
    Kpi(
        "affected_flows",
        Quantity.COUNT,
        "Flows affected",
        "flows that lost packets to an event",
        better=Better.LOWER,
        of_probes=lambda run: run.overall.affected_flows,
    ),
    Kpi(
        "lost_packets",
        Quantity.COUNT,
        "Packets lost",
        "sent and never received",
        better=Better.LOWER,
        of_probes=lambda run: run.overall.lost,
    ),
    Kpi(
        "lost_outside_events",
        Quantity.COUNT,
        "Lost outside events",
        "packets lost outside the window of every event",
        better=Better.LOWER,
        of_probes=lambda run: run.overall.lost_outside_events,
    ),
    Kpi(
        "reordered_packets",
        Quantity.COUNT,
        "Packets reordered",
        "arrived after a packet sent later (RFC 4737 section 3.3)",
        better=Better.LOWER,
        of_probes=lambda run: run.overall.reordered,
    ),
    Kpi(
        "duplicated_packets",
        Quantity.COUNT,
        "Packets duplicated",
        "further copies of packets that had arrived (RFC 5560)",
        better=Better.LOWER,
        of_probes=lambda run: run.overall.duplicated,
    ),
)
"""The KPIs in the order in which they are shown."""
