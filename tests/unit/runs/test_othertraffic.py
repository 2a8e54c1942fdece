"""What other packets beside a job make of its run: reported and forgiven, or a disturbance."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from rocelab.jobs.jobplanning import plan_job
from rocelab.labfile.pfc import PfcSpec
from rocelab.labfile.queues import QueueEngine
from rocelab.observe.devices import DeviceCounts
from rocelab.planning.build import build_fabric
from rocelab.planning.queues import plan_queues
from rocelab.results.job import OtherTraffic, QueueFigures
from rocelab.results.lossless import Lossless, PauseFigures
from rocelab.runs.accounting import check_all, disagreements
from rocelab.runs.othertraffic import judged
from tests.helpers import job_sample as sample

JOB = sample.result(sample.allreduce())
NONE = OtherTraffic(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
PING = replace(NONE, icmp=20, bytes=20 * 98, held_max_bytes=98)


def queue_with(others: OtherTraffic, traffic_class: int = 0, node: str = "rtsw1") -> QueueFigures:
    """The queue of a port to a server that has no packet of the job."""
    return QueueFigures(
        *(node, "srv1-1", traffic_class, others.packets, others.bytes, others.marked),
        *(others.dropped_packets, others.ce_out, 0, 0.0),
        others=others,
    )


def beside(others: OtherTraffic, traffic_class: int = 0) -> DeviceCounts:
    """The counts of a run with others in a queue of their own class, or in the job's."""
    counts = sample.counts(JOB)
    place = ("rtsw1", "srv1-1", traffic_class)
    if not any((q.node, q.interface, q.traffic_class) == place for q in counts.queues):
        return replace(counts, queues=(*counts.queues, queue_with(others, traffic_class)))
    queues = tuple(
        replace(
            queue,
            packets=queue.packets + others.packets,
            marked=queue.marked + others.marked,
            ce_out=(queue.ce_out or 0) + others.ce_out,
            dropped_packets=queue.dropped_packets + others.dropped_packets,
            others=others,
        )
        if (queue.node, queue.interface, queue.traffic_class) == place
        else queue
        for queue in counts.queues
    )
    return replace(counts, queues=queues)


def problems(others: OtherTraffic, traffic_class: int = 0, elapsed_s: float = 10.0) -> str:
    return "; ".join(judged([JOB], beside(others, traffic_class), elapsed_s)[1])


def test_a_run_without_others_has_neither_a_warning_nor_a_problem() -> None:
    assert judged([JOB], sample.counts(JOB), 10.0) == ((), ())


def test_a_ping_is_reported_and_forgiven() -> None:
    (warning,), problems = judged([JOB], beside(PING), 10.0)
    assert problems == ()
    assert "20 ICMP packets (1.96 kB) in class 0 passed rtsw1:srv1-1" in warning
    assert "of the time, at rtsw1:srv1-1" in warning


def test_more_than_a_hundredth_of_a_ports_time_disturbs_the_jobs_that_sent_there() -> None:
    port = plan_queues(JOB.plan.fabric).port_of["rtsw1", "srv1-1"]
    whole = port.rate_bps * 10 // 8
    assert not problems(replace(NONE, tcp=1, bytes=int(0.0099 * whole)))
    problem = problems(replace(NONE, tcp=1, bytes=int(0.0101 * whole)))
    assert (
        "up to 1.01% of the time of rtsw1:srv1-1, where jobs sent too (the limit is 1%)" in problem
    )
    assert not problems(replace(NONE, tcp=1, bytes=int(0.0101 * whole)), elapsed_s=20.0)
    # They are counted since a while before the run.
    assert "up to 100% of the time" in problems(replace(NONE, tcp=1, bytes=2 * whole))


def test_a_burst_within_an_iteration_is_said_where_it_may_be_much_of_that() -> None:
    """The sample's shortest iteration takes a tenth of a second, of a run of ten."""
    port = plan_queues(JOB.plan.fabric).port_of["rtsw1", "srv1-1"]
    shortest_s = int(JOB.iteration_ns.min()) / 1e9

    def said(share: float) -> str:
        burst = replace(NONE, tcp=1, bytes=int(share * shortest_s * port.rate_bps / 8))
        (warning,), problems = judged([JOB], beside(burst), 100 * shortest_s)
        assert problems == ()
        return warning

    assert said(0.5).endswith("at rtsw1:srv1-1, and an iteration may be 50% longer because of it")
    assert said(0.009).endswith("at rtsw1:srv1-1")


def test_others_at_ports_without_the_jobs_take_nothing_from_them() -> None:
    counts = sample.counts(JOB)
    quiet = QueueFigures("rtsw2", "ctsw2", 0, 9, 10**9, 0, 0, 0, 0, 0.0)
    quiet = replace(quiet, others=replace(NONE, udp=9, bytes=10**9))
    assert not any((q.node, q.interface) == ("rtsw2", "ctsw2") for q in counts.queues)
    (warning,), problems = judged([JOB], replace(counts, queues=(*counts.queues, quiet)), 1.0)
    assert problems == () and "where jobs sent" not in warning


def test_what_fills_a_queue_of_the_jobs_own_class_disturbs_them() -> None:
    kmin = JOB.plan.fabric.spec.queues.ecn.kmin
    little, much = (replace(PING, held_max_bytes=kmin // 100 + more) for more in (0, 1))
    assert not problems(little, 3)
    assert "the jobs' own queue, class 3 of rtsw1:srv1-1" in problems(much, 3)
    assert not problems(much, 0), "another class"


def test_an_xoff_below_the_marking_line_is_the_limit_of_others_in_the_jobs_queue() -> None:
    spec = JOB.plan.fabric.spec
    kmin = spec.queues.ecn.kmin
    pfc = PfcSpec.model_validate({"xoff": f"{kmin // 2}B"})
    queues = spec.queues.model_copy(update={"pfc": pfc})
    fabric = build_fabric(spec.model_copy(update={"queues": queues}))
    job = sample.result(plan_job(fabric, JOB.plan.job))
    counts = beside(replace(PING, held_max_bytes=kmin // 150), 3)
    assert judged([JOB], counts, 10.0)[1] == ()
    assert "the jobs' own queue" in "".join(judged([job], counts, 10.0)[1])


def test_a_lossless_class_that_dropped_while_others_were_in_it_disturbs_the_jobs() -> None:
    def lossless(dropped: int) -> Lossless:
        counts = dict.fromkeys((field.name for field in fields(PauseFigures)[4:]), 0)
        port = PauseFigures(
            "rtsw1", "srv1-1", 3, "srv1-1", **{**counts, "dropped_packets": dropped}
        )
        return Lossless((3,), (port,), (), 0, 1000, None, None, None, (), is_alive=True)

    def reasons(traffic_class: int, dropped: int) -> str:
        counts = replace(beside(PING, traffic_class), lossless=lossless(dropped))
        return "".join(judged([JOB], counts, 10.0)[1])

    assert "lossless class 3 dropped packets" in reasons(3, 1)
    assert not reasons(3, 0)
    assert not reasons(0, 1), "another class"


def test_what_takes_the_room_of_the_jobs_packets_disturbs_them() -> None:
    assert "3 RoCEv2 packets did not fit at rtsw1:srv1-1" in problems(replace(PING, crowded_out=3))


@pytest.mark.parametrize("traffic_class", [0, 3])
def test_no_check_takes_others_for_the_jobs_packets_or_the_reverse(traffic_class: int) -> None:
    others = replace(PING, marked=4, ce_out=5, dropped_packets=6, dropped_bytes=600)
    counts = beside(others, traffic_class)
    assert disagreements(check_all([JOB], sample.agents(JOB.plan), counts)) == ()
    # One packet of the job's that a switch lost is not made up for by any of these.
    link = JOB.plan.nic_link(0).down
    lost = replace(counts, roce={**counts.roce, link: counts.roce[link] - 1})
    text = "".join(disagreements(check_all([JOB], sample.agents(JOB.plan), lost)))
    assert "RoCEv2 packets over links" in text and "RoCEv2 packets end to end" in text


def test_roce_of_no_queue_pair_of_the_jobs_is_a_disagreement() -> None:
    counts = sample.counts(JOB)
    link = JOB.plan.nic_link(0).up
    foreign = replace(counts, jobs={**counts.jobs, link: counts.jobs[link] - 1})
    (disagreement,) = disagreements(check_all([JOB], sample.agents(JOB.plan), foreign))
    assert "RoCEv2 packets of the jobs" in disagreement


def test_a_disagreement_says_where_queues_do_not_count_others_apart() -> None:
    counts = beside(PING, 0)
    together = tuple(replace(queue, others=None) for queue in counts.queues)
    by_red = replace(counts, engine=QueueEngine.RED, queues=together)
    checks = check_all([JOB], sample.agents(JOB.plan), by_red)
    (disagreement,) = disagreements(checks, by_red.engine)
    assert "switch queues sent" in disagreement
    assert "the engine red counts it with RoCEv2, bpf apart" in disagreement
    assert "engine" not in disagreements(checks)[0]
