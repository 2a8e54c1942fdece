"""The health of a lab: no problem with healthy traffic, and each fault at its place."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rocelab.dataplane.impairments.control import Impairments
from rocelab.dataplane.impairments.impairment import Impairment, ImpairmentKind
from rocelab.jobs.job import JobSpec
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.status import read_status
from rocelab.linux import processes
from rocelab.observe.evidence import bundle
from rocelab.observe.evidence.bundle import collect_evidence
from rocelab.observe.health.health_spec import HealthSpec
from rocelab.observe.health.monitor import HealthMonitor, Snapshot
from rocelab.observe.health.prometheus import Exporter
from rocelab.results.health import HealthReport, Sli
from rocelab.results.job import JobReport
from rocelab.runs.jobs import run_job, run_jobs
from tests.helpers.directed import towards
from tests.helpers.measured import measured
from tests.helpers.midway import Midway
from tests.helpers.running import running
from tests.helpers.waiting import LIMIT_S, wait_until
from tests.integration.conftest import MakeLab

pytestmark = pytest.mark.side_by_side

NAME = "t-health"
# No session ends while bundles are collected from a lab with a stopped bgpd.
BODY = """
fabric: {racks: 2, spines: 2, servers_per_rack: 2}
routing: {keepalive: 60s, hold: 180s}
dilation: 4000
queues: {buffer: 400KB, ecn: {kmin: 100KB, kmax: 200KB}}
"""
SPEC = HealthSpec.model_validate({"interval": "200ms"})
PCAP_HEADER_BYTES = 24
GENTLE = {"window": 8, "ack_timeout": "50us"}
"""A window so small that no two senders fill a buffer; a timeout of 0.2 s in the lab."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    file = tmp_path_factory.mktemp("lab") / "lab.yaml"
    file.write_text(f"name: {NAME}\n{BODY}")
    with running(Lab.planned(file)) as made:
        yield made


def job(**keys: object) -> JobSpec:
    return JobSpec.model_validate({"ranks": 4, "iterations": 3, "transport": GENTLE} | keys)


class Watch:
    """The newest sample of a monitor, and a wait for a certain sample."""

    def __init__(self) -> None:
        self.latest: Snapshot | None = None
        self._news = threading.Condition()

    def take(self, snapshot: Snapshot) -> None:
        with self._news:
            self.latest = snapshot
            self._news.notify_all()

    def until(self, condition: Callable[[Snapshot], object], limit_s: float = LIMIT_S) -> None:
        with self._news:
            assert self._news.wait_for(
                lambda: self.latest is not None and condition(self.latest), limit_s
            ), "no such sample came in time"


def missed(report: HealthReport) -> Mapping[str, set[str]]:
    """The places that missed an objective, by SLI."""
    return {sli.sli: {place.where for place in sli.places} for sli in report.slis if not sli.met}


def nothing_wrong(snapshot: Snapshot) -> bool:
    return not snapshot.sample.breaches(snapshot.spec)


def test_healthy_traffic_misses_no_objective_and_all_of_it_is_seen(lab: RunningLab) -> None:
    spec = job(pattern="allreduce", size="2MB", transport=GENTLE | {"ack_timeout": "1ms"})

    def run() -> tuple[JobReport, HealthReport, Watch]:
        watch = Watch()
        with HealthMonitor(lab, SPEC, on_sample=watch.take) as monitor:
            outcome = run_job(lab, spec)
            wait_until(lambda: monitor.report.samples >= 5, "five samples")
        return outcome, monitor.report, watch

    outcome, report, watch = measured(run, lambda made: made[0].problems)
    assert missed(report) == {}
    assert report.problems == ()
    assert report.met
    assert watch.latest is not None
    endpoints = watch.latest.reading.endpoints
    assert len(endpoints) == 4
    packets = outcome.roce.data_packets
    assert sum(endpoint.sent for endpoint in endpoints.values()) == packets
    assert sum(endpoint.received for endpoint in endpoints.values()) == packets
    assert not list(Path("/run/rocelab", NAME, "endpoints").iterdir())


def test_a_flap_counts_on_its_link_alone(lab: RunningLab) -> None:
    link = lab.link("rtsw1:ctsw1")
    incomplete = {"rtsw1", "rtsw2", "ctsw1"}
    watch = Watch()
    with HealthMonitor(lab, SPEC, on_sample=watch.take) as monitor:
        link.down()
        # Routing may notice later than a sample sees the carrier.
        watch.until(
            lambda seen: (
                seen.sample.values[Sli.LINKS_DOWN].get("rtsw1:ctsw1")
                and seen.sample.values[Sli.SESSIONS_DOWN].get("rtsw1:ctsw1")
                and all(seen.sample.values[Sli.ROUTES_INCOMPLETE].get(name) for name in incomplete)
            )
        )
        link.up()
        watch.until(nothing_wrong)
    report = monitor.report
    flaps = report.sli(Sli.FLAPS)
    assert [(place.where, place.total) for place in flaps.places] == [("rtsw1:ctsw1", 1)]
    assert flaps.worst_ns is not None
    assert report.started_ns < flaps.worst_ns <= report.ended_ns
    wrong = missed(report)
    assert wrong["links_down"] == {"rtsw1:ctsw1"}
    assert wrong["sessions_down"] == {"rtsw1:ctsw1"}
    assert wrong["routes_incomplete"] == incomplete
    # What was under way when the link went is lost.
    ends = {"rtsw1:ctsw1 to rtsw1", "rtsw1:ctsw1 to ctsw1"}
    assert wrong.get("link_loss", set()) <= ends
    assert "out_of_sequence" not in wrong


def has_captured(lab: RunningLab, evidence: Path) -> bool:
    """Whether the capture of rtsw1 has a packet; one crosses that switch in any case."""
    gateway = lab.fabric.link_by_name["srv1-2:rtsw1"].port("rtsw1").address
    assert gateway is not None
    lab.node("srv1-2").exec(["ping", "-c1", "-W1", gateway.partition("/")[0]])
    captured = list(evidence.glob("*link_loss/rtsw1/packets.pcap"))
    return any(file.stat().st_size > PCAP_HEADER_BYTES for file in captured)


@pytest.mark.long
def test_a_lossy_link_is_named_with_its_direction_and_its_victims(
    lab: RunningLab, tmp_path: Path
) -> None:
    impairments = Impairments(lab.fabric, lab.runtime.files)
    holes = [towards(lab.fabric, name, "rtsw2") for name in ("rtsw2:ctsw1", "rtsw2:ctsw2")]

    def half_a_second_without_spines() -> None:
        start_ns = time.monotonic_ns()
        end_ns = start_ns + 500_000_000
        hole = Impairment(ImpairmentKind.BLACKHOLE, start_ns=start_ns, end_ns=end_ns)
        for link in holes:
            impairments.impair(link, hole)

    def run() -> tuple[HealthReport, JobReport, dict[str, int], tuple[str, ...]]:
        """What the monitor and the job say, what the links lost, and why the job is not valid."""
        middle = Midway(half_a_second_without_spines, 0.2)
        impairments.impair(
            towards(lab.fabric, "srv1-1:rtsw1", "srv1-1"),
            Impairment(ImpairmentKind.LOSS, share=0.02),
        )
        try:
            evidence = Path(tempfile.mkdtemp(dir=tmp_path))
            with HealthMonitor(lab, SPEC, evidence=evidence) as monitor:
                for link in holes:
                    impairments.prepare(link, ImpairmentKind.BLACKHOLE)
                spec = job(pattern="allreduce", size="4MB", iterations=8)
                ran = run_jobs(lab, [spec], progress=middle)
                lost = {
                    f"{link.name} to {link.receiver}": counted.lost
                    for link, counted in impairments.counters().items()
                    if counted.lost
                }
                # On a busy machine captures begin when the job is over.
                wait_until(partial(has_captured, lab, evidence), "a captured packet")
        finally:
            impairments.clear_all()
        return monitor.report, ran.reports[0], lost, middle.problems(ran)

    report, outcome, lost, _ = measured(run, lambda answer: answer[3])
    link_loss = report.sli(Sli.LINK_LOSS)
    assert "srv1-1:rtsw1 to srv1-1" in lost
    assert len(lost) >= 2, "the blackhole missed the traffic"
    assert {place.where: place.total for place in link_loss.places} == lost
    wrong = missed(report)
    assert "srv1-1" in wrong["out_of_sequence"]
    assert wrong["ack_timeouts"]
    counted = {sli.sli: sum(place.total for place in sli.places) for sli in report.slis}
    assert counted[Sli.OUT_OF_SEQUENCE] == outcome.roce.out_of_order
    assert counted[Sli.ACK_TIMEOUTS] == outcome.roce.timeouts
    assert not wrong.keys() & {"flaps", "queue_drops", "sessions_down", "icrc_errors"}
    folder = Path(next(folder for folder in report.evidence if "link_loss" in folder))
    index = json.loads((folder / "evidence.json").read_text())
    assert "link_loss was" in index["why"]
    assert report.started_ns < index["breach_ns"] <= index["collected_ns"]
    assert index["gaps"] == []
    assert (folder / "rtsw1" / "packets.pcap").stat().st_size > PCAP_HEADER_BYTES


def test_captures_begin_at_the_breach_while_another_bundle_is_still_read(
    lab: RunningLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(bundle, "_collect_lab", lambda *_: gate.wait(60))
    link = lab.link("rtsw1:ctsw1")
    watch = Watch()
    with HealthMonitor(lab, SPEC, evidence=tmp_path, on_sample=watch.take):
        try:
            link.down()
            wait_until(
                lambda: len({path.parts[-3] for path in tmp_path.glob("*/*/packets.pcap")}) >= 2,
                "captures of two bundles",
            )
        finally:
            gate.set()
            link.up()
        watch.until(nothing_wrong)


@pytest.mark.long
def test_a_full_queue_drops_packets_and_no_link_loses_any(lab: RunningLab) -> None:
    incast = {"pattern": "incast", "ranks": 4, "duration": "500us"}
    spec = JobSpec.model_validate(incast | {"transport": {"ecn": "not-ect"}})

    def run() -> tuple[HealthReport, JobReport]:
        with HealthMonitor(lab, SPEC) as monitor:
            outcome = run_job(lab, spec)
        return monitor.report, outcome

    # Senders that a busy machine holds up do not fill a queue.
    report, _ = measured(run, lambda answer: answer[1].problems)
    wrong = missed(report)
    assert any(where.endswith("to srv1-1") for where in wrong["queue_drops"])
    assert any(where.endswith("to srv1-1") for where in wrong["queue_depth"])
    assert report.sli(Sli.QUEUE_DEPTH).worst <= 1
    assert "link_loss" not in wrong
    assert wrong["out_of_sequence"]


def test_evidence_of_a_lab_with_a_stopped_daemon_lacks_that_daemon_alone(
    lab: RunningLab, tmp_path: Path
) -> None:
    nodes = ["ctsw1", "ctsw2", "rtsw1", "rtsw2", "srv1-1", "srv2-1"]
    stopped = lab.node("ctsw1").daemons()["bgpd"]
    os.kill(stopped, signal.SIGSTOP)
    try:
        wait_until(lambda: processes.is_stopped(stopped), "the stop")
        evidence = collect_evidence(lab, nodes, tmp_path / "bundle", why="a test")
    finally:
        os.kill(stopped, signal.SIGCONT)
        # Its neighbours may have given it up meanwhile.
        wait_until(lambda: read_status(lab).converged, "every session and route again")
    assert {gap.file for gap in evidence.gaps} == {
        f"ctsw1/{file}"
        for file in (
            "running-config.bgpd",
            "bgp-summary.json",
            "bgp-neighbors.json",
            "bgp-table.json",
        )
    }
    root = tmp_path / "bundle"
    daemons = json.loads((root / "ctsw1" / "daemons.json").read_text())
    assert daemons["bgpd"]["state"].startswith("T")
    assert daemons["zebra"]["state"].startswith(("S", "R"))
    assert "router bgp" in (root / "rtsw1" / "running-config.bgpd").read_text()
    assert "%ADJCHANGE" in (root / "ctsw1" / "bgpd.log").read_text()
    links = json.loads((root / "srv1-1" / "links.json").read_text())
    assert {link["ifname"] for link in links} == {"lo", "rtsw1"}
    routes = json.loads((root / "rtsw1" / "fib.json").read_text())
    assert any(len(route.get("nexthops", ())) == 2 for route in routes)
    assert {item.file for item in evidence.items} == {
        str(file.relative_to(root))
        for file in root.rglob("*")
        if file.is_file() and file.name != "evidence.json"
    }


def test_what_is_exported_parses_and_says_what_the_kernel_counted(
    lab: RunningLab, tmp_path: Path
) -> None:
    file = tmp_path / "rocelab.prom"
    with (
        Exporter(file, None) as exporter,
        HealthMonitor(lab, SPEC, on_sample=exporter.take) as monitor,
    ):
        pass
    assert monitor.report.problems == ()
    families = {family.name: family for family in text_string_to_metric_families(file.read_text())}
    for name in ("rocelab_link_lost_packets", "rocelab_link_sent_packets"):
        samples = families[name].samples
        assert {sample.name for sample in samples} == {f"{name}_total"}
        assert len(samples) == 2 * len(lab.fabric.links)
    counters = lab.link("rtsw1:ctsw1").counters()
    sent = {
        sample.labels["towards"]: sample.value
        for sample in families["rocelab_link_sent_packets"].samples
        if sample.labels["link"] == "rtsw1:ctsw1"
    }
    assert 0 <= counters["rtsw1"].tx_packets - sent["ctsw1"] < 50
    assert 0 <= counters["ctsw1"].tx_packets - sent["rtsw1"] < 50
    assert {s.value for s in families["rocelab_bgp_session_up"].samples} == {1}
    assert {s.value for s in families["rocelab_link_up"].samples} == {1}
    assert list(tmp_path.iterdir()) == [file]


def test_a_port_whose_fault_has_ended_is_read(make_lab: MakeLab) -> None:
    """Without queues nothing is left of the port's traffic control, and the kernel does not answer
    a request for it."""
    lab = make_lab(
        "t-health-plain",
        "fabric: {racks: 1, spines: 1, servers_per_rack: 0}\nqueues: {engine: 'off'}",
    )
    lab.start()
    impairments = Impairments(lab.fabric, lab.runtime.files)
    (link,) = lab.fabric.directed_links[:1]
    impairments.impair(link, Impairment(ImpairmentKind.LOSS, share=0.5))
    impairments.clear_all()
    with HealthMonitor(lab, SPEC) as monitor:
        pass
    report = monitor.report
    assert (report.samples, report.unread_samples) == (1, 0)
    # What this lab has no counters for is not reported as zero.
    assert {sli.sli for sli in report.slis}.isdisjoint({"queue_drops", "queue_depth", "ce_ratio"})
    assert report.problems == (
        "no queue_drops, queue_depth, ce_ratio: ports have no queues here that count them",
    )


def test_watching_ends_with_the_lab_and_lets_its_links_go(make_lab: MakeLab) -> None:
    lab = make_lab("t-health-down", "fabric: {racks: 2, spines: 1, servers_per_rack: 0}")
    lab.start()
    with HealthMonitor(lab, SPEC) as monitor:
        lab.down()
        assert monitor.wait(LIMIT_S)
    assert "went down" in str(monitor.failure)
    assert monitor.report.problems[-1:] == ("lab t-health-down went down while it was watched",)
