"""NICs with two ports on two ToRs: both carry traffic, and one continues when the other is cut
off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rocelab.jobs.flow import ProbeStream
from rocelab.jobs.job import JobSpec
from rocelab.lab.lab import Lab, RunningLab
from rocelab.results.job import JobReport
from rocelab.runs.jobs import run_job, run_jobs
from rocelab.traffic.result import TrafficResult
from rocelab.traffic.session import TrafficSession
from tests.helpers.measured import measured, own_jct_ratio
from tests.helpers.midway import Midway
from tests.helpers.running import running
from tests.integration.conftest import MakeLab

pytestmark = pytest.mark.few_at_once

HPN = "kind: hpn, segments: 2, servers_per_segment: 1, rails: 1"
DUAL = f"""
fabric: {{{HPN}, ports_per_nic: 2, planes: 2, aggs: 2, cores: 2}}
links: {{server_rate: 200G}}
dilation: 4000
"""
SINGLE = f"""
fabric: {{{HPN}, ports_per_nic: 1, planes: 1, aggs: 2}}
links: {{server_rate: 400G}}
dilation: 4000
"""
PORTS = ("srv1-1:s1-tor1a", "srv1-1:s1-tor1b")


def job(**keys: object) -> JobSpec:
    values: dict[str, object] = {"pattern": "allreduce", "ranks": 2, "size": "4MB"}
    return JobSpec.model_validate(values | {"iterations": 3, "transport": {"qps": 4}} | keys)


def packets(report: JobReport, link: str, sender: str) -> int:
    return sum(load.packets for load in report.links if (load.link, load.sender) == (link, sender))


@contextmanager
def link_down(lab: RunningLab, name: str) -> Iterator[None]:
    lab.link(name).down()
    try:
        yield
    finally:
        lab.link(name).up()


@pytest.fixture(scope="module")
def dual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    file = tmp_path_factory.mktemp("lab") / "t-dual.yaml"
    file.write_text(f"name: t-dual\n{DUAL}")
    with running(Lab.planned(file)) as lab:
        yield lab


@pytest.mark.long
def test_both_ports_carry_and_one_takes_all_while_the_other_is_down(dual: RunningLab) -> None:
    whole = measured(lambda: run_job(dual, job()))
    assert whole.errors == ()
    assert [check.name for check in whole.accounting if not check.agrees] == []
    assert whole.roce.port_moves == 0
    first, second = (packets(whole, port, "srv1-1") for port in PORTS)
    assert 0.45 < first / (first + second) < 0.55
    assert whole.headline("jct_ratio").modelled.median > 1
    assert own_jct_ratio(whole) < 1.15

    def changed_in_the_middle(before: Callable[[], None], change: Callable[[], None]) -> JobReport:
        def changed() -> tuple[JobReport, tuple[str, ...]]:
            before()
            middle = Midway(change)
            spec = job(iterations=6, transport={"qps": 4, "ack_timeout": "100us"})
            run = run_jobs(dual, [spec], progress=middle)
            return run.reports[0], middle.problems(run)

        return measured(changed, lambda answer: (*answer[0].problems, *answer[1]))[0]

    port = dual.link(PORTS[0])
    half = changed_in_the_middle(port.up, port.down)
    assert half.errors == ()
    assert half.roce.port_moves == 2
    assert any("lost carrier" in text for text in half.warnings)
    assert half.roce.posted_bytes == half.roce.delivered_bytes
    first, second = (packets(half, port, "srv1-1") for port in PORTS)
    assert first < second
    slowed = [iteration.modelled_ns for iteration in half.iterations]
    assert max(slowed) > 1.5 * min(slowed)

    again = changed_in_the_middle(port.down, port.up)
    assert again.errors == ()
    # Down when the queue pairs were made, back in the middle: away and home again.
    assert again.roce.port_moves == 4
    assert packets(again, PORTS[0], "srv1-1") > 0


def test_a_nic_with_one_port_tries_on_until_its_queue_pair_fails(make_lab: MakeLab) -> None:
    lab = make_lab("t-dual-one", SINGLE)
    lab.start()
    report = run_job(
        lab,
        # More than there will be: it ends with its queue pairs.
        job(iterations=1000, transport={"ack_timeout": "20us", "retries": 3}),
        progress=Midway(lab.link("srv1-1:s1-tor1").down, 0.005),
    )
    assert report.roce.port_moves == 0
    assert report.errors
    assert "was not acknowledged after 3 retries" in report.errors[0]
    assert "srv1-1:1" in report.errors[0]


def test_a_probe_flow_moves_with_its_nic(dual: RunningLab) -> None:
    flows = [
        ProbeStream(
            id=port,
            source="srv1-1",
            source_nic=1,
            destination="srv2-1",
            destination_nic=1,
            sport=50_000 + port,
            dest_qp=100 + port,
            rate_pps=200,
            payload_bytes=256,
            leaves_by=port,
        )
        for port in (0, 1)
    ]

    def run() -> TrafficResult:
        with TrafficSession(dual.fabric, lambda name: dual.node(name).netns, flows) as session:
            session.start()
            time.sleep(0.5)
            with link_down(dual, PORTS[0]):
                time.sleep(1.0)
            time.sleep(0.5)
            return session.stop()

    moved, stayed = measured(run).flows
    assert (moved.port_moves, stayed.port_moves) == (2, 0)
    assert stayed.offered == len(stayed.received_seq)
    # Only what was under way or sent before the event was read is lost.
    assert moved.offered - len(moved.received_seq) < 0.2 * moved.offered
