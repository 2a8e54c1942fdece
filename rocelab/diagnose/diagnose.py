"""Diagnoses why a job was slow, from the findings about hosts, links and queues.

The result is a `Diagnosis`. Pure: it uses only the records of the job itself and of the lab's own
counters, and the paths of its flows if they are known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rocelab.base.errors import InputError
from rocelab.diagnose.case import Case
from rocelab.diagnose.congestion import full_links
from rocelab.diagnose.critical import CriticalSend, timing
from rocelab.diagnose.hosts import paused_hosts
from rocelab.diagnose.losses import lossy_links, notes_on_losses
from rocelab.diagnose.paths import FlowPaths, predicted_paths
from rocelab.diagnose.pauses import paused_transfers
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplanning import plan_job
from rocelab.results.diagnosis import SCHEMA_VERSION, Cause, CauseVerdict, Diagnosis, PathPart
from rocelab.results.job import JobReport
from rocelab.routes.path import NoPathError

EXPLAINED = {
    Cause.GREY_LINK: ("counters disagree on",),
    Cause.HOST_PAUSE: ("this machine could not", " 1 of "),
}
"""Words in the problems of an invalid run (rocelab.runs.accounting, rocelab.traffic.jobresult)
that a found cause explains."""

LEAST_SHARE = 0.01
"""A finding whose excess is below this share of the recorded time did not slow the job down."""


def diagnose_report(report: JobReport) -> tuple[Diagnosis, Case]:
    """The diagnosis of a job's document alone, with paths predicted from the lab's plan.

    Raises InputError if the document does not have the times of a collective.
    """
    try:
        paths = predicted_paths(report)
    except (InputError, NoPathError) as error:
        case = make_case(report, None)
        return diagnose(case, (f"paths are not known: {error.message}",)), case
    case = make_case(report, paths)
    return diagnose(case), case


def finding_of(report: JobReport) -> str | None:
    """What slowed a job down, in a few words (`Verdict.finding`): None for a stream, empty if its
    document does not have the times of its sends."""
    if not report.is_collective:
        return None
    try:
        diagnosis, _ = diagnose_report(report)
    except InputError:
        return ""
    return diagnosis.verdict.finding


def make_case(report: JobReport, paths: Sequence[FlowPaths] | None) -> Case:
    """The case of a report. Raises InputError if the report has no times of steps."""
    job = report.spec
    if not isinstance(job, JobSpec):
        raise InputError(
            f"{report.title} is not diagnosed: its ranks compute between sends, and what each send "
            "would take by itself is not known",
            hint="run a collective on the same ranks, and diagnose that",
        )
    schedule = plan_job(report.fabric, job).schedule
    if report.steps is None or schedule is None:
        raise InputError(
            "the document has no times of steps",
            hint="they are recorded for a collective (a job with a size) that ran to its end; "
            "streams, failed jobs and schedules of more than 32,768 sends have none",
        )
    pause_ns = round(job.compute * report.clock.dilation)
    return Case(report, timing(report.steps, schedule, pause_ns), paths)


def diagnose(case: Case, notes: Sequence[str] = ()) -> Diagnosis:
    """The diagnosis of a case."""
    timed = case.timing
    paused, paused_notes, waiting_ports = paused_transfers(case)
    full, filled = full_links(case, waiting_ports)
    verdicts = [*paused, *paused_hosts(case), *lossy_links(case), *full]
    verdicts.sort(key=lambda verdict: verdict.excess.lab_ns, reverse=True)
    typical = float(np.median(timed.took))
    least_ns = LEAST_SHARE * float(timed.took.sum())
    blamed = [verdict for verdict in verdicts if verdict.excess.lab_ns >= least_ns]
    verdict = blamed[0] if blamed else _no_cause(case, verdicts)
    if any(not explained(problem, verdicts) for problem in case.report.problems):
        verdict = _invalid(case)
    row = timed.worst(verdict.iterations)
    return Diagnosis(
        schema_version=SCHEMA_VERSION,
        lab=case.fabric.name,
        pattern=case.job.pattern.value,
        ranks=case.job.ranks,
        recorded=len(timed.took),
        verdict=verdict,
        others=tuple(finding for finding in verdicts if finding is not verdict),
        problems=tuple(case.report.problems),
        notes=(*notes, *notes_on_losses(case), *paused_notes, *filled, *_machine(case)),
        typical=case.times(typical),
        shown=timed.first + row,
        took=case.times(float(timed.took[row])),
        path=tuple(_path_part(case, link) for link in timed.paths[row]),
        network=case.network,
    )


def explained(problem: str, findings: Sequence[CauseVerdict]) -> bool:
    """Whether a found cause explains why a run is invalid: a grey link's packets are missing at its
    far end, and the NIC of a paused host was idle."""
    return any(
        all(words in problem for words in EXPLAINED[finding.cause])
        and (finding.server is None or f" {finding.server}:" in problem)
        for finding in findings
        if finding.cause in EXPLAINED
    )


def _invalid(case: Case) -> CauseVerdict:
    """The verdict on a run that broke its limits: it shows what this machine did, whatever was
    found."""
    return CauseVerdict(
        *(Cause.INVALID, "the run", None, (), (), case.times(0), ()),
        evidence=tuple(case.report.problems),
    )


def _no_cause(case: Case, findings: Sequence[CauseVerdict]) -> CauseVerdict:
    timed = case.timing
    evidence = [
        f"iterations took {timed.took.min() / 1e6:,.0f} to {timed.took.max() / 1e6:,.0f} ms of the "
        "lab",
        "no server stalled alone, queues explain every lost packet, and no queue built up at a "
        "link that others used",
    ]
    if findings:
        evidence[1:] = [
            f"{len(findings)} findings cost less than {LEAST_SHARE:.0%} of the job's time"
        ]
    return CauseVerdict(Cause.NONE, "nothing", None, (), (), case.times(0), (), tuple(evidence))


def _machine(case: Case) -> list[str]:
    """The evidence that the machine under the lab, not a host of the lab, stood still."""
    count = sum(len(spans) for spans in case.spans.values())
    shared = len(case.report.stalls) - count
    if not shared:
        return []
    return [
        f"{shared} stalls hit several servers at once: the cause is the lab's machine, not a host"
    ]


def _path_part(case: Case, critical: CriticalSend) -> PathPart:
    send = case.timing.schedule.sends[critical.send]
    return PathPart(
        send=critical.send,
        source=send.source,
        destination=send.destination,
        posted=case.times(critical.ready_ns),
        took=case.times(critical.ended_ns - critical.ready_ns),
        excess=case.times(critical.excess_ns),
        hosts=case.times(sum(case.host_part(critical).values())),
    )
