"""A lab without IPv4: up, paths and loads as predicted, a job without loss, and broken links."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from rocelab.base.family import Family
from rocelab.drills.labuse import kept
from rocelab.drills.run import run_drill
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.prediction import setting_of
from rocelab.lab.status import read_status
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.schemes.e_ecmp import EEcmpScheme
from rocelab.labfile.schemes.ecmp import EcmpScheme
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.observe.timeline import opened_namespaces
from rocelab.prediction.loads import by_link
from rocelab.prediction.matrix import rows_of_jobs
from rocelab.prediction.predictor import predict_loads
from rocelab.results.job import JobReport
from rocelab.routes.models import Model
from rocelab.routes.path import walk
from rocelab.routes.planned import planned_fibs
from rocelab.runs.jobs import run_jobs
from rocelab.traffic.reachability import probe_reachability
from rocelab.traffic.taps import LinkPackets, Taps
from rocelab.traffic.traceroute import probe_path
from rocelab.wire.filters import data_filter
from tests.helpers.measured import measured, problems_of_drill
from tests.helpers.running import running

pytestmark = pytest.mark.few_at_once

FLOWS, PORT = 200, 50_000
ECMP, E_ECMP = EcmpScheme(kind="ecmp"), EEcmpScheme(kind="e-ecmp")
DRILL = """name: flap
lab: ipv6-only
traffic: {flows: 8, rate_pps: 500, payload: 256B, warmup: 500ms, duration: 3s, seed: 3}
faults:
  - {kind: carrier-down, at: 500ms, between: [rtsw1, ctsw1], lasts: 1s}
expect: {restored: true, lost_outside_events: 0}
"""


def copied(folder: Path, name: str) -> Path:
    """The file of a lab that is as `ipv6-only` but for its name."""
    file = folder / f"{name}.yaml"
    file.write_text(find_lab("ipv6-only").read_text().replace("ipv6-only", name))
    return file


def netns(lab: RunningLab, name: str) -> Path:
    return lab.node(name).netns


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    folder = tmp_path_factory.mktemp("ipv6")
    with running(Lab.planned(copied(folder, "it-ipv6"))) as made:
        yield made


def test_it_is_whole_without_an_address_of_ipv4(lab: RunningLab) -> None:
    assert read_status(lab).converged
    for node in lab.fabric.nodes:
        said = lab.node(node.name).exec(["ip", "-j", "-4", "address"])
        assert {place["ifname"] for place in json.loads(said.stdout) if place} <= {"lo"}
        assert lab.node(node.name).exec(["ip", "-4", "route"]).stdout == ""
    reached = probe_reachability(lab.fabric, partial(netns, lab))
    assert (reached.pairs, reached.failed) == (30, ())


def test_the_path_of_every_flow_is_the_predicted_one(lab: RunningLab) -> None:
    fabric, ports = lab.fabric, range(PORT, PORT + FLOWS)
    source, destination = fabric.nics("srv1-1")[0], fabric.nics("srv3-2")[0]
    taken = probe_path(fabric, partial(netns, lab), source, destination, ports)
    tables = (lab.read_fibs(), planned_fibs(fabric, fabric.prefixes))
    for fib_of in tables:
        paths = {port: walk(fabric, fib_of, source, destination, port).nodes for port in ports}
        assert paths == taken
    assert len(set(taken.values())) == 2


def test_routes_leave_dark_links_and_take_them_again(lab: RunningLab, tmp_path: Path) -> None:
    drill = tmp_path / "flap.yaml"
    drill.write_text(DRILL)
    result = measured(
        lambda: run_drill(drill, lab=lab, use=kept(print), retries=0), problems_of_drill
    )
    assert result.passed, result.phases[0].verdicts


def test_e_ecmp_gives_queue_pairs_of_one_five_tuple_the_predicted_paths(lab: RunningLab) -> None:
    fabric, fib_of = lab.fabric, lab.read_fibs()
    source, destination = fabric.nics("srv1-1")[0], fabric.nics("srv3-2")[0]
    netns_of = partial(netns, lab)
    lab.steering.set_scheme(E_ECMP)
    try:
        model, seen = lab.steering.model(), set()
        for qp in range(1000, 1024):
            taken = probe_path(fabric, netns_of, source, destination, [PORT], destination_qp=qp)
            hops = partial(walk, destination_qp=qp, steering=model)
            path = hops(fabric, fib_of, source, destination, PORT)
            assert path.nodes == taken[PORT]
            seen.add(path.nodes)
        assert len(seen) == 2
    finally:
        lab.steering.set_scheme(ECMP)


@pytest.mark.parametrize("scheme", [ECMP, E_ECMP], ids=["ecmp", "e-ecmp"])
def test_a_job_loses_nothing_and_loads_links_as_predicted(
    lab: RunningLab, scheme: SchemeSpec
) -> None:
    """The program's hash decides among parallel links too, which paths of nodes do not show."""
    lab.steering.set_scheme(scheme)
    transport = {"qps": 8, "message": "32KB"}
    job = JobSpec.model_validate(
        {"pattern": "allreduce", "ranks": 6, "size": "1MB", "transport": transport}
    )

    def counted() -> tuple[tuple[JobReport, ...], LinkPackets]:
        with (
            opened_namespaces(lab, lab.fabric.nodes) as netns_of,
            Taps(lab.fabric, netns_of, lab.fabric.links, data_filter(Family.IPV6)) as taps,
        ):
            return run_jobs(lab, [job]).reports, taps.read()

    (report,), packets = measured(counted, lambda run: run[0][0].problems)
    assert (report.errors, report.roce.retransmitted) == ((), 0)
    assert report.lossless is not None
    assert report.lossless.dropped == 0
    fabric, setting = setting_of(lab, None, None, Model.KERNEL)
    loads = predict_loads(fabric, rows_of_jobs(plan_jobs(fabric, [job])), setting)
    assert loads.packets is not None
    expected = by_link(fabric, loads.packets)
    assert {link: packets[link] for link in expected} == expected
    used = [link for link, count in expected.items() if count and link.is_between_switches]
    assert len(used) > 4
