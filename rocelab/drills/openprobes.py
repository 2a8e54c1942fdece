"""Probes on a running lab that others may break meanwhile, until somebody has seen enough.

The flows are those of a drill's probes, and measured by the same code; the faults are those that
others inject by hand. The result says by what it was disturbed.
"""

from __future__ import annotations

from collections.abc import Callable

from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.drills.drill_spec import MeasureSpec, TrafficSpec
from rocelab.drills.plan import probe_flows
from rocelab.faults.changewatch import ChangeWatch
from rocelab.faults.record import read_faults
from rocelab.lab.inuse import Use, in_use
from rocelab.lab.lab import RunningLab
from rocelab.linux.bracket import realtime_ns
from rocelab.linux.rights import need_root
from rocelab.observe.environment import environment_of
from rocelab.observe.timeline import FibTimeline, opened_namespaces
from rocelab.prediction.predictor import asked_fabric
from rocelab.record import LabFiles, not_up
from rocelab.results.probereport import SCHEMA_VERSION, ProbeReport
from rocelab.runs.observers import can_trace
from rocelab.runs.probes import FaultedRun, ProbeSettings

POLL_S = 0.25
SECOND_NS = 10**9
AFTER_REPAIR_NS = 3 * SECOND_NS
"""How long probes go on at least after the last fault has ended: sessions come back meanwhile."""
QUIET_NS = SECOND_NS
"""How long no switch has changed its table by then."""


def run_open_probes(
    lab: RunningLab,
    traffic: TrafficSpec,
    is_stopped: Callable[[], bool],
    progress: ProgressSink = no_progress,
) -> ProbeReport:
    """Send probes for `traffic.duration`, until `is_stopped`, or until the lab has settled after a
    fault has ended. Raises InputError if the lab is not up or busy or a flow does not fit it, and
    as `FaultedRun`."""
    if not lab.is_running:
        raise not_up(lab.name)
    need_root("sending in a lab")
    network, measure = lab.network(traffic.network), MeasureSpec()
    fabric = asked_fabric(network.fabric, network.steering.read_scheme())
    flows = probe_flows(fabric, traffic)
    settings = ProbeSettings(
        measure.method, traffic.warmup, measure.event_window, stages=can_trace(fabric)
    )
    environment = environment_of(lab)
    with (
        in_use(LabFiles(lab.name), "probes", Use.UNDER_FAULTS),
        ChangeWatch(lab) as by_hand,
        opened_namespaces(lab, lab.fabric.switches) as namespaces,
        FibTimeline(lab, namespaces) as fib,
        FaultedRun(lab, flows, settings, fib, fabric=fabric, by_hand=by_hand) as run,
    ):
        end_ns = run.zero_ns + traffic.duration
        total = traffic.duration // SECOND_NS
        while (now_ns := realtime_ns()) < end_ns:
            if now_ns >= run.zero_ns:  # what begins before is not counted
                progress(Progress("seconds", (now_ns - run.zero_ns) // SECOND_NS, total))
            if is_stopped() or _has_settled(lab, by_hand, fib):
                break
            run.wait(POLL_S)
        measured = run.finish()
        disturbed = by_hand.disturbances(run.zero_ns)
    return ProbeReport(
        schema_version=SCHEMA_VERSION,
        probes=traffic.model_dump(mode="json"),
        lab=fabric.spec.model_dump(mode="json", exclude_none=True),
        environment=environment,
        zero_unix_ns=run.measured_from_ns,
        disturbed=disturbed,
        run=measured,
    )


def _has_settled(lab: RunningLab, by_hand: ChangeWatch, fib: FibTimeline) -> bool:
    """Whether a fault has ended, none is left, and the tables have not changed for a while."""
    changes, now_ns = by_hand.changes(), realtime_ns()
    if not changes or read_faults(LabFiles(lab.name)):
        return False
    is_quiet = not fib.changes(now_ns - QUIET_NS, now_ns)
    return is_quiet and now_ns - changes[-1].t_ns > AFTER_REPAIR_NS
