"""Jobs on a real lab: their figures add up, and the lab is unchanged afterwards."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocelab.base.errors import InputError
from rocelab.dataplane.queues.reading import read_queue_counters
from rocelab.faults.kinds.daemon_crash import DaemonCrash, DaemonCrashSpec
from rocelab.faults.kinds.rate_degrade import RateDegrade
from rocelab.faults.record import remove_fault, write_fault
from rocelab.jobs.job import JobSpec
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.status import read_status
from rocelab.lab.teardown import take_down
from rocelab.linux.fib import read_fib
from rocelab.linux.namespaces import inside, processes_in
from rocelab.results.job import JobReport, from_json
from rocelab.runs.jobs import run_job, run_jobs
from tests.helpers.command import PROGRAM, Outcome, rocelab
from tests.helpers.long import mostly_long
from tests.helpers.measured import measured, own_jct_ratio, problems_of_command
from tests.helpers.own_programs import flooded, typing
from tests.helpers.running import running
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.few_at_once

NAME = "t-job"
BODY = "fabric: {racks: 2, spines: 2, servers_per_rack: 2}\ndilation: 4000\nqueues: {buffer: 8MB}\n"
JOB = ("--pattern", "allreduce", "--ranks", "4", "--size", "4MB", "--iterations", "3")
LONG = (*JOB[:-1], "1000")


def job(**keys: object) -> JobSpec:
    return JobSpec.model_validate({"ranks": 4, "iterations": 3} | keys)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    file = tmp_path_factory.mktemp("lab") / "lab.yaml"
    file.write_text(f"name: {NAME}\n{BODY}")
    with running(Lab.planned(file)) as made:
        # What runs publish stays until the next one: from here on it is there.
        run_job(made, job(pattern="allreduce", size="1MB", iterations=1))
        yield made


def state(lab: RunningLab) -> Mapping[str, object]:
    """Everything that a run could leave behind: tables, processes, files of the lab."""
    nodes = [node.name for node in lab.fabric.nodes]
    netns = {name: lab.node(name).netns for name in nodes}
    return {
        "fibs": {name: read_fib(path) for name, path in netns.items()},
        "namespaces": {name: path.stat().st_ino for name, path in netns.items()},
        "processes": processes(lab),
        "files": sorted(str(path) for path in Path("/run/rocelab", NAME).rglob("*")),
    }


def assert_whole(report: JobReport) -> None:
    """The run is valid, and every byte, packet and mark is accounted for."""
    assert report.problems == ()
    assert_accounted(report)


def assert_accounted(report: JobReport) -> None:
    """Every byte, packet and mark is accounted for, whether or not the machine kept pace."""
    assert report.errors == ()
    assert [check.name for check in report.accounting if not check.agrees] == []


def measured_command(*arguments: str) -> Outcome:
    """A valid run of a command."""
    return measured(lambda: rocelab(*arguments), problems_of_command)


def test_a_ring_allreduce_takes_as_long_as_its_links_need(lab: RunningLab) -> None:
    report = measured(lambda: run_job(lab, job(pattern="allreduce", size="4MB")))
    assert_whole(report)
    ratio = report.headline("jct_ratio").modelled
    assert ratio.n == 3
    assert ratio.median > 1
    assert own_jct_ratio(report) < 1.06
    nic_gbs, with_headers = 50.0, 4096 / 4160
    busbw = report.headline("busbw").modelled.median
    assert 0.98 * with_headers * nic_gbs < busbw * ratio.median < nic_gbs
    sent = 2 * 3 * 4_000_000 * 4
    counts = report.roce
    assert (counts.posted_bytes, counts.acked_bytes, counts.delivered_bytes) == (sent,) * 3
    assert (
        sum(link.packets for link in report.links if link.tier == "server-rtsw") > 2 * sent / 4096
    )


def test_jobs_at_once_share_nics_and_every_packet_of_their_sum_is_accounted_for(
    lab: RunningLab,
) -> None:
    incast = {"pattern": "incast", "ranks": 4, "duration": "500us", "transport": {"ecn": "not-ect"}}
    jobs = [
        JobSpec.model_validate(incast),
        job(pattern="broadcast", size="1MB", transport={"dscp": 0, "qps": 2}),
    ]
    streams, broadcast = measured(
        lambda: run_jobs(lab, jobs).reports,
        lambda reports: [problem for report in reports for problem in report.problems],
    )
    for report in (streams, broadcast):
        assert_whole(report)
    assert [rank.nic for rank in streams.ranks] == [rank.nic for rank in broadcast.ranks]
    assert streams.headline("goodput").modelled.median > 0.9 * 50, "GB/s of 400 Gb/s"
    assert broadcast.headline("busbw").modelled.n == 3
    assert broadcast.roce.delivered_bytes == 3 * 1_000_000 * 4
    payload, out, *_ = streams.accounting
    transports = (streams.roce, broadcast.roce)
    assert payload.right_count == sum(counts.delivered_bytes for counts in transports)
    assert out.right_count == sum(counts.data_packets for counts in transports)
    assert {queue.traffic_class for queue in streams.queues} >= {0, 3, 6}


def test_a_ping_and_an_ssh_beside_a_job_leave_it_valid_and_are_reported(lab: RunningLab) -> None:
    def beside() -> JobReport:
        ping = ["ping", "-c", "3", "-i", "0.2", "-n", lab.fabric.nics("srv2-2")[0].ip]
        with ThreadPoolExecutor() as pool, typing(lab, "srv1-1", "srv2-1"):
            pinged = pool.submit(lab.node("srv1-2").exec, ping)
            report = run_job(lab, job(pattern="allreduce", size="8MB"))
            assert "0% packet loss" in pinged.result().stdout
        return report

    report = measured(beside)
    assert_whole(report)
    others = [queue.others for queue in report.queues if queue.others is not None]
    assert any(other.tcp for other in others) and any(other.icmp for other in others)
    assert any("other traffic during the jobs" in text for text in report.warnings)
    assert own_jct_ratio(report) < 1.1


def test_a_flood_in_another_class_disturbs_a_job_and_takes_no_room_from_its_packets(
    lab: RunningLab,
) -> None:
    def flood_drops() -> int:
        return read_queue_counters(lab.fabric)["rtsw1", "srv1-2"][0].dropped_packets

    before = flood_drops()
    # A tenth of the rate, so that the flood fills it on any machine.
    slow = RateDegrade((lab.fabric.links_of["srv1-2"][0],), 100_000, "srv1-2")
    slow.inject(lab)
    try:
        with flooded(lab, ["srv2-1", "srv2-2"], "srv1-2"):
            wait_until(lambda: flood_drops() > before, "the flood fills its class")
            report = run_job(lab, job(pattern="allreduce", ranks=2, size="256KB", iterations=1))
    finally:
        slow.restore(lab)
    assert_accounted(report)
    (text,) = [text for text in report.problems if "rtsw1:srv1-2, where jobs sent too" in text]
    assert "other traffic used up to" in text
    assert sum(queue.roce_dropped for queue in report.queues) == 0
    assert report.roce.retransmitted == 0
    flood = [q for q in report.queues if (q.interface, q.traffic_class) == ("srv1-2", 0)]
    assert flood[0].others is not None and flood[0].others.dropped_packets > 0


def test_an_alltoall_over_many_queue_pairs_comes_near_its_bound(lab: RunningLab) -> None:
    spec = job(pattern="alltoall", size="8MB", transport={"qps": 16, "strategy": "split"})
    report = measured(lambda: run_job(lab, spec))
    assert_whole(report)
    assert report.roce.queue_pairs == 6 * 16
    assert own_jct_ratio(report) < 1.12
    assert report.roce.delivered_bytes == 3 * 8_000_000 * 4


def test_receivers_of_any_order_see_that_plain_ecmp_keeps_the_order(lab: RunningLab) -> None:
    report = run_job(
        lab, job(pattern="alltoall", size="1MB", transport={"qps": 4, "out_of_order": True})
    )
    assert_accounted(report)
    counts = report.roce
    assert (counts.reordered, counts.reordered_share, counts.reorder_extent) == (0, 0.0, 0)


def test_an_incast_with_dcqcn_is_marked_and_both_sides_count_the_same_marks(
    lab: RunningLab,
) -> None:
    spec = JobSpec.model_validate(
        {"pattern": "incast", "ranks": 4, "duration": "400us", "transport": {"dcqcn": "sigcomm15"}}
    )
    report = measured(lambda: run_job(lab, spec))
    assert_whole(report)
    assert report.roce.ce > 0
    assert report.roce.cnps_received == report.roce.cnps_sent > 0
    assert sum(queue.marked for queue in report.queues) == report.roce.ce
    assert report.fairness is not None
    assert set(report.fairness.rate_bps) == {1, 2, 3}


def test_packets_that_full_queues_dropped_are_sent_again_and_explain_every_difference(
    lab: RunningLab,
) -> None:
    transport = {"window": 4096, "message": "4MiB", "ecn": "not-ect", "ack_timeout": "500us"}
    spec = job(
        pattern="incast", size="12MB", iterations=1, warmup_iterations=0, transport=transport
    )
    # Senders that a busy machine holds up do not fill a queue.
    report = measured(lambda: run_job(lab, spec))
    assert report.errors == ()
    assert all(check.agrees for check in report.accounting)
    counts = report.roce
    dropped = sum(queue.dropped_packets for queue in report.queues)
    arrived = 3 * -(-12_000_000 // 4096) + counts.out_of_order + counts.duplicates
    assert dropped > 0
    assert counts.data_packets == arrived + dropped
    assert counts.retransmitted > 0
    assert counts.ce == counts.cnps_sent == 0


def test_a_run_leaves_the_lab_as_it_was(lab: RunningLab, tmp_path: Path) -> None:
    before = state(lab)
    report = run_job(lab, job(pattern="broadcast", size="1MB"), out=tmp_path / "made")
    assert from_json((tmp_path / "made" / "result.json").read_text()) == report
    assert state(lab) == before


def test_a_job_on_a_lab_with_other_settings_than_planned_is_not_valid(lab: RunningLab) -> None:
    setting = Path("/proc/sys/net/ipv4/conf/default/accept_local")
    netns = lab.node("srv2-2").netns
    inside(netns, lambda: setting.write_text("1"))
    try:
        report = run_job(lab, job(pattern="broadcast", size="1MB", iterations=1))
    finally:
        inside(netns, lambda: setting.write_text("0"))
    assert not report.valid
    assert (
        "not valid because ipv4/conf/default/accept_local is 1 (planned: 0) at srv2-2"
        in report.problems
    )


def test_a_job_on_a_lab_whose_daemons_are_stopped_or_dead_is_not_valid(lab: RunningLab) -> None:
    small = job(pattern="broadcast", size="1MB", iterations=1)
    stopped = lab.node("ctsw1").daemons()["zebra"]
    os.kill(stopped, signal.SIGSTOP)
    dead = DaemonCrash(node="ctsw2", daemon="zebra")
    dead.inject(lab)
    recorded = None
    try:
        named = {problem for problem in run_job(lab, small).problems if "zebra" in problem}
        recorded = write_fault(
            lab.runtime.files,
            DaemonCrashSpec(kind="daemon-crash", switch="ctsw2", daemon="zebra"),
            dead,
            driver=None,
        )
        beside_a_fault = {problem for problem in run_job(lab, small).problems if "zebra" in problem}
    finally:
        os.kill(stopped, signal.SIGCONT)
        dead.restore(lab)
        if recorded is not None:
            remove_fault(lab.runtime.files, recorded)
        wait_until(lambda: read_status(lab).converged, "the lab is whole again")
    assert beside_a_fault == {"not valid because a signal has stopped zebra of ctsw1"}
    assert named == beside_a_fault | {"not valid because zebra of ctsw2 does not run"}


def test_a_job_on_a_switch_that_does_not_forward_says_why_before_and_ends(
    lab: RunningLab, tmp_path: Path
) -> None:
    ports = [link.port("rtsw1").interface for link in lab.fabric.links_of["rtsw1"]]

    def forward(value: str) -> None:
        for port in ports:
            Path("/proc/sys/net/ipv4/conf", port, "forwarding").write_text(value)

    file = tmp_path / "job.yaml"
    file.write_text(
        "{pattern: pairs, ranks: 4, size: 256KB, iterations: 1, transport: {ack_timeout: 20us}}"
    )
    inside(lab.node("rtsw1").netns, lambda: forward("0"))
    try:
        outcome = rocelab("traffic", NAME, "--job", file)
    finally:
        inside(lab.node("rtsw1").netns, lambda: forward("1"))
    why = "not valid because ipv4/conf/*/forwarding is 0 (planned: 1) at rtsw1:"
    assert outcome.returncode == 3
    assert outcome.stderr.startswith(f"warning: this run is {why}")
    assert why in outcome.stdout
    assert "is in error: packet 0 was not acknowledged after 7 retries" in outcome.stdout


def test_the_command_prints_json_that_reads_back(lab: RunningLab) -> None:
    outcome = measured_command("traffic", NAME, *JOB, "--json")
    assert outcome.returncode == 0, outcome.stderr
    assert_whole(from_json(outcome.stdout))


def test_the_command_prints_what_nccl_tests_would(lab: RunningLab) -> None:
    outcome = measured_command("traffic", NAME, *JOB)
    assert outcome.returncode == 0, outcome.stderr
    assert "# Avg bus bandwidth" in outcome.stdout
    assert "Out of bounds values : 0 OK" in outcome.stdout
    assert "agree on 9 of 9 counts" in outcome.stdout


def test_a_capture_has_every_packet_of_every_nic(lab: RunningLab, tmp_path: Path) -> None:
    """Including those that tcpdump, which here gets no CPU before the job ends, has not yet
    read."""
    file = tmp_path / "job.pcapng"
    with captures_halted_while_the_job_runs(lab):
        report = run_job(lab, job(pattern="pairs", size="256KB"), pcap=file)
    assert_accounted(report)
    lines = subprocess.run(
        ["tshark", "-r", file, "-T", "fields", "-e", "frame.interface_name", "-e", "udp.dstport"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert set(lines) == {
        f"srv{rack}-{server}:rtsw{rack}\t4791" for rack in (1, 2) for server in (1, 2)
    }
    at_nics = [link.packets for link in report.links if link.tier == "server-rtsw"]
    assert len(lines) == sum(at_nics)


@contextmanager
def captures_halted_while_the_job_runs(lab: RunningLab) -> Iterator[None]:
    """Stops every tcpdump in the lab as soon as an agent runs, until one gets the signal to end or
    to report its progress."""

    over = threading.Event()

    def halt() -> None:
        wait_until(lambda: over.is_set() or commands(lab, "agent"), "an agent is there")
        halted = commands(lab, "tcpdump")
        assert len(halted) == 4
        for process in halted:
            os.kill(process, signal.SIGSTOP)
        try:
            wait_until(lambda: over.is_set() or any(map(is_asked, halted)), "a capture is asked")
        finally:
            for process in halted:
                os.kill(process, signal.SIGCONT)

    with ThreadPoolExecutor(1) as pool:
        halting = pool.submit(halt)
        try:
            yield
        finally:
            over.set()
        halting.result()


def commands(lab: RunningLab, word: str) -> list[int]:
    """The lab's processes with this word in their command."""
    return [
        process
        for process in processes(lab)
        if word in Path(f"/proc/{process}/cmdline").read_text()
    ]


def is_asked(process: int) -> bool:
    """Whether SIGINT or SIGUSR1 is pending for the process."""
    status = Path(f"/proc/{process}/status").read_text()
    (waiting,) = re.findall(r"^ShdPnd:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return any(int(waiting, 16) >> number - 1 & 1 for number in (signal.SIGINT, signal.SIGUSR1))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--pattern", "allreduce", "--ranks", "5", "--size", "1MB"), "5 ranks do not fit"),
        (("--pattern", "allreduce", "--ranks", "4", "--size", "0B"), "--size"),
        (("--pattern", "allredcue", "--ranks", "4", "--size", "1MB"), "--pattern"),
        ((*JOB, "--placement", "srv1-1,srv1-2,srv9-1,srv2-2"), "srv9-1"),
        ((*JOB, "--pcap", "/nowhere/x.pcapng"), "/nowhere"),
        ((*JOB, "--job", "job.yaml"), "--job with"),
    ],
)
def test_bad_input_is_refused_and_the_lab_untouched(
    lab: RunningLab, arguments: tuple[str, ...], said: str
) -> None:
    before = state(lab)
    outcome = rocelab("traffic", NAME, *arguments)
    assert outcome.returncode == 2
    assert said in outcome.stderr
    assert "hint:" in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert state(lab) == before


def test_a_lab_that_is_not_up_is_refused() -> None:
    outcome = rocelab("traffic", "unnumbered", *JOB)
    assert outcome.returncode == 2
    assert "lab unnumbered is not up" in outcome.stderr
    with pytest.raises(InputError, match="not up"):
        run_job(Lab.planned("unnumbered").unstarted(), job(pattern="allreduce", size="1MB"))


@pytest.mark.parametrize(
    "number", mostly_long((signal.SIGINT, signal.SIGTERM, signal.SIGKILL), (signal.SIGKILL,))
)
def test_a_command_ended_in_mid_run_leaves_the_lab_as_it_was(
    lab: RunningLab, tmp_path: Path, number: int
) -> None:
    before = state(lab)
    daemons = len(processes(lab))
    pcap = tmp_path / "job.pcapng"
    with subprocess.Popen(
        [*PROGRAM, "traffic", NAME, *LONG, "--pcap", str(pcap)], stderr=subprocess.DEVNULL
    ) as command:
        wait_until(lambda: len(processes(lab)) == daemons + 8)
        sent = lab.link("srv1-1:rtsw1").counters()["srv1-1"].tx_packets
        wait_until(lambda: lab.link("srv1-1:rtsw1").counters()["srv1-1"].tx_packets > sent + 1000)
        command.send_signal(number)
    assert command.returncode != 0
    wait_until(lambda: len(processes(lab)) == daemons)
    assert not pcap.exists()
    # What a killed run has published stays until the next publishes; a controller passes it over.
    assert_accounted(run_job(lab, job(pattern="allreduce", size="1MB", iterations=1)))
    assert state(lab) == before


def processes(lab: RunningLab) -> list[int]:
    """All processes in the lab: during a run the daemons, four agents and four captures."""
    return sorted(
        processes_in(lab.node(node.name).netns.stat().st_ino for node in lab.fabric.nodes)
    )


def test_a_second_job_waits_its_turn_elsewhere(lab: RunningLab) -> None:
    with lab.locked(), pytest.raises(InputError, match="another command is working"):
        run_job(lab, job(pattern="allreduce", size="1MB"))


def test_a_dead_nic_is_a_queue_pair_in_error(lab: RunningLab, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "pattern: pairs\nranks: 4\nsize: 1MB\ntransport: {ack_timeout: 20us, retries: 1, qps: 1}\n"
    )
    link = lab.link("srv2-2:rtsw2")
    link.down()
    try:
        outcome = measured(lambda: rocelab("traffic", NAME, "--job", file), problems_of_command)
    finally:
        link.up()
    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    assert "is in error: packet" in outcome.stdout


def test_a_lab_that_this_machine_can_not_carry_ends_invalid(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(f"name: t-job-fast\n{BODY.replace('dilation: 4000', 'dilation: 1')}")
    Lab.planned(file).up()
    try:
        outcome = rocelab("traffic", "t-job-fast", *JOB[:-1], "1")
    finally:
        take_down("t-job-fast")
    assert outcome.returncode == 3
    assert "warning: at dilation 1" in outcome.stderr
    assert "not valid because this machine could not keep" in outcome.stdout
    assert "`--dilation" in outcome.stdout
