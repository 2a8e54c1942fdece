"""A small lab of each kind of fabric: every path exists, is used as predicted, and survives the
failures that the kind is built for."""

from __future__ import annotations

import json
import os
import random
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from rocelab.faults.kinds.carrier_down import CarrierDown
from rocelab.jobs.placement import find_nic
from rocelab.lab.lab import Lab, RunningLab
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.linux.fib import read_fib
from rocelab.linux.fibtable import Fib
from rocelab.linux.fibwatch import FibWatch
from rocelab.linux.links import read_counters
from rocelab.linux.namespaces import inside
from rocelab.planning.build import plan
from rocelab.planning.fabric import Nic
from rocelab.planning.routes import expected_routes, expected_width
from rocelab.record import recorded_labs
from rocelab.routes.path import walk
from rocelab.traffic.traceroute import probe_path
from tests.helpers.long import mostly_long
from tests.helpers.running import running
from tests.helpers.waiting import LIMIT_S, wait_for_tables

pytestmark = pytest.mark.side_by_side


KINDS = ("rail-small", "hpn-small", "hpn-single-plane", "hpn-single-tor", "fat-tree-4", "zones-1-7")
PORT = 5000
Paths = dict[int, tuple[str | None, ...]]
FLOWS = 64
DATAGRAMS = 40
"""More than a server sends by itself in the meantime."""


@pytest.fixture(
    scope="module", params=mostly_long(KINDS, ("rail-small", "hpn-small", "fat-tree-4"))
)
def lab(request: pytest.FixtureRequest) -> Iterator[RunningLab]:
    """A lab of the catalog, up under its own name for all tests of this file."""
    spec = load_spec(find_lab(request.param))
    with running(Lab(plan(spec.model_copy(update={"name": f"it-{spec.name}"})))) as made:
        yield made


def only(*names: str) -> pytest.MarkDecorator:
    """Run a test only on these labs."""
    return pytest.mark.parametrize("lab", names, indirect=True, scope="module")


def netns_of(lab: RunningLab) -> Callable[[str], Path]:
    return lambda name: lab.node(name).netns


def fresh_tables(lab: RunningLab) -> Mapping[str, Fib]:
    """The kernels' present tables."""
    return {node.name: read_fib(lab.node(node.name).netns) for node in lab.fabric.nodes}


def widths(lab: RunningLab, node: str) -> dict[str, int]:
    """Live next hops of every prefix in a switch's kernel."""
    routes = read_fib(lab.node(node).netns).routes
    return {route.prefix: sum(hop.carrier for hop in route.next_hops) for route in routes}


def probed(
    lab: RunningLab, source: Nic, destination: Nic, leaves_by: int, sports: list[int]
) -> Paths:
    """The nodes on the packets' paths."""
    return probe_path(lab.fabric, netns_of(lab), source, destination, sports, leaves_by=leaves_by)


def test_every_kernel_holds_every_route_at_full_width(lab: RunningLab) -> None:
    for node, routes in expected_routes(lab.fabric).items():
        held = widths(lab, node)
        expected = {prefix: expected_width(lab.fabric, links) for prefix, links in routes.items()}
        assert {prefix: held.get(prefix) for prefix in expected} == expected


def test_every_server_reaches_every_nic_of_every_other(lab: RunningLab) -> None:
    names = [server.name for server in lab.fabric.servers]
    nics = [nic for name in names for nic in lab.fabric.nics(name)]
    with ExitStack() as opened:
        listeners = {
            nic.ip: opened.enter_context(inside(lab.node(nic.server).netns, partial(_listen, nic)))
            for nic in nics
        }
        for name in names:
            others = [nic for nic in nics if nic.server != name]
            inside(lab.node(name).netns, partial(_send, name, others))
        for nic in nics:
            others_of = {name for name in names if name != nic.server}
            heard = {listeners[nic.ip].recv(64).decode() for _ in others_of}
            assert heard == others_of


def _listen(nic: Nic) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind((nic.ip, PORT))
    listener.settimeout(LIMIT_S)
    return listener


def _send(name: str, nics: list[Nic]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for nic in nics:
            sender.sendto(name.encode(), (nic.ip, PORT))


def test_a_socket_leaves_by_the_nic_of_its_address_and_is_answered_by_the_nic_it_asked(
    lab: RunningLab,
) -> None:
    first, *_, last = lab.fabric.servers
    for source, destination in zip(
        lab.fabric.nics(first.name), lab.fabric.nics(last.name), strict=True
    ):
        ends = [(source, lab.node(first.name).netns), (destination, lab.node(last.name).netns)]
        with ExitStack() as opened:
            asks, answers = (
                opened.enter_context(inside(netns, partial(_listen, nic))) for nic, netns in ends
            )
            before = [inside(netns, read_counters) for _, netns in ends]
            for number in range(DATAGRAMS):
                asks.sendto(bytes([number]), (destination.ip, PORT))
                answers.sendto(*answers.recvfrom(64))
                assert asks.recv(64) == bytes([number])
            after = [inside(netns, read_counters) for _, netns in ends]
        for (nic, _), then, now in zip(ends, before, after, strict=True):
            sent = {name: now[name].tx_packets - then[name].tx_packets for name in now}
            total = sum(sent[link.a.interface] for link in nic.links)
            assert total >= DATAGRAMS > sum(sent.values()) - total, (nic, sent)


@only("rail-small")
def test_a_nic_that_was_down_gets_its_own_route_back(lab: RunningLab) -> None:
    second = lab.fabric.nics(lab.fabric.servers[0].name)[1]
    fault = CarrierDown(second.links, kind="nic-port-down")

    def device() -> str:
        asked = ["ip", "-json", "route", "get", other.ip, "from", second.ip]
        return str(json.loads(lab.node(second.server).exec(asked).stdout)[0]["dev"])

    other = lab.fabric.nics(lab.fabric.servers[-1].name)[1]
    assert device() == second.links[0].a.interface
    fault.inject(lab)
    lab.link(second.links[0].name).up()
    assert fault.remains(lab) == (f"{second.server} has no default route for packets from NIC 2",)
    fault.restore(lab)
    assert fault.remains(lab) == ()
    assert device() == second.links[0].a.interface


def test_predicted_paths_are_the_ones_seen_on_the_wire_from_every_port_of_every_nic(
    lab: RunningLab,
) -> None:
    chance = random.Random(4)
    fabric = lab.fabric
    ports = [
        (nic, port)
        for server in fabric.servers
        for nic in fabric.nics(server.name)
        for port in range(len(nic.links))
    ]
    fib_of = lab.read_fibs()
    taken = set()
    for source, port in ports:
        far = [nic for nic, _ in ports if nic.links[0].b.node != source.links[0].b.node]
        far = [nic for nic in far if nic.server != source.server]
        destination = chance.choice(far)
        sports = chance.sample(range(0xC000, 0x10000), -(-FLOWS // len(ports)))
        seen = probed(lab, source, destination, port, sports)
        for sport in sports:
            path = walk(fabric, fib_of, source, destination, sport, leaves_by=port)
            assert seen[sport] == path.nodes
            assert path.nodes[1] == source.links[port].b.node
            taken.add(path.nodes)
    assert len(taken) > len(ports), "all flows of a port took one path: nothing was tested"


@only("hpn-small", "hpn-single-plane")
def test_a_nic_that_loses_a_port_is_reached_by_its_other_one_and_then_by_both_again(
    lab: RunningLab,
) -> None:
    nic = find_nic(lab.fabric, "srv1-1")
    near, far = find_nic(lab.fabric, "srv1-2"), find_nic(lab.fabric, "srv2-1")
    sports = list(range(50_000, 50_016))
    everywhere = {name: widths(lab, name) for name in _switches(lab)}

    def at_rest(probe: Callable[[], Paths]) -> tuple[Mapping[str, Fib], Paths]:
        """The tables and what was probed while they did not change: on a busy machine BGP narrows
        and widens routes for long after they lead to the right ToR."""
        end_s = time.monotonic() + LIMIT_S
        while time.monotonic() < end_s:
            tables, seen = fresh_tables(lab), probe()
            if fresh_tables(lab) == tables:
                return tables, seen
        pytest.fail(f"the tables did not come to rest within {LIMIT_S:g} s")

    def arrives_by(source: Nic, leaves_by: int) -> set[str | None]:
        tables, seen = at_rest(lambda: probed(lab, source, nic, leaves_by, sports))
        for sport, nodes in seen.items():
            path = walk(lab.fabric, tables.__getitem__, source, nic, sport, leaves_by=leaves_by)
            assert nodes == path.nodes
        return {nodes[-2] for nodes in seen.values()}

    before = {leaves_by: arrives_by(far, leaves_by) for leaves_by in (0, 1)}
    two_planes = "p1-agg1" in lab.fabric.node_by_name
    assert before[0] | before[1] == {"s1-tor1a", "s1-tor1b"}
    assert not two_planes or before == {0: {"s1-tor1a"}, 1: {"s1-tor1b"}}

    link = lab.link("srv1-1:s1-tor1a")
    with _watched(lab) as wait_until:
        link.down()
        try:
            wait_until(lambda: _leads_to(lab, nic.ip) == {"s1-tor1b"})
            for source in (near, far):
                for leaves_by in (0, 1):
                    assert arrives_by(source, leaves_by) == {"s1-tor1b"}
            crossing = probed(lab, far, nic, 0, sports).values()
            over_cores = {any(str(node).startswith("core") for node in path) for path in crossing}
            assert over_cores == {two_planes}
        finally:
            link.up()
        wait_until(lambda: {name: widths(lab, name) for name in _switches(lab)} == everywhere)
    assert {leaves_by: arrives_by(far, leaves_by) for leaves_by in (0, 1)} == before


@only("hpn-single-tor")
def test_a_nic_of_one_port_that_loses_it_is_not_reached(lab: RunningLab) -> None:
    source, nic = find_nic(lab.fabric, "srv2-1"), find_nic(lab.fabric, "srv1-1")
    sports = list(range(50_000, 50_004))
    link = lab.link("srv1-1:s1-tor1")
    link.down()
    try:
        lost = probed(lab, source, nic, 0, sports)
    finally:
        link.up()
    assert {nodes[-1] for nodes in lost.values()}.isdisjoint({"srv1-1"})
    with _watched(lab) as wait_until:
        wait_until(lambda: widths(lab, "s1-tor1").get(f"{nic.ip}/31") == 1)
    assert {nodes[-1] for nodes in probed(lab, source, nic, 0, sports).values()} == {"srv1-1"}


def test_down_leaves_nothing(lab: RunningLab) -> None:
    lab.down()
    assert lab.name not in recorded_labs()
    assert not Path(f"/run/rocelab/{lab.name}").exists()


def _switches(lab: RunningLab) -> list[str]:
    return [node.name for node in lab.fabric.switches]


def _leads_to(lab: RunningLab, ip: str) -> set[str]:
    """The ToRs through which every switch with a specific route to a NIC reaches it; empty while
    packets to it would loop."""
    tables = fresh_tables(lab).__getitem__
    names: set[str] = set()
    order = TopologicalSorter[str]()
    for start in _switches(lab):
        reached, waiting = {start}, [start]
        while waiting:
            name = waiting.pop()
            route = tables(name).lookup(ip)
            if route is None or route.prefix != f"{ip}/32":
                return set()
            for hop in route.next_hops:
                links = lab.fabric.links_of[name]
                (link,) = (link for link in links if link.port(name).interface == hop.interface)
                far = link.far(name).node
                order.add(name, far)
                if far.startswith("srv"):
                    names.add(name)
                elif far not in reached:
                    reached.add(far)
                    waiting.append(far)
    try:
        order.prepare()
    except CycleError:
        return set()
    return names


@contextmanager
def _watched(lab: RunningLab) -> Iterator[Callable[[Callable[[], bool]], None]]:
    """A function that waits for a condition, checked after each change of a table."""
    with ExitStack() as stack:
        opened = {}
        for name in _switches(lab):
            opened[name] = os.open(lab.node(name).netns, os.O_RDONLY)
            stack.callback(os.close, opened[name])
        watch = stack.enter_context(FibWatch(opened))
        yield partial(wait_for_tables, watch)
