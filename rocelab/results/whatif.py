"""The cost of an event for jobs, and their history through a timeline: data for documents and
pages."""

from __future__ import annotations

from dataclasses import dataclass

LUCK = 1e-6
LEAVES_OUT = (
    "while routing moves, jobs that lost nothing are taken to run on as before",
    "of a job that lost packets every queue pair waits for its timer, and the job for it",
    "the queues and retransmissions that the moved flows cause elsewhere",
    "other jobs that a scheduler would move, start or stop meanwhile",
    "other hash seeds: where flows meet, before and meanwhile, is the draw of the lab's seeds; an "
    "iteration that is shorter meanwhile is that draw's luck and no gain",
)


@dataclass(frozen=True, slots=True)
class JobCost:
    """The cost for one job, in seconds of its time. before_s, during_s: an iteration without the
    outage and once routing has moved, None if it makes no progress then. stall_s: nothing gets
    through at the onset. restarted: its queue pairs gave up. lost_work_s: work lost since the last
    checkpoint, half an interval on average. slowed_s: by longer iterations during the outage.
    extra_s: the sum of these. gpu_hours: of all its GPUs. ack_timeout_s, retries: of its queue
    pairs."""

    job: str
    gpus: int
    ack_timeout_s: float
    retries: int
    before_s: float
    during_s: float | None
    stall_s: float
    restarted: bool
    restart_s: float
    lost_work_s: float
    slowed_s: float
    extra_s: float
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class WhatIf:
    """An event and its cost for each job. links: how many it affects. lasts_s: None if it never
    ends; costs then cover `over_s`. reaction_s: until routing has moved, None for never."""

    schema_version: int
    lab: str
    event: str
    links: int
    lasts_s: float | None
    over_s: float
    reaction_s: float | None
    reaction: str
    jobs: tuple[JobCost, ...]
    leaves_out: tuple[str, ...] = LEAVES_OUT

    @property
    def lucky(self) -> tuple[str, ...]:
        """The jobs whose iterations get shorter: flows happen to be balanced better on the
        remaining links."""
        return tuple(
            job.job
            for job in self.jobs
            if job.during_s is not None and job.during_s < job.before_s * (1 - LUCK)
        )

    @property
    def gpu_hours(self) -> float:
        """The GPU hours of all jobs."""
        return sum(job.gpu_hours for job in self.jobs)


@dataclass(frozen=True, slots=True)
class JobOutlook:
    """A job, in seconds. jct_s: None if it never makes progress again. healthy_s: without failures,
    with checkpoints. slowed_s: by longer iterations during outages, below 0 if flows happened to be
    balanced better on the remaining links. effective: its iterations alone, without failures and
    checkpoints, over jct_s, 0 if that is None. breaks: by itself, by cause; the network caused the
    other restarts. expected: for the same breaks in closed form, without the cost of the network
    (`rocelab.sim.events.expectation`)."""

    job: str
    gpus: int
    iterations: int
    jct_s: float | None
    healthy_s: float
    stalled_s: float
    slowed_s: float
    restarts: int
    restarting_s: float
    lost_work_s: float
    effective: float
    breaks: dict[str, int]
    expected: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """Jobs through a timeline. source: the source of its events. drawn: the draw in words; empty
    without one. restart: checkpoints and restarts, in seconds. events: in the order in which they
    begin, as sentences."""

    schema_version: int
    lab: str
    source: str
    drawn: str
    restart: dict[str, float]
    events: tuple[str, ...]
    jobs: tuple[JobOutlook, ...]
