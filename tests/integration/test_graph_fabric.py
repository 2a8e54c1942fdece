"""A half-migrated fabric from its list of cables: no tiers, links of two rates, shared ASNs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.drills.labuse import kept
from rocelab.drills.run import run_drill
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import collective_job
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.status import read_status
from rocelab.labfile.catalog import find_lab
from rocelab.results.engines import Engine
from rocelab.routes.path import walk
from rocelab.routes.reach import unreached
from rocelab.runs.jobs import run_job
from rocelab.sim.events.sentence import parse_event
from rocelab.sim.options import Options
from rocelab.sim.reliability import event_cost
from rocelab.sim.simulate import simulate
from rocelab.traffic.traceroute import probe_path
from tests.helpers.measured import measured, problems_of_drill
from tests.helpers.running import running

pytestmark = [pytest.mark.few_at_once]

DRILL = """name: flap
lab: half-migrated
traffic: {flows: 12, rate_pps: 500, payload: 256B, warmup: 500ms, duration: 5s, seed: 3}
faults:
  - {kind: carrier-down, at: 500ms, links: ["new-leaf16:Ethernet32"], lasts: 1500ms}
expect: {restored: true, lost_outside_events: 0}
"""
JOB = JobSpec.model_validate(
    {
        "pattern": "allreduce",
        "ranks": 4,
        "placement": "fragmented",
        "size": "256KB",
        "iterations": 1,
        "warmup_iterations": 0,
    }
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    shipped, folder = find_lab("half-migrated"), tmp_path_factory.mktemp("graph")
    (folder / "half-migrated.csv").write_text(shipped.with_suffix(".csv").read_text())
    file = folder / "it-graph.yaml"
    file.write_text(shipped.read_text().replace("name: half-migrated", "name: it-graph"))
    with running(Lab.planned(file)) as up:
        yield up


def test_every_kernel_has_every_planned_route(lab: RunningLab) -> None:
    assert not lab.fabric.is_tiered
    assert read_status(lab).converged
    assert list(unreached(lab.fabric, lab.read_fibs())) == []


def test_spines_of_one_number_refuse_each_other_s_paths(lab: RunningLab) -> None:
    asns = {name: lab.fabric.node(name).asn for name in ("old-spine1", "old-spine2", "old-spine3")}
    assert asns["old-spine1"] == asns["old-spine2"] != asns["old-spine3"]

    fib = lab.read_fibs()("old-spine1")
    twin = lab.fabric.node("old-spine2").loopback
    assert twin is not None
    assert fib.lookup(twin) is None


def test_ports_have_the_names_of_the_switch(lab: RunningLab) -> None:
    link = lab.fabric.link_by_name["old-leaf1:swp1"]
    port = link.far("old-leaf1")

    assert (port.name, port.interface) == ("eth1/1", "eth1-1")
    said = lab.node("old-spine1").exec(["ip", "-brief", "link", "show", "dev", "eth1-1"]).stdout
    assert "UP" in said


@pytest.mark.long
def test_the_path_of_200_flows_is_the_one_that_packets_take(lab: RunningLab) -> None:
    draw, fib_of = random.Random(57), lab.read_fibs()
    nics = [nic for server in lab.fabric.servers for nic in lab.fabric.nics(server.name)]
    old = [nic for nic in nics if nic.links[0].b.node.startswith("old")]
    new = [nic for nic in nics if nic not in old]
    used = set()
    for _ in range(10):
        source, target = draw.choice(old), draw.choice(new[:-1])
        ports = draw.sample(range(0xC000, 0x10000), 20)
        seen = probe_path(lab.fabric, lambda name: lab.node(name).netns, source, target, ports)
        for port in ports:
            predicted = walk(lab.fabric, fib_of, source, target, port).nodes
            assert seen[port] == predicted
            used.add(predicted)
    assert len(used) > 50, "most flows took one path: little was tested"


@pytest.mark.long
def test_a_lost_link_is_restored_under_traffic(lab: RunningLab, tmp_path: Path) -> None:
    drill = tmp_path / "flap.yaml"
    drill.write_text(DRILL)

    result = measured(
        lambda: run_drill(drill, lab=lab, use=kept(print), retries=0), problems_of_drill
    )

    assert result.passed, result.phases[0].verdicts


@pytest.mark.long
def test_an_allreduce_over_both_generations_loses_nothing(lab: RunningLab) -> None:
    report = measured(lambda: run_job(lab, JOB))

    assert report.lossless is not None
    assert report.lossless.dropped == report.roce.retransmitted == 0


def test_a_failed_border_costs_a_job_across_it_some_of_its_time(lab: RunningLab) -> None:
    event = parse_event("crash border1 for 10s")

    (cost,) = event_cost(lab.fabric.spec, [collective_job(JOB)], event, Options()).jobs

    assert cost.before_s > 0
    assert cost.during_s is not None
    assert cost.extra_s > 0


def test_packets_are_simulated_on_the_same_links(lab: RunningLab) -> None:
    report = simulate(lab.fabric.spec, [JOB], Options(engine=Engine.PACKETS))

    assert report.packets is not None
    assert (report.packets.drops, report.packets.retransmitted) == (0, 0)
    assert None not in report.jobs[0].iterations_ns
