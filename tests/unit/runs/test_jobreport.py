"""A job's figures, checks and document, against results computed by hand."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rocelab.agent.rc.requester import GAP_NS
from rocelab.base.documents import to_json
from rocelab.base.errors import InputError
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplan import JobPlan
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.jobs.load import CARRIED_SHARE, estimate, warning
from rocelab.labfile.queues import QueueEngine
from rocelab.observe.devices import DeviceCounts
from rocelab.observe.processes import NO_CONTROLLER, ProcessFigures
from rocelab.report.job import job_document
from rocelab.report.jobs.plots import progress_plot
from rocelab.report.renderers.terminal import print_document
from rocelab.results.job import JobReport, from_json
from rocelab.results.kpi import Quantity
from rocelab.results.kpis import KPIS
from rocelab.results.lossless import Lossless, PauseFigures, PauseSpan
from rocelab.results.probes import Disturbance, Event, FaultChange
from rocelab.runs import jobfigures
from rocelab.runs.accounting import check_all, disagreements
from rocelab.runs.jobreport import job_reports
from rocelab.traffic.jobresult import AckGap, JobResult
from rocelab.traffic.result import TrafficResult
from tests.helpers import job_sample as sample
from tests.helpers.documents import printed as document_text

MS = 10**6


def report_of(job: JobResult) -> JobReport:
    return the_report(sample.traffic(job), sample.counts(job))


def the_report(traffic: TrafficResult, counts: DeviceCounts) -> JobReport:
    (report,) = job_reports(sample.record(traffic, counts))
    return report


def failing(job: JobResult, counts: DeviceCounts) -> list[str]:
    checks = check_all([job], sample.agents(job.plan), counts)
    return [check.name for check in checks if not check.agrees]


def test_without_queues_a_report_warns_that_flows_do_not_share_links() -> None:
    result = sample.result(sample.allreduce())
    counts = sample.counts(result)
    plain = replace(counts, engine=QueueEngine.OFF, queues=())
    usual = the_report(sample.traffic(result), counts).warnings
    (added,) = set(the_report(sample.traffic(result), plain).warnings).difference(usual)
    assert "no rate and no queue" in added


def test_a_job_says_what_was_wrong_with_the_lab_s_processes() -> None:
    result = sample.result(sample.allreduce())
    counts = sample.counts(result)
    usual = the_report(sample.traffic(result), counts)
    alone = the_report(
        sample.traffic(result),
        replace(counts, processes=ProcessFigures((NO_CONTROLLER,), ("late",))),
    )
    assert set(alone.problems).difference(usual.problems) == {NO_CONTROLLER}
    assert set(alone.warnings).difference(usual.warnings) == {"late"}


def test_an_iterations_time_is_given_in_both_clocks_and_bandwidth_in_the_models() -> None:
    report = report_of(sample.result(sample.allreduce()))
    time = report.headline("iteration_time")
    assert time.lab is not None
    assert (time.lab.n, time.lab.median, time.lab.minimum, time.lab.maximum) == (
        3,
        102e6,
        101e6,
        103e6,
    )
    assert time.modelled.median == pytest.approx(102_000)
    assert report.headline("algbw").modelled.median == pytest.approx(4e6 / 102_000)
    assert report.headline("busbw").modelled.median == pytest.approx(4e6 / 102_000 * 1.5)
    assert [iteration.modelled_ns for iteration in report.iterations] == [101e3, 102e3, 103e3]
    assert report.completion is not None
    assert report.completion.lab_ns == 306e6


def test_a_job_whose_ranks_ran_ahead_says_so_with_what_all_iterations_took() -> None:
    plan = sample.allreduce()
    result, least = sample.result(plan), jobfigures.bound(plan)
    assert least is not None
    ended = np.cumsum([100e6, 0.5 * least.lab_ns, 0.6 * least.lab_ns, 4 * least.lab_ns])
    assert len(ended) == plan.iterations
    ranks = [replace(rank, ended_ns=ended.astype(np.int64)) for rank in result.ranks]
    ahead = replace(result, ranks=tuple(ranks))

    def told(job: JobResult) -> list[str]:
        return [
            warning
            for warning in report_of(job).warnings
            if warning.startswith("the median iteration")
        ]

    (added,) = told(ahead)
    assert added.startswith("the median iteration took 0.60 times the least time: ")
    assert added.endswith("all 3 together took 1.70 times the least")
    assert told(replace(ahead, errors=("it failed",))) == []


def test_the_roofline_of_a_ring_is_its_bytes_on_the_wire_over_the_rate_of_a_nic() -> None:
    plan = sample.allreduce()
    bound = jobfigures.bound(plan)
    packets = 6 * -(-1_000_000 // 4096)
    on_the_wire = 6_000_000 + packets * (58 + 24)
    assert bound is not None
    assert bound.modelled_ns == pytest.approx(on_the_wire * 8 / plan.nic_link(0).rate_bps * 1e9)
    assert bound.lab_ns == pytest.approx(bound.modelled_ns * sample.DILATION)
    ratio = report_of(sample.result(plan)).headline("jct_ratio").modelled
    assert ratio.minimum == pytest.approx(101_000 / bound.modelled_ns)


def test_a_burst_of_acks_is_no_rate_above_the_nics() -> None:
    """8 Gb/s is a byte per ns: of 6,000 bytes acknowledged at 10 us all left within 6 us."""
    times_ns, acked = np.array([0.0, 2000, 9900, 10_000, 11_000]), np.array([0, 0, 0, 6000, 6100])
    rates = jobfigures.delivered(times_ns, acked, 8e9)
    assert rates.tolist() == [0, 0, 5900, 6000, 6100]
    even = np.array([0, 1000, 1500, 1600, 2000])
    assert jobfigures.delivered(times_ns, even, 8e9).tolist() == even.tolist()


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**6)), min_size=1))
def test_what_had_left_is_what_was_acknowledged_or_more_and_as_much_in_the_end(
    steps: list[tuple[int, int]],
) -> None:
    times_ns = np.cumsum([0, *(step for step, _ in steps)]).astype(float)
    acked = np.cumsum([0, *(count for _, count in steps)])
    rates = jobfigures.delivered(times_ns, acked, 8e9)
    assert np.all(rates >= acked - 1e-6)
    assert rates[-1] == pytest.approx(acked[-1])
    assert rates[0] == 0
    assert np.all(np.diff(rates)[1:] <= np.diff(times_ns)[1:] + 1e-6)


def test_a_ranks_waiting_is_the_median_of_measured_iterations() -> None:
    waiting = [rank.waiting for rank in report_of(sample.result(sample.allreduce())).ranks]
    assert [time and time.lab_ns for time in waiting] == [0, 1e6, 2e6, 3e6]
    assert [time and time.modelled_ns for time in waiting] == [0, 1e3, 2e3, 3e3]


def test_round_trips_have_percentiles_in_both_clocks() -> None:
    trips = report_of(sample.result(sample.allreduce())).round_trips
    assert trips is not None
    assert trips.samples == 400
    assert (trips.maximum.lab_ns, trips.maximum.modelled_ns) == (100_000, 100)
    assert trips.p50.lab_ns == pytest.approx(50_500)


def test_the_resolution_of_an_iteration_adds_up_what_may_be_late() -> None:
    job = sample.result(sample.allreduce())
    report = report_of(job)
    assert report.resolution is not None
    late_ns, longest_ns = report.fidelity.late_max_ns, max(job.iteration_ns.tolist())
    assert late_ns > 0
    assert report.resolution.lab_ns == pytest.approx(late_ns + 100_000 + longest_ns / 100)
    assert report.resolution.modelled_ns == pytest.approx(report.resolution.lab_ns / 1000)
    assert report_of(sample.result(sample.incast())).resolution is None


def test_streams_that_share_evenly_have_an_index_of_one() -> None:
    job = sample.result(sample.incast())
    report = report_of(job)
    assert report.fairness is not None
    assert report.fairness.jfi == pytest.approx(1.0)
    assert report.fairness.ratio == pytest.approx(1.0)
    assert report.fairness.rate_bps[1] == pytest.approx(10**7 * 8 / 2e-3)
    total = report.headline("goodput").modelled
    assert (total.n, report.headline("goodput").unit) == (10, "GB/s")
    assert total.median == pytest.approx(3 * 10**7 / 2e-3 / 1e9)
    of_sender = report.headline("sender_goodput")
    assert (of_sender.modelled.n, of_sender.unit) == (3, "GB/s")
    assert of_sender.modelled.median == pytest.approx(total.median / 3)


def test_goodput_is_in_gigabytes_a_second_wherever_it_is_written() -> None:
    report = report_of(sample.result(sample.incast()))
    lines = [line for line in document_text(job_document(report)).splitlines() if "goodput" in line]
    assert len(lines) >= 2
    assert all("GB/s" in line and "b/s" not in line.replace("GB/s", "") for line in lines)
    assert KPIS["goodput"].quantity is Quantity.BANDWIDTH
    plot = progress_plot(report)
    assert plot is not None
    assert plot.axes[0].get_ylabel().startswith("goodput, GB/s")


def test_a_sender_at_half_the_rate_of_others_shows_in_the_fairness() -> None:
    fairness = report_of(sample.result(sample.incast(), slow=2)).fairness
    assert fairness is not None
    assert fairness.ratio == pytest.approx(2.0)
    assert fairness.jfi == pytest.approx(2.5**2 / (3 * 2.25))


def test_goodput_over_time_adds_up_to_what_was_acknowledged() -> None:
    job = sample.result(sample.allreduce())
    goodput = report_of(job).goodput
    seconds = goodput.step.modelled_ns / 1e9
    for sender in goodput.senders:
        assert sum(sender.rate_bps) * seconds / 8 == pytest.approx(24_000_000, rel=1e-6)


def test_links_have_their_share_of_the_tier_and_idle_server_links_are_left_out() -> None:
    report = report_of(sample.result(sample.allreduce(ranks=2, placement=("srv1-1", "srv2-1"))))
    by_link = {(link.link, link.sender): link for link in report.links}
    assert by_link["rtsw1:ctsw1", "rtsw1"].share == pytest.approx(0.5)
    assert by_link["rtsw1:ctsw2", "rtsw1"].share == 0
    assert ("srv1-2:rtsw1", "srv1-2") not in by_link
    assert [tier.all_links.unused for tier in report.tiers] == [2, 2]


@pytest.mark.parametrize("ce", [0, 5])
def test_devices_and_endpoints_that_agree_make_a_valid_run(ce: int) -> None:
    job = sample.result(sample.allreduce(), ce=ce)
    assert failing(job, sample.counts(job)) == []
    report = report_of(job)
    assert report.valid
    assert report.transport.ce == 4 * ce


def test_a_packet_that_a_queue_dropped_is_explained_and_one_that_vanished_is_not() -> None:
    job = sample.result(sample.allreduce())
    counts = sample.counts(job)
    last = job.plan.nic_link(1)
    one_less = {**counts.roce, last.down: counts.roce[last.down] - 1}
    queues = tuple(
        replace(queue, packets=queue.packets - 1, dropped_packets=1)
        if (queue.node, queue.interface, queue.traffic_class) == (last.b.node, last.b.interface, 3)
        else queue
        for queue in counts.queues
    )
    explained = replace(counts, roce=one_less, queues=queues)
    assert "RoCEv2 packets end to end" not in failing(job, explained)
    assert "RoCEv2 packets over links" not in failing(job, explained)
    vanished = replace(counts, roce=one_less)
    assert failing(job, vanished) == ["RoCEv2 packets over links", "RoCEv2 packets end to end"]


def test_a_mark_that_no_receiver_saw_makes_the_run_invalid() -> None:
    job = sample.result(sample.allreduce(), ce=5)
    quiet = sample.result(sample.allreduce())
    assert failing(quiet, sample.counts(job)) == ["marks at receivers", "marks given"]
    checks = check_all([quiet], sample.agents(quiet.plan), sample.counts(job))
    assert "switches marked 20, receivers saw 0" in disagreements(checks)[1]


def test_data_that_shares_its_class_with_acknowledgements_is_not_checked_for_marks() -> None:
    plan = sample.allreduce(transport={"dscp": 26, "ack_dscp": 26})
    job = sample.result(plan)
    checks = check_all([job], sample.agents(plan), sample.counts(job))
    assert not [check for check in checks if check.name.startswith("marks")]


def at_once(**second: object) -> tuple[JobResult, ...]:
    """A ring of four, and an incast to its first rank in a class of its own."""
    incast = {"pattern": "incast", "ranks": 3, "size": "1MB", "transport": {"dscp": 32}}
    specs = [sample.allreduce().job, JobSpec.model_validate(incast)]
    plans = plan_jobs(sample.fabric(), specs)
    return sample.result(plans[0]), sample.result(plans[1], **second)  # type: ignore[arg-type]


def test_devices_and_endpoints_agree_on_the_sum_of_jobs_that_ran_at_once() -> None:
    jobs = at_once(ce=5)
    reports = job_reports(sample.record(sample.traffic(*jobs), sample.counts(*jobs)))
    assert [report.problems for report in reports] == [(), ()]
    assert [report.job["pattern"] for report in reports] == ["allreduce", "incast"]
    assert [report.transport.ce for report in reports] == [0, 5 * 2]
    assert reports[0].accounting == reports[1].accounting
    payload, out, *_ = reports[0].accounting
    assert payload.left_count == sum(report.transport.posted_bytes for report in reports)
    assert payload.places == 4 + 3
    assert out.left_count == sum(report.transport.data_packets for report in reports)
    assert reports[0].queues == reports[1].queues


def test_a_packet_of_one_job_that_vanished_makes_the_run_of_all_invalid() -> None:
    jobs = at_once()
    ring, _ = jobs
    # What devices would have counted of the ring alone.
    (first, second) = job_reports(sample.record(sample.traffic(*jobs), sample.counts(ring)))
    assert first.problems == second.problems
    assert "counters disagree on data packets out of NICs" in first.problems[0]


def test_the_load_of_jobs_at_once_is_that_of_all() -> None:
    plans = [job.plan for job in at_once()]
    alone = [estimate([plan], 2).cpu_share for plan in plans]
    assert estimate(plans, 2).cpu_share == pytest.approx(sum(alone))
    text = warning(plans, 1)
    assert text is not None
    assert "these jobs are" in text


def test_without_queues_what_comes_into_a_switch_leaves_it_again() -> None:
    job = sample.result(sample.allreduce())
    counts = replace(sample.counts(job), queues=(), engine=QueueEngine.OFF)
    assert failing(job, counts) == []
    key = job.plan.fabric.link_by_name["rtsw1:ctsw1"].up
    lost = replace(counts, roce={**counts.roce, key: counts.roce[key] - 1})
    assert failing(job, lost) == ["RoCEv2 packets through switches"]


def test_a_queue_pair_in_error_leaves_no_figures_and_no_problem_of_counters() -> None:
    plan = sample.allreduce()
    job = sample.result(plan, errors=("queue pair 2 is in error",))
    counts = sample.counts(job)
    key = plan.fabric.link_by_name["rtsw1:ctsw1"].up
    counts = replace(counts, roce={**counts.roce, key: 0})
    report = the_report(sample.traffic(job), counts)
    assert (report.headlines, report.iterations, report.completion) == ((), (), None)
    assert report.problems == ()
    assert not all(check.agrees for check in report.accounting)


@pytest.mark.parametrize("plan", [sample.allreduce(), sample.incast()])
def test_a_report_reads_back_from_its_json_as_it_was(plan: JobPlan) -> None:
    report = report_of(sample.result(plan))
    assert from_json(to_json(report)) == report


@pytest.mark.parametrize("text", ["", "[]", '{"schema_version": 99}', '{"schema_version": 1}'])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="job's document"):
        from_json(text)


@given(dilation=st.floats(1, 1e6), cpus=st.integers(1, 256))
def test_at_the_dilation_that_is_suggested_a_job_fits(dilation: float, cpus: int) -> None:
    plan = PLAN
    spec = plan.fabric.spec.model_copy(update={"dilation": dilation})
    load = estimate([replace(plan, fabric=replace(plan.fabric, spec=spec))], cpus)
    spec = spec.model_copy(update={"dilation": load.dilation})
    at_suggested = estimate([replace(plan, fabric=replace(plan.fabric, spec=spec))], cpus)
    assert at_suggested.cpu_share <= CARRIED_SHARE * (1 + 1e-6)
    assert at_suggested.cpu_share > CARRIED_SHARE / 2.6


PLAN = sample.allreduce()


def test_a_job_beyond_the_machine_is_warned_of_with_a_dilation_to_take() -> None:
    text = warning([PLAN], 2)
    assert text is not None
    assert "`--dilation 2000` of `rocelab up`, or of `rocelab drill run`" in text
    assert warning([PLAN], 8) is None


def printed(report: JobReport) -> str:
    console = Console(file=StringIO(), width=160)
    print_document(job_document(report), console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_collective_is_printed_as_nccl_tests_does_with_the_worst_link_groups() -> None:
    text = printed(report_of(sample.result(sample.allreduce(), ce=5)))
    (row,) = [line for line in text.splitlines() if line.startswith("     4000000 ")]
    assert row.split() == ["4000000"] * 2 + ["uint8", "sum", "-1", "102.00", "39.22", "58.82", "0"]
    assert "rtsw-ctsw up" in text
    assert "agree on 9 of 9 counts" in text
    assert "marked (CE) at receivers" in text


def test_an_invalid_run_is_printed_with_its_reason_first_and_last() -> None:
    job = sample.result(sample.incast())
    traffic = sample.traffic(job, problems=("not valid because [this] machine is slow",))
    text = printed(the_report(traffic, sample.counts(job)))
    assert text.splitlines()[:2] == [
        "incast on t",
        "not valid because [this] machine is slow",
    ]
    assert "its figures do not count" in " ".join(text.splitlines()[-2:])


def stuck(
    *, drained: bool = True, spans: tuple[PauseSpan, ...] | None, still_ns: int = 0
) -> JobReport:
    """A job of which a queue pair was not acknowledged, in a lab with these pauses at its end, or
    without lossless classes."""
    job = sample.result(sample.allreduce())
    first, *others = job.queue_pairs
    requester = replace(first.requester, acked_bytes=first.requester.acked_bytes - 1)
    job = replace(job, queue_pairs=(replace(first, requester=requester), *others))
    traffic = sample.traffic(job)
    agents = tuple(replace(agent, drained=drained) for agent in traffic.agents)
    counts = sample.counts(job)
    if spans is not None:
        paused = Lossless((3,), (), spans, 0, 1000, None, None, None, (), is_alive=True)
        counts = replace(counts, lossless=paused)
    return the_report(replace(traffic, agents=agents, still_ns=still_ns), counts)


NOT_LATE = dict.fromkeys(("late_packets", "purged_packets", "discarded_packets", "watchdog"), 0)
LASTING = (
    PauseSpan("rtsw1", "ctsw1", 3, "ctsw1", 0, None),
    PauseSpan("ctsw1", "rtsw1", 3, "rtsw1", 0, None),
)


def test_a_job_whose_packets_wait_for_each_other_has_failed() -> None:
    report = stuck(spans=LASTING)
    (error,) = report.errors
    assert set(error.removeprefix("deadlock: ").split(" waits for ")) == {"rtsw1", "ctsw1"}
    assert report.problems == ()
    assert report.iterations == ()


@pytest.mark.parametrize(
    ("spans", "said"),
    [
        (LASTING[:1], "nothing moved for 48 s: ctsw1 did not end a pause"),
        ((replace(LASTING[0], end_ns=5),), "nothing moved for 48 s"),
        (None, "nothing moved for 48 s"),
    ],
    ids=["paused", "no longer paused", "no lossless class"],
)
def test_a_job_of_which_nothing_moves_has_failed(
    spans: tuple[PauseSpan, ...] | None, said: str
) -> None:
    report = stuck(spans=spans, still_ns=48 * 10**9)
    assert report.errors == (said,)
    assert report.iterations == ()


@pytest.mark.parametrize(
    ("drained", "spans"), [(True, LASTING[:1]), (False, LASTING)], ids=["no ring", "still moving"]
)
def test_a_job_that_is_late_for_another_reason_is_not_valid(
    drained: bool, spans: tuple[PauseSpan, ...]
) -> None:
    report = stuck(drained=drained, spans=spans)
    assert report.errors == ()
    assert [text for text in report.problems if "were acked and" in text]


def test_pauses_in_a_ring_in_which_nothing_waits_fail_no_job() -> None:
    job = sample.result(sample.allreduce())
    paused = Lossless((3,), (), LASTING, 0, 1000, None, None, None, (), is_alive=True)
    counts = replace(sample.counts(job), lossless=paused)
    assert the_report(sample.traffic(job), counts).errors == ()


def test_lost_pause_frames_make_a_run_invalid_where_no_link_was_broken() -> None:
    job = sample.result(sample.allreduce())
    lost = {"rtsw1:srv1-1 class 3": 2}
    paused = Lossless((3,), (), (), 0, 1000, None, None, None, (), is_alive=True, unreceived=lost)
    counts = replace(sample.counts(job), lossless=paused)
    (whole,) = job_reports(sample.record(sample.traffic(job), counts))
    assert "2 pause frames of rtsw1:srv1-1 class 3 did not reach its peer" in whole.problems[-1]
    cut = (event("carrier-down"),)
    (broken,) = job_reports(sample.record(sample.traffic(job), counts, events=cut))
    assert not any("pause frames" in problem for problem in broken.problems)


@pytest.mark.parametrize(
    ("kinds", "problems"),
    [
        ((), 2),
        (("pause-storm",), 2),
        (("pause-deaf", "slow-receiver"), 2),
        (("grey-loss",), 0),
        (("slow-receiver", "carrier-down"), 0),
    ],
)
def test_packets_that_are_missing_are_excused_only_by_faults_that_take_some(
    kinds: tuple[str, ...], problems: int
) -> None:
    """Between a link's two ends, and in a switch."""
    job = sample.result(sample.allreduce())
    counts = sample.counts(job)
    link = next(iter(counts.roce))
    counts = replace(
        counts,
        roce={**counts.roce, link: counts.roce[link] + 1},
        lossless=Lossless(
            *((3,), (), (), 0, 1000, None, None, None, ()),
            is_alive=True,
            unaccounted={"rtsw1 class 3": 1},
        ),
    )
    (report,) = job_reports(
        sample.record(sample.traffic(job), counts, events=tuple(map(event, kinds)))
    )
    of_links = [problem for problem in report.problems if "counters disagree" in problem]
    in_switch = [
        problem
        for problem in report.problems
        if "1 packet that came into rtsw1 class 3 is not accounted for" in problem
    ]
    assert bool(of_links) + len(in_switch) == problems


def event(kind: str) -> Event:
    change = FaultChange(1000, kind, True, "rtsw1:ctsw1")
    return Event(1000, kind, "begin", "rtsw1:ctsw1", faults=(change,))


def test_drops_of_lossless_classes_behind_late_cables_are_no_measurement() -> None:
    job = sample.result(sample.allreduce())
    port = PauseFigures("rtsw1", "srv1-1", 3, "srv1-1", 9, *[0] * 8, dropped_packets=1, **NOT_LATE)
    paused = Lossless((3,), (port,), (), 0, 1000, None, None, None, (), is_alive=True)
    counts = replace(sample.counts(job), lossless=paused)
    usual = the_report(sample.traffic(job), counts).problems
    warned = replace(counts, processes=ProcessFigures(warnings=("late",)))
    assert the_report(sample.traffic(job), warned).problems == usual
    late = replace(counts, processes=ProcessFigures(late_on_cables=7))
    (added,) = set(the_report(sample.traffic(job), late).problems).difference(usual)
    assert "dropped 1 packets while cables released 7 late" in added
    whole = replace(late, lossless=replace(paused, ports=()))
    assert the_report(sample.traffic(job), whole).problems == ()


def test_a_job_under_faults_of_others_is_disturbed_by_them_and_never_valid() -> None:
    job = sample.result(sample.allreduce())
    faults = (
        Disturbance("carrier-down", "rtsw1:ctsw1", 10**9, 4 * 10**9),
        Disturbance("power-loss", "ctsw2", None, None),
    )
    record = sample.record(sample.traffic(job), sample.counts(job))
    (undisturbed,) = job_reports(record)
    (report,) = job_reports(replace(record, disturbed=faults))
    assert (undisturbed.valid, report.valid, report.problems) == (True, False, ())
    assert from_json(to_json(report)) == report
    text = printed(report)
    assert "disturbed by carrier-down of rtsw1:ctsw1, from 1 s after the start for 3 s" in text
    assert "disturbed by power-loss of ctsw2, from before the start to the end" in text
    assert "disturbed, not a measurement of the lab as planned; " in text
    assert "disturbed" not in printed(undisturbed)


def test_what_a_fault_of_others_took_is_no_disagreement_of_counters() -> None:
    job = sample.result(sample.allreduce())
    counts = sample.counts(job)
    link = next(iter(counts.roce))
    missing = replace(counts, roce={**counts.roce, link: counts.roce[link] - 1})
    record = sample.record(sample.traffic(job), missing)
    (alone,) = job_reports(record)
    fault = Disturbance("carrier-down", "rtsw1:ctsw1", None, 10**9)
    (report,) = job_reports(replace(record, disturbed=(fault,)))
    assert any("disagree" in problem for problem in alone.problems)
    assert report.problems == ()


def with_gaps(*gaps: AckGap) -> JobReport:
    """A job whose first flow waited like this, with a fault from 50 ms to 250 ms."""
    result = sample.result(sample.allreduce())
    pairs = list(result.queue_pairs)
    first = next(n for n, pair in enumerate(pairs) if pair.requester.packets)
    pairs[first] = replace(pairs[first], gaps=gaps)
    result = replace(result, queue_pairs=tuple(pairs))
    record = sample.record(
        sample.traffic(result),
        sample.counts(result),
        events=(
            Event(50 * MS, "carrier-down", "begin", "rtsw1:ctsw1"),
            Event(250 * MS, "carrier-down", "end", "rtsw1:ctsw1"),
        ),
    )
    (report,) = job_reports(record)
    return report


def test_a_flow_is_out_while_it_waits_longer_than_usual_or_sends_again() -> None:
    usual = AckGap(0, 9 * MS, False, 0)
    out, resent = AckGap(48 * MS, 175 * MS, True, 32), AckGap(251 * MS, 253 * MS, True, 4)
    report = with_gaps(usual, out, resent)
    assert [(o.began_ns, o.out_ns, o.retransmitted) for o in report.outages] == [
        (48 * MS, 127 * MS, 32),
        (251 * MS, 2 * MS, 4),
    ]
    assert {o.resolution_ns for o in report.outages} == {GAP_NS + report.fidelity.late_max_ns}
    first, second = (report.event_of(outage) for outage in report.outages)
    assert first is not None
    assert first.change == "begin"
    assert second is not None
    assert second.change == "end"
    assert from_json(to_json(report)) == report


def test_a_flow_that_does_not_return_is_out_to_the_end() -> None:
    (outage,) = with_gaps(AckGap(60 * MS, None, True, 7)).outages
    assert outage.out_ns is None


def test_what_is_lost_long_after_the_repair_is_of_no_fault() -> None:
    report = with_gaps(AckGap(20 * MS, 22 * MS, True, 1), AckGap(9000 * MS, 9100 * MS, True, 1))
    assert [report.event_of(outage) for outage in report.outages] == [None, None]


def test_a_report_names_the_flows_that_were_out_and_its_sentence_the_longest() -> None:
    report = with_gaps(AckGap(48 * MS, 175 * MS, True, 32), AckGap(251 * MS, 253 * MS, True, 4))
    text = StringIO()
    print_document(job_document(report), Console(file=text, width=200))
    row = next(line for line in text.getvalue().splitlines() if "127 ms" in line)
    assert row.split()[:2] == ["srv1-1:1", "srv1-2:1"]
    assert "32" in row
    assert "carrier-down of rtsw1:ctsw1" in row
    flows = len(report.flows)
    assert (
        f"Carrier-down of rtsw1:ctsw1: 1 of {flows} flows out for up to 127 ms;" in text.getvalue()
    )


def test_a_fault_without_outages_is_said_to_have_none() -> None:
    text = StringIO()
    print_document(job_document(with_gaps()), Console(file=text, width=200))
    assert "flows was out;" in text.getvalue()
    assert "Flows that were out" not in text.getvalue()
