"""Refuses what the engine `links` does not simulate, before anything is built."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.base.errors import InputError
from rocelab.base.wording import listed
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.labfile.model import LabSpec
from rocelab.labfile.schemes.scheme_spec import predictable_kinds
from rocelab.results.engines import PortModel
from rocelab.sim.events.event_spec import TimelineSpec


def check_links(
    spec: LabSpec, jobs: Sequence[SimulatedJob], timeline: TimelineSpec, ports: PortModel
) -> None:
    """Raises InputError for what joins links: pauses, sends that wait for others or for receivers,
    failures and flows without a path of their own; and for other ports than those that store and
    forward."""
    closed = [job.name for job in jobs if not job.is_open_loop]
    reasons = (
        (
            spec.queues.pfc is not None,
            "lossless classes (queues.pfc): a port that pauses stops the links before it",
            "use --engine packets, or a lab without queues.pfc",
        ),
        (
            bool(closed),
            f"sends that wait for others, as those of {', '.join(closed)} do: when they begin "
            "depends on all links",
            "use --engine packets or fluid, or a job with `flows` or `poisson`",
        ),
        (
            any(job.transport.admission is not None for job in jobs),
            "admission: what is cleared to send depends on all links",
            "use --engine packets",
        ),
        (
            any(job.transport.is_tcp for job in jobs),
            "TCP: a window opens and closes by what all links of a path do",
            "use --engine fluid, which has fair shares, or a lab, which has the kernel's TCP",
        ),
        (bool(timeline.events), "failures, which move flows", "use --engine packets or fluid"),
        (
            spec.scheme.unpredictable is not None,
            f"the scheme {spec.scheme.kind}, under which flows change paths",
            f"use --engine packets or fluid, or --scheme {listed(predictable_kinds())}",
        ),
        (
            ports is not PortModel.STORE_AND_FORWARD,
            f"ports {ports}",
            "use --engine packets, or ports that store and forward",
        ),
    )
    for is_asked, what, hint in reasons:
        if is_asked:
            raise InputError(f"the engine links does not simulate {what}", hint=hint)
