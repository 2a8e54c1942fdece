"""A lab of tenants: EVPN-VXLAN by FRR and the kernel, isolation, predicted paths, jobs, faults."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.base.errors import InputError
from rocelab.drills.labuse import kept
from rocelab.drills.run import run_drill
from rocelab.jobs.job import JobSpec
from rocelab.jobs.placement import find_nic
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.segments import announce, read_segments
from rocelab.lab.status import read_status
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.schemes.e_ecmp import EEcmpScheme
from rocelab.routes.path import walk
from rocelab.runs.jobs import run_job
from rocelab.traffic.reachability import probe_reachability
from rocelab.traffic.traceroute import probe_path
from tests.helpers.measured import measured, problems_of_drill
from tests.helpers.running import running
from tests.helpers.waiting import wait_until

RED = [f"srv{rack}-1" for rack in range(1, 5)]
DRILL = """name: flap
lab: evpn-vxlan
traffic: {flows: 12, rate_pps: 500, payload: 256B, warmup: 500ms, duration: 4s, seed: 3}
faults:
  - {kind: carrier-down, at: 500ms, links: [rtsw1:ctsw1], lasts: 1500ms}
expect: {restored: true, lost_outside_events: 0}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    text = find_lab("evpn-vxlan").read_text()
    file = tmp_path_factory.mktemp("tenants") / "it-tenants.yaml"
    text = text.replace("name: evpn-vxlan", "name: it-tenants")
    file.write_text(text.replace("members: [srv*-1]", "members: [srv*-1], arp_suppression: true"))
    with running(Lab.planned(file)) as up:
        yield up


def test_leaves_know_their_tenants_by_evpn(lab: RunningLab) -> None:
    status = read_status(lab)

    assert status.converged
    assert {one.established for one in status.evpn_sessions.values()} == {2, 4}
    assert all(segment.is_complete for segment in status.segments)
    said = lab.node("rtsw1").exec([*lab.node("rtsw1").command_line, "-c", "show evpn vni"]).stdout
    assert [line.split()[0] for line in said.splitlines()[1:]] == ["10010", "10020"]
    macs = [*lab.node("rtsw1").command_line, "-c", "show evpn mac vni 10010"]
    remote = [line for line in lab.node("rtsw1").exec(macs).stdout.splitlines() if "remote" in line]
    assert len(remote) == 4, "three MACs of other leaves, and the title that has the word"


def test_every_pair_within_a_tenant_reaches(lab: RunningLab) -> None:
    result = probe_reachability(lab.fabric, lambda name: lab.node(name).netns)

    assert (result.pairs, result.failed) == (24, ())


def test_no_frame_crosses_from_a_tenant_to_another(lab: RunningLab) -> None:
    source = find_nic(lab.fabric, "srv1-1").links[0].a
    to = find_nic(lab.fabric, "srv3-2").links[0].a
    neighbour = find_nic(lab.fabric, "srv3-1").links[0].a
    mark = b"rocelab crossing"

    def listener() -> socket.socket:
        listening = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
        listening.settimeout(2)
        return listening

    def send() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
            for mac in (to.mac, "ff:ff:ff:ff:ff:ff"):
                head = bytes.fromhex((mac + source.mac).replace(":", ""))
                sender.sendto(head + b"\x88\xb5" + mark.ljust(46, b"\0"), (source.interface, 0))

    others = [lab.node(name).inside(listener) for name in ("srv1-2", "srv2-2", "srv3-2", "srv4-2")]
    inside = lab.node(neighbour.node).inside(listener)
    try:
        lab.node("srv1-1").inside(send)
        assert mark in inside.recv(100), "what goes to all, and an unknown MAC, reaches the tenant"
        assert mark in inside.recv(100)
        for other in others:
            other.setblocking(False)
            with pytest.raises(BlockingIOError):
                other.recv(100)
    finally:
        for listening in (inside, *others):
            listening.close()


def test_the_path_of_200_flows_is_the_one_that_packets_take(lab: RunningLab) -> None:
    draw, fib_of, used = random.Random(57), lab.read_fibs(), set()
    for _ in range(10):
        source, target = (find_nic(lab.fabric, name) for name in draw.sample(RED, 2))
        ports = draw.sample(range(0xC000, 0x10000), 20)
        seen = probe_path(lab.fabric, lambda name: lab.node(name).netns, source, target, ports)
        for port in ports:
            predicted = walk(lab.fabric, fib_of, source, target, port).nodes
            assert seen[port] == predicted
            used.add(predicted)
    assert len(used) > 10, "all flows took one path: nothing was tested"


def test_leaves_answer_arp_where_that_is_asked_for(lab: RunningLab) -> None:
    said = lab.node("rtsw1").exec(
        [*lab.node("rtsw1").command_line, "-c", "show evpn arp-cache vni 10010"]
    )

    assert all(f"10.10.0.{rack}" in said.stdout for rack in (2, 3, 4))
    ping = lab.node("srv1-1").exec(["ping", "-c", "1", "-W", "2", "10.10.0.3"])
    assert ping.returncode == 0, ping.stdout


def test_a_scheme_that_reads_roce_headers_is_refused(lab: RunningLab) -> None:
    with pytest.raises(InputError, match="scheme e-ecmp reads the headers of RoCE"):
        lab.steering.set_scheme(EEcmpScheme(kind="e-ecmp"))


def test_a_lost_link_is_restored_under_traffic_of_tenants(lab: RunningLab, tmp_path: Path) -> None:
    drill = tmp_path / "flap.yaml"
    drill.write_text(DRILL)

    result = measured(
        lambda: run_drill(drill, lab=lab, use=kept(print), retries=0), problems_of_drill
    )

    assert result.passed, result.phases[0].verdicts


def test_a_leaf_learns_a_mac_again_after_its_port_was_down(lab: RunningLab) -> None:
    link = lab.fabric.link_by_name["srv4-1:rtsw4"]

    def known() -> list[int]:
        segments = read_segments(lab.fabric, lab.node)
        return [one.macs for one in segments if one.tenant.name == "red"]

    lab.link(link.name).down()
    try:
        wait_until(lambda: known() == [3, 3, 3, 3], "leaves forget the MAC")
        assert not read_status(lab).segments[3].is_complete
    finally:
        lab.link(link.name).up()

    def speaks_and_is_known() -> bool:
        # Its leaf takes no packets before the bridge has heard of the carrier.
        announce(lab.fabric, lab.node, [link.name])
        return known() == [4, 4, 4, 4]

    wait_until(speaks_and_is_known, "leaves learn the MAC again")
    assert read_status(lab).converged


def test_every_packet_of_a_job_in_a_tenant_is_accounted_for(lab: RunningLab) -> None:
    spec = {
        "pattern": "allreduce",
        "ranks": 4,
        "size": "1MB",
        "iterations": 1,
        "warmup_iterations": 0,
    }

    report = run_job(lab, JobSpec.model_validate(spec))

    assert report.errors == ()
    assert [check.name for check in report.accounting if not check.agrees] == []
    assert len(report.accounting) > 5
