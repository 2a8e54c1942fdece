"""What traffic of the page felt of faults, for the strip *Impact*: one JSON document.

From the report of a job or of probes come rates and losses over time as pages of drills have them,
the outage of each flow at each fault, what each switch's BGP did, and what the run was disturbed
by. Times are ns of the lab after `zero_ns`, CLOCK_REALTIME.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace

from rocelab.base import quantities
from rocelab.report.replay.recording import RecordedRun, recorded_jobs, recorded_probes
from rocelab.report.stages import CAUSES
from rocelab.results.drill import JobsRun
from rocelab.results.job import JobReport
from rocelab.results.probereport import ProbeReport
from rocelab.results.probes import Disturbance, ProbeRun
from rocelab.results.stages import HOLD_NS

Document = dict[str, object]
TITLE = "traffic of the page"


def probes_impact(report: ProbeReport) -> Document:
    """The impact on probes."""
    fabric = report.fabric
    run = recorded_probes(fabric, TITLE, report.run, fabric.spec.dilation)
    return {
        **_impact(report.zero_unix_ns, run, report.disturbed),
        "outages": list(_outages(report.run)),
        "switches": list(_switches(report.run)),
    }


def job_impact(report: JobReport, started_ns: int) -> Document:
    """The impact on a job that began at `started_ns`: its rates, and the iteration that the first
    fault hit."""
    run = recorded_jobs(report.fabric, TITLE, JobsRun((), (report,)))
    return {**_impact(started_ns, run, report.disturbed), "said": list(_said(report))}


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
                "restored": felt.restored,
            }


def _switches(run: ProbeRun) -> Iterator[Mapping[str, object]]:
    """What each switch did after each event, at instants of the run."""
    for event, stages in zip(run.events, run.stages, strict=False):
        for switch in stages.switches:
            after = {
                name: None if taken_ns is None else event.event.t_ns + taken_ns
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
                "begins": event.event.change == "begin",
                **after,
            }


def _said(report: JobReport) -> Iterator[str]:
    if report.impact is not None:
        hit, dilation = report.impact, report.clock.dilation
        yield (
            f"Iteration {hit.iteration + 1}, which the first fault hit, took "
            f"{quantities.duration(hit.failed_ns / dilation)} of the modelled network; the median "
            f"of {hit.steady} before it was {quantities.duration(hit.steady_ns / dilation)}."
        )
    resent = report.transport.retransmitted
    yield f"{resent:,} of {report.transport.data_packets:,} data packets were sent again."
