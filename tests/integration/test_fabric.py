"""Real fabrics: what the kernels and FRR say once `up` has returned."""

from __future__ import annotations

import json
import os
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from labs.errors import ExpectationError, InputError
from labs.forwarding.path import find_nic, walk
from labs.lab import Lab
from labs.plan.routes import expected_routes
from labs.runtime import runtime
from labs.runtime.daemons import vty_command, vty_json
from labs.runtime.fibwatch import FibWatch
from labs.runtime.namespaces import inside
from labs.runtime.record import recorded_labs
from tests.integration.conftest import MakeLab
from traffic.traceroute import probe_path

pytestmark = pytest.mark.side_by_side


IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2

TWO_TIERS = "fabric: {kind: clos, racks: 4, spines: 4, servers_per_rack: 2}"
THREE_TIERS = "fabric: {kind: clos, zones: 2, racks: 3, spines: 2, atsws: 2, links_per_atsw: 2}"
PARALLEL = "fabric: {kind: clos, racks: 3, spines: 2, links_per_pair: 2}"


def kernel_widths(lab: Lab, node: str) -> dict[str, int]:
    """Next hops per BGP route, as iproute2 prints a node's table."""
    routes = json.loads(lab.node(node).exec(["ip", "-json", "route"]).stdout)
    return {
        route["dst"] if "/" in route["dst"] else route["dst"] + "/32": len(
            route.get("nexthops", [route])
        )
        for route in routes
        if route.get("protocol") == "bgp"
    }


def assert_every_route_is_at_full_width(lab: Lab) -> None:
    for node, routes in expected_routes(lab.fabric).items():
        assert kernel_widths(lab, node) == {prefix: len(links) for prefix, links in routes.items()}


@pytest.mark.parametrize(
    "body",
    [
        TWO_TIERS,
        THREE_TIERS,
        PARALLEL,
        TWO_TIERS + "\nrouting: {numbering: unnumbered}",
        TWO_TIERS + "\nrouting: {bfd: {interval: 100ms}}",
        TWO_TIERS + "\nrouting: {graceful_restart: true}",
    ],
    ids=["two-tiers", "three-tiers", "parallel-links", "unnumbered", "bfd", "graceful-restart"],
)
def test_up_returns_when_every_kernel_holds_every_prefix_at_full_width(
    make_lab: MakeLab, body: str
) -> None:
    lab = make_lab("it-width", body)
    lab.up()
    assert_every_route_is_at_full_width(lab)
    for node in lab.fabric.switches:
        peers = vty_json(lab.node(node.name).frr, "bgpd", "show bgp ipv4 unicast summary json")
        links = [link for link in lab.fabric.sessions if node.name in (link.a.node, link.b.node)]
        assert {peer["state"] for peer in peers["peers"].values()} == {"Established"}
        assert len(peers["peers"]) == len(links)


def test_bfd_runs_on_every_session_at_the_spec_s_interval(make_lab: MakeLab) -> None:
    lab = make_lab("it-bfd", TWO_TIERS + "\nrouting: {bfd: {interval: 200ms, multiplier: 4}}")
    lab.up()
    frr = lab.node("rtsw1").frr
    peers = json.loads(vty_command(frr, "bfdd", "show bfd peers json"))
    assert len(peers) == 4
    assert {(peer["transmit-interval"], peer["detect-multiplier"]) for peer in peers} == {(200, 4)}


def test_kernel_settings_are_those_of_the_spec(make_lab: MakeLab) -> None:
    lab = make_lab("it-kernel", TWO_TIERS + "\nhashing: {policy: l3, seed: per-tier}")
    lab.up()
    seeds = {}
    for node in lab.fabric.switches:
        shown = lab.node(node.name).exec(
            [
                "cat",
                "/proc/sys/net/ipv4/fib_multipath_hash_seed",
                "/proc/sys/net/ipv4/fib_multipath_hash_policy",
                "/proc/sys/net/ipv4/ip_forward",
                "/proc/sys/net/ipv4/conf/all/rp_filter",
            ]
        )
        seed, policy, forwarding, rp_filter = shown.stdout.split()
        seeds[node.name] = int(seed)
        assert (policy, forwarding, rp_filter) == ("0", "1", "0")
    assert len({seeds[f"rtsw{i}"] for i in range(1, 5)}) == 1
    assert seeds["rtsw1"] != seeds["ctsw1"]
    assert 0 not in seeds.values()


def test_servers_of_different_zones_reach_each_other_with_full_size_packets(
    make_lab: MakeLab,
) -> None:
    lab = make_lab("it-reach", THREE_TIERS)
    lab.up()
    address = lab.fabric.nics("z2-srv3-1")[0].ip
    payload = b"x" * (9000 - 28)

    def listen() -> socket.socket:
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.bind((address, 5000))
        receiver.settimeout(5)
        return receiver

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
            sender.sendto(payload, (address, 5000))

    with inside(lab.node("z2-srv3-1").netns, listen) as receiver:
        inside(lab.node("z1-srv1-1").netns, send)
        assert receiver.recv(9000) == payload


@pytest.mark.parametrize("body", [TWO_TIERS, THREE_TIERS, PARALLEL], ids=["2", "3", "parallel"])
def test_a_thousand_predicted_paths_are_the_ones_seen_on_the_wire(
    make_lab: MakeLab, body: str
) -> None:
    lab = make_lab("it-path", body)
    lab.up()
    chance = random.Random(1)
    pairs = [chance.sample([server.name for server in lab.fabric.servers], 2) for _ in range(4)]
    pairs = [pair for pair in pairs if pair[0].rpartition("-")[0] != pair[1].rpartition("-")[0]]
    used = set()
    per_pair = -(-1000 // len(pairs))
    for source_name, destination_name in pairs:
        source = find_nic(lab.fabric, source_name)
        destination = find_nic(lab.fabric, destination_name)
        ports = chance.sample(range(0xC000, 0x10000), per_pair)
        seen = probe_path(lab.fabric, lambda name: lab.node(name).netns, source, destination, ports)
        for port in ports:
            predicted = walk(lab.fabric, lab.fib_of, source, destination, port).nodes
            assert seen[port] == predicted
            used.add(predicted)
    assert len(used) > len(pairs), "all flows took one path: nothing was tested"


def test_a_link_taken_down_and_up_is_used_again(make_lab: MakeLab) -> None:
    lab = make_lab("it-link", TWO_TIERS)
    lab.up()
    link = lab.link("rtsw1:ctsw2")
    rack = lab.fabric.prefixes_of["rtsw1"][0].prefix
    switches = [node.name for node in lab.fabric.switches]
    opened = {name: os.open(lab.node(name).netns, os.O_RDONLY) for name in switches}
    try:
        with FibWatch(opened) as watch:
            link.down()
            wait_until(watch, lambda: kernel_widths(lab, "rtsw4").get(rack) == 3)
            assert set(kernel_widths(lab, "rtsw1").values()) == {1, 3}
            link.up()
            wait_until(watch, lambda: kernel_widths(lab, "rtsw4").get(rack) == 4)
            wait_until(watch, lambda: set(kernel_widths(lab, "rtsw1").values()) == {1, 4})
    finally:
        for descriptor in opened.values():
            os.close(descriptor)


def wait_until(watch: FibWatch, true: Callable[[], bool]) -> None:
    """Return when `true()` holds, asked after each change of a table; fail after 20 s."""
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline, "the tables did not come to what was expected"
        list(watch.events(0.5))


def test_two_labs_run_side_by_side_and_one_going_leaves_the_other(make_lab: MakeLab) -> None:
    first = make_lab("it-first", TWO_TIERS)
    second = make_lab("it-second", THREE_TIERS)
    first.up()
    second.up()
    first.down()
    assert_every_route_is_at_full_width(second)
    assert "it-first" not in recorded_labs()


def test_a_lab_that_is_up_is_not_brought_up_again(make_lab: MakeLab) -> None:
    lab = make_lab("it-again", TWO_TIERS)
    lab.up()
    with pytest.raises(InputError, match="is up"):
        Lab(lab.fabric).up()
    assert_every_route_is_at_full_width(lab)


def test_a_lab_found_by_name_is_the_one_that_was_brought_up(make_lab: MakeLab) -> None:
    lab = make_lab("it-found", TWO_TIERS + "\nlinks: {rate: 100G}")
    lab.up()
    assert Lab.running("it-found").fabric == lab.fabric


def test_a_timeout_names_what_is_missing_and_leaves_nothing(
    make_lab: MakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = make_lab("it-late", TWO_TIERS)
    monkeypatch.setattr(runtime, "convergence_timeout_s", lambda _: 0.0)
    with pytest.raises(ExpectationError) as caught:
        lab.up()
    told = str(caught.value)
    assert "rtsw1: 7 prefixes" in told
    assert "sessions not established: 198.18." in told
    assert "bgpd's last word" in told
    assert not Path("/run/rocelab/it-late").exists()


def test_a_kernel_without_hash_seeds_runs_the_lab_polarized_and_says_so(
    make_lab: MakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = make_lab("it-noseed", TWO_TIERS)
    monkeypatch.setattr("labs.runtime.kernel.seeds_supported", lambda: False)
    lab.up()
    assert "fib_multipath_hash_seed" in lab.notes[0]
    seed = ["cat", "/proc/sys/net/ipv4/fib_multipath_hash_seed"]
    assert {lab.node(node.name).exec(seed).stdout for node in lab.fabric.switches} == {"0\n"}
    source, destination = find_nic(lab.fabric, "srv1-1"), find_nic(lab.fabric, "srv3-1")
    with pytest.raises(InputError, match="can not be predicted"):
        walk(lab.fabric, lab.fib_of, source, destination, 50000)
    assert Lab.running("it-noseed").fabric == lab.fabric
