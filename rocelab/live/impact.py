"""What traffic of the page felt of faults, for the strip *Impact*: one JSON document.

From the report of a job or of probes come rates and losses over time as pages of drills have them,
the outage of each flow at each fault, what each switch's BGP did, and what the run was disturbed
by. Times are ns of the lab after `zero_ns`, CLOCK_REALTIME.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace

from rocelab.base import quantities
from rocelab.report.replay.recording import (
    RecordedRun,
    SentFlow,
    recorded_jobs,
    recorded_probes,
)
from rocelab.report.stages import CAUSES
from rocelab.results.drill import JobsRun
from rocelab.results.job import JobReport
from rocelab.results.probereport import ProbeReport
from rocelab.results.probes import Disturbance, Event, ProbeRun
from rocelab.results.stages import HOLD_NS, Stages

Document = dict[str, object]
TITLE = "traffic of the page"


def probes_impact(report: ProbeReport) -> Document:
    """The impact on probes."""
    fabric = report.fabric
    run = recorded_probes(fabric, TITLE, report.run, fabric.spec.dilation)
    return {
        **_impact(report.zero_unix_ns, run, report.disturbed),
        "outages": list(_outages(report.run)),
        "switches": list(
            _switches([event.event for event in report.run.events], report.run.stages)
        ),
    }


def job_impact(report: JobReport, started_ns: int) -> Document:
    """The impact on a job that began at `started_ns`: its rates, the outages of its flows, and the
    iteration that the first fault hit."""
    run = recorded_jobs(report.fabric, TITLE, JobsRun((), (report,), stages=report.stages))
    return {
        **_impact(started_ns, run, report.disturbed),
        "outages": list(_waits(report, run)),
        "switches": list(_switches(report.events, report.stages)),
        "said": list(_sentences(report)),
    }


def _impact(zero_ns: int, run: RecordedRun, disturbed: tuple[Disturbance, ...]) -> Document:
    return {
        "zero_ns": zero_ns,
        "run": asdict(replace(run, rates=None)),
        "disturbed": [{**asdict(fault), "text": fault.text} for fault in disturbed],
        "outages": [],
        "switches": [],
        "said": [],
        "hold_ns": HOLD_NS,
    }


def _outages(run: ProbeRun) -> Iterator[Mapping[str, object]]:
    """The flows that each event cut off, the longest outage first; `out_ns` None: it did not
    return, or single packets were lost, from which no time follows."""
    for number, event in enumerate(run.events):
        affected = [
            (record.flow, record.measurement.events[number])
            for record in run.flows
            if record.measurement.events[number].affected
        ]
        for flow, felt in sorted(affected, key=lambda entry: -entry[1].lost):
            yield {
                "event": event.event.title,
                "t_ns": event.event.t_ns,
                "flow": flow.name,
                "source": flow.source,
                "destination": flow.destination,
                "out_ns": felt.loss_of_connectivity_ns,
                "resolution_ns": felt.resolution_ns + event.event.took_ns,
                "lost": felt.lost + felt.lost_after_recovery,
                "retransmitted": None,
                "restored": felt.restored,
            }


def _waits(report: JobReport, run: RecordedRun) -> Iterator[Mapping[str, object]]:
    """The flows of a job that were out, the longest outage of each event first. A flow has the name
    that the run's list gives it, or else its number."""
    names = {flow.dest_qp: flow.name for flow in run.flows if isinstance(flow, SentFlow)}
    for outage in sorted(report.outages, key=lambda outage: -(outage.out_ns or math.inf)):
        flow, event = report.flows[outage.flow], report.event_of(outage)
        yield {
            "event": None if event is None else event.title,
            "t_ns": outage.began_ns if event is None else event.t_ns,
            "flow": names.get(flow.dest_qp, f"QP {flow.dest_qp}"),
            "source": report.ranks[flow.rank].nic,
            "destination": report.ranks[flow.peer].nic,
            "out_ns": outage.out_ns,
            "resolution_ns": outage.resolution_ns,
            "lost": None,
            "retransmitted": outage.retransmitted,
            "restored": outage.ended_ns is not None,
        }


def _switches(events: Sequence[Event], traced: Sequence[Stages]) -> Iterator[Mapping[str, object]]:
    """What each switch did after each event, at instants of the run."""
    for event, stages in zip(events, traced, strict=False):
        for switch in stages.switches:
            after = {
                name: None if taken_ns is None else event.t_ns + taken_ns
                for name, taken_ns in (
                    ("detected_ns", switch.detected_ns),
                    ("session_ns", switch.session_ns),
                    ("best_path_ns", switch.best_path_ns),
                    ("zebra_ns", switch.zebra_ns),
                    ("kernel_ns", switch.kernel_ns),
                )
            }
            cause = None if switch.detected_by is None else CAUSES[switch.detected_by]
            yield {
                "node": switch.node,
                "by": cause,
                "begins": event.change == "begin",
                **after,
            }


def _sentences(report: JobReport) -> Iterator[str]:
    if report.impact is not None:
        hit, dilation = report.impact, report.clock.dilation
        yield (
            f"Iteration {hit.iteration + 1}, which the first fault hit, took "
            f"{quantities.duration(hit.failed_ns / dilation)} of the modelled network; the median "
            f"of {hit.steady} before it was {quantities.duration(hit.steady_ns / dilation)}."
        )
    if report.transport is None:
        return
    resent = report.transport.retransmitted
    yield f"{resent:,} of {report.transport.data_packets:,} data packets were sent again."
    if report.transport.timeouts:
        timeout, dilation = report.spec.transport.ack_timeout, report.clock.dilation
        yield (
            f"A packet without a later one that arrives is sent again after the ACK timeout of "
            f"{quantities.duration(timeout)}, which is {quantities.duration(timeout * dilation)} "
            f"of this lab."
        )
