"""Predicted link loads are what the kernels count, link by link, on every kind of fabric."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from labs.lab import Lab
from labs.plan.fabric import Fabric
from labs.spec.schemes import SchemeSpec
from scripts.drill.timeline import opened_namespaces
from scripts.job.document import JobReport
from scripts.job.run import run_job
from scripts.predict.matrix import matrix_of, rows_of_jobs
from scripts.predict.predictor import Setting, asked_fabric, predict_landing
from scripts.predict.whatif import read_asked
from scripts.predict.wires import Wires
from scripts.taps import Taps
from tests.integration.conftest import MakeLab
from traffic.filters import data_filter
from traffic.job import JobSpec
from traffic.jobplan import plan_job

pytestmark = pytest.mark.side_by_side

KINDS = {
    "t-pred-clos": "{kind: clos, zones: 2, atsws: 2, racks: 2, spines: 2, servers_per_rack: 2}",
    "t-pred-rail": "{kind: rail, units: 2, servers_per_unit: 2, rails: 2, spines: 2}",
    "t-pred-hpn": "{kind: hpn, segments: 2, servers_per_segment: 2, rails: 2, ports_per_nic: 2, "
    "planes: 2, aggs: 2, cores: 2}",
    "t-pred-tree": "{kind: fat-tree, k: 4}",
}
REST = "dilation: 10000\nqueues: {buffer: 32MB}\n"
LinkPackets = Mapping[tuple[str, str], int]


def job(**keys: object) -> JobSpec:
    shared = {"pattern": "alltoall", "ranks": 8, "size": "1MB", "iterations": 1}
    transport = {"qps": 5, "message": "32KB", "ecn": "not-ect"}
    return JobSpec.model_validate(shared | {"transport": transport} | keys)


def counted(lab: Lab, spec: JobSpec) -> tuple[JobReport, LinkPackets]:
    """Data packets by link and sender, by sockets of the ports' own kernels."""
    with (
        opened_namespaces(lab, lab.fabric.nodes) as netns_of,
        Taps(lab.fabric, netns_of, lab.fabric.links, data_filter()) as taps,
    ):
        report = run_job(lab, spec)
        return report, taps.read()


def predicted(lab: Lab, fabric: Fabric, spec: JobSpec) -> LinkPackets:
    wires = Wires(fabric)
    matrix = matrix_of(wires, rows_of_jobs([plan_job(fabric, spec)]))
    return predict_landing(wires, matrix, Setting(lab.fib_of)).packets_by_link(wires)


def assert_equal(lab: Lab, fabric: Fabric, spec: JobSpec) -> None:
    report, packets = counted(lab, spec)
    assert report.errors == ()
    assert report.transport.retransmitted == 0
    expected = predicted(lab, fabric, spec)
    switches = {node.name for node in fabric.switches}
    used = [key for key, count in expected.items() if count and key[0].split(":")[0] in switches]
    assert len(used) > 4
    assert {key: (packets[key], count) for key, count in expected.items()} == {
        key: (count, count) for key, count in expected.items()
    }


@pytest.mark.parametrize("name", KINDS)
def test_a_job_lands_where_it_was_predicted(make_lab: MakeLab, name: str) -> None:
    lab = make_lab(name, f"fabric: {KINDS[name]}\n{REST}")
    lab.up()
    assert_equal(lab, lab.fabric, job())
    split = {"qps": 3, "strategy": "split", "ecn": "not-ect"}
    ring = job(pattern="allreduce", placement="fragmented", transport=split)
    assert_equal(lab, lab.fabric, ring)


def scheme(kind: str) -> SchemeSpec:
    asked = read_asked(kind).scheme
    assert asked is not None
    return asked


@pytest.mark.parametrize("kind", ["e-ecmp", "path-pinning"])
def test_steered_flows_land_where_they_were_predicted(make_lab: MakeLab, kind: str) -> None:
    lab = make_lab("t-pred-steer", f"fabric: {KINDS['t-pred-clos']}\n{REST}")
    lab.up()
    with lab.locked():
        lab.steering.set_scheme(scheme(kind))
    assert_equal(lab, asked_fabric(lab.fabric, scheme(kind)), job())
