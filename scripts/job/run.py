"""A job on a lab that is up: send it, watch endpoints and devices, report.

In: a running lab and a `JobSpec`. Out: a `JobReport` and, where asked, `result.json` and a capture.
Whatever does not fit is refused before anything is touched; the lab is as it was when this returns,
raises or is killed.
"""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from labs.errors import InputError, MachineError
from labs.lab import Lab
from labs.runtime.base import ProgressSink, no_progress
from scripts.balance import link_loads, tier_balances
from scripts.drill.environment import read_environment
from scripts.drill.fidelity import stolen_cpu_s
from scripts.drill.result import Environment
from scripts.job import measure
from scripts.job.accounting import check_all, disagreements
from scripts.job.capture import NicCapture
from scripts.job.devices import DeviceCounts, DeviceWatch
from scripts.job.document import SCHEMA_VERSION, Clock, Fidelity, JobReport, to_json
from scripts.job.load import warning
from traffic.job import JobSpec
from traffic.jobplan import JobPlan, plan_job
from traffic.result import TrafficResult
from traffic.session import TrafficSession

RESULT_FILE = "result.json"


def run_job(
    lab: Lab,
    job: JobSpec,
    *,
    out: Path | None = None,
    pcap: Path | None = None,
    progress: ProgressSink = no_progress,
) -> JobReport:
    """Run `job` on a lab that is up and report.

    `out` is a folder, made where missing, for result.json; `pcap` a pcapng file that must not be
    there yet, for what the ranks' NICs send and receive.

    Raises InputError where the lab is not up or busy, the job does not fit it (`plan_job`), or
    `out` or `pcap` can not be written; MachineError where this machine can not run it. A run that
    the machine could not carry is no error here: its report has `problems`.
    """
    plan = plan_job(lab.fabric, job)
    if not lab.is_running:
        raise InputError(
            f"lab {lab.name} is not up", hint=f"bring it up with `rocelab up {lab.name}`"
        )
    if os.geteuid() != 0:
        raise MachineError("sending in a lab needs root", hint="run it with sudo")
    if pcap is not None:
        _check_new(pcap)
    if out is not None:
        _make_folder(out)
    environment = read_environment()
    capture = None if pcap is None else NicCapture(lab, plan, pcap)
    with lab.locked(), DeviceWatch(lab, plan) as devices, capture or nullcontext():
        traffic, elapsed_s, stolen_s = _send(lab, plan, progress)
        counts = devices.read()
    report = assemble(plan, environment, traffic, counts, elapsed_s, stolen_s)
    if capture is not None and capture.lost:
        lacks = f"the capture lacks {capture.lost:,} packets that tcpdump had no room for"
        report = replace(report, warnings=(*report.warnings, lacks))
    if out is not None:
        (out / RESULT_FILE).write_text(to_json(report), encoding="utf-8")
    return report


def planned_warning(lab: Lab, job: JobSpec) -> str | None:
    """What to tell the user before a run that this machine will probably not carry.

    Raises InputError as `plan_job` does.
    """
    return warning(plan_job(lab.fabric, job), len(os.sched_getaffinity(0)))


def _check_new(path: Path) -> None:
    if path.exists():
        raise InputError(f"{path} exists", hint="name another file, or remove it")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent}", hint="make it first")


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"results can not be written to {out}: {error.strerror}", hint="name another folder"
        ) from None


def _send(lab: Lab, plan: JobPlan, progress: ProgressSink) -> tuple[TrafficResult, float, float]:
    """The run itself, how long it took and how much CPU time the hypervisor kept in it."""
    with TrafficSession(lab.fabric, lambda name: lab.node(name).netns, (), plan) as session:
        stolen_s, started_s = stolen_cpu_s(), time.monotonic()
        session.start()
        session.wait_for_job(progress)
        elapsed_s = time.monotonic() - started_s
        return session.stop(), elapsed_s, stolen_cpu_s() - stolen_s


def assemble(
    plan: JobPlan,
    environment: Environment,
    traffic: TrafficResult,
    counts: DeviceCounts,
    elapsed_s: float,
    stolen_s: float,
) -> JobReport:
    """The report of a run from everything that was counted. Pure."""
    job = traffic.job
    if job is None:
        raise ValueError("the session had no job")
    checks = check_all(job, traffic.agents, counts)
    loads = link_loads(plan.fabric, counts.roce)
    # After a queue pair's error packets are missing that no queue dropped: it went silent for that.
    problems = () if job.errors else disagreements(checks)
    warned = warning(plan, environment.cpu_count)
    return JobReport(
        schema_version=SCHEMA_VERSION,
        job=plan.job.model_dump(mode="json", exclude_none=True),
        lab=plan.fabric.spec.model_dump(mode="json", exclude_none=True),
        environment=environment,
        clock=Clock(plan.dilation),
        warnings=() if warned is None else (warned,),
        problems=traffic.problems + problems,
        errors=job.errors,
        fidelity=Fidelity(
            lost_share=measure.lost_share(job),
            late_p99_ns=max((nic.late_p99_ns for nic in job.nics), default=0),
            late_max_ns=max((nic.late_max_ns for nic in job.nics), default=0),
            agents_cpu_s=traffic.cpu_s,
            elapsed_s=elapsed_s,
            stolen_s=stolen_s,
            clock_jump_ns=traffic.clock_jump_ns,
            softnet_drops=traffic.softnet_drops,
        ),
        headlines=measure.headlines(job),
        iterations=tuple(
            measure.times(lab_ns, plan.dilation) for lab_ns in job.iteration_ns.tolist()
        ),
        roofline=measure.bound(plan),
        completion=measure.completion(job),
        ranks=measure.ranks(job),
        transport=measure.transport(job, traffic.agents),
        round_trips=measure.round_trips(job),
        queue_engine=counts.engine.value,
        queues=counts.queues,
        links=measure.links(plan.fabric, counts),
        tiers=tier_balances(loads),
        goodput=measure.goodput(job),
        fairness=measure.fairness(job),
        accounting=checks,
    )
