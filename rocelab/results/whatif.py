"""The cost of an event for jobs, and their history through a timeline: data for documents and
pages."""

from __future__ import annotations

from dataclasses import dataclass

from rocelab.hosts.model import TIMELESS

SAME = 1e-6
"""Iteration times that differ by a smaller share are the same."""

LEAVES_OUT = (
    "while routing moves, jobs that lost nothing are assumed to continue as before",
    "in a job that lost packets, every queue pair waits for its timer, and the job waits for them",
    "the queues and retransmissions that the moved flows cause elsewhere",
    "other jobs that a scheduler would move, start or stop during the failure",
    "other hash seeds: where flows meet, before and during the failure, depends on the lab's seeds",
    "gains: an iteration that is shorter during the failure is chance, due to these seeds or to "
    "another job that waits, and counts as long as before (`lucky`)",
)


def is_lucky(before_s: float, during_s: float) -> bool:
    """Whether iterations are shorter during an outage: flows happen to be balanced better on the
    remaining links. No outage counts as a gain."""
    return bool(during_s < before_s * (1 - SAME))


@dataclass(frozen=True, slots=True)
class JobCost:
    """The cost for one job, in seconds of its time."""

    job: str
    gpus: int
    ack_timeout_s: float
    """Of its queue pairs."""
    retries: int
    """Of its queue pairs."""
    before_s: float
    """An iteration without the outage and once routing has moved, None if it makes no progress
    then."""
    during_s: float | None
    """An iteration without the outage and once routing has moved, None if it makes no progress
    then."""
    stall_s: float
    """Nothing gets through at the onset."""
    restarted: bool
    """Its queue pairs gave up."""
    restart_s: float
    lost_work_s: float
    """Work lost since the last checkpoint, half an interval on average."""
    slowed_s: float
    """By longer iterations during the outage, never below 0."""
    lucky: bool
    """Its iterations are shorter meanwhile, which counts as no gain (`is_lucky`)."""
    extra_s: float
    """The sum of these times."""
    gpu_hours: float
    """Of all its GPUs."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """An event and its cost for each job."""

    schema_version: int
    lab: str
    event: str
    links: int
    """How many it affects."""
    lasts_s: float | None
    """None if it never ends; costs then cover `over_s`."""
    over_s: float
    reaction_s: float | None
    """Until routing has moved, None for never."""
    reaction: str
    jobs: tuple[JobCost, ...]
    leaves_out: tuple[str, ...] = LEAVES_OUT
    warnings: tuple[str, ...] = ()
    """As of a simulation, of the jobs without the event."""
    hosts: str = TIMELESS
    """In words, what hosts were taken for."""

    @property
    def gpu_hours(self) -> float:
        """The GPU hours of all jobs."""
        return sum(job.gpu_hours for job in self.jobs)


@dataclass(frozen=True, slots=True)
class JobOutlook:
    """A job, in seconds."""

    job: str
    gpus: int
    iterations: int
    jct_s: float | None
    """The sum of healthy_s, stalled_s, slowed_s, restarting_s and lost_work_s; None if it never
    makes progress again."""
    healthy_s: float
    """Without failures, with checkpoints."""
    stalled_s: float
    slowed_s: float
    """By longer iterations during outages, and the checkpoints that these add, never below 0."""
    lucky: bool
    """In some state of the network its iterations are shorter than without failures, which counts
    as no gain (`is_lucky`)."""
    restarts: int
    restarting_s: float
    lost_work_s: float
    """On work since the last checkpoint, and in a checkpoint that broke off."""
    effective: float
    """Its iterations alone, without failures and checkpoints, over jct_s, 0 if that is None."""
    breaks: dict[str, int]
    """By itself, by cause; the network caused the other restarts."""
    expected: float
    """For the same breaks in closed form, without the cost of the network
    (`rocelab.sim.events.expectation`)."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Jobs through a timeline."""

    schema_version: int
    lab: str
    source: str
    """The source of its events."""
    drawn: str
    """The draw in words; empty without one."""
    restart: dict[str, float]
    """How often checkpoints are written, and how long they and restarts take: `checkpoint_every_s`,
    `checkpoint_takes_s` and `restart_takes_s`."""
    events: tuple[str, ...]
    """In the order in which they begin, as sentences."""
    jobs: tuple[JobOutlook, ...]
    warnings: tuple[str, ...] = ()
    """As of a simulation, of the jobs without failures."""
    hosts: str = TIMELESS
    """In words, what hosts were taken for."""
