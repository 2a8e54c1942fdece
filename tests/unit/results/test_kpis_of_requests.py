"""The KPIs of requests are the figures of the job's document."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rocelab.jobs.served import Carried
from rocelab.results.job import WorkloadFigures
from rocelab.results.kpis import job_figures
from rocelab.runs.jobreport import job_reports
from tests.helpers import job_sample as sample
from tests.unit.jobs.serving.test_serving import flows_of, place_of, serving


def test_requests_of_a_lab_have_the_kpis_of_their_figures() -> None:
    job = sample.result(sample.allreduce())
    (report,) = job_reports(sample.record(sample.traffic(job), sample.counts(job)))
    assert "ttft_p99" not in job_figures([report])[0]
    spec = serving(ttft="250ms")
    flows = flows_of(spec)
    over_s = flows.start_s + np.linspace(0.01, 0.2, len(flows))
    served = spec.served(place_of(spec), over_s)
    (figures,) = job_figures([replace(report, workload=WorkloadFigures(served=served))])
    carried = served.by(Carried.CARRIED)
    assert figures["ttft_p99"] == carried.latency("ttft").p99_ns
    assert figures["transfer_p99"] == carried.latency("transfer").p99_ns
    assert figures["itl_p50"] == carried.latency("itl").p50_ns
    assert figures["request_goodput"] == carried.goodput < 1


def test_a_request_that_is_never_answered_is_not_measured_at_the_percentiles_above_it() -> None:
    job = sample.result(sample.allreduce())
    (report,) = job_reports(sample.record(sample.traffic(job), sample.counts(job)))
    spec = serving()
    over_s = flows_of(spec).start_s + 0.01
    over_s[7] = np.inf
    served = spec.served(place_of(spec), over_s)
    (figures,) = job_figures([replace(report, workload=WorkloadFigures(served=served))])
    assert figures["ttft_p99"] is None and figures["ttft_p50"] is not None
