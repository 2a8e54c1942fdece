"""A lab whose switches run FRR files of the user's own: OSPF, iBGP and two route reflectors."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rocelab.base.errors import InputError, SpecError
from rocelab.drills.labuse import kept
from rocelab.drills.run import run_drill
from rocelab.faults.kinds.daemon_crash import DaemonCrash
from rocelab.faults.kinds.drain import DrainSpec
from rocelab.faults.kinds.session_reset import SessionResetSpec
from rocelab.jobs.placement import find_nic
from rocelab.lab.convergence import NotConvergedError
from rocelab.lab.differences import read_differences
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.status import read_status
from rocelab.lab.stillness import StillnessWait
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.configuration import ExpectSpec
from rocelab.linux.fibwatch import FibWatch
from rocelab.linux.namespaces import opened
from rocelab.planning.fabric import RouteBasis
from rocelab.routes.path import walk
from rocelab.routes.reach import unreached
from rocelab.traffic.traceroute import probe_path
from tests.helpers.measured import measured, problems_of_drill
from tests.helpers.running import running
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.few_at_once

DRILL = """name: flap
lab: ospf-ibgp
traffic: {flows: 12, rate_pps: 500, payload: 256B, warmup: 500ms, duration: 5s, seed: 3}
faults:
  - {kind: carrier-down, at: 500ms, links: [rtsw1:ctsw1], lasts: 1500ms}
expect: {restored: true, lost_outside_events: 0}
"""


def planned(folder: Path, name: str, *, expect: str = "") -> Lab:
    """The lab that ships, under another name, in a folder with its files."""
    shipped = find_lab("ospf-ibgp")
    files = folder / "ospf-ibgp"
    files.mkdir()
    for file in (shipped.parent / "ospf-ibgp").iterdir():
        (files / file.name).write_text(file.read_text())
    text = shipped.read_text().replace("name: ospf-ibgp", f"name: {name}")
    path = folder / f"{name}.yaml"
    path.write_text(text.replace("config: ", f"{expect}\n  config: "))
    return Lab.planned(path)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    made = planned(
        tmp_path_factory.mktemp("own"), "it-own", expect="expect: {next_hops: {rtsw: 2}}"
    )
    with running(made) as up:
        yield up


def test_the_lab_is_whole_and_has_what_is_declared(lab: RunningLab) -> None:
    assert lab.fabric.basis is RouteBasis.DECLARED
    assert lab.daemons_of("rtsw1") == ("zebra", "ospfd", "bgpd")
    status = read_status(lab)
    assert status.converged
    sessions = {node.name: node.sessions_established for node in status.nodes}
    assert (sessions["ctsw1"], sessions["rtsw1"]) == (4, 2)
    assert read_differences(lab) == ()
    assert list(unreached(lab.fabric, lab.read_fibs())) == []


def test_the_kernel_has_the_files_addresses_and_two_paths(lab: RunningLab) -> None:
    route = lab.read_fibs()("rtsw1").lookup("10.2.4.1")

    assert route is not None
    assert [hop.interface for hop in route.next_hops] == ["ctsw1", "ctsw2"]
    said = lab.node("rtsw1").exec(["ip", "-brief", "address", "show", "dev", "lo"]).stdout
    assert "10.0.0.11/32" in said
    assert "198.18." not in said


def test_another_process_opens_it_with_what_was_observed(lab: RunningLab) -> None:
    again = RunningLab.open(lab.name)

    assert again.fabric == lab.fabric
    assert again.fabric.observed is not None


def test_the_path_of_200_flows_is_the_one_that_packets_take(lab: RunningLab) -> None:
    draw, fib_of = random.Random(57), lab.read_fibs()
    servers = [server.name for server in lab.fabric.servers]
    used = set()
    for _ in range(10):
        source, target = (find_nic(lab.fabric, name) for name in draw.sample(servers, 2))
        ports = draw.sample(range(0xC000, 0x10000), 20)
        seen = probe_path(lab.fabric, lambda name: lab.node(name).netns, source, target, ports)
        for port in ports:
            predicted = walk(lab.fabric, fib_of, source, target, port).nodes
            assert seen[port] == predicted
            used.add(predicted)
    assert len(used) > 10, "all flows took one path: nothing was tested"


def test_a_lost_link_is_restored_under_traffic(lab: RunningLab, tmp_path: Path) -> None:
    drill = tmp_path / "flap.yaml"
    drill.write_text(DRILL)

    result = measured(
        lambda: run_drill(drill, lab=lab, use=kept(print), retries=0), problems_of_drill
    )

    assert result.passed, result.phases[0].verdicts


@pytest.mark.long
def test_ospfd_crashes_and_comes_back_with_its_part_of_the_file(lab: RunningLab) -> None:
    fault = DaemonCrash("ctsw1", "ospfd")

    fault.prepare(lab)
    fault.inject(lab)
    assert "ospfd" not in lab.node("ctsw1").daemons()
    fault.restore(lab)

    assert fault.remains(lab) == ()
    said = lab.node("ctsw1").exec([*lab.node("ctsw1").command_line, "-c", "show run ospfd"]).stdout
    assert "ospf router-id 10.0.0.1" in said
    wait_until(lambda: read_status(lab).converged)


def test_a_session_between_loopbacks_is_reset(lab: RunningLab) -> None:
    spec = SessionResetSpec.model_validate(
        {"kind": "session-reset", "switch": "rtsw1", "peer": "ctsw2"}
    )
    fault = spec.resolve(lab.fabric)
    before = fault.intact(lab)
    assert [text.partition("lost its session with ")[2] for text in before] == ["10.0.0.2 0 times"]

    fault.inject(lab)

    wait_until(lambda: fault.intact(lab) not in (before, frozenset()))
    wait_until(lambda: read_status(lab).converged)


def test_a_fault_of_the_kit_s_policy_is_not_applicable(lab: RunningLab) -> None:
    with pytest.raises(InputError, match="not applicable: lab it-own runs a configuration of its"):
        DrainSpec.model_validate({"kind": "drain", "switch": "ctsw1"}).resolve(lab.fabric)


def test_a_line_that_frr_refuses_is_shown_before_anything_starts(tmp_path: Path) -> None:
    made = planned(tmp_path, "it-own-wrong")
    file = tmp_path / "ospf-ibgp" / "rtsw2.conf"
    lines = file.read_text().splitlines()
    place = lines.index("router ospf") + 1
    file.write_text("\n".join([*lines[:place], " frobnicate 3", *lines[place:]]) + "\n")

    with pytest.raises(SpecError, match=rf"ospf-ibgp/rtsw2.conf:{place + 1}: .*frobnicate 3"):
        Lab.planned(tmp_path / f"{made.name}.yaml").up()
    assert not made.is_running


def test_what_is_declared_and_missing_is_named(lab: RunningLab) -> None:
    routing = lab.fabric.spec.routing.model_copy(
        update={"expect": ExpectSpec(next_hops={"rtsw1": 3})}
    )
    wanting = replace(lab.fabric, spec=lab.fabric.spec.model_copy(update={"routing": routing}))
    wait = StillnessWait(wanting, lab.node, lab.runtime.daemons_of)
    switches = {node.name: lab.node(node.name).netns for node in lab.fabric.switches}

    with (
        opened(switches) as namespaces,
        FibWatch(namespaces) as watch,
        pytest.raises(NotConvergedError, match="rtsw1 has a route to servers with 2 next hops"),
    ):
        wait.run(watch, 0, lambda progress: None)


@pytest.mark.long
def test_a_lab_that_has_not_what_is_declared_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = planned(tmp_path, "it-own-narrow", expect="expect: {next_hops: {rtsw1: 3}}")
    monkeypatch.setattr("rocelab.lab.runtime.convergence_timeout_s", lambda fabric: 40.0)

    with pytest.raises(NotConvergedError, match="rtsw1 has a route to servers with 2 next hops"):
        made.up()
    assert not made.is_running


TEMPLATES = {
    "bgpd.conf.j2": '{% extends "frr/bgpd.conf.j2" %}{% block bgp %}{{ super() }}'
    " bgp bestpath compare-routerid\n{% endblock %}",
    "nodes/ctsw1/staticd.conf.j2": "log file /etc/evil\nip route 203.0.113.0/24 blackhole\n",
}


def test_templates_extend_the_kit_s_and_add_a_daemon(tmp_path: Path) -> None:
    for name, text in TEMPLATES.items():
        path = tmp_path / "templates" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    file = tmp_path / "it-own-templates.yaml"
    fabric = "fabric: {kind: clos, racks: 2, spines: 2}"
    file.write_text(f"name: it-own-templates\n{fabric}\nrouting: {{templates: templates}}\n")

    with running(Lab.planned(file)) as up:
        assert up.fabric.basis is RouteBasis.OBSERVED
        assert read_status(up).converged
        assert read_differences(up) == ()
        spine = up.node("ctsw1")
        assert set(spine.daemons()) == {"zebra", "staticd", "bgpd"}
        said = spine.exec([*spine.command_line, "-c", "show running-config"]).stdout
        assert "bgp bestpath compare-routerid" in said
        assert "/etc/evil" not in said
        assert "blackhole 203.0.113.0/24" in spine.exec(["ip", "route"]).stdout


@pytest.mark.long
def test_values_are_what_bgp_announces(tmp_path: Path) -> None:
    file = tmp_path / "it-own-values.yaml"
    fabric = "fabric: {kind: clos, racks: 2, spines: 2}"
    values = (
        "{rtsw: {communities: ['65000:100'], password: s3cret, gtsm: true, dampening: true}, "
        "rtsw1: {local_as: 65100}}"
    )
    file.write_text(f"name: it-own-values\n{fabric}\nrouting: {{policy: {values}}}\n")

    with running(Lab.planned(file)) as up:
        assert read_status(up).converged
        spine, rack = up.node("ctsw1"), up.fabric.prefixes_of["rtsw1"][0].prefix
        said = spine.exec([*spine.command_line, "-c", f"show bgp ipv4 unicast {rack}"]).stdout
        assert "Community: 65000:100" in said
        assert "\n  65100\n" in said


def interface(name: str, *lines: str) -> str:
    """The block of an interface in a switch's file."""
    return "\n".join((f"interface {name}", *(f" {line}" for line in lines), "exit\n"))


@pytest.mark.long
def test_static_routes_need_no_session(tmp_path: Path) -> None:
    files = {
        "ctsw1": interface("rtsw1", "ip address 10.1.0.1/31")
        + interface("rtsw2", "ip address 10.1.0.3/31")
        + "ip route 10.2.1.0/31 10.1.0.0\nip route 10.2.2.0/31 10.1.0.2\n",
    }
    for rack, near, far in ((1, "10.1.0.0", "10.1.0.1"), (2, "10.1.0.2", "10.1.0.3")):
        files[f"rtsw{rack}"] = (
            interface("ctsw1", f"ip address {near}/31")
            + interface(f"srv{rack}-1", f"ip address 10.2.{rack}.0/31")
            + f"ip route 10.2.0.0/16 {far}\n"
        )
    for name, text in files.items():
        (tmp_path / f"{name}.conf").write_text(text)
    file = tmp_path / "it-own-static.yaml"
    file.write_text(
        "name: it-own-static\nfabric: {kind: clos, racks: 2, spines: 1}\n"
        "routing: {config: '{node}.conf'}\n"
    )

    with running(Lab.planned(file)) as up:
        assert up.daemons_of("rtsw1") == ("zebra", "staticd")
        assert read_status(up).converged
        assert up.node("srv1-1").exec(["ping", "-c", "1", "-W", "5", "10.2.2.1"]).returncode == 0


GRAPH = """name: it-own-isis
fabric:
  kind: graph
  nodes:
    spine1: {role: spine}
    leaf1: {role: leaf}
    leaf2: {role: leaf}
    srv1: {role: server}
    srv2: {role: server}
  links:
    - {a: "leaf1:Ethernet0", b: "spine1:Ethernet0"}
    - {a: "leaf2:Ethernet0", b: "spine1:Ethernet4"}
    - {a: "srv1:eth1", b: "leaf1:Ethernet44"}
    - {a: "srv2:eth1", b: "leaf2:Ethernet44"}
routing: {config: "{node}.conf"}
"""


def test_isis_comes_up_on_a_graph_with_the_names_of_its_ports(tmp_path: Path) -> None:
    trunk = ("ip router isis CORE", "isis network point-to-point", "isis hello-interval 1")
    ports = {
        "spine1": {"Ethernet0": "10.1.0.0/31", "Ethernet4": "10.1.0.2/31"},
        "leaf1": {"Ethernet0": "10.1.0.1/31", "Ethernet44": "10.2.1.1/30"},
        "leaf2": {"Ethernet0": "10.1.0.3/31", "Ethernet44": "10.2.2.1/30"},
    }
    for number, (name, addresses) in enumerate(ports.items(), start=1):
        text = ""
        for port, address in addresses.items():
            edge = ("ip router isis CORE", "isis passive")
            text += interface(port, f"ip address {address}", *(trunk, edge)[port == "Ethernet44"])
        text += (
            f"router isis CORE\n net 49.0001.0000.0000.000{number}.00\n"
            " is-type level-2-only\n lsp-gen-interval 1\nexit\n"
        )
        (tmp_path / f"{name}.conf").write_text(text)
    file = tmp_path / "it-own-isis.yaml"
    file.write_text(GRAPH)

    with running(Lab.planned(file)) as up:
        assert up.daemons_of("leaf1") == ("zebra", "isisd")
        assert read_status(up).converged
        assert up.fabric.nics("srv2")[0].ip == "10.2.2.2"
        assert list(unreached(up.fabric, up.read_fibs())) == []
        assert up.path("srv1", "srv2", 50_000).nodes == (
            *("srv1", "leaf1", "spine1", "leaf2", "srv2"),
        )
