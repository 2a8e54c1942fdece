"""What one failure or maintenance costs running jobs: the same jobs with and without it.

Takes an outage on a network, iteration times per state of the network, and how queue pairs and jobs
recover from a loss. Returns a frozen `WhatIf` (JSON: `rocelab.base.documents.to_json`). It computes
with iterations, not packets: an outage may last for hours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from rocelab.labfile.base import SECOND
from rocelab.results.whatif import JobCost, WhatIf, is_lucky
from rocelab.routes.arrays.network import Network
from rocelab.sim.events.event_spec import EventKind, RestartSpec
from rocelab.sim.events.longrun import Conditions, IterationTimes
from rocelab.sim.events.retransmission import Retransmission
from rocelab.sim.events.timeline import EventOutage

SCHEMA_VERSION = 1

FOR_GOOD_S = 3600.0
"""The period over which the cost of an endless outage is computed."""


def what_if(
    network: Network,
    outage: EventOutage,
    iteration_times: IterationTimes,
    gpus: Mapping[str, int],
    retransmissions: Mapping[str, Retransmission],
    restart: RestartSpec,
) -> WhatIf:
    """What an outage costs each job of `gpus`, GPUs by job name.

    A job whose iterations do not end before routing has moved, or during the whole outage, stalls
    until the first retry on a whole path. If its queue pairs give up it restarts from its last
    checkpoint on spare hosts, which the outage does not affect. Raises InputError if a job makes no
    progress even without the outage.
    """
    conditions = Conditions(network, [outage], iteration_times)
    before = conditions.undisturbed()
    moves = math.isfinite(outage.routed_s)
    onset = conditions.times(frozenset({(0, False)})) if outage.loses_packets else before
    during = conditions.times(frozenset({(0, moves)}))
    lasts_s = outage.ends_s - outage.begins_s
    over_s = lasts_s if math.isfinite(lasts_s) else FOR_GOOD_S
    return WhatIf(
        schema_version=SCHEMA_VERSION,
        lab=network.spec.name,
        event=outage.what,
        links=len(outage.links),
        lasts_s=lasts_s if math.isfinite(lasts_s) else None,
        over_s=over_s,
        reaction_s=outage.reaction_s if math.isfinite(outage.reaction_s) else None,
        reaction=outage.reaction,
        jobs=tuple(
            _cost(
                job,
                count,
                (before[job], onset[job], during[job]),
                outage,
                over_s,
                retransmissions[job],
                restart,
            )
            for job, count in gpus.items()
        ),
    )


def _cost(
    job: str,
    gpus: int,
    times_s: tuple[float, float, float],
    outage: EventOutage,
    over_s: float,
    retransmission: Retransmission,
    restart: RestartSpec,
) -> JobCost:
    before_s, onset_s, during_s = times_s
    lasts_s = outage.ends_s - outage.begins_s
    # Nothing happens before a drain has moved the routes.
    felt_s = outage.reaction_s if outage.kind is EventKind.DRAIN else 0.0
    waits_s = 0.0
    if not (math.isfinite(onset_s) and math.isfinite(during_s)):
        whole_s = min(outage.reaction_s, lasts_s) if math.isfinite(during_s) else lasts_s
        waits_s = float(retransmission.through_s(felt_s, whole_s)) - felt_s
    restarted = not math.isfinite(waits_s)
    stall_s = retransmission.gives_up_s if restarted else waits_s
    slowed_s = restart_s = lost_work_s = 0.0
    if restarted:
        restart_s = restart.restart_takes / SECOND
        lost_work_s = restart.checkpoint_every / SECOND / 2
    elif math.isfinite(during_s):
        slowed_s = max(0.0, over_s - felt_s - stall_s) * max(0.0, 1 - before_s / during_s)
    extra_s = stall_s + restart_s + lost_work_s + slowed_s
    return JobCost(
        job=job,
        gpus=gpus,
        ack_timeout_s=retransmission.ack_timeout_s,
        retries=retransmission.retries,
        before_s=before_s,
        during_s=during_s if math.isfinite(during_s) else None,
        stall_s=stall_s,
        restarted=restarted,
        restart_s=restart_s,
        lost_work_s=lost_work_s,
        slowed_s=slowed_s,
        lucky=is_lucky(before_s, during_s),
        extra_s=extra_s,
        gpu_hours=extra_s * gpus / 3600,
    )
