"""Labs that others wrote and containerlab deployed: adopted, broken, measured, given back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rocelab.base.errors import ExpectationError, InputError
from rocelab.drills.labuse import kept
from rocelab.drills.run import run_drill
from rocelab.fabrics.roles import Role
from rocelab.faults.fault_spec import SINGLE_FAULT
from rocelab.faults.ports import read_ports
from rocelab.faults.record import read_faults
from rocelab.faults.running import inject_and_leave, release, restore_ownerless
from rocelab.lab.adoption.adopt import adopt
from rocelab.lab.engine import ContainerEngine
from rocelab.lab.lab import RunningLab
from rocelab.lab.providers.containers import ContainerNode
from rocelab.lab.status import read_status
from rocelab.lab.teardown import take_down
from rocelab.linux.processes import is_stopped
from rocelab.record import LabFiles, recorded_labs
from rocelab.traffic.reachability import probe_reachability
from tests.containerlab.labs import (
    deployed,
    idle_image,
    write_bird,
    write_leaf_spine,
    write_triangle,
)
from tests.containerlab.prepare import BIRD
from tests.helpers.measured import probe_runs
from tests.helpers.waiting import wait_until

CONVERGES_WITHIN_S = 300.0
WATCHFRR_WOULD_S = 15.0
"""watchfrr starts a daemon again at once, or after 10 s without an answer."""
WIDE_ROUTES = {"leaf-spine": 12, "triangle": 3, "birds": 2}
"""Routes of a lab's routers with several next hops, once the last equal path is there: to hosts and
loopbacks of other leaves, to the link between both others, to the other leaf's hosts."""
WRITTEN = {"leaf-spine": write_leaf_spine, "triangle": write_triangle, "birds": write_bird}
DRILL = """name: flap
lab: tiny
traffic: {flows: 6, rate_pps: 200, warmup: 300ms, duration: 3s, seed: 2}
faults: [{kind: carrier-down, at: 500ms, link: {node: "leaf#1", uplink: 1}, lasts: 900ms}]
measure: {sampling_interval: 50ms, sustained: 200ms, stages: true}
health: {}
expect: {restored: true}
"""


@pytest.fixture(scope="module", params=list(WRITTEN))
def name(
    request: pytest.FixtureRequest,
    engine: ContainerEngine,
    image: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """A lab that containerlab deployed and whose routing has converged, by its name here."""
    folder = tmp_path_factory.mktemp("topology")
    routers = BIRD if request.param == "birds" else image
    topology = WRITTEN[request.param](folder, routers, idle_image(engine, image))
    with deployed(topology):
        wait_until(lambda: is_converged(topology), "routes", limit_s=CONVERGES_WITHIN_S)
        wait_until(lambda: is_settled(engine, request.param), "rest", limit_s=CONVERGES_WITHIN_S)
        yield request.param


@pytest.fixture
def lab(name: str) -> Iterator[RunningLab]:
    """It, adopted; given back at the end."""
    yield RunningLab.open(adopt(containerlabs(name)).name)
    with suppress(InputError):
        release(name)


def containerlabs(name: str) -> str:
    """containerlab's name of a lab."""
    return "Leaf_Spine" if name == "leaf-spine" else name


def is_converged(topology: Path) -> bool:
    """Whether every router has a route to every network of hosts."""
    adopted = adopt(str(topology))
    lab = RunningLab.open(adopted.name)
    assert lab.fabric.observed is not None
    routes = lab.fabric.observed.routes
    hosts = [
        f"{lab.fabric.nics(server.name)[0].ip.rpartition('.')[0]}.0/24"
        for server in lab.fabric.servers
    ]
    whole = all(
        sum(host in routes[node.name] for host in hosts) >= len(hosts) - 1
        for node in lab.fabric.switches
    )
    release(adopted.name)
    return whole


def state_of(engine: ContainerEngine, lab: str) -> dict[str, Any]:
    """What adopting must leave as it is: each node's addresses, routes, rules, qdiscs, permanent
    neighbours, settings, processes and changed files."""
    label = f"label=containerlab={lab}"
    names = engine.run("ps", "--filter", label, "--format", "{{.Names}}").split()
    return {name: state_of_node(engine, name) for name in sorted(names)}


def is_settled(engine: ContainerEngine, name: str) -> bool:
    """Whether all equal paths are there, and two readings are equal."""
    state = state_of(engine, containerlabs(name))
    wide = sum('"nexthops"' in route for node in state.values() for route in node["routes"])
    return wide == WIDE_ROUTES[name] and state_of(engine, containerlabs(name)) == state


def without_numbers(value: Any) -> Any:
    """Without the numbers that FRR gives its next-hop objects anew, and remaining lifetimes."""
    if isinstance(value, dict):
        return {
            key: without_numbers(part)
            for key, part in value.items()
            if key not in ("nhid", "expires", "valid_life_time", "preferred_life_time")
        }
    return [without_numbers(part) for part in value] if isinstance(value, list) else value


def state_of_node(engine: ContainerEngine, container: str) -> dict[str, Any]:
    pid = engine.run("inspect", "--format", "{{.State.Pid}}", container).strip()

    def inside(*command: str) -> str:
        enter = ["nsenter", f"--net=/proc/{pid}/ns/net", *command]
        return subprocess.run(enter, capture_output=True, text=True, check=False).stdout

    def listed(*command: str) -> list[str]:
        document = json.loads(inside(*command))
        return sorted(json.dumps(without_numbers(route), sort_keys=True) for route in document)

    settings = inside("grep", "-rsH", ".", "/proc/sys/net/ipv4", "/proc/sys/net/ipv6/conf")
    processes = engine.run("exec", container, "ps", "-e", "-o", "comm=").split()
    return {
        "links": listed("ip", "-json", "address", "show"),
        "routes": listed("ip", "-json", "-4", "route", "show", "table", "all"),
        # Those that a router's advertisement made come with the next one.
        "routes6": [
            route
            for route in listed("ip", "-json", "-6", "route", "show", "table", "all")
            if '"protocol": "ra"' not in route
        ],
        "rules": listed("ip", "-json", "rule", "show"),
        "qdiscs": listed("tc", "-json", "qdisc", "show"),
        "neighbours": listed("ip", "-json", "neigh", "show", "nud", "permanent"),
        "settings": sorted(settings.splitlines()),
        "processes": sorted(process for process in processes if process != "ps"),
        # FRR's daemons and their threads have buffers for their logs there, by process id.
        "files": sorted(
            line
            for line in engine.run("diff", container).splitlines()
            if "/var/tmp/frr" not in line
        ),
    }


def assert_same(
    engine: ContainerEngine, lab: str, before: dict[str, Any], besides: tuple[str, ...] = ()
) -> None:
    """All of its state is as before `besides` some parts. Routing has to converge first, and
    addresses pass duplicate detection."""

    def differences() -> list[str]:
        now = state_of(engine, lab)
        return [
            f"{node} {part}: {set(map(str, before[node][part])) ^ set(map(str, now[node][part]))}"
            for node in before
            for part in before[node]
            if part not in besides and before[node][part] != now[node][part]
        ]

    end = time.monotonic() + CONVERGES_WITHIN_S
    while texts := differences():
        assert time.monotonic() < end, "\n".join(texts)
        time.sleep(0.5)


def test_roles_links_and_daemons_are_found(name: str, lab: RunningLab) -> None:
    fabric = lab.fabric
    roles = {node.name: node.role for node in fabric.nodes}
    if name == "leaf-spine":
        assert {roles[f"Spine_{number}"] for number in (1, 2)} == {Role.SPINE}
        assert {roles[f"Leaf_{number}"] for number in (1, 2, 3)} == {Role.LEAF}
        assert len(fabric.links) == 9 and len(fabric.sessions) == 6
        assert fabric.node("Leaf_2").asn == 65002
        assert fabric.node("Leaf_2").loopback == "10.0.0.2"
        assert len(fabric.servers) == 3
    elif name == "triangle":
        assert {roles[f"router{number}"] for number in (1, 2, 3)} == {Role.LEAF}
        assert len(fabric.links) == 6 and not fabric.sessions
        assert len(fabric.servers) == 3
    else:
        assert {roles["spine1"], roles["spine2"]} == {Role.SPINE}
        assert {roles["leaf1"], roles["leaf2"]} == {Role.LEAF}
        assert len(fabric.links) == 6 and not fabric.sessions
    daemon = "bird" if name == "birds" else "zebra"
    assert all(daemon in lab.daemons_of(node.name) for node in fabric.switches)


def test_it_is_whole_and_hosts_reach_each_other(lab: RunningLab) -> None:
    state = read_status(lab)
    assert state.converged, state.document()
    reachability = probe_reachability(lab.fabric, lambda node: lab.node(node).netns)
    assert reachability.pairs > 0 and not reachability.failed


def test_adopting_changes_nothing(name: str, engine: ContainerEngine) -> None:
    before = state_of(engine, containerlabs(name))
    adopt(containerlabs(name))
    lab = RunningLab.open(name)
    read_status(lab)
    lab.node(lab.fabric.switches[0].name).exec(["ip", "route"])
    release(name)
    assert_same(engine, containerlabs(name), before)
    assert name not in recorded_labs()


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "carrier-down", "link": {"node": "leaf#1", "uplink": 1}},
        {"kind": "carrier-down", "link": {"node": "server#1", "uplink": 1}},
        {"kind": "carrier-down", "link": {"node": "leaf#1", "uplink": 1}, "side": "leaf#1"},
        {"kind": "blackhole", "link": {"node": "leaf#1", "uplink": 1}},
        {"kind": "grey-loss", "link": {"node": "leaf#1", "uplink": 1}, "loss": "10%"},
        {"kind": "corruption", "link": {"node": "leaf#1", "uplink": 1}},
        {"kind": "delay", "link": {"node": "leaf#1", "uplink": 1}},
        {"kind": "mtu-mismatch", "link": {"node": "leaf#1", "uplink": 1}},
        {"kind": "host-pause", "server": "server#1"},
    ],
    ids=lambda fault: f"{fault['kind']}-{fault.get('link', {}).get('node', '')}{'side' in fault}",
)
def test_a_fault_is_undone_to_the_last_route(
    name: str, engine: ContainerEngine, lab: RunningLab, fault: dict[str, Any]
) -> None:
    before = state_of(engine, containerlabs(name))
    inject_and_leave(lab, SINGLE_FAULT.validate_python(fault))
    assert state_of(engine, containerlabs(name)) != before or fault["kind"] in ("host-pause",)
    undone, _ = restore_ownerless(lab)
    assert len(undone) == 1
    assert_same(engine, containerlabs(name), before)


def test_a_reset_of_sessions_ends_by_itself(
    name: str, engine: ContainerEngine, lab: RunningLab
) -> None:
    fault = SINGLE_FAULT.validate_python({"kind": "session-reset", "switch": "leaf#1"})
    before = state_of(engine, containerlabs(name))
    if name == "leaf-spine":
        inject_and_leave(lab, fault)
        restore_ownerless(lab)
    else:
        with pytest.raises(InputError, match="has no BGP session to reset"):
            inject_and_leave(lab, fault)
    assert not read_faults(LabFiles(lab.name))
    assert_same(engine, containerlabs(name), before)


def test_a_fault_of_a_daemon_lasts_until_its_end(
    name: str, engine: ContainerEngine, lab: RunningLab
) -> None:
    """FRR's watchfrr would start a daemon again that was killed or does not answer."""
    daemon = {"leaf-spine": "bgpd", "triangle": "zebra", "birds": "bgpd"}[name]
    before = state_of(engine, containerlabs(name))
    for kind in ("daemon-hang", "daemon-crash"):
        fault = SINGLE_FAULT.validate_python({"kind": kind, "switch": "leaf#2", "daemon": daemon})
        if name == "birds":
            with pytest.raises(InputError, match="runs no bgpd"):
                inject_and_leave(lab, fault)
            continue
        node = lab.node([node.name for node in lab.fabric.switches if node.is_leaf][1])
        pid = node.daemons()[daemon]
        inject_and_leave(lab, fault)
        time.sleep(WATCHFRR_WOULD_S)
        if kind == "daemon-hang":
            assert node.daemons()[daemon] == pid and is_stopped(pid)
        else:
            assert daemon not in node.daemons()
        restore_ownerless(lab)
        assert daemon in node.daemons() and not is_stopped(node.daemons()[daemon])
        assert_same(engine, containerlabs(name), before)


def test_a_drill_measures_it(
    name: str, engine: ContainerEngine, lab: RunningLab, tmp_path: Path
) -> None:
    before = state_of(engine, containerlabs(name))
    drill = tmp_path / "drill.yaml"
    drill.write_text(DRILL)
    result = run_drill(drill, retries=0, out=tmp_path / "out", use=kept(lambda _: None), lab=lab)
    (repeat,) = probe_runs(result)
    assert [record.event.change for record in repeat.events] == ["begin", "end"]
    assert repeat.overall.restored
    assert {change.node for change in repeat.fib}
    assert result.environment.runtime == "adopted"
    assert (result.environment.frr_version == "none") == (name == "birds")
    assert any("stages" in note for note in result.notes)
    assert_same(engine, containerlabs(name), before)


def test_a_driver_that_is_killed_leaves_nothing_broken(
    name: str, engine: ContainerEngine, lab: RunningLab, tmp_path: Path
) -> None:
    before = state_of(engine, containerlabs(name))
    drill = tmp_path / "drill.yaml"
    drill.write_text(DRILL)
    command = [
        str(Path(sys.executable).with_name("rocelab")),
        "drill",
        "run",
        str(drill),
        "--lab",
        lab.name,
    ]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "out")], cwd=tmp_path, stdout=subprocess.DEVNULL
    ) as driver:
        wait_until(lambda: state_of(engine, containerlabs(name)) != before or driver.poll())
        assert driver.poll() is None
        os.kill(driver.pid, signal.SIGKILL)
    wait_until(lambda: not read_faults(LabFiles(lab.name)), "the guardian", limit_s=60)
    release(lab.name)
    assert_same(engine, containerlabs(name), before)


def test_it_is_not_taken_down_here(name: str, lab: RunningLab, engine: ContainerEngine) -> None:
    with pytest.raises(InputError, match="rocelab release"):
        take_down(lab.name)
    assert lab.node(lab.fabric.switches[0].name).daemons()


def test_what_would_change_it_is_refused(lab: RunningLab) -> None:
    for fault in (
        {"kind": "rate-degrade", "link": {"node": "leaf#1", "uplink": 1}},
        {"kind": "route-leak", "switch": "leaf#1"},
        {"kind": "power-loss", "switch": "leaf#1"},
        {"kind": "drain", "switch": "leaf#1"},
        {"kind": "abrupt-removal", "switch": "leaf#1"},
    ):
        with pytest.raises(InputError, match="was adopted"):
            inject_and_leave(lab, SINGLE_FAULT.validate_python(fault))
    assert not read_faults(LabFiles(lab.name))


def test_a_port_that_its_user_set_down_stays_down(
    name: str, engine: ContainerEngine, lab: RunningLab
) -> None:
    before = state_of(engine, containerlabs(name))
    link = next(link for link in lab.fabric.links if link.is_between_switches)
    leaf = lab.node(link.a.node)

    def is_up() -> bool:
        return read_ports(leaf)[link.a.interface].up

    fault = {"kind": "carrier-down", "link": {"node": leaf.name, "interface": link.a.interface}}
    leaf.run_tool(["ip", "link", "set", link.a.interface, "down"])
    try:
        with pytest.raises(ExpectationError, match="nothing that carrier-down"):
            inject_and_leave(lab, SINGLE_FAULT.validate_python(fault))
        assert not is_up()
    finally:
        leaf.run_tool(["ip", "link", "set", link.a.interface, "up"])
    assert_same(engine, containerlabs(name), before)


def test_a_node_that_was_restarted_is_said_to_be_gone(
    name: str, engine: ContainerEngine, lab: RunningLab, tmp_path: Path
) -> None:
    """Last: its container has no links afterwards."""
    host = lab.fabric.servers[-1].name
    adopted = lab.runtime.provider.node(lab.runtime.files, host)
    assert isinstance(adopted, ContainerNode)
    (cable,) = lab.fabric.links_of[host]
    leaf = cable.far(host).node
    container = lab.runtime.provider.node(lab.runtime.files, leaf).container  # type: ignore[attr-defined]
    other = next(link for link in lab.fabric.links_of[leaf] if link != cable)
    ends = (leaf, other.port(leaf).interface), (host, cable.port(host).interface)
    links = [{"node": node, "interface": interface} for node, interface in ends]
    inject_and_leave(lab, SINGLE_FAULT.validate_python({"kind": "delay", "links": links}))
    assert "delay-" in "".join(state_of_node(engine, container)["links"])
    engine.run("restart", "--time", "0", adopted.container)
    with pytest.raises(ExpectationError, match=host):
        RunningLab.open(lab.name)
    release(lab.name)
    assert lab.name not in recorded_labs()
    assert "delay-" not in "".join(state_of_node(engine, container)["links"])


def test_faults_end_on_ports_that_were_renamed_or_removed(
    engine: ContainerEngine, lab: RunningLab
) -> None:
    """Last, too: a cable is gone afterwards."""
    link = next(link for link in lab.fabric.links if link.is_between_switches)
    container = lab.runtime.provider.node(lab.runtime.files, link.a.node).container  # type: ignore[attr-defined]
    leaf, port = lab.node(link.a.node), {"node": link.a.node, "interface": link.a.interface}
    for kind in ({"kind": "carrier-down", "side": leaf.name}, {"kind": "delay"}):
        inject_and_leave(lab, SINGLE_FAULT.validate_python({**kind, "link": port}))
    mtu = {"kind": "mtu-mismatch", "link": port, "side": leaf.name}
    inject_and_leave(lab, SINGLE_FAULT.validate_python(mtu))
    for change in ("down", "name other"):
        leaf.run_tool(["ip", "link", "set", link.a.interface, *change.split()])
    restore_ownerless(lab)
    assert read_ports(leaf)["other"].mtu == link.mtu
    leaf.run_tool(["ip", "link", "set", "other", "name", link.a.interface])
    leaf.run_tool(["ip", "link", "set", link.a.interface, "up"])
    for kind in ({"kind": "carrier-down"}, {"kind": "delay"}):
        inject_and_leave(lab, SINGLE_FAULT.validate_python({**kind, "link": port}))
    leaf.run_tool(["ip", "link", "del", link.a.interface])
    release(lab.name)
    assert lab.name not in recorded_labs()
    assert "delay-" not in "".join(state_of_node(engine, container)["links"])
