"""The controller on running labs: resilient groups over BGP's routes, and flows placed by TE.

The kernels' tables and lookups verify the controller's statements.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import statistics
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import pytest

from rocelab.base.errors import InputError, MachineError
from rocelab.dataplane.controller.collector import Collector
from rocelab.dataplane.controller.rounds import Round, read_rounds
from rocelab.dataplane.steering import Steering, controller
from rocelab.dataplane.steering.controller import (
    ControllerFiles,
    controller_pid,
    start_controller,
    stop_controller,
)
from rocelab.dataplane.steering.resilient import IDLE_S
from rocelab.jobs.flow import ProbeStream, permutation
from rocelab.jobs.job import JobSpec
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.status import read_status
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.schemes.ecmp import EcmpScheme
from rocelab.labfile.schemes.resilient import ResilientScheme
from rocelab.labfile.schemes.te import TeEngine, TeScheme
from rocelab.linux import netlink
from rocelab.linux.fib import read_fib, read_objects, read_routes
from rocelab.linux.namespaces import inside
from rocelab.linux.netlink import HEADER, NLMSG_ERROR
from rocelab.observe.processes import NO_CONTROLLER
from rocelab.routes.multipath import UDP, Flow5, select
from rocelab.routing.frr.vty import vty_json
from rocelab.runs.jobs import run_job
from rocelab.traffic.result import TrafficResult
from rocelab.traffic.session import TrafficSession
from tests.helpers.long import mostly_long
from tests.helpers.measured import measured
from tests.helpers.running import running
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.few_at_once

FLOWS = 256
TURNS = 8
"""Links that fail one after the other."""
RESILIENT = ResilientScheme(kind="resilient")
TE = TeScheme.model_validate({"kind": "te", "period": "500ms"})


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """Four racks under four spines, two servers of two NICs each: 1:1, four uplinks per rack."""
    text = find_lab("zone-1-1").read_text().replace("name: zone-1-1", "name: t-controller")
    file = tmp_path_factory.mktemp("lab") / "t-controller.yaml"
    file.write_text(text)
    with running(Lab.planned(file)) as made:
        yield made


@pytest.fixture
def plain(lab: RunningLab) -> Iterator[RunningLab]:
    """The lab with every link up and scheme ecmp, before and after."""
    yield lab
    for name in lab.fabric.link_by_name:
        lab.link(name).up()
    Steering(lab.fabric, lab.runtime.files).set_scheme(EcmpScheme())
    wait_until(lambda: has_all_routes(lab))


def set_scheme(lab: RunningLab, scheme: ResilientScheme | TeScheme | EcmpScheme) -> None:
    Steering(lab.fabric, lab.runtime.files).set_scheme(scheme)


def tell(text: str) -> None:
    """Print a figure, visible with -s."""
    sys.stdout.write(f"\n{text}\n")


def rounds(lab: RunningLab) -> list[Round]:
    return read_rounds(ControllerFiles(lab.runtime.files).rounds)


def widths(lab: RunningLab, switch: str) -> dict[str, int]:
    """Next hops per prefix, only of BGP's routes."""
    text = lab.node(switch).exec(["ip", "-j", "route", "show", "proto", "bgp"]).stdout
    return {
        route["dst"]: sum(
            "dead" not in hop["flags"] for hop in route.get("nexthops", [{"flags": []}])
        )
        for route in json.loads(text)
    }


def has_all_routes(lab: RunningLab) -> bool:
    leaves = [node.name for node in lab.fabric.switches if node.is_leaf]
    return all(Counter(widths(lab, leaf).values())[4] == 3 for leaf in leaves)


def has_withdrawn(lab: RunningLab, leaf: str, left: int = 3) -> bool:
    """Whether the leaf and all others have only `left` spines between them."""
    prefixes = {prefix.prefix for prefix in lab.fabric.prefixes_of[leaf]} - {
        f"{lab.fabric.node(leaf).loopback}/32"
    }
    others = (node.name for node in lab.fabric.switches if node.is_leaf and node.name != leaf)
    return Counter(widths(lab, leaf).values())[left] >= 3 and all(
        widths(lab, other)[prefix] == left for other in others for prefix in prefixes
    )


def flows_from(lab: RunningLab, leaf: str, count: int) -> list[Flow5]:
    """Flows from a NIC behind `leaf` to one behind another."""
    source = lab.fabric.nics(lab.fabric.downlinks(leaf)[0].a.node)[0].ip
    other = next(s for s in lab.fabric.servers if lab.fabric.uplinks(s.name)[0].b.node != leaf)
    destination = lab.fabric.nics(other.name)[0].ip
    ports = random.Random(1).sample(range(49152, 65536), count)
    return [Flow5(source, destination, UDP, port, 4791) for port in ports]


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def choices(lab: RunningLab, switch: str, flows: Sequence[Flow5]) -> list[str]:
    """The interface that the switch's kernel would forward each flow by (RTM_GETROUTE)."""
    incoming = lab.fabric.downlinks(switch)[0].port(switch).interface

    def look_up() -> list[str]:
        ports = []
        index = socket.if_nametoindex(incoming)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
            for flow in flows:
                body = struct.pack("=BBBBBBBBI", socket.AF_INET, 32, 32, 0, 0, 0, 0, 0, 0)
                body += attribute(1, socket.inet_aton(flow.destination))
                body += attribute(2, socket.inet_aton(flow.source))
                body += attribute(3, struct.pack("=I", index))
                body += attribute(27, bytes([flow.protocol]))
                body += attribute(28, struct.pack("!H", flow.source_port))
                body += attribute(29, struct.pack("!H", flow.destination_port))
                netlink.send(struct.pack("=IHHII", 16 + len(body), 26, 1, 1, 0) + body)
                reply = netlink.recv(65536)
                if HEADER.unpack_from(reply)[1] == NLMSG_ERROR:
                    code = -struct.unpack_from("=i", reply, HEADER.size)[0]
                    raise OSError(code, f"{switch} has no route to {flow.destination}")
                offset = 28
                while struct.unpack_from("=HH", reply, offset)[1] != 4:
                    offset += -(-struct.unpack_from("=H", reply, offset)[0] // 4) * 4
                out = struct.unpack_from("=I", reply, offset + 4)[0]
                ports.append(socket.if_indextoname(out))
        return ports

    return inside(lab.node(switch).netns, look_up)


def did_something(done: Round) -> bool:
    """Whether a round changed the forwarding."""
    return bool(done.changed or done.removed)


def moved(before: Sequence[str], after: Sequence[str]) -> int:
    return sum(a != b for a, b in zip(before, after, strict=True))


def groups_of(lab: RunningLab, switch: str) -> dict[int, int]:
    """Members of every group of next-hop objects in a switch's kernel, by id."""

    def read() -> dict[int, int]:
        with netlink.open_socket() as channel:
            return {number: len(g.members) for number, g in read_objects(channel)[1].items()}

    return inside(lab.node(switch).netns, read)


def own_routes(lab: RunningLab, switch: str) -> dict[str, int]:
    """The group of every route over one."""

    def read() -> dict[str, int]:
        with netlink.open_socket() as channel:
            return {route.prefix: route.group for route in read_routes(channel) if route.group}

    return inside(lab.node(switch).netns, read)


def settle_ecmp(lab: RunningLab, leaf: str, width: int) -> None:
    wait_until(lambda: Counter(widths(lab, leaf).values())[width] == 3)


@pytest.mark.side_by_side
def test_the_collector_reads_the_tables_that_a_netlink_library_reads(plain: RunningLab) -> None:
    files = plain.runtime.files
    ControllerFiles(files).make()
    netns_of = {node.name: files.netns_of(node.name) for node in plain.fabric.switches}
    with Collector(netns_of, ControllerFiles(files).demands) as collector:
        fibs = collector.fibs()
        for name, netns in netns_of.items():
            assert set(fibs[name].routes) == set(read_fib(netns).routes)
            assert len(fibs[name].routes) >= 8


def test_after_a_failure_only_flows_of_the_dead_uplink_move_with_resilient_groups(
    plain: RunningLab,
) -> None:
    flows = flows_from(plain, "rtsw1", FLOWS)
    link = plain.link("rtsw1:ctsw2")

    before = choices(plain, "rtsw1", flows)
    link.down()
    settle_ecmp(plain, "rtsw1", 3)
    moved_ecmp = moved(before, choices(plain, "rtsw1", flows))
    on_dead_ecmp = before.count("ctsw2")
    link.up()
    settle_ecmp(plain, "rtsw1", 4)

    set_scheme(plain, RESILIENT)
    wait_until(lambda: set(groups_of(plain, "rtsw1").values()) == {4})
    before = choices(plain, "rtsw1", flows)
    assert set(before) == {"ctsw1", "ctsw2", "ctsw3", "ctsw4"}
    link.down()
    settle_ecmp(plain, "rtsw1", 3)
    after = choices(plain, "rtsw1", flows)
    on_dead = before.count("ctsw2")
    assert moved(before, after) == on_dead
    assert "ctsw2" not in after
    assert moved_ecmp > on_dead_ecmp

    def restored() -> InUse:
        link.down()
        settle_ecmp(plain, "rtsw1", 3)
        used = InUse(choices(plain, "rtsw1", flows), time.monotonic())
        assert "ctsw2" not in used.choices

        def whole() -> bool:
            nonlocal used
            used = used.go_on(plain, flows)
            return set(groups_of(plain, "rtsw1").values()) == {4}

        link.up()
        wait_until(whole, "the uplink in every group")
        for _ in range(8):
            time.sleep(IDLE_S / 10)
            used = used.go_on(plain, flows)
        return used

    used = measured(restored)
    assert used.moved == 0, "flows in use moved"
    after = used.choices
    time.sleep(2 * IDLE_S)
    choices(plain, "rtsw1", flows)
    idle = choices(plain, "rtsw1", flows)
    assert idle.count("ctsw2") > 0, "the restored uplink is never used again"
    tell(
        f"{FLOWS} flows: ecmp moved {moved_ecmp} ({on_dead_ecmp} were on the dead uplink), "
        f"resilient moved {on_dead} of {on_dead}; restored in use 0, after a pause "
        f"{moved(after, idle)}"
    )


@dataclass(frozen=True)
class InUse:
    """Flows that repeated lookups keep in use: the last choices, their time, the number that had
    changed meanwhile, and the longest time without a lookup."""

    choices: list[str]
    looked_s: float
    moved: int = 0
    longest_s: float = 0.0

    def go_on(self, lab: RunningLab, flows: Sequence[Flow5]) -> InUse:
        """The state after one more lookup of each flow."""
        now, looked_s = choices(lab, "rtsw1", flows), time.monotonic()
        longest_s = max(self.longest_s, looked_s - self.looked_s)
        return InUse(now, looked_s, self.moved + moved(self.choices, now), longest_s)

    @property
    def problems(self) -> tuple[str, ...]:
        """A flow that was idle for IDLE_S meanwhile may have moved."""
        idle = f"flows were idle for {self.longest_s:.2f} s (the limit is {IDLE_S} s)"
        return (f"not valid because {idle}",) if self.longest_s >= IDLE_S else ()


@pytest.mark.side_by_side
def test_a_failure_two_hops_away_moves_only_flows_that_passed_there(plain: RunningLab) -> None:
    """The rack's own links stay up: BGP withdraws one next hop of one prefix, and only that."""
    set_scheme(plain, RESILIENT)
    flows = flows_from(plain, "rtsw1", FLOWS)
    far = next(p for p in plain.fabric.prefixes_holding(flows[0].destination))
    before = choices(plain, "rtsw1", flows)
    assert len(set(own_routes(plain, "rtsw1").values())) == 1
    plain.link(f"{far.origins[0]}:ctsw3").down()
    wait_until(lambda: widths(plain, "rtsw1")[far.prefix] == 3)
    wait_until(lambda: "ctsw3" not in choices(plain, "rtsw1", flows))
    after = choices(plain, "rtsw1", flows)
    assert moved(before, after) == before.count("ctsw3")
    assert sorted(groups_of(plain, "rtsw1").values()) == [3, 4]


@pytest.mark.side_by_side
def test_bgp_keeps_its_routes_and_takes_over_when_a_dead_controllers_group_is_empty(
    plain: RunningLab,
) -> None:
    set_scheme(plain, RESILIENT)
    bgp = widths(plain, "rtsw1")
    pid = controller_pid(plain.runtime.files)
    assert pid is not None
    assert not read_status(plain).lacks_controller
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: read_status(plain).lacks_controller)
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not read_status(plain).lacks_controller)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: read_status(plain).lacks_controller)
    assert not read_status(plain).converged
    job = JobSpec.model_validate({"pattern": "pairs", "ranks": 2, "size": "64KB"})
    assert NO_CONTROLLER in run_job(plain, job).problems
    for spine in (1, 2, 3, 4):
        plain.link(f"rtsw1:ctsw{spine}").down()
    wait_until(lambda: not own_routes(plain, "rtsw1"))
    for spine in (1, 2, 3, 4):
        plain.link(f"rtsw1:ctsw{spine}").up()
    wait_until(lambda: widths(plain, "rtsw1") == bgp)
    assert not own_routes(plain, "rtsw1")
    assert len(set(choices(plain, "rtsw1", flows_from(plain, "rtsw1", 64)))) == 4
    zebra = vty_json(plain.node("rtsw1").daemon_files, "zebra", "show ip route json", dict)
    selected = {
        prefix: [r["protocol"] for r in routes if r.get("selected")]
        for prefix, routes in zebra.items()
    }
    assert len(bgp) == 7
    assert all(selected[prefix if "/" in prefix else f"{prefix}/32"] == ["bgp"] for prefix in bgp)


@pytest.mark.side_by_side
def test_resilient_routes_are_gone_with_the_scheme_and_bgps_are_as_before(
    plain: RunningLab,
) -> None:
    before = {node.name: read_fib(plain.node(node.name).netns) for node in plain.fabric.switches}
    set_scheme(plain, RESILIENT)
    assert {len(own_routes(plain, f"rtsw{n}")) for n in (1, 2, 3, 4)} == {3}
    set_scheme(plain, EcmpScheme())
    for node in plain.fabric.switches:
        assert not groups_of(plain, node.name)
        assert set(read_fib(plain.node(node.name).netns).routes) == set(before[node.name].routes)


@pytest.mark.side_by_side
def test_a_lab_has_one_controller(plain: RunningLab) -> None:
    set_scheme(plain, RESILIENT)
    with pytest.raises(InputError, match="has a controller"):
        start_controller(plain.fabric, plain.runtime.files, RESILIENT)
    stop_controller(plain.fabric, plain.runtime.files)
    assert controller_pid(plain.runtime.files) is None


@pytest.mark.side_by_side
def test_an_interface_that_comes_later_does_not_end_the_controller(plain: RunningLab) -> None:
    set_scheme(plain, TE)
    before = controller_pid(plain.runtime.files)
    assert before is not None
    switch = plain.node("rtsw1")
    try:
        for command in (
            "ip link add late type veth peer later",
            "ip link set late up",
            "ip link set later up",
            "ip address add 203.0.113.1/24 dev late",
        ):
            assert switch.exec(command.split()).returncode == 0
        done = len(rounds(plain))
        wait_until(lambda: len(rounds(plain)) >= done + 2)
    finally:
        switch.exec(["ip", "link", "delete", "late"])
    done = len(rounds(plain))
    wait_until(lambda: len(rounds(plain)) >= done + 2)
    assert controller_pid(plain.runtime.files) == before
    problems = (problem for entry in rounds(plain) for problem in entry.problems)
    assert not [problem for problem in problems if problem.startswith("rtsw1:")]


def key_of(lab: RunningLab, flow: ProbeStream) -> tuple[str, str, int]:
    source = lab.fabric.nics(flow.source)[flow.source_nic - 1]
    destination = lab.fabric.nics(flow.destination)[flow.destination_nic - 1]
    return source.ip, destination.ip, flow.sport


def leaf_of(lab: RunningLab, flow: ProbeStream) -> str:
    return lab.fabric.nics(flow.source)[flow.source_nic - 1].links[0].b.node


def entries(lab: RunningLab) -> dict[tuple[str, str, str, int], int]:
    read = Steering(lab.fabric, lab.runtime.files).read_entries()
    return {
        (key.node, key.source, key.destination, key.source_port): value
        for key, value in read.items()
    }


def uplink_of(lab: RunningLab, flow: ProbeStream) -> str:
    """The uplink that a flow's entry at its leaf selects in the kernel's present group."""
    leaf = leaf_of(lab, flow)
    value = entries(lab)[leaf, *key_of(lab, flow)]
    route = read_fib(lab.node(leaf).netns).lookup(key_of(lab, flow)[1])
    assert route is not None
    return route.next_hops[select(value >> 1, [hop.weight for hop in route.next_hops])].interface


def session(lab: RunningLab, flows: Sequence[ProbeStream]) -> TrafficSession:
    return TrafficSession(lab.fabric, lambda server: lab.node(server).netns, flows)


def traffic_of(lab: RunningLab, rate_pps: int) -> tuple[ProbeStream, ...]:
    """One flow from every NIC to one of another rack: 16 flows, as many as the uplinks can
    carry."""
    return permutation(lab.fabric, 16, rate_pps, 64, seed=3)


def wait_for_demands(lab: RunningLab, count: int) -> None:
    wait_until(lambda: rounds(lab) and rounds(lab)[-1].demands == count)


def lost(result: TrafficResult) -> int:
    return sum(len(record.sent_seq) - len(record.received_seq) for record in result.flows)


def sent_by_uplinks(lab: RunningLab) -> dict[tuple[str, str], int]:
    """Packets that every uplink of every leaf has sent, by leaf and interface."""
    leaves = (node.name for node in lab.fabric.switches if node.is_leaf)
    return {
        (leaf, link.a.interface): lab.link(link.name).counters()[leaf].tx_packets
        for leaf in leaves
        for link in lab.fabric.uplinks(leaf)
    }


@pytest.mark.few_at_once
@pytest.mark.parametrize("engine", mostly_long(TeEngine, (TeEngine.CSPF,)))
def test_every_uplink_carries_the_packets_of_the_flows_whose_entries_name_it(
    plain: RunningLab, engine: TeEngine
) -> None:
    set_scheme(plain, TeScheme(kind="te", engine=engine))
    flows = traffic_of(plain, 100)
    uplinks: dict[int, tuple[str, str]] = {}
    carried: Counter[tuple[str, str]] = Counter()

    def run() -> TrafficResult:
        with session(plain, flows) as probes:
            wait_for_demands(plain, len(flows))
            uplinks.update(
                (flow.id, (leaf_of(plain, flow), uplink_of(plain, flow))) for flow in flows
            )
            before = sent_by_uplinks(plain)
            probes.start()
            time.sleep(2)
            result = probes.stop()
            after = sent_by_uplinks(plain)
        carried.clear()
        carried.update({uplink: after[uplink] - before[uplink] for uplink in after})
        wait_for_demands(plain, 0)
        wait_until(lambda: not entries(plain))
        return result

    result = measured(run)
    assert lost(result) == 0
    expected: Counter[tuple[str, str]] = Counter()
    for record in result.flows:
        assert len(record.sent_seq) > 150
        expected[uplinks[record.flow.id]] += len(record.sent_seq)
    if engine is TeEngine.LP:
        assert len(expected) == 16, "a permutation has an uplink for each flow"
    for uplink, packets in carried.items():
        assert 0 <= packets - expected[uplink] < 120, "besides probes only BGP's packets"


@pytest.mark.few_at_once
def test_a_flow_falls_back_to_a_live_uplink_when_its_own_goes_and_no_controller_lives(
    plain: RunningLab,
) -> None:
    set_scheme(plain, TE)
    flows = traffic_of(plain, 100)
    with session(plain, flows):
        wait_for_demands(plain, len(flows))
        pid = controller_pid(plain.runtime.files)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        stale = entries(plain)
        flow = flows[0]
        gone = uplink_of(plain, flow)
        plain.link(f"{leaf_of(plain, flow)}:{gone}").down()
        wait_until(lambda: has_withdrawn(plain, leaf_of(plain, flow)))
        assert uplink_of(plain, flow) != gone

    def run() -> TrafficResult:
        with session(plain, flows) as probes:
            probes.start()
            time.sleep(1)
            return probes.stop()

    result = measured(run)
    assert sum(len(record.sent_seq) for record in result.flows) > 16 * 75
    assert lost(result) == 0
    assert entries(plain) == stale


@pytest.mark.long
def test_killed_and_started_again_it_comes_to_the_same_entries_and_no_packet_is_lost(
    plain: RunningLab,
) -> None:
    set_scheme(plain, TE)
    flows = traffic_of(plain, 200)[:8]

    def run() -> TrafficResult:
        with session(plain, flows) as probes:
            wait_for_demands(plain, len(flows))
            before = entries(plain)
            probes.start()
            time.sleep(0.5)
            pid = controller_pid(plain.runtime.files)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: controller_pid(plain.runtime.files) is None)
            assert entries(plain) == before
            started = time.monotonic()
            start_controller(plain.fabric, plain.runtime.files, TE)
            tell(f"restarted within {1000 * (time.monotonic() - started):.0f} ms")
            assert entries(plain) == before
            assert not did_something(rounds(plain)[-1])
            time.sleep(0.5)
            result = probes.stop()
        wait_for_demands(plain, 0)
        return result

    result = measured(run)
    assert sum(len(record.sent_seq) for record in result.flows) > 8 * 200
    assert lost(result) == 0


@pytest.mark.side_by_side
def test_entries_lost_behind_its_back_are_written_again(plain: RunningLab) -> None:
    set_scheme(plain, TE)
    with session(plain, traffic_of(plain, 10)):
        wait_for_demands(plain, 16)
        before = entries(plain)
        steering = Steering(plain.fabric, plain.runtime.files)
        steering.remove_entries(list(steering.read_entries())[:5])
        assert len(entries(plain)) == len(before) - 5
        wait_until(lambda: entries(plain) == before)


def test_the_period_is_kept(plain: RunningLab) -> None:
    set_scheme(plain, TE)

    def started() -> list[float]:
        return [entry.started_unix_s for entry in rounds(plain) if "period" in entry.reasons]

    def nine() -> list[float]:
        before = len(started())
        wait_until(lambda: len(started()) >= before + 9)
        return started()[before : before + 9]

    def held_up(starts: list[float]) -> tuple[str, ...]:
        """A round that is late by more than a period delays those after it."""
        longest_s = max(after - before for before, after in pairwise(starts))
        late = f"not valid because a round began {longest_s:.2f} s after the one before it"
        return (late,) if longest_s > 1.5 * 0.5 else ()

    with session(plain, traffic_of(plain, 10)):
        wait_for_demands(plain, 16)
        starts = measured(nine, held_up)
    # A busy machine delays a round; it does not move those after it.
    phases_ms = [1000 * start - 500 * number for number, start in enumerate(starts)]
    late_ms = [phase - min(phases_ms) for phase in phases_ms]
    tell(f"period 500 ms: {max(late_ms):.1f} ms late at most over {len(late_ms)} rounds")
    assert statistics.median(late_ms) < 100


def test_reaction_to_a_failed_link(plain: RunningLab) -> None:
    """From the loss of carrier to entries with live next hops only: because of the link's event,
    not at the next period."""
    set_scheme(plain, TE)
    flows = traffic_of(plain, 10)
    reactions_ms, spent, because_of_link = [], [], 0
    with session(plain, flows):
        wait_for_demands(plain, len(flows))
        whole = rounds(plain)[-1].max_utilisation
        for turn in range(TURNS):
            name = f"rtsw{turn % 4 + 1}:ctsw{turn // 4 % 4 + 1}"
            seen = len(rounds(plain))
            down_s = time.clock_gettime(time.CLOCK_REALTIME)
            plain.link(name).down()
            wait_until(partial(has_reacted, plain, seen))
            acted = next(entry for entry in rounds(plain)[seen:] if did_something(entry))
            reactions_ms.append(1000 * (acted.finished_unix_s - down_s))
            spent.append((acted.collect_ms, acted.engine_ms, acted.program_ms))
            because_of_link += "link" in acted.reasons
            plain.link(name).up()
            wait_until(lambda: has_all_routes(plain))
            wait_until(lambda: rounds(plain)[-1].max_utilisation == whole)
    parts = [statistics.median(part) for part in zip(*spent, strict=True)]
    tell(
        f"reaction, n={len(reactions_ms)}: median {statistics.median(reactions_ms):.1f} ms, "
        f"{min(reactions_ms):.1f} to {max(reactions_ms):.1f} ms; "
        f"of it collector {parts[0]:.1f}, engine {parts[1]:.1f}, programmer {parts[2]:.1f} ms"
    )
    # A period that ends just then sees the dead link first.
    assert because_of_link > TURNS / 2


def is_done(after: Sequence[Round]) -> bool:
    return len(after) >= 2 and not any(did_something(entry) for entry in after[-2:])


def has_reacted(lab: RunningLab, seen: int) -> bool:
    return any(did_something(entry) for entry in rounds(lab)[seen:])


@pytest.mark.long
@pytest.mark.parametrize("failures", [2, 3])
def test_several_links_that_fail_at_once(plain: RunningLab, failures: int) -> None:
    """Uplinks of one leaf: the remaining ones carry all its flows, evenly, and none is lost
    afterwards."""
    set_scheme(plain, TE)
    flows = traffic_of(plain, 100)
    links = [plain.link(f"rtsw1:ctsw{spine}") for spine in range(1, failures + 1)]

    def run() -> TrafficResult:
        with session(plain, flows) as probes:
            wait_for_demands(plain, len(flows))
            full = rounds(plain)[-1].max_utilisation
            seen = len(rounds(plain))
            down_s = time.clock_gettime(time.CLOCK_REALTIME)
            for link in links:
                link.down()
            wait_until(lambda: has_withdrawn(plain, "rtsw1", 4 - failures))
            settled = len(rounds(plain))
            wait_until(lambda: is_done(rounds(plain)[settled:]), "two rounds that change nothing")
            after = rounds(plain)[seen:]
            probes.start()
            time.sleep(1)
            result = probes.stop()
        acted, last = [entry for entry in after if did_something(entry)], after[-1]
        tell(
            f"{failures} of 4 uplinks down: first entries after "
            f"{1000 * (acted[0].finished_unix_s - down_s):.1f} ms, last change after "
            f"{1000 * (acted[-1].finished_unix_s - down_s):.1f} ms in {len(acted)} rounds; most "
            f"used link {full:.3f} before, {last.max_utilisation:.3f} after"
        )
        assert last.lost == 0
        assert last.max_utilisation == pytest.approx(full * -(-4 // (4 - failures)))
        for link in links:
            link.up()
        wait_until(lambda: has_all_routes(plain))
        wait_for_demands(plain, 0)
        return result

    assert lost(measured(run)) == 0


@pytest.mark.side_by_side
def test_a_controller_that_does_not_start_says_its_last_lines(plain: RunningLab) -> None:
    files = plain.runtime.files
    with pytest.raises(MachineError, match="the controller of lab t-controller") as failed:
        start_controller(plain.fabric, files, EcmpScheme())
    said = str(failed.value).splitlines()
    assert said[0].endswith("did not start; it said:")
    assert len(said) == 6
    assert said[-1].endswith("needs no controller")
    assert controller_pid(files) is None


@pytest.mark.side_by_side
def test_a_controller_that_is_late_is_ended(
    plain: RunningLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = plain.runtime.files
    monkeypatch.setattr(controller, "START_TIMEOUT_S", 0.0)
    with pytest.raises(MachineError, match="did not start within 0 s; it said nothing"):
        start_controller(plain.fabric, files, RESILIENT)
    assert controller_pid(files) is None
    monkeypatch.undo()
    start_controller(plain.fabric, files, RESILIENT)
    stop_controller(plain.fabric, files)


@pytest.mark.side_by_side
def test_broken_demand_files_are_told_and_the_others_are_placed(plain: RunningLab) -> None:
    set_scheme(plain, TE)
    folder = ControllerFiles(plain.runtime.files).demands
    with session(plain, traffic_of(plain, 10)):
        wait_for_demands(plain, 16)
        good = json.loads(next(folder.glob("*.json")).read_text())
        for name, text in (
            ("half.json", json.dumps(good)[:200]),
            ("garbage.json", "\0\xff"),
            ("other.json", '{"flows": []}'),
            ("fields.json", json.dumps([{**good[0], "server": "nobody"}, 7, {}])),
        ):
            (folder / name).write_text(text)
        try:
            wait_until(lambda: len(rounds(plain)[-1].problems) == 6)
            latest = rounds(plain)[-1]
        finally:
            for name in ("half", "garbage", "other", "fields"):
                (folder / f"{name}.json").unlink()
        assert latest.demands == 16
        assert {problem.partition(":")[0] for problem in latest.problems} == {
            "half.json",
            "garbage.json",
            "other.json",
            "fields.json",
        }
        wait_until(lambda: not rounds(plain)[-1].problems)


@pytest.mark.side_by_side
def test_it_goes_on_when_a_switchs_daemons_die(plain: RunningLab) -> None:
    set_scheme(plain, TE)
    flows = traffic_of(plain, 10)
    spine = plain.node("ctsw4")
    with session(plain, flows):
        wait_for_demands(plain, 16)
        for pid in spine.daemons().values():
            os.kill(pid, signal.SIGKILL)
        try:
            # Its neighbours withdraw it when their sessions end, and no entry leads there.
            wait_until(lambda: has_withdrawn(plain, "rtsw1"))
            wait_until(lambda: all(uplink_of(plain, flow) != "ctsw4" for flow in flows))
            assert rounds(plain)[-1].problems == ()
            assert controller_pid(plain.runtime.files) is not None
        finally:
            spine.start_daemons(("zebra", "bgpd"))
