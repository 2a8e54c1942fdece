"""The KPIs of jobs in labs with lossless classes (PFC)."""

from __future__ import annotations

from collections import Counter

from rocelab.jobs.placement import nic_of, reference
from rocelab.results.kpi import Better, Kpi, PhaseJob, Quantity, attribute
from rocelab.results.lossless import Lossless, find_deadlock, root_share, traced


def _is_lossless(job: PhaseJob) -> bool:
    return job.report.lossless is not None


def _whole(job: PhaseJob) -> Lossless | None:
    """What is known of every pause; None where short ones were left out."""
    lossless = job.report.lossless
    return None if lossless is None or lossless.spans_left_out else lossless


def _pause_share(job: PhaseJob) -> float | None:
    lossless = _whole(job)
    elapsed_ns = job.report.fidelity.elapsed_ns
    if lossless is None or not elapsed_ns:
        return None
    paused_ns: Counter[tuple[str, str, int]] = Counter()
    for span in lossless.spans:
        # Queues drain after the run, and may be paused while they do.
        ended_ns = min(elapsed_ns, span.begin_ns + span.length_ns(elapsed_ns))
        place = (span.node, span.interface, span.traffic_class)
        paused_ns[place] += max(0, ended_ns - max(0, span.begin_ns))
    return max(paused_ns.values(), default=0) / elapsed_ns


def _incast_share(job: PhaseJob) -> float | None:
    lossless = _whole(job)
    if lossless is None:
        return None
    nics = [nic_of(job.report.fabric, reference(name)) for name in job.receivers]
    switches = {link.b.node for nic in nics for link in nic.links}
    return root_share(lossless.spans, lossless.servers, job.report.fidelity.elapsed_ns, switches)


def _pause_depth(job: PhaseJob) -> int | None:
    lossless = _whole(job)
    if lossless is None:
        return None
    return max((pause.depth for pause in traced(lossless.spans, lossless.servers)), default=0)


def _is_deadlocked(job: PhaseJob) -> bool:
    lossless = job.report.lossless
    assert lossless is not None
    return bool(find_deadlock(lossless.spans, lossless.servers))


PAUSE_KPIS = (
    Kpi(
        "pauses",
        Quantity.COUNT,
        "Pauses",
        "times that a port of a switch or NIC stopped because its peer paused it (PFC)",
        of_job=attribute("report.lossless.transitions"),
        applies=_is_lossless,
    ),
    Kpi(
        "pause_share",
        Quantity.RATIO,
        "Longest-paused port",
        "share of the run in which the port that waited most was paused",
        better=Better.LOWER,
        of_job=_pause_share,
        applies=_is_lossless,
    ),
    Kpi(
        "incast_share",
        Quantity.RATIO,
        "Paused by incasts",
        "of the time that all ports were paused, the share that began at the switch in front "
        "of a NIC that receives, whose own ports nobody had paused",
        of_job=_incast_share,
        applies=_is_lossless,
    ),
    Kpi(
        "pause_depth",
        Quantity.COUNT,
        "Farthest pause",
        "cables between the node at which pauses began and the farthest port that they stopped",
        better=Better.LOWER,
        of_job=_pause_depth,
        applies=_is_lossless,
    ),
    Kpi(
        "deadlock",
        Quantity.TRUTH,
        "Deadlock",
        "when all senders had stopped, ports were still paused that wait for each other in a ring",
        better=Better.LOWER,
        of_job=_is_deadlocked,
        applies=_is_lossless,
    ),
    Kpi(
        "lossless_drops",
        Quantity.COUNT,
        "Drops of lossless classes",
        "packets that did not fit the headroom or a NIC's receive buffer",
        better=Better.LOWER,
        of_job=attribute("report.lossless.dropped"),
        applies=_is_lossless,
    ),
    Kpi(
        "watchdog_events",
        Quantity.COUNT,
        "PFC watchdog events",
        "times that a watchdog freed a queue that was paused too long",
        better=Better.LOWER,
        of_job=attribute("report.lossless.watchdog"),
        applies=_is_lossless,
    ),
)
"""The KPIs in the order in which they are shown."""
