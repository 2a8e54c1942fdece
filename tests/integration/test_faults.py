"""Each fault on a real lab: its effect on the kernel and FRR, and that no trace of it remains."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rocelab.base.errors import InputError
from rocelab.faults import policy
from rocelab.faults.base import Fault
from rocelab.faults.fibre import BrokenFibre
from rocelab.faults.kinds.abrupt_removal import AbruptRemoval
from rocelab.faults.kinds.bad_prefix import BadPrefix
from rocelab.faults.kinds.carrier_down import CarrierDown
from rocelab.faults.kinds.daemon_crash import DaemonCrash
from rocelab.faults.kinds.daemon_hang import DaemonHang
from rocelab.faults.kinds.drain import Drain
from rocelab.faults.kinds.host_pause import HostPause
from rocelab.faults.kinds.mtu_mismatch import MtuMismatch
from rocelab.faults.kinds.power_loss import SwitchPowerLoss
from rocelab.faults.kinds.rate_degrade import RateDegrade
from rocelab.faults.kinds.route_leak import RouteLeak
from rocelab.faults.kinds.session_reset import SessionReset
from rocelab.faults.ports import read_default_ports, read_ports
from rocelab.lab import wiring
from rocelab.lab.lab import Lab, RunningLab
from rocelab.linux import namespaces, processes
from rocelab.linux.fib import read_fib
from rocelab.observe.timeline import FibTimeline, opened_namespaces
from rocelab.planning.fabric import Link
from rocelab.routing.frr import vty
from rocelab.routing.stack import BgpPeer
from tests.helpers.running import running
from tests.helpers.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.side_by_side

CLOS = """
name: t-faults
fabric: {kind: clos, racks: 3, spines: 2, servers_per_rack: 1}
dilation: 5000
routing: {keepalive: 1s, hold: 10s}
"""
HPN = """
name: t-faults-hpn
fabric:
  {kind: hpn, segments: 1, servers_per_segment: 2, rails: 1, ports_per_nic: 2, planes: 2, aggs: 1}
links: {server_rate: 200G}
routing: {bfd: {interval: 100ms, multiplier: 3}}
queues: {engine: "off"}
"""
IP_MTU_DISCOVER, IP_PMTUDISC_PROBE = 10, 3

Lines = tuple[str, ...]
State = dict[tuple[str, str], Lines]


def state_of(lab: RunningLab) -> State:
    """The state of every node, from the kernel and bgpd."""
    commands = (
        ["ip", "-d", "-o", "link"],
        ["ip", "-o", "address"],
        ["ip", "route"],
        ["ip", "neighbour", "show", "nud", "permanent"],
        ["tc", "qdisc"],
    )
    state: State = {}
    for node in lab.fabric.nodes:
        for command in commands:
            text = lab.node(node.name).exec(command).stdout
            lines = re.sub(r"direct_packets_stat \d+ ", "", text).splitlines()
            state[node.name, " ".join(command)] = tuple(sorted(lines))
        if node.is_switch:
            running = vty.vty_command(
                lab.node(node.name).daemon_files, "bgpd", "show running-config"
            )
            state[node.name, "bgpd"] = tuple(running.splitlines())
            state[node.name, "daemons"] = tuple(lab.node(node.name).daemons())
    return state


class Rig:
    """A lab that is up, and its state after `up`."""

    def __init__(self, lab: RunningLab, timeline: FibTimeline) -> None:
        self.lab = lab
        self._timeline = timeline
        self._broken: list[Fault] = []
        timeline.wait_until_whole(LIMIT_S)
        self._up = state_of(lab)

    def link(self, name: str) -> Link:
        return self.lab.fabric.link_by_name[name]

    def prefix(self, leaf: str) -> str:
        return self.lab.fabric.prefixes_of[leaf][0].prefix

    def inject(self, fault: Fault) -> None:
        """Inject twice, because every step of a fault is repeatable."""
        self._broken.append(fault)
        fault.prepare(self.lab)
        assert fault.remains(self.lab) == () or isinstance(
            fault, RouteLeak | BadPrefix | BrokenFibre
        )
        fault.inject(self.lab)
        fault.inject(self.lab)

    def restore(self, fault: Fault) -> None:
        """Restore the fault and check that the lab is as before. bgpd withdraws routes a while
        after it is told, which who restores a fault waits for too."""
        for _ in range(2):
            fault.restore(self.lab)
            wait_until(lambda: fault.remains(self.lab) == (), "nothing remains")
        self.is_whole()
        self._broken.clear()

    def mend(self) -> None:
        """Restore faults that a failed test has left."""
        while self._broken:
            self._broken.pop().restore(self.lab)

    def is_whole(self) -> None:
        """Check that nothing differs from `up` once routing has converged."""
        self._timeline.wait_until_whole(LIMIT_S)
        deadline = time.monotonic() + LIMIT_S
        while (changed := self._changed()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert changed == {}

    def _changed(self) -> dict[tuple[str, str], tuple[set[str], set[str]]]:
        """By node and query: lines that are gone, and new ones."""
        state = state_of(self.lab)
        return {
            key: (set(before) - set(state[key]), set(state[key]) - set(before))
            for key, before in self._up.items()
            if state[key] != before
        }

    def hops(self, switch: str, prefix: str) -> set[str]:
        """The interfaces by which a switch sends a prefix's packets."""
        fib = read_fib(self.lab.node(switch).netns)
        widths = [route for route in fib.routes if route.prefix == prefix]
        return {hop.interface for route in widths for hop in route.next_hops if hop.carrier}

    def session(self, link: str, switch: str) -> BgpPeer:
        """A switch's session on a link."""
        return policy.sessions(self.lab, switch)[policy.peer_name(self.link(link), switch)]

    def await_hops(self, switch: str, prefix: str, hops: set[str]) -> None:
        wait_until(lambda: self.hops(switch, prefix) == hops, f"{switch} sends {prefix} to {hops}")

    def await_state(self, link: str, switch: str, state: str) -> None:
        wait_until(
            lambda: self.session(link, switch).state == state, f"{link} is {state} at {switch}"
        )

    def is_established(self, link: str, switch: str) -> bool:
        return self.session(link, switch).state == "Established"


def brought_up(tmp_path: Path, text: str) -> Iterator[Rig]:
    file = tmp_path / "lab.yaml"
    file.write_text(text)
    with (
        running(Lab.planned(file)) as lab,
        opened_namespaces(lab, lab.fabric.switches) as opened,
        FibTimeline(lab, opened) as timeline,
    ):
        yield Rig(lab, timeline)


@pytest.fixture(scope="module")
def clos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    yield from brought_up(tmp_path_factory.mktemp("clos"), CLOS)


@pytest.fixture(scope="module")
def hpn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    yield from brought_up(tmp_path_factory.mktemp("hpn"), HPN)


@pytest.fixture
def rig(clos: Rig) -> Iterator[Rig]:
    """Three racks under two spines."""
    yield clos
    clos.mend()


@pytest.fixture
def dual(hpn: Rig) -> Iterator[Rig]:
    """Servers with two-port NICs, BFD, and ports without queues."""
    yield hpn
    hpn.mend()


def test_pulled_cables_take_the_carrier_of_both_ends_and_of_all_links_at_once(rig: Rig) -> None:
    fault = CarrierDown((rig.link("rtsw1:ctsw1"), rig.link("rtsw2:ctsw1")))
    rig.inject(fault)
    assert fault.remains(rig.lab) == ("rtsw1:ctsw1 is down", "rtsw2:ctsw1 is down")
    spine = read_ports(rig.lab.node("ctsw1"))
    assert [spine[name].carrier for name in ("rtsw1", "rtsw2", "rtsw3")] == [False, False, True]
    wait_until(lambda: rig.hops("rtsw1", rig.prefix("rtsw2")) == {"ctsw2"}, "rack 1 uses spine 2")
    rig.restore(fault)


def test_a_broken_fibre_is_seen_at_one_end_and_the_other_waits_for_its_hold_timer(rig: Rig) -> None:
    fault = BrokenFibre((rig.link("rtsw1:ctsw2"),), "ctsw2")
    rig.inject(fault)
    wait_until(
        lambda: not rig.is_established("rtsw1:ctsw2", "ctsw2"), "the dark end's session ends"
    )
    assert rig.is_established("rtsw1:ctsw2", "rtsw1")
    assert rig.hops("rtsw1", rig.prefix("rtsw2")) == {"ctsw1", "ctsw2"}
    assert any("dormant" in line for line in fault.remains(rig.lab))
    assert read_ports(rig.lab.node("rtsw1"))["ctsw2"].carrier
    wait_until(lambda: not rig.hops("ctsw2", rig.prefix("rtsw1")), "the dark end's route goes")
    wait_until(lambda: not rig.is_established("rtsw1:ctsw2", "rtsw1"), "the far end's hold timer")
    rig.restore(fault)


def test_a_server_whose_only_port_was_down_gets_its_default_route_back(rig: Rig) -> None:
    fault = CarrierDown((rig.link("srv1-1:rtsw1"),), kind="nic-port-down")
    rig.inject(fault)
    assert read_default_ports(rig.lab.node("srv1-1")) == frozenset()
    # As VethLink.up leaves it: the port is up, the route is not there.
    rig.lab.link("srv1-1:rtsw1").up()
    assert fault.remains(rig.lab) == ("srv1-1 has no default route",)
    rig.restore(fault)


def arrived(lab: RunningLab, source: str, target: str, sizes_bytes: Sequence[int]) -> list[int]:
    """Which of these UDP payloads arrive; the last must, and none is fragmented."""
    address = (lab.fabric.nics(target)[0].ip, 9)

    def udp() -> socket.socket:
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    with (
        namespaces.inside(lab.node(target).netns, udp) as receiver,
        namespaces.inside(lab.node(source).netns, udp) as sender,
    ):
        receiver.bind(address)
        receiver.settimeout(LIMIT_S)
        sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
        for size in sizes_bytes:
            sender.sendto(bytes(size), address)
        arrivals = []
        while sizes_bytes[-1] not in arrivals:
            arrivals.append(len(receiver.recv(1 << 16)))
    return arrivals


def test_large_packets_vanish_at_a_smaller_mtu_and_small_ones_pass(rig: Rig) -> None:
    fault = MtuMismatch((rig.link("srv2-1:rtsw2"),), "srv2-1", 1500)
    assert arrived(rig.lab, "srv1-1", "srv2-1", (4000, 1000)) == [4000, 1000]
    rig.inject(fault)
    assert fault.remains(rig.lab) == ("srv2-1:rtsw2 has an MTU of 1500 instead of 9000",)
    before = rig.lab.link("srv2-1:rtsw2").counters()["rtsw2"]
    assert arrived(rig.lab, "srv1-1", "srv2-1", (4000, 1000)) == [1000]
    after = rig.lab.link("srv2-1:rtsw2").counters()["rtsw2"]
    assert after.tx_dropped == before.tx_dropped + 1
    rig.restore(fault)
    assert arrived(rig.lab, "srv1-1", "srv2-1", (4000, 1000)) == [4000, 1000]


def test_a_session_stays_where_the_mtu_is_smaller_at_one_end(rig: Rig) -> None:
    dropped = counter(rig.lab, "ctsw1", "connectionsDropped")
    fault = MtuMismatch((rig.link("rtsw1:ctsw1"),), "ctsw1", 1500)
    rig.inject(fault)
    policy.clear(rig.lab, "ctsw1", list(policy.sessions(rig.lab, "ctsw1")), soft=True)
    rig.restore(fault)
    assert counter(rig.lab, "ctsw1", "connectionsDropped") == dropped


def test_an_mtu_that_is_no_smaller_is_refused(rig: Rig) -> None:
    with pytest.raises(InputError, match="9000"):
        MtuMismatch((rig.link("rtsw1:ctsw1"),), "ctsw1", 9000).prepare(rig.lab)


def rate_of(lab: RunningLab, node: str, interface: str) -> str:
    """The rate of a port's HTB tree, as tc writes it."""
    text = lab.node(node).exec(["tc", "class", "show", "dev", interface]).stdout
    match = re.search(r"class htb 1:1 root rate (\S+)", text)
    assert match, text
    return match[1]


def test_a_port_with_queues_is_slowed_in_place(rig: Rig) -> None:
    assert rate_of(rig.lab, "rtsw1", "ctsw1") == "80Mbit"
    fault = RateDegrade((rig.link("rtsw1:ctsw1"),), 250_000, "ctsw1")
    rig.inject(fault)
    assert rate_of(rig.lab, "rtsw1", "ctsw1") == "20Mbit"
    assert rate_of(rig.lab, "ctsw1", "rtsw1") == "80Mbit"
    assert fault.remains(rig.lab) == ("rtsw1:ctsw1 still has a reduced rate",)
    rig.restore(fault)
    assert rate_of(rig.lab, "rtsw1", "ctsw1") == "80Mbit"


def test_a_port_without_queues_gets_a_token_bucket_and_loses_it(dual: Rig) -> None:
    fault = RateDegrade((dual.link("srv1-1:tor1a"),), 500_000, "srv1-1", "slow-receiver")
    dual.inject(fault)
    qdiscs = dual.lab.node("tor1a").exec(["tc", "qdisc", "show", "dev", "srv1-1"]).stdout
    assert "qdisc tbf" in qdiscs
    assert "rate 20Mbit" in qdiscs
    assert fault.remains(dual.lab) == ("tor1a:srv1-1 still has a reduced rate",)
    dual.restore(fault)


def test_a_nic_of_two_ports_keeps_its_default_route_until_both_are_down(dual: Rig) -> None:
    first = CarrierDown((dual.link("srv1-1:tor1a"),))
    second = CarrierDown((dual.link("srv1-1:tor1b"),))
    first.inject(dual.lab)
    assert len(read_default_ports(dual.lab.node("srv1-1"))) == 1
    second.inject(dual.lab)
    assert read_default_ports(dual.lab.node("srv1-1")) == frozenset()
    first.restore(dual.lab)
    assert first.remains(dual.lab) == ()
    assert len(read_default_ports(dual.lab.node("srv1-1"))) == 1
    dual.restore(second)


def bfd_states(lab: RunningLab, switch: str) -> set[str]:
    answer = vty.vty_command(lab.node(switch).daemon_files, "bfdd", "show bfd peers json")
    return {peer["status"] for peer in json.loads(answer)}


def test_without_bfdd_neighbours_end_the_sessions_and_with_it_they_come_back(dual: Rig) -> None:
    # BFD opens its sessions once a second, after BGP's: only one that was up can be seen to end.
    wait_until(lambda: bfd_states(dual.lab, "p1-agg1") == {"up"}, "BFD is up")
    fault = DaemonCrash("tor1a", "bfdd")
    dual.inject(fault)
    assert fault.remains(dual.lab) == ("bfdd of tor1a does not run",)
    wait_until(lambda: not dual.is_established("tor1a:p1-agg1", "p1-agg1"), "BFD has seen it")
    dual.restore(fault)


def test_a_crashed_bgpd_takes_its_routes_along_and_its_neighbours_leave(rig: Rig) -> None:
    fault = DaemonCrash("ctsw1", "bgpd")
    rig.inject(fault)
    assert fault.remains(rig.lab) == ("bgpd of ctsw1 does not run",)
    wait_until(lambda: rig.hops("rtsw1", rig.prefix("rtsw2")) == {"ctsw2"}, "rack 1 has left")
    wait_until(lambda: not rig.hops("ctsw1", rig.prefix("rtsw1")), "its own routes are gone")
    rig.restore(fault)


def test_without_zebra_the_kernel_forwards_on_and_no_change_reaches_it(rig: Rig) -> None:
    fault = DaemonCrash("rtsw1", "zebra")
    others = rig.lab.node("rtsw1").daemons()
    del others["zebra"]
    rig.inject(fault)
    assert rig.lab.node("rtsw1").daemons() == others
    assert rig.hops("rtsw1", rig.prefix("rtsw2")) == {"ctsw1", "ctsw2"}
    assert rig.is_established("rtsw1:ctsw1", "rtsw1")
    drain = Drain("ctsw1")
    drain.inject(rig.lab)
    wait_until(lambda: rig.hops("rtsw2", rig.prefix("rtsw3")) == {"ctsw2"}, "rack 2 has left")
    assert rig.hops("rtsw1", rig.prefix("rtsw3")) == {"ctsw1", "ctsw2"}
    drain.restore(rig.lab)
    rig.restore(fault)
    assert rig.lab.node("rtsw1").daemons()["bgpd"] != others["bgpd"]


def test_a_hung_bgpd_looks_alive_until_its_neighbours_hold_timer(rig: Rig) -> None:
    fault = DaemonHang("ctsw1", "bgpd")
    rig.inject(fault)
    pid = rig.lab.node("ctsw1").daemons()["bgpd"]
    wait_until(lambda: processes.is_stopped(pid), "the stop")
    assert fault.remains(rig.lab) == ("bgpd of ctsw1 is stopped",)
    assert rig.is_established("rtsw1:ctsw1", "rtsw1")
    wait_until(lambda: not rig.is_established("rtsw1:ctsw1", "rtsw1"), "the hold timer")
    assert read_ports(rig.lab.node("rtsw1"))["ctsw1"].carrier
    rig.restore(fault)
    assert rig.lab.node("ctsw1").daemons()["bgpd"] == pid


def test_a_switch_without_power_is_dark_and_boots_cold(rig: Rig) -> None:
    fault = SwitchPowerLoss("ctsw1")
    rig.inject(fault)
    node = rig.lab.node("ctsw1")
    assert node.daemons() == {}
    assert "proto bgp" not in node.exec(["ip", "route"]).stdout
    assert not any(read_ports(rig.lab.node(leaf))["ctsw1"].carrier for leaf in ("rtsw1", "rtsw3"))
    wait_until(lambda: rig.hops("rtsw1", rig.prefix("rtsw2")) == {"ctsw2"}, "rack 1 has left")
    assert len(fault.remains(rig.lab)) == len(rig.lab.daemons_of("rtsw1")) + 3
    rig.restore(fault)


def test_a_rack_switch_without_power_leaves_its_servers_their_routes(rig: Rig) -> None:
    fault = SwitchPowerLoss("rtsw3")
    rig.inject(fault)
    wait_until(lambda: not rig.hops("rtsw1", rig.prefix("rtsw3")), "rack 3 is gone")
    rig.restore(fault)
    assert arrived(rig.lab, "srv3-1", "srv1-1", (100,)) == [100]


def test_a_power_loss_that_was_half_done_is_undone(rig: Rig) -> None:
    fault = SwitchPowerLoss("ctsw2")
    first = rig.link("rtsw1:ctsw2")
    rig.lab.node("ctsw2").send([wiring.set_up(first.port("ctsw2").index, up=False)])
    rig.lab.node("ctsw2").kill_daemons(["zebra"])
    assert len(fault.remains(rig.lab)) == 2
    rig.restore(fault)


def test_what_a_killed_process_has_done_another_undoes(rig: Rig, tmp_path: Path) -> None:
    program = f"""
import os, signal
from rocelab.lab.lab import Lab, RunningLab
from rocelab.faults.kinds.drain import Drain
from rocelab.faults.kinds.daemon_crash import DaemonCrash
from rocelab.faults.kinds.carrier_down import CarrierDown
lab = RunningLab.open({rig.lab.name!r})
CarrierDown((lab.fabric.link_by_name["rtsw2:ctsw1"],)).inject(lab)
DaemonCrash("ctsw2", "bgpd").inject(lab)
Drain("rtsw1").inject(lab)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False)
    assert ended.returncode == -signal.SIGKILL
    faults: tuple[Fault, ...] = (
        CarrierDown((rig.link("rtsw2:ctsw1"),)),
        DaemonCrash("ctsw2", "bgpd"),
        Drain("rtsw1"),
    )
    for fault in faults:
        assert fault.remains(rig.lab)
        fault.restore(rig.lab)
        assert fault.remains(rig.lab) == ()
    rig.is_whole()


def test_a_drained_spine_is_left_by_all_and_keeps_its_sessions(rig: Rig) -> None:
    fault = Drain("ctsw1")
    rig.inject(fault)
    assert fault.remains(rig.lab) == ("ctsw1 is in graceful shutdown",)
    for leaf, far in (("rtsw1", "rtsw2"), ("rtsw2", "rtsw3"), ("rtsw3", "rtsw1")):
        rig.await_hops(leaf, rig.prefix(far), {"ctsw2"})
    assert rig.is_established("rtsw1:ctsw1", "rtsw1")
    # It still forwards what is on its way.
    assert rig.hops("ctsw1", rig.prefix("rtsw2")) == {"rtsw2"}
    rig.restore(fault)


def test_draining_a_rack_s_only_switch_moves_nothing(rig: Rig) -> None:
    fault = Drain("rtsw2")
    rig.inject(fault)
    peer = policy.peer_name(rig.link("rtsw2:ctsw1"), "ctsw1")

    def asked() -> bool:
        command = f"show bgp ipv4 unicast {rig.prefix('rtsw2')} json"
        answer = vty.vty_json(rig.lab.node("ctsw1").daemon_files, "bgpd", command, dict)
        return any(
            path["peer"]["peerId"] == peer and path.get("locPrf") == 0 for path in answer["paths"]
        )

    wait_until(asked, "the spine prefers any other path")
    assert rig.hops("rtsw1", rig.prefix("rtsw2")) == {"ctsw1", "ctsw2"}
    rig.restore(fault)


def test_an_abrupt_removal_shuts_every_session_and_keeps_links_and_daemons(rig: Rig) -> None:
    fault = AbruptRemoval("ctsw2")
    rig.inject(fault)
    assert fault.remains(rig.lab) == ("ctsw2 has `neighbor RTSWS shutdown`",)
    states = {session.state for session in policy.sessions(rig.lab, "ctsw2").values()}
    assert states == {"Idle (Admin)"}
    wait_until(lambda: rig.hops("rtsw1", rig.prefix("rtsw2")) == {"ctsw1"}, "rack 1 has left")
    assert read_ports(rig.lab.node("rtsw1"))["ctsw2"].carrier
    rig.restore(fault)


def counter(lab: RunningLab, switch: str, *path: str) -> int:
    """A counter of bgpd, summed over the neighbours."""
    answer = vty.vty_json(lab.node(switch).daemon_files, "bgpd", "show bgp neighbors json", dict)
    total = 0
    for value in answer.values():
        for key in path:
            value = value[key]
        total += value
    return total


def test_a_hard_reset_closes_the_sessions_and_they_come_back_by_themselves(rig: Rig) -> None:
    links = rig.lab.fabric.downlinks("ctsw1")
    before = counter(rig.lab, "ctsw1", "connectionsDropped")
    fault = SessionReset("ctsw1", links)
    fault.inject(rig.lab)
    assert counter(rig.lab, "ctsw1", "connectionsDropped") == before + 3
    fault.restore(rig.lab)
    wait_until(
        lambda: all(rig.is_established(link.name, "ctsw1") for link in links), "the sessions"
    )
    rig.restore(fault)


def test_a_soft_reset_asks_for_all_routes_again_and_closes_nothing(rig: Rig) -> None:
    dropped = counter(rig.lab, "ctsw1", "connectionsDropped")
    asked = counter(rig.lab, "ctsw1", "messageStats", "routeRefreshSent")
    fault = SessionReset("ctsw1", (rig.link("rtsw2:ctsw1"),), soft=True)
    fault.inject(rig.lab)
    wait_until(
        lambda: counter(rig.lab, "ctsw1", "messageStats", "routeRefreshSent") == asked + 1,
        "a route refresh",
    )
    assert counter(rig.lab, "ctsw1", "connectionsDropped") == dropped
    rig.restore(fault)


def announced(lab: RunningLab, switch: str) -> int:
    answer = vty.vty_json(
        lab.node(switch).daemon_files, "bgpd", "show bgp ipv4 unicast summary json", dict
    )
    return max(int(peer["pfxSnt"]) for peer in answer["peers"].values())


def updates(lab: RunningLab) -> list[int]:
    """The updates that each spine has received."""
    return [counter(lab, spine, "messageStats", "updatesRecv") for spine in ("ctsw1", "ctsw2")]


def wait_for_updates(lab: RunningLab, before: Sequence[int]) -> None:
    """Until each spine has received one more."""
    wait_until(
        lambda: all(now > then for now, then in zip(updates(lab), before, strict=True)),
        "an update at each spine",
    )


def test_a_leak_into_filters_hurts_nobody(rig: Rig) -> None:
    fault = RouteLeak("rtsw1")
    before = updates(rig.lab)
    rig.inject(fault)
    wait_until(lambda: announced(rig.lab, "rtsw1") == 5, "all is announced")
    wait_for_updates(rig.lab, before)
    for spine in ("ctsw1", "ctsw2"):
        session = rig.session(f"rtsw1:{spine}", spine)
        assert (session.established, session.accepted) == (True, 1)
        assert rig.hops(spine, rig.prefix("rtsw2")) == {"rtsw2"}
    rig.restore(fault)


def test_a_leak_without_filters_ends_at_maximum_prefix_and_cuts_the_rack_off(rig: Rig) -> None:
    fault = RouteLeak("rtsw1", filtered=False)
    rig.inject(fault)
    for spine in ("ctsw1", "ctsw2"):
        rig.await_state(f"rtsw1:{spine}", spine, policy.SHUT_FOR_PREFIXES)
    wait_until(lambda: not rig.hops("rtsw2", rig.prefix("rtsw1")), "rack 1 is cut off")
    assert rig.hops("rtsw2", rig.prefix("rtsw3")) == {"ctsw1", "ctsw2"}
    rig.restore(fault)


def test_another_rack_s_prefix_is_refused_by_filters(rig: Rig) -> None:
    fault = BadPrefix("rtsw1", rig.prefix("rtsw2"))
    before = updates(rig.lab)
    rig.inject(fault)
    wait_until(lambda: announced(rig.lab, "rtsw1") == 2, "it is announced")
    wait_for_updates(rig.lab, before)
    assert rig.hops("ctsw1", rig.prefix("rtsw2")) == {"rtsw2"}
    assert rig.hops("rtsw3", rig.prefix("rtsw2")) == {"ctsw1", "ctsw2"}
    wait_until(lambda: not rig.hops("rtsw1", rig.prefix("rtsw2")), "its own servers lose the rack")
    rig.restore(fault)


def test_another_rack_s_prefix_without_filters_draws_its_traffic(rig: Rig) -> None:
    fault = BadPrefix("rtsw1", rig.prefix("rtsw2"), filtered=False)
    rig.inject(fault)
    for spine in ("ctsw1", "ctsw2"):
        rig.await_hops(spine, rig.prefix("rtsw2"), {"rtsw1", "rtsw2"})
    rig.restore(fault)
    assert rig.hops("ctsw1", rig.prefix("rtsw2")) == {"rtsw2"}


def test_a_rack_s_own_prefix_is_no_bad_one(rig: Rig) -> None:
    with pytest.raises(InputError, match="own prefix"):
        BadPrefix("rtsw1", rig.prefix("rtsw1")).prepare(rig.lab)


def test_a_paused_host_stops_whatever_runs_on_it(rig: Rig) -> None:
    node = rig.lab.node("srv1-1")
    # One that starts others all the time: none may slip through.
    script = "while :; do sleep 0.001; done"
    shell = subprocess.Popen(
        ["nsenter", f"--net={node.netns}", "sh", "-c", script], start_new_session=True
    )
    try:
        wait_until(lambda: shell.pid in node.processes(), "the shell")
        fault = HostPause("srv1-1")
        rig.inject(fault)
        assert processes.is_stopped(shell.pid)
        assert len(fault.remains(rig.lab)) == len(node.processes()) >= 1
        fault.restore(rig.lab)
        assert fault.remains(rig.lab) == ()
        wait_until(lambda: processes.is_running(shell.pid), "it goes on")
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    rig.is_whole()


def test_a_parent_that_waits_for_a_stopped_child_to_begin_counts_as_stopped(
    tmp_path: Path,
) -> None:
    """vfork(2): the parent waits in the kernel until its child ends or calls exec."""
    program = tmp_path / "program"
    source = (
        "#include <signal.h>\n#include <unistd.h>\n"
        "int main(void) {\n"
        "    if (vfork() == 0) { kill(getpid(), SIGSTOP); _exit(0); }\n"
        '    return write(1, "on", 2) != 2;\n'
        "}\n"
    )
    subprocess.run(["clang", "-x", "c", "-", "-o", program], input=source, text=True, check=True)
    with subprocess.Popen([program], stdout=subprocess.PIPE) as parent:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        wait_until(lambda: children.read_text().split(), "the child")
        (child,) = map(int, children.read_text().split())
        wait_until(lambda: processes.is_stopped(child), "the child's stop")
        assert processes.is_running(parent.pid)
        processes.stop([parent.pid])
        assert processes.is_stopped(parent.pid)
        assert not processes.is_running(parent.pid)
        processes.resume([parent.pid, child])
        assert parent.stdout is not None and parent.stdout.read() == b"on"
    assert parent.returncode == 0


def test_a_daemon_that_a_lab_does_not_run_can_not_fail(rig: Rig) -> None:
    with pytest.raises(InputError, match="bfd"):
        DaemonCrash("ctsw1", "bfdd").prepare(rig.lab)
