"""Five networks of no regular kind, or with a routing of their own, come up, are whole, take the
predicted paths, flap, run an AllReduce with PFC by a switch's profile, and are simulated.

A half-migrated fabric of 40 switches, one of IPv6 alone, one of OSPF and iBGP, one of the files
that a generator wrote, and a line card of SONiC.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from rocelab.drills.labuse import kept
from rocelab.drills.run import run_drill
from rocelab.importing.labs import graph_lab
from rocelab.importing.readers import read_topology
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import collective_job
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.status import read_status
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.source import written
from rocelab.results.engines import Engine
from rocelab.routes.path import walk
from rocelab.routes.reach import unreached
from rocelab.runs.jobs import run_job
from rocelab.sim.events.sentence import parse_event
from rocelab.sim.options import Options
from rocelab.sim.reliability import event_cost
from rocelab.sim.simulate import simulate
from rocelab.traffic.reachability import probe_reachability
from rocelab.traffic.traceroute import probe_path
from tests.helpers.long import mostly_long
from tests.helpers.measured import measured, problems_of_drill
from tests.helpers.own_networks import card, generated
from tests.helpers.running import running

pytestmark = [pytest.mark.few_at_once]

QUEUES = "queues: {profile: arista-7060x6-64pe, dscp: {af31: 3, ef: 6}}\n"
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


def half_migrated(folder: Path) -> Path:
    shipped, file = find_lab("half-migrated"), folder / "it-net-half.yaml"
    (folder / "half-migrated.csv").write_text(shipped.with_suffix(".csv").read_text())
    file.write_text(shipped.read_text().replace("name: half-migrated", "name: it-net-half"))
    return file


def ipv6_only(folder: Path) -> Path:
    file, text = folder / "it-net-six.yaml", find_lab("ipv6-only").read_text()
    text = text[: text.index("queues:")].replace("name: ipv6-only", "name: it-net-six")
    file.write_text(text + QUEUES)
    return file


def ospf_ibgp(folder: Path) -> Path:
    shipped, files = find_lab("ospf-ibgp"), folder / "ospf-ibgp"
    files.mkdir()
    for source in (shipped.parent / "ospf-ibgp").iterdir():
        (files / source.name).write_text(source.read_text())
    file, text = folder / "it-net-ospf.yaml", shipped.read_text()
    file.write_text(text.replace("name: ospf-ibgp", "name: it-net-ospf") + QUEUES)
    return file


def of_a_generator(folder: Path) -> Path:
    return generated(folder, "it-net-frr", QUEUES)


def sonic(folder: Path) -> Path:
    made = graph_lab("it-net-sonic", read_topology(card(folder), {}), servers=2)
    file = folder / "it-net-sonic.yaml"
    file.write_text(written(made.body) + "queues: {profile: card/card1_config_db.json}\n")
    return file


NETWORKS = (half_migrated, ipv6_only, ospf_ibgp, of_a_generator, sonic)
LIGHT = (of_a_generator, sonic)
"""The others have tests of their own in `make test`."""


@pytest.fixture(
    scope="module", params=mostly_long(NETWORKS, LIGHT), ids=lambda network: network.__name__
)
def lab(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningLab]:
    network: Callable[[Path], Path] = request.param
    with running(Lab.planned(network(tmp_path_factory.mktemp("network")))) as up:
        yield up


def netns(lab: RunningLab, name: str) -> Path:
    return lab.node(name).netns


def test_it_is_whole(lab: RunningLab) -> None:
    assert read_status(lab).converged
    assert list(unreached(lab.fabric, lab.read_fibs())) == []
    reached = probe_reachability(lab.fabric, partial(netns, lab))
    assert reached.pairs > 10
    assert reached.failed == ()


def test_the_path_of_200_flows_is_the_predicted_one(lab: RunningLab) -> None:
    fabric, fib_of, draw = lab.fabric, lab.read_fibs(), random.Random(57)
    nics = [nic for server in fabric.servers for nic in fabric.nics(server.name)]
    used = set()
    for _ in range(10):
        source, target = draw.sample(nics, 2)
        while target.server == source.server:
            target = draw.choice(nics)
        ports = draw.sample(range(0xC000, 0x10000), 20)
        seen = probe_path(fabric, partial(netns, lab), source, target, ports)
        for port in ports:
            predicted = walk(fabric, fib_of, source, target, port)
            assert predicted.nodes == seen[port]
            used.add(tuple(hop.link.link.name for hop in predicted.hops))
    assert len(used) > 10, "most flows took one path: little was tested"


def test_a_failed_link_costs_a_job_what_whatif_says(lab: RunningLab) -> None:
    (cost,) = event_cost(
        lab.fabric.spec,
        [collective_job(JOB)],
        parse_event(f"degrade {lab.fabric.trunks[0].name} to 10% for 10s"),
        Options(),
    ).jobs
    assert cost.before_s > 0
    assert cost.during_s is not None
    assert cost.extra_s >= 0


def test_the_engine_of_packets_loses_nothing_by_its_profile(lab: RunningLab) -> None:
    report = simulate(lab.fabric.spec, [JOB], Options(engine=Engine.PACKETS))
    assert lab.fabric.spec.queues.profile is not None
    assert report.packets is not None and report.packets.lossless is not None
    assert (report.packets.drops, report.packets.retransmitted) == (0, 0)
    assert None not in report.jobs[0].iterations_ns


def test_an_allreduce_with_pfc_loses_nothing(lab: RunningLab) -> None:
    report = measured(lambda: run_job(lab, JOB))
    assert report.errors == ()
    assert report.lossless is not None
    assert report.lossless.dropped == report.roce.retransmitted == 0


@pytest.mark.long
def test_the_shipped_drill_measures_a_flap(lab: RunningLab) -> None:
    result = measured(
        lambda: run_drill("link-flap", lab=lab, use=kept(print), retries=0), problems_of_drill
    )
    missed = {verdict.kpi for verdict in result.phases[0].verdicts if not verdict.passed}
    is_only_way = lab.name == "it-net-sonic"
    assert missed == ({"full_convergence", "lost_packets"} if is_only_way else set())
