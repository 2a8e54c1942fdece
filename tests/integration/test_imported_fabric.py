"""Switches of others: their SONiC databases become a lab, which is whole, takes the predicted paths
and flaps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rocelab.drills.labuse import kept
from rocelab.drills.run import run_drill
from rocelab.importing.labs import graph_lab
from rocelab.importing.readers import read_topology
from rocelab.jobs.job import JobSpec
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.status import read_status
from rocelab.labfile.source import written
from rocelab.results.engines import Engine
from rocelab.routes.path import walk
from rocelab.routes.planned import planned_fibs
from rocelab.runs.jobs import run_job
from rocelab.sim.options import Options
from rocelab.sim.simulate import simulate
from rocelab.traffic.reachability import probe_reachability
from rocelab.traffic.traceroute import probe_path
from tests.helpers.measured import measured, problems_of_drill
from tests.helpers.running import running

pytestmark = pytest.mark.few_at_once

PORTS = range(50_000, 50_200)
DRILL = """name: flap
lab: tiny
traffic: {flows: 12, rate_pps: 500, payload: 64B, warmup: 500ms, duration: 3s, seed: 3}
faults:
  - {kind: carrier-down, at: 500ms, link: "leaf-01:Ethernet0", lasts: 1s}
expect: {restored: true, lost_outside_events: 0}
"""
LEAVES, SPINES = ("leaf-01", "leaf-02", "leaf-03"), ("spine-01", "spine-02")


def database(name: str, asn: int, neighbours: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """What SONiC has of a switch: its ports, its neighbours by port, and its loopback."""
    number = (*LEAVES, *SPINES).index(name) + 1
    return {
        "DEVICE_METADATA": {"localhost": {"hostname": name, "bgp_asn": str(asn)}},
        "LOOPBACK_INTERFACE": {"Loopback0": {}, f"Loopback0|10.99.0.{number}/32": {}},
        "DEVICE_NEIGHBOR": {
            port: {"name": far, "port": far_port} for port, (far, far_port) in neighbours.items()
        },
        "PORT": {port: {"speed": "100000", "mtu": "9100"} for port in neighbours},
    }


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lab of three leaves, of which the third has one spine only."""
    folder = tmp_path_factory.mktemp("sonic")
    for place, leaf in enumerate(LEAVES):
        spines = SPINES if place < 2 else SPINES[:1]
        wired = {
            f"Ethernet{4 * n}": (spine, f"Ethernet{4 * place}") for n, spine in enumerate(spines)
        }
        (folder / f"{leaf}.json").write_text(json.dumps(database(leaf, 65101 + place, wired)))
    for n, spine in enumerate(SPINES):
        leaves = LEAVES if n == 0 else LEAVES[:2]
        wired = {
            f"Ethernet{4 * place}": (leaf, f"Ethernet{4 * n}") for place, leaf in enumerate(leaves)
        }
        (folder / f"{spine}.json").write_text(json.dumps(database(spine, 65200, wired)))
    lab = graph_lab("it-sonic", read_topology(folder, {}), servers=1)
    file = folder / "it-sonic.yaml"
    file.write_text(written(lab.body))
    return file


@pytest.fixture(scope="module")
def lab(file: Path) -> Iterator[RunningLab]:
    with running(Lab.planned(file)) as made:
        yield made


def netns(lab: RunningLab, name: str) -> Path:
    return lab.node(name).netns


def test_it_is_whole_and_has_the_switches_numbers(lab: RunningLab) -> None:
    assert read_status(lab).converged
    reached = probe_reachability(lab.fabric, partial(netns, lab))
    assert (reached.pairs, reached.failed) == (6, ())
    vtysh = str(lab.node("leaf-02").daemon_files.programs / "vtysh")
    said = lab.node("leaf-02").exec([vtysh, "-c", "show bgp summary json"])
    summary = json.loads(said.stdout)["ipv4Unicast"]
    assert (summary["routerId"], summary["as"]) == ("10.99.0.2", 65102)
    assert {peer["remoteAs"] for peer in summary["peers"].values()} == {65200}


def test_flows_take_the_predicted_paths(lab: RunningLab) -> None:
    fabric = lab.fabric
    source, destination = fabric.nics("srv1-1")[0], fabric.nics("srv2-1")[0]
    taken = probe_path(fabric, partial(netns, lab), source, destination, PORTS)
    for fib_of in (lab.read_fibs(), planned_fibs(fabric, fabric.prefixes)):
        paths = {port: walk(fabric, fib_of, source, destination, port).nodes for port in PORTS}
        assert paths == taken
    assert len(set(taken.values())) == 2


def test_a_job_on_it_and_in_the_packet_engine(lab: RunningLab) -> None:
    job = JobSpec.model_validate({"pattern": "allreduce", "ranks": 3, "size": "1MB"})
    report = measured(lambda: run_job(lab, job), lambda report: report.problems)
    assert report.errors == ()
    simulated = simulate(lab.fabric.spec, [job], Options(engine=Engine.PACKETS))
    assert simulated.uses


def test_a_leafs_link_flaps(lab: RunningLab, tmp_path: Path) -> None:
    drill = tmp_path / "flap.yaml"
    drill.write_text(DRILL)
    result = measured(
        lambda: run_drill(drill, lab=lab, use=kept(print), retries=0), problems_of_drill
    )
    assert result.passed, result.phases[0].verdicts
