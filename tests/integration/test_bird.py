"""Labs whose switches run BIRD: up, as FRR's in the kernel, broken and mended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.base.errors import InputError
from rocelab.drills.run import run_drill
from rocelab.faults.kinds.daemon_crash import DaemonCrash
from rocelab.faults.kinds.daemon_hang import DaemonHang
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.providers import provider_of
from rocelab.lab.status import read_status
from rocelab.linux.fibtable import Fib
from rocelab.observe.environment import environment_of
from rocelab.observe.timeline import FibTimeline, opened_namespaces
from rocelab.planning.routes import expected_routes
from tests.helpers.measured import measured, problems_of_drill
from tests.helpers.running import running
from tests.helpers.waiting import LIMIT_S, wait_until
from tests.integration.test_ownership import belongings

pytestmark = pytest.mark.side_by_side

FABRIC = "fabric: {kind: clos, racks: 3, spines: 2, links_per_pair: 2}\ndilation: 1000\n"
DRILL = """name: flap
lab: {lab}
traffic: {{flows: 8, rate_pps: 500, payload: 256B, warmup: 500ms, duration: 3s, seed: 3}}
faults:
  - {{kind: carrier-down, at: 500ms, links: [rtsw1:ctsw1], lasts: 1s}}
expect: {{restored: true}}
"""


def planned(folder: Path, name: str, routing: str) -> Lab:
    file = folder / f"{name}.yaml"
    file.write_text(f"name: {name}\n{FABRIC}routing: {routing}\n")
    return Lab.planned(file)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    folder = tmp_path_factory.mktemp("bird")
    bfd = "bfd: {interval: 300ms, multiplier: 3}"
    with running(planned(folder, "it-bird", f"{{stack: bird, {bfd}}}")) as made:
        yield made


def hops(fib: Fib) -> dict[str, set[tuple[str, str | None]]]:
    return {
        route.prefix: {(hop.interface, hop.gateway) for hop in route.next_hops}
        for route in fib.routes
    }


def test_the_kernel_has_the_routes_that_frr_sets(lab: RunningLab, tmp_path: Path) -> None:
    with running(planned(tmp_path, "it-frr-as-bird", "{}")) as other:
        expected = {node.name: hops(other.read_fibs()(node.name)) for node in other.fabric.switches}
    tables = {node.name: hops(lab.read_fibs()(node.name)) for node in lab.fabric.switches}
    assert tables == expected


def test_it_is_as_planned_and_servers_reach_each_other(lab: RunningLab) -> None:
    status = read_status(lab)
    assert status.converged
    assert [tuple(node.daemons) for node in status.nodes if node.role.tier] == [("bird",)] * 5
    assert lab.node("srv1-1").exec(["ping", "-c", "1", "-W", "5", "srv3-1"]).returncode == 0
    environment = environment_of(lab)
    assert environment.routing == f"BIRD {lab.installation.version}"
    assert (environment.frr_version, environment.frr_memory) == ("", None)


def test_its_command_line_and_its_rights(lab: RunningLab) -> None:
    node = lab.node("rtsw1")
    said = node.exec([*node.command_line, *node.stack.shell_arguments(["show protocols"])])
    assert "Established" in said.stdout
    (pid,) = node.daemons().values()
    status = Path(f"/proc/{pid}/status").read_text()
    assert f"Uid:\t{lab.installation.user}\t" in status
    assert lab.installation.user != 0


@pytest.mark.long
@pytest.mark.parametrize("kind", [DaemonCrash, DaemonHang])
def test_a_daemon_s_faults_are_undone(
    lab: RunningLab, kind: type[DaemonCrash] | type[DaemonHang]
) -> None:
    fault = kind("ctsw1", "bird")
    fault.prepare(lab)
    fault.inject(lab)
    assert fault.remains(lab)
    assert not read_status(lab, answer_s=1).converged
    fault.restore(lab)
    assert fault.remains(lab) == ()
    deadline_s = time.monotonic() + 60
    while not read_status(lab).converged:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


@pytest.mark.long
def test_a_drill_breaks_a_link_and_it_converges(lab: RunningLab, tmp_path: Path) -> None:
    drill = tmp_path / "flap.yaml"
    drill.write_text(DRILL.format(lab=tmp_path / "it-bird-drill.yaml"))
    planned(tmp_path, "it-bird-drill", "{stack: bird}")
    result = measured(lambda: run_drill(drill, retries=0), problems_of_drill)
    assert result.passed, result.phases[0].verdicts
    assert result.environment.routing is not None


def test_a_lab_comes_up_leaves_a_dark_link_takes_it_again_and_goes(tmp_path: Path) -> None:
    """Each step is awaited by the kernel's own reports of routes."""
    small = "fabric: {kind: clos, racks: 2, spines: 2, servers_per_rack: 1}"
    file = tmp_path / "lab.yaml"
    file.write_text(f"name: it-bird-small\n{small}\nrouting: {{stack: bird}}\n")
    with running(Lab.planned(file)) as lab:
        assert read_status(lab).converged
        link = lab.link("rtsw1:ctsw1")
        (rack,) = (
            p for p, links in expected_routes(lab.fabric)["rtsw1"].items() if len(links) == 2
        )
        namespaces = opened_namespaces(lab, lab.fabric.switches)
        with namespaces as netns, FibTimeline(lab, netns) as fib:
            begin_ns = time.time_ns()
            link.down()
            wait_until(lambda: ("rtsw1", 1) in widths(fib, begin_ns, rack))
            assert not read_status(lab).converged
            mended_ns = time.time_ns()
            link.up()
            fib.wait_until_whole(LIMIT_S)
            assert ("rtsw1", 2) in widths(fib, mended_ns, rack)
        assert read_status(lab).converged
    assert belongings("it-bird-small") == []


def widths(fib: FibTimeline, begin_ns: int, prefix: str) -> set[tuple[str, int | None]]:
    """By switch, the widths that the route has had since."""
    changes = fib.changes(begin_ns, time.time_ns())
    return {(change.node, change.width_after) for change in changes if change.prefix == prefix}


def test_the_docker_runtime_refuses_it(lab: RunningLab) -> None:
    with pytest.raises(InputError, match="BIRD does not run in containers"):
        provider_of("docker").check(lab.fabric)
