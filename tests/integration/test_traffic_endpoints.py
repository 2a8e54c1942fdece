"""Traffic agents on a path of real namespaces: a server, a router, another server.

The kernel's own counters and process table verify the agents' reports.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from rocelab.base.errors import InputError, MachineError
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.jobs.flow import ProbeStream, resolve_endpoints
from rocelab.labfile.model import LabSpec
from rocelab.linux.namespaces import inside, processes_in
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import Fabric
from rocelab.traffic.result import CLOCK_JUMP_LIMIT_NS, LAG_P99_LIMIT_NS, TrafficResult
from rocelab.traffic.roce import probe_frame
from rocelab.traffic.session import TrafficSession
from rocelab.wire.probe import NO_FLOW
from tests.helpers.measured import measured
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.few_at_once

ALICE, ROUTER, BOB = "srv1-1", "rtsw1", "srv1-2"
PREFIX = f"t-traffic-{os.getpid()}"


def netns_of(node: str) -> Path:
    return Path("/run/netns", f"{PREFIX}-{node}")


def ip(*words: str, node: str | None = None) -> str:
    where = ["-n", netns_of(node).name] if node else []
    done = subprocess.run(["ip", *where, *words], check=True, capture_output=True, text=True)
    return done.stdout


def tc(node: str, *words: str) -> str:
    command = ["tc", "-n", netns_of(node).name, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def set_sysctl(node: str, key: str, value: str) -> None:
    inside(netns_of(node), lambda: Path("/proc/sys/net", key).write_text(value))


def icmp_sent(node: str) -> int:
    lines = inside(netns_of(node), lambda: Path("/proc/self/net/snmp").read_text()).splitlines()
    names, values = (line.split() for line in lines if line.startswith("Icmp:"))
    return int(values[names.index("OutMsgs")])


def packets(node: str, interface: str, way: str) -> int:
    """Packets that an interface has received (`rx`) or sent (`tx`)."""
    (link,) = json.loads(ip("-s", "-j", "link", "show", interface, node=node))
    return int(link["stats64"][way]["packets"])


def wait_for_packets(node: str, way: str, count: int = 100) -> None:
    """Wait until a server has received or sent so many more."""
    before = packets(node, ROUTER, way)
    wait_until(lambda: packets(node, ROUTER, way) >= before + count, f"{count} packets of {node}")


def is_up(node: str, interface: str) -> bool:
    (link,) = json.loads(ip("-j", "link", "show", interface, node=node))
    return bool(link["operstate"] == "UP")


def agents_in(*nodes: str) -> list[int]:
    return processes_in(netns_of(node).stat().st_ino for node in nodes)


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    """One rack's RTSW and its two servers, wired as planned."""
    plan = build_fabric(LabSpec(name="t", fabric=ClosSpec(racks=1, spines=1, servers_per_rack=2)))
    try:
        for node in (ALICE, ROUTER, BOB):
            ip("netns", "add", netns_of(node).name)
        for link in (plan.uplinks(ALICE)[0], plan.uplinks(BOB)[0]):
            a, b = link.a, link.b
            words = (
                "link add {} mtu {} address {} type veth peer name {} netns {} mtu {} address {}"
            )
            far = netns_of(b.node).name
            filled = words.format(a.interface, link.mtu, a.mac, b.interface, far, link.mtu, b.mac)
            ip(*filled.split(), node=a.node)
            for port in (a, b):
                ip("address", "add", str(port.address), "dev", port.interface, node=port.node)
                ip("link", "set", port.interface, "up", node=port.node)
            # Fixed neighbours: learnt ones share one table of 1,024 with every other namespace.
            for here, there in ((a, b), (b, a)):
                known = f"neigh replace {there.ip} lladdr {there.mac} dev {here.interface}"
                ip(*known.split(), "nud", "permanent", node=here.node)
            ip("route", "add", "default", "via", b.ip, node=a.node)
            for end in (a, b):
                wait_until(partial(is_up, end.node, end.interface))
        set_sysctl(ROUTER, "ipv4/ip_forward", "1")
        yield plan
    finally:
        for node in (ALICE, ROUTER, BOB):
            with suppress(subprocess.CalledProcessError):
                ip("netns", "delete", netns_of(node).name)


def flows_both_ways(
    count: int = 4, rate_pps: int = 500, payload_bytes: int = 256
) -> list[ProbeStream]:
    return [
        ProbeStream(
            id=100 + index,
            source=(ALICE, BOB)[index % 2],
            source_nic=1,
            destination=(BOB, ALICE)[index % 2],
            destination_nic=1,
            sport=0xC000 + index,
            dest_qp=10 + index,
            rate_pps=rate_pps,
            payload_bytes=payload_bytes,
        )
        for index in range(count)
    ]


def run(
    fabric: Fabric, flows: list[ProbeStream], during: Callable[[], None] = lambda: time.sleep(0.5)
) -> TrafficResult:
    with TrafficSession(fabric, netns_of, flows) as session:
        session.start()
        during()
        return session.stop()


def test_every_packet_sent_is_received_in_order_one_hop_away(fabric: Fabric) -> None:
    result = measured(lambda: run(fabric, flows_both_ways()))
    assert len(result.flows) == 4
    for record in result.flows:
        assert len(record.sent_seq) > 200
        assert record.sent_seq.tolist() == list(range(len(record.sent_seq)))
        assert record.received_seq.tolist() == record.sent_seq.tolist()
        assert record.send_ns.tolist() == record.sent_ns.tolist()
        assert set(record.ttl.tolist()) == {63}
        delay_ns = record.receive_ns - record.send_ns
        assert delay_ns.min() > 0
        assert np.median(delay_ns) < 1_000_000
    assert [agent.socket_drops for agent in result.agents] == [0, 0]


def test_packets_leave_at_their_deadlines_and_servers_are_staggered(fabric: Fabric) -> None:
    result = measured(lambda: run(fabric, flows_both_ways(count=4, rate_pps=100)))
    for index, record in enumerate(result.flows):
        due_ns = result.started_ns + index % 2 * 5_000_000 + record.sent_seq * 10_000_000
        lag_ns = record.sent_ns - due_ns
        assert lag_ns.min() >= -CLOCK_JUMP_LIMIT_NS  # two clock readings of two processes
        assert np.median(lag_ns) < LAG_P99_LIMIT_NS


def test_the_kernel_counts_as_many_packets_as_the_result(fabric: Fabric) -> None:
    result = run(fabric, flows_both_ways(count=1))
    received = packets(BOB, ROUTER, "rx")
    assert len(result.flows[0].received_seq) <= received <= len(result.flows[0].sent_seq) + 20


def test_a_receiving_server_does_not_answer_probes_with_icmp(fabric: Fabric) -> None:
    before = icmp_sent(BOB)
    result = measured(lambda: run(fabric, flows_both_ways(count=1)))
    assert len(result.flows[0].received_seq) > 200
    assert icmp_sent(BOB) == before


def test_what_is_not_a_probe_of_the_session_is_not_in_its_result(fabric: Fabric) -> None:
    stranger = probe_frame(resolve_endpoints(fabric, ALICE, BOB), sport=0xC000, dest_qp=10)
    damaged = bytearray(stranger)
    damaged[54] ^= 1
    fragment = bytearray(stranger)
    fragment[20] |= 0x20

    def send_strangers() -> None:
        inside(netns_of(ALICE), lambda: send_raw(ROUTER, stranger, bytes(damaged), bytes(fragment)))
        wait_for_packets(BOB, "rx")

    (record,) = measured(lambda: run(fabric, flows_both_ways(count=1), send_strangers)).flows
    assert record.flow.id != NO_FLOW
    assert record.received_seq.tolist() == record.sent_seq.tolist()


def send_raw(interface: str, *frames: bytes) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as outlet:
        outlet.bind((interface, 0))
        for frame in frames:
            outlet.send(frame)


def test_a_server_that_sends_nothing_takes_the_longest_packets(fabric: Fabric) -> None:
    flows = flows_both_ways(count=1, payload_bytes=4096)
    result = measured(lambda: run(fabric, flows, lambda: wait_for_packets(BOB, "rx")))
    (record,) = result.flows
    assert record.offered > 0
    assert record.received_seq.tolist() == record.sent_seq.tolist()
    assert [agent.icrc_errors for agent in result.agents] == [0, 0]


def test_a_dead_link_behind_the_router_loses_one_run_of_packets(fabric: Fabric) -> None:
    def flap() -> None:
        wait_for_packets(BOB, "rx")
        ip("link", "set", ROUTER, "down", node=BOB)
        wait_for_packets(ALICE, "tx")
        ip("link", "set", ROUTER, "up", node=BOB)
        wait_until(lambda: is_up(ROUTER, BOB))
        wait_for_packets(BOB, "rx")

    (record,) = measured(lambda: run(fabric, flows_both_ways(count=1), flap)).flows
    assert len(record.sent_seq) == record.offered
    lost = np.setdiff1d(record.sent_seq, record.received_seq)
    assert len(lost) > 50
    assert lost.tolist() == list(range(lost[0], lost[-1] + 1))
    assert lost[0] > 0
    assert record.received_seq[-1] == record.sent_seq[-1]


def test_packets_refused_by_a_dead_nic_are_counted_and_are_no_problem(fabric: Fabric) -> None:
    def flap() -> None:
        wait_for_packets(BOB, "rx")
        ip("link", "set", ROUTER, "down", node=ALICE)
        # Nothing of the kernel counts refusals; a valid run is 50 ms late at most.
        time.sleep(0.2)
        ip("link", "set", ROUTER, "up", node=ALICE)
        wait_until(lambda: is_up(ALICE, ROUTER))
        wait_for_packets(BOB, "rx")

    def flapped() -> TrafficResult:
        result = run(fabric, flows_both_ways(count=1), flap)
        assert not any("to send" in problem for problem in result.problems)
        return result

    result = measured(flapped)
    (record,) = result.flows
    refused = record.refused_seq
    assert len(refused) > 50
    assert refused.tolist() == list(range(refused[0], refused[-1] + 1))
    assert 0 < refused[0] < refused[-1] < record.sent_seq[-1]
    assert result.agents[0].send_errors == {"ENETDOWN": len(refused)}


def test_a_servers_queueing_discipline_is_honoured(fabric: Fabric) -> None:
    words = "qdisc add dev rtsw1 root tbf rate 400kbit burst 2kb limit 4kb"
    tc(ALICE, *words.split())

    def dropped() -> int:
        (qdisc,) = json.loads(tc(ALICE, "-s", "-j", "qdisc", "show", "dev", ROUTER))
        return int(qdisc["drops"])

    result = run(
        fabric, flows_both_ways(count=1), lambda: wait_until(lambda: dropped() > 60, "60 drops")
    )
    (record,) = result.flows
    assert result.agents[0].send_errors == {"ENOBUFS": len(record.refused_seq)}
    assert len(record.refused_seq) > 50
    assert any("had no room" in problem and "to send" in problem for problem in result.problems)


def test_a_server_without_a_namespace_is_named(fabric: Fabric) -> None:
    ip("netns", "delete", netns_of(BOB).name)
    with (
        pytest.raises(MachineError, match="agent of srv1-2 ended: FileNotFoundError"),
        TrafficSession(fabric, netns_of, flows_both_ways()),
    ):
        pass
    assert agents_in(ALICE) == []


def test_a_second_session_on_the_same_servers_is_refused(fabric: Fabric) -> None:
    with TrafficSession(fabric, netns_of, flows_both_ways()):
        first = sorted(agents_in(ALICE, BOB))
        assert len(first) == 2
        with (
            pytest.raises(MachineError, match="Address already in use"),
            TrafficSession(fabric, netns_of, flows_both_ways()),
        ):
            pass
        assert sorted(agents_in(ALICE, BOB)) == first
    assert agents_in(ALICE, BOB) == []


def test_an_agent_that_dies_ends_the_session_and_leaves_no_other(fabric: Fabric) -> None:
    def lose_an_agent() -> None:
        with TrafficSession(fabric, netns_of, flows_both_ways()) as session:
            session.start()
            for process in agents_in(BOB):
                os.kill(process, signal.SIGKILL)
            session.stop()

    with pytest.raises(MachineError, match="agent of srv1-2 ended: something killed it"):
        lose_an_agent()
    assert agents_in(ALICE, BOB) == []


def test_agents_die_with_a_driver_that_is_killed(fabric: Fabric) -> None:
    body = (
        "import sys, time; from tests.integration import test_traffic_endpoints as t;"
        "t.PREFIX = sys.argv[1];"
        "plan = t.build_fabric(t.LabSpec(name='t',"
        " fabric=t.ClosSpec(racks=1, spines=1, servers_per_rack=2)));"
        "session = t.TrafficSession(plan, t.netns_of, t.flows_both_ways()).__enter__();"
        "session.start(); time.sleep(600)"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", body, PREFIX], cwd=root) as driver:
        try:
            wait_until(lambda: len(agents_in(ALICE, BOB)) == 2)
        finally:
            driver.kill()
    wait_until(lambda: agents_in(ALICE, BOB) == [])


def test_flows_with_the_same_id_are_an_input_error(fabric: Fabric) -> None:
    twice = flows_both_ways(count=1) * 2
    with pytest.raises(InputError, match="same id"):
        TrafficSession(fabric, netns_of, twice)
    with pytest.raises(InputError, match="no flows"):
        TrafficSession(fabric, netns_of, [])
