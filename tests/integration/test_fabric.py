"""Real fabrics: the state of the kernels and of FRR once `up` has returned."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from rocelab.base.errors import ExpectationError, InputError
from rocelab.base.progress import Progress
from rocelab.cli import lifecycle
from rocelab.drills.run import run_drill
from rocelab.faults.kinds.mtu_mismatch import MtuMismatchSpec
from rocelab.faults.running import injected
from rocelab.jobs.placement import find_nic
from rocelab.lab import runtime, wiring
from rocelab.lab.differences import read_differences
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.node import NamespaceNode
from rocelab.lab.providers import provider_of
from rocelab.lab.settings import Deviation, sentences
from rocelab.lab.status import Presence, known_labs, read_status
from rocelab.lab.teardown import take_down
from rocelab.linux.fibwatch import FibWatch
from rocelab.linux.namespaces import inside
from rocelab.linux.processes import resume, stop
from rocelab.linux.rights import CAPABILITIES
from rocelab.planning.routes import expected_routes
from rocelab.planning.settings import port_settings
from rocelab.record import recorded_labs
from rocelab.routes.path import walk
from rocelab.routing.frr.vty import vty_command, vty_json
from rocelab.testkit.bench import Bench
from rocelab.traffic.traceroute import probe_path
from tests.helpers.command import rocelab
from tests.helpers.hardened import HardenedHost
from tests.helpers.long import mostly_long
from tests.helpers.lossless import parts_of
from tests.helpers.nftables import change_table
from tests.helpers.running import running
from tests.helpers.waiting import LIMIT_S, wait_for_tables
from tests.integration.conftest import MakeLab
from tests.integration.test_refusals import without

pytestmark = pytest.mark.side_by_side


NOBODY = 65534
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2

TWO_TIERS = "fabric: {kind: clos, racks: 4, spines: 4, servers_per_rack: 2}"
THREE_TIERS = "fabric: {kind: clos, zones: 2, racks: 3, spines: 2, atsws: 2, links_per_atsw: 2}"
PARALLEL = "fabric: {kind: clos, racks: 3, spines: 2, links_per_pair: 2}"
LABS = {
    "two-tiers": TWO_TIERS + "\nlinks: {rate: 100G}",
    "three-tiers": THREE_TIERS,
    "parallel-links": PARALLEL,
    "unnumbered": TWO_TIERS + "\nrouting: {numbering: unnumbered}",
    "bfd": TWO_TIERS + "\nrouting: {bfd: {interval: 200ms, multiplier: 4}}",
    "graceful-restart": TWO_TIERS
    + "\nrouting: {graceful_restart: true}\nhashing: {policy: l3, seed: per-tier}",
}

HOSTS = dict.fromkeys(("two-tiers", "unnumbered"), HardenedHost(provider_of("netns")))
"""Labs whose machine has other settings than a machine has by itself."""


@pytest.fixture(scope="module", params=LABS)
def lab(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningLab]:
    """Each of the labs in turn, once `up` has returned; no test leaves it changed."""
    name = f"it-{request.param}"
    file = tmp_path_factory.mktemp("lab") / f"{name}.yaml"
    file.write_text(f"name: {name}\n{LABS[request.param]}\n")
    with running(Lab.planned(file, HOSTS.get(request.param))) as made:
        yield made


def only(*labs: str) -> pytest.MarkDecorator:
    """Run a test only on these labs."""
    return pytest.mark.parametrize("lab", labs, indirect=True, scope="module")


KERNEL_S_OWN = {
    **{
        f"ipv4/{name}": False
        for name in (
            *("accept_local", "accept_source_route", "arp_accept", "arp_announce", "arp_filter"),
            *("arp_ignore", "arp_notify", "drop_gratuitous_arp", "log_martians", "proxy_arp"),
            *("promote_secondaries", "route_localnet", "rp_filter", "src_valid_mark"),
        )
    },
    **{"ipv4/arp_evict_nocarrier": True, "ipv4/shared_media": True, "ipv6/disable_ipv6": True},
}
NO_REDIRECTS = {"ipv4/accept_redirects": False, "ipv4/send_redirects": False}
UNNUMBERED = {
    f"ipv6/{name}": False
    for name in ("accept_ra", "accept_dad", "addr_gen_mode", "keep_addr_on_down", "optimistic_dad")
}


def conf(lab: RunningLab, node: str, port: str, names: Iterable[str]) -> dict[str, str]:
    """A port's settings, as /proc has them."""

    def read() -> dict[str, str]:
        paths = {name: name.split("/") for name in names}
        return {
            name: Path("/proc/sys/net", family, "conf", port, setting).read_text().strip()
            for name, (family, setting) in paths.items()
        }

    return inside(lab.node(node).netns, read)


def kernel_widths(lab: RunningLab, node: str) -> dict[str, int]:
    """Next hops per BGP route, as iproute2 prints a node's table."""
    routes = json.loads(lab.node(node).exec(["ip", "-json", "route"]).stdout)
    return {
        route["dst"] if "/" in route["dst"] else route["dst"] + "/32": len(
            route.get("nexthops", [route])
        )
        for route in routes
        if route.get("protocol") == "bgp"
    }


def assert_every_route_is_at_full_width(lab: RunningLab) -> None:
    for node, routes in expected_routes(lab.fabric).items():
        assert kernel_widths(lab, node) == {prefix: len(links) for prefix, links in routes.items()}


def test_up_returns_when_every_kernel_holds_every_prefix_at_full_width(lab: RunningLab) -> None:
    assert_every_route_is_at_full_width(lab)
    for node in lab.fabric.switches:
        peers = vty_json(
            lab.node(node.name).daemon_files, "bgpd", "show bgp ipv4 unicast summary json", dict
        )
        links = [link for link in lab.fabric.sessions if node.name in (link.a.node, link.b.node)]
        assert {peer["state"] for peer in peers["peers"].values()} == {"Established"}
        assert len(peers["peers"]) == len(links)


def test_up_waits_for_the_last_route(make_lab: MakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bgpd is stopped before its switch has a link that is up, and continues shortly after the
    wait for routes has begun."""
    lab = make_lab("it-last", TWO_TIERS)
    start_daemon = NamespaceNode.start_daemon
    has_gone_on = threading.Event()

    def go_on() -> None:
        has_gone_on.set()
        resume([lab.node("rtsw2").daemons()["bgpd"]])

    def start_and_stop(node: NamespaceNode, daemon: str, niceness: int) -> None:
        start_daemon(node, daemon, niceness)
        if (node.name, daemon) == ("rtsw2", "bgpd"):
            stop([node.daemons()[daemon]])

    timer = threading.Timer(1.0, go_on)

    def begin(progress: Progress) -> None:
        if progress.stage == "convergence" and timer.ident is None:
            timer.start()

    monkeypatch.setattr(NamespaceNode, "start_daemon", start_and_stop)
    lab.start(begin)
    assert has_gone_on.is_set()
    assert_every_route_is_at_full_width(lab)
    timer.join()


@only("unnumbered")
def test_no_port_of_an_unnumbered_lab_seems_to_go_down_while_it_comes_up(lab: RunningLab) -> None:
    # bgpd may forget a neighbour for good that it hears of just then.
    for node in lab.fabric.switches:
        said = vty_command(lab.node(node.name).daemon_files, "zebra", "show interface")
        downs = re.findall(r"Link downs: +(\d+)", said)
        assert downs, said
        assert set(downs) == {"0"}, said


@only("bfd")
def test_bfd_runs_on_every_session_at_the_spec_s_interval(lab: RunningLab) -> None:
    frr = lab.node("rtsw1").daemon_files
    peers = json.loads(vty_command(frr, "bfdd", "show bfd peers json"))
    assert len(peers) == 4
    assert {(peer["transmit-interval"], peer["detect-multiplier"]) for peer in peers} == {(200, 4)}


@only("graceful-restart")
def test_kernel_settings_are_those_of_the_spec(lab: RunningLab) -> None:
    seeds = {}
    for node in lab.fabric.switches:
        process = lab.node(node.name).exec(
            [
                "cat",
                "/proc/sys/net/ipv4/fib_multipath_hash_seed",
                "/proc/sys/net/ipv4/fib_multipath_hash_policy",
                "/proc/sys/net/ipv4/ip_forward",
                "/proc/sys/net/ipv4/conf/all/rp_filter",
            ]
        )
        seed, policy, forwarding, rp_filter = process.stdout.split()
        seeds[node.name] = int(seed)
        assert (policy, forwarding, rp_filter) == ("0", "1", "0")
    assert len({seeds[f"rtsw{i}"] for i in range(1, 5)}) == 1
    assert seeds["rtsw1"] != seeds["ctsw1"]
    assert 0 not in seeds.values()


@only("two-tiers", "unnumbered")
def test_nodes_have_nothing_of_a_hardened_machine_s_settings(lab: RunningLab) -> None:
    assert read_status(lab).deviations == ()
    for node in lab.fabric.nodes:
        for port in lab.node(node.name).read_ports().values():
            planned = port_settings(lab.fabric, node)
            read = {name: str(value) for name, value in port.settings.items() if name in planned}
            assert read.keys() == planned.keys()
            assert conf(lab, node.name, port.name, planned) == read
        wanted = {**KERNEL_S_OWN, "ipv4/forwarding": node.is_switch, **NO_REDIRECTS}
        if node.is_switch:
            wanted["ipv4/ignore_routes_with_linkdown"] = True
        if node.is_switch and not lab.fabric.numbered:
            wanted |= {**UNNUMBERED, "ipv6/disable_ipv6": False}
        ports = [link.port(node.name).interface for link in lab.fabric.links_of[node.name]]
        for interface in ("all", "default", *ports):
            assert conf(lab, node.name, interface, wanted) == {
                name: str(int(value)) for name, value in wanted.items()
            }


@only("two-tiers")
@pytest.mark.parametrize(
    ("node", "path", "value", "said"),
    [
        ("rtsw1", "ipv4/conf/ctsw1/rp_filter", "1", "conf/*/rp_filter is 1 (planned: 0) at rtsw1:"),
        ("srv1-1", "ipv4/conf/default/rp_filter", "2", "rp_filter is 2 (planned: 0) at srv1-1"),
        ("srv2-1", "ipv4/conf/all/arp_ignore", "8", "arp_ignore is 8 (planned: 0) at srv2-1"),
        ("ctsw1", "ipv4/ip_forward", "0", "ipv4/ip_forward is 0 (planned: 1) at ctsw1"),
        ("ctsw2", "ipv4/fib_multipath_hash_policy", "0", "hash_policy is 0 (planned: 1) at ctsw2"),
    ],
)
def test_a_lab_whose_settings_were_changed_is_not_whole(
    lab: RunningLab, node: str, path: str, value: str, said: str
) -> None:
    setting = Path("/proc/sys/net", path)

    def change(value: str) -> str:
        before = setting.read_text()
        setting.write_text(value)
        return before

    before = inside(lab.node(node).netns, lambda: change(value))
    try:
        status = read_status(lab)
        assert not status.converged
        assert any(said in sentence for sentence in sentences(status.deviations))
        assert all(node.converged for node in status.nodes) or path.endswith("ip_forward")
    finally:
        inside(lab.node(node).netns, lambda: change(before))
    assert read_status(lab).deviations == ()


@only("two-tiers")
@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [
        ("mtu", "1400", "MTU is 1400 (planned: 9000)"),
        ("address", "02:00:00:00:00:01", "MAC address"),
    ],
)
def test_a_port_with_another_mtu_or_address_is_not_as_planned(
    lab: RunningLab, attribute: str, value: str, said: str
) -> None:
    node, port = lab.node("rtsw1"), lab.fabric.links_of["ctsw1"][0].a
    text = {"mtu": "9000", "address": port.mac}[attribute]
    node.exec(["ip", "link", "set", port.interface, attribute, value])
    try:
        (sentence,) = sentences(read_status(lab).deviations)
    finally:
        node.exec(["ip", "link", "set", port.interface, attribute, text])
    assert sentence.startswith(said)
    assert sentence.endswith("at rtsw1:ctsw1")
    assert read_status(lab).deviations == ()


def test_status_names_routes_and_configuration_that_differ_from_the_plan(lab: RunningLab) -> None:
    assert read_differences(lab) == ()
    switch, asn = lab.fabric.switches[-1].name, lab.fabric.switches[-1].asn
    node = lab.node(switch)
    changed = ("configure terminal", f"router bgp {asn}", "bgp default local-preference 7")
    vty_command(node.daemon_files, "bgpd", *changed)
    node.exec(["ip", "route", "add", "blackhole", "192.0.2.0/24"])
    try:
        assert {str(part) for part in read_differences(lab)} == {
            f"{switch}: routes that are not planned: 192.0.2.0/24",
            f"{switch}: changed configuration: bgpd: + router bgp {asn}: "
            "bgp default local-preference 7",
        }
        outcome = rocelab("status", lab.name)
        assert f"{switch}: routes that are not planned: 192.0.2.0/24" in outcome.stdout
        document = json.loads(rocelab("status", lab.name, "--json").stdout)
        kinds = [(part["node"], part["kind"]) for part in document["differences"]]
        assert kinds == [
            (switch, "routes that are not planned"),
            (switch, "changed configuration"),
        ]
    finally:
        node.exec(["ip", "route", "del", "192.0.2.0/24"])
        undone = ("configure terminal", f"router bgp {asn}", "no bgp default local-preference 7")
        vty_command(node.daemon_files, "bgpd", *undone)
    assert read_differences(lab) == ()


@only("two-tiers")
def test_the_mtu_of_a_fault_on_record_is_as_planned(lab: RunningLab) -> None:
    spec = MtuMismatchSpec.model_validate(
        {"kind": "mtu-mismatch", "link": "rtsw1:ctsw1", "mtu": 1400}
    )
    with injected(lab, spec):
        status = read_status(lab)
        assert [fault.kind for fault in status.faults] == ["mtu-mismatch"]
        assert status.deviations == ()
        lab.node("rtsw1").exec(["ip", "link", "set", "ctsw2", "mtu", "1399"])
        (deviation,) = read_status(lab).deviations
        assert deviation == Deviation("rtsw1:ctsw2", "MTU", "1399", "9000")
        lab.node("rtsw1").exec(["ip", "link", "set", "ctsw2", "mtu", "9000"])
    assert read_status(lab).deviations == ()


@only("two-tiers")
def test_a_user_who_is_not_root_lists_what_everybody_sees(
    lab: RunningLab, capsys: pytest.CaptureFixture[str]
) -> None:
    lifecycle.list_labs()  # loads what that user may not read
    capsys.readouterr()
    os.seteuid(NOBODY)
    try:
        (known,) = (entry for entry in known_labs() if entry.name == lab.name)
        lifecycle.list_labs()
    finally:
        os.seteuid(0)
    assert (known.state, known.runtime, known.nodes) == (Presence.RUNNING, "netns", None)
    said = capsys.readouterr().out
    assert f"lab {lab.name} is up as its record says: only root sees whether its nodes exist" in (
        " ".join(said.split())
    )


@only("two-tiers")
def test_daemons_that_root_may_not_look_at_are_not_said_to_be_dead(lab: RunningLab) -> None:
    (ptrace,) = (capability for capability in CAPABILITIES if capability.name == "CAP_SYS_PTRACE")
    with without(ptrace), pytest.raises(PermissionError):
        read_status(lab)
    assert read_status(lab).converged


@only("two-tiers")
def test_a_packet_filter_in_a_node_is_reported(lab: RunningLab) -> None:
    netns = lab.node("srv1-2").netns
    inside(netns, lambda: change_table("new", "probe"))
    try:
        assert sentences(read_status(lab).deviations) == (
            "packet filter is inet probe (planned: none) at srv1-2",
        )
    finally:
        inside(netns, lambda: change_table("del", "probe"))
    assert read_status(lab).deviations == ()


@only("three-tiers")
def test_servers_of_different_zones_reach_each_other_with_full_size_packets(
    lab: RunningLab,
) -> None:
    address = lab.fabric.nics("z2-srv3-1")[0].ip
    payload = b"x" * (9000 - 28)

    def listen() -> socket.socket:
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.bind((address, 5000))
        receiver.settimeout(LIMIT_S)
        return receiver

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
            sender.sendto(payload, (address, 5000))

    with inside(lab.node("z2-srv3-1").netns, listen) as receiver:
        inside(lab.node("z1-srv1-1").netns, send)
        assert receiver.recv(9000) == payload


@only("two-tiers", "three-tiers", "parallel-links")
def test_a_thousand_predicted_paths_are_the_ones_seen_on_the_wire(lab: RunningLab) -> None:
    chance = random.Random(1)
    pairs = [chance.sample([server.name for server in lab.fabric.servers], 2) for _ in range(4)]
    pairs = [pair for pair in pairs if pair[0].rpartition("-")[0] != pair[1].rpartition("-")[0]]
    fib_of = lab.read_fibs()
    used = set()
    per_pair = -(-1000 // len(pairs))
    for source_name, destination_name in pairs:
        source = find_nic(lab.fabric, source_name)
        destination = find_nic(lab.fabric, destination_name)
        ports = chance.sample(range(0xC000, 0x10000), per_pair)
        seen = probe_path(lab.fabric, lambda name: lab.node(name).netns, source, destination, ports)
        for port in ports:
            predicted = walk(lab.fabric, fib_of, source, destination, port).nodes
            assert seen[port] == predicted
            used.add(predicted)
    assert len(used) > len(pairs), "all flows took one path: nothing was tested"


@only("two-tiers")
def test_a_link_taken_down_and_up_is_used_again(lab: RunningLab) -> None:
    link = lab.link("rtsw1:ctsw2")
    rack = lab.fabric.prefixes_of["rtsw1"][0].prefix
    switches = [node.name for node in lab.fabric.switches]
    whole = [(name, kernel_widths(lab, name)) for name in switches]
    opened = {name: os.open(lab.node(name).netns, os.O_RDONLY) for name in switches}
    try:
        with FibWatch(opened) as watch:
            link.down()
            wait_for_tables(watch, lambda: kernel_widths(lab, "rtsw4").get(rack) == 3)
            wait_for_tables(watch, lambda: set(kernel_widths(lab, "rtsw1").values()) == {1, 3})
            link.up()
            wait_for_tables(watch, lambda: kernel_widths(lab, "rtsw4").get(rack) == 4)
            wait_for_tables(watch, lambda: set(kernel_widths(lab, "rtsw1").values()) == {1, 4})
            wait_for_tables(
                watch, lambda: all(kernel_widths(lab, node) == widths for node, widths in whole)
            )
    finally:
        for descriptor in opened.values():
            os.close(descriptor)


@only("three-tiers")
def test_two_labs_run_side_by_side_and_one_going_leaves_the_other(
    lab: RunningLab, make_lab: MakeLab
) -> None:
    other = make_lab("it-other", PARALLEL)
    other.start()
    assert_every_route_is_at_full_width(other)
    assert_every_route_is_at_full_width(lab)
    other.down()
    assert_every_route_is_at_full_width(lab)
    assert "it-other" not in recorded_labs()


@only("two-tiers")
def test_a_lab_that_is_up_is_not_brought_up_again(lab: RunningLab) -> None:
    with pytest.raises(InputError, match="is up"):
        Lab(lab.fabric).up()
    assert_every_route_is_at_full_width(lab)


@only("two-tiers")
def test_a_lab_found_by_name_is_the_one_that_was_brought_up(lab: RunningLab) -> None:
    assert RunningLab.open(lab.name).fabric == lab.fabric


def test_a_timeout_names_what_is_missing_and_leaves_nothing(
    make_lab: MakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = make_lab("it-late", TWO_TIERS)
    bring_up = wiring.bring_up
    # So that it learns no route, however long the other switches take to start.
    monkeypatch.setattr(
        wiring,
        "bring_up",
        lambda link, node: [] if node == "rtsw1" else bring_up(link, node),
    )
    monkeypatch.setattr(runtime, "convergence_timeout_s", lambda _: 0.0)
    with pytest.raises(ExpectationError) as caught:
        lab.start()
    message = str(caught.value)
    assert "rtsw1: 7 prefixes" in message
    assert "sessions not established: 198.18." in message
    assert "bgpd last logged: " in message
    assert "zebra last logged: " in message
    assert not Path("/run/rocelab/it-late").exists()


@pytest.mark.parametrize(
    "caller", mostly_long(("up", "drill", "pytest", "mininet"), ("up", "drill", "pytest"))
)
def test_a_lab_that_does_not_converge_leaves_its_evidence(
    caller: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"it-bad-{caller}"
    file = tmp_path / "lab.yaml"
    file.write_text(f"name: {name}\nfabric: {{kind: clos, racks: 2, spines: 2}}\n")
    monkeypatch.chdir(tmp_path)
    bring_up = wiring.bring_up
    monkeypatch.setattr(
        wiring, "bring_up", lambda link, node: [] if node == "rtsw1" else bring_up(link, node)
    )
    monkeypatch.setattr(runtime, "convergence_timeout_s", lambda _: 0.0)
    with pytest.raises(ExpectationError) as caught:
        bring_up_as(caller, file)
    folder = next((tmp_path / "results").iterdir())
    assert re.fullmatch(rf"failed-up-{name}(-p\d+)?-\w+", folder.name)
    assert f"results/{folder.name}/evidence.json lists the evidence of rtsw1" in str(caught.value)
    index = json.loads((folder / "evidence.json").read_text())
    assert "rtsw1" in index["nodes"] and "ctsw1" in index["nodes"]
    sessions = json.loads((folder / "rtsw1/bgp-summary.json").read_text())
    assert {peer["state"] for peer in sessions["peers"].values()} != {"Established"}
    assert "Interface ctsw1" in (folder / "rtsw1/interfaces.txt").read_text()
    assert (folder / "rtsw1/bgpd.log").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        {"lab.yaml", "results"} | ({"drill.yaml"} if caller == "drill" else set())
    )
    assert not [lab for lab in recorded_labs() if lab.startswith(name)]


def test_a_lab_that_does_not_converge_is_kept_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "it-kept"
    file = tmp_path / "lab.yaml"
    file.write_text(f"name: {name}\nfabric: {{kind: clos, racks: 2, spines: 2}}\n")
    monkeypatch.chdir(tmp_path)
    bring_up = wiring.bring_up
    with monkeypatch.context() as patch:
        patch.setattr(
            wiring, "bring_up", lambda link, node: [] if node == "rtsw1" else bring_up(link, node)
        )
        patch.setattr(runtime, "convergence_timeout_s", lambda _: 0.0)
        outcome = rocelab("up", file, "--keep")
    try:
        assert outcome.returncode in (1, 3)  # 3: other work had the machine
        assert "lists the evidence of rtsw1" in outcome.stderr
        assert f"`rocelab status {name}`" in outcome.stderr
        assert f"`rocelab down {name}`" in outcome.stderr
        (known,) = (lab for lab in known_labs() if lab.name == name)
        assert known.state is Presence.RUNNING
        status = rocelab("status", name)
        assert status.returncode == 1
        assert "switches are not as planned" in status.stdout
    finally:
        take_down(name)
    assert name not in recorded_labs()


def bring_up_as(caller: str, file: Path) -> None:
    """Bring a lab up as one of those who keep its evidence in results/."""
    if caller == "up":
        outcome = rocelab("up", file)
        assert outcome.returncode in (1, 3)  # 3: other work had the machine
        raise ExpectationError(outcome.stderr)
    if caller == "drill":
        drill = file.with_name("drill.yaml")
        drill.write_text(
            "name: drill\nlab: lab.yaml\ntraffic: {flows: 1, rate_pps: 1000, duration: 1s}\n"
            "faults: [{kind: carrier-down, at: 200ms, links: [rtsw1:ctsw1]}]\n"
        )
        run_drill(drill)
    elif caller == "pytest":
        Bench(file, Path("results")).up()
    else:
        mininet = pytest.importorskip("rocelab.mininet")
        mininet.LabNet(str(file)).start()


def test_a_kernel_without_hash_seeds_runs_the_lab_polarized_and_says_so(
    make_lab: MakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocelab.linux.settings.seeds_supported", lambda: False)
    lab = make_lab("it-noseed", TWO_TIERS)
    lab.start()
    assert "fib_multipath_hash_seed" in lab.notes[0]
    seed = ["cat", "/proc/sys/net/ipv4/fib_multipath_hash_seed"]
    assert {lab.node(node.name).exec(seed).stdout for node in lab.fabric.switches} == {"0\n"}
    source, destination = find_nic(lab.fabric, "srv1-1"), find_nic(lab.fabric, "srv3-1")
    with pytest.raises(InputError, match="cannot be predicted"):
        walk(lab.fabric, lab.read_fibs(), source, destination, 50000)
    assert RunningLab.open("it-noseed").fabric == lab.fabric


@only("two-tiers")
def test_a_lab_without_lossless_classes_has_no_part_of_them(lab: RunningLab) -> None:
    assert parts_of(lab) == set()
