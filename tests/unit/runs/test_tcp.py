"""Reports of jobs whose sends the kernel's TCP carries."""

from dataclasses import replace

import numpy as np
import pytest

from rocelab.base.documents import to_json
from rocelab.jobs.jobplan import JobPlan
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.report.job import job_document
from rocelab.report.jobs.text import job_text
from rocelab.report.renderers.markdown import markdown_of as markdown
from rocelab.report.renderers.page import html
from rocelab.results.job import JobReport, from_json
from rocelab.results.kpi import PhaseJob
from rocelab.results.kpis_shipped import KPIS
from rocelab.results.programs import Stall, TcpConnection
from rocelab.runs.jobreport import job_reports
from rocelab.runs.tcp import TcpSeen
from rocelab.traffic.jobresult import StallRecord
from tests.helpers import job_sample as sample

MS = 10**6
TCP = {"kind": "tcp", "congestion_control": "cubic"}


def _seen(plan: JobPlan, **changes: object) -> TcpSeen:
    connections = tuple(
        TcpConnection(
            source=str(plan.places[path.rank]),
            source_port=40_000 + path.number,
            destination=str(plan.places[path.peer]),
            destination_port=path.port,
            began_ns=0,
            ended_ns=500 * MS,
            delivered_bytes=10**6,
            resent_bytes=path.number * 10**4,
            rtt_us=3000,
            min_rtt_us=1000,
            stalls=(Stall(10 * MS, 310 * MS),) if path.number == 1 else (),
        )
        for path in plan.tcp_paths
    )
    rtts = {(path.destination_ip, path.port): (1000, 2000, 3000) for path in plan.tcp_paths}
    return replace(TcpSeen(connections, rtts, 60 * MS, 0.5, False), **changes)  # type: ignore[arg-type]


def _report(plan: JobPlan, **changes: object) -> JobReport:
    result = sample.result(plan)
    record = sample.record(sample.traffic(result), sample.counts(result))
    (report,) = job_reports(replace(record, tcp=_seen(plan, **changes)))
    return report


@pytest.fixture(name="plan")
def _plan() -> JobPlan:
    return sample.allreduce(transport=TCP)


def test_what_only_queue_pairs_have_is_absent_and_not_zero(plan: JobPlan) -> None:
    report = _report(plan)
    assert report.valid, report.problems
    assert report.transport is None
    assert not report.flows and not report.outages
    of = PhaseJob(report, False, None, frozenset(), frozenset())
    figures = {
        kpi.name: kpi.of_job(of)
        for kpi in KPIS
        if kpi.of_job is not None and kpi.applies(of) and kpi.of_programs is None
    }
    assert not figures.keys() & {"naks", "timeouts", "cnps", "ce_packets", "retransmitted_packets"}
    assert figures["completed"] is True


def test_the_kernels_figures_are_those_of_all_connections(plan: JobPlan) -> None:
    report = _report(plan)
    assert report.tcp is not None
    assert len(report.tcp.connections) == 4
    assert report.tcp.resent_share == pytest.approx(0.06 / 4.06)
    assert (report.tcp.stalled, report.tcp.longest_stall_ns) == (1, 300 * MS)
    assert report.round_trips is not None
    assert report.round_trips.p50.lab_ns == 2 * MS
    assert report.round_trips.p50.modelled_ns == 2 * MS / sample.DILATION


def test_the_payload_is_the_only_count_that_devices_and_endpoints_share(plan: JobPlan) -> None:
    (check,) = _report(plan).accounting
    assert check.agrees
    assert check.left_count == sum(sample.sent_bytes(plan).values())


def test_goodput_is_that_of_the_connections_of_each_rank(plan: JobPlan) -> None:
    report = _report(plan)
    assert [sender.rank for sender in report.goodput.senders] == [0, 1, 2, 3]


def test_a_server_that_the_machine_held_makes_the_run_no_measurement(plan: JobPlan) -> None:
    result = sample.result(plan)
    held = StallRecord("srv1-2", np.array([0]), np.array([9 * MS]))
    record = sample.record(sample.traffic(replace(result, stalls=(held,))), sample.counts(result))
    (report,) = job_reports(replace(record, tcp=_seen(plan)))
    assert "let srv1-2 neither read nor write for 9 of 500 ms" in report.problems[0]


def test_busy_cpus_are_a_warning(plan: JobPlan) -> None:
    report = _report(plan, cpu_share=0.99)
    assert report.valid
    assert any("CPUs were busy for 99%" in text for text in report.warnings)


def test_the_document_says_first_what_of_tcps_clock_is_scaled(plan: JobPlan) -> None:
    report = _report(plan)
    meta = job_document(report).meta
    assert "TCP at dilation 1000: retransmission timeouts of 200ms at least would be" in meta
    assert "CUBIC's window grows by the machine's clock" in meta
    text = markdown(job_document(report))
    assert "TCP (cubic)" in text
    assert "queue pairs" not in text
    assert "TCP (cubic)" in html(job_document(report))


def test_a_document_reads_back(plan: JobPlan) -> None:
    report = _report(plan)
    assert from_json(to_json(report)) == report


def test_a_job_of_queue_pairs_beside_one_of_tcp_keeps_its_checks() -> None:
    roce, tcp = plan_jobs(
        sample.fabric(), [sample.allreduce().job, sample.allreduce(transport=TCP).job]
    )
    results = [sample.result(roce), sample.result(tcp)]
    record = sample.record(sample.traffic(*results), sample.counts(*results))
    first, second = job_reports(replace(record, tcp=_seen(tcp)))
    assert first.valid and second.valid, first.problems
    assert len(first.accounting) > 1
    assert first.transport is not None
    assert first.tcp is None
    assert second.tcp is not None


def test_a_job_of_tcp_in_words_has_no_queue_pairs() -> None:
    job = sample.allreduce(transport=TCP | {"connections": 2}).job
    text = job_text(job.model_dump(mode="json", exclude_none=True))
    assert text.endswith("TCP (cubic), 2 connections from rank to rank, DSCP 0")
