"""Predicted link loads equal the kernels' counts, link by link, on every kind of fabric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.lab.lab import Lab, RunningLab
from rocelab.labfile.schemes.ecmp import EcmpScheme
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.observe.timeline import opened_namespaces
from rocelab.planning.fabric import Fabric
from rocelab.prediction.loads import by_link
from rocelab.prediction.matrix import rows_of_jobs
from rocelab.prediction.prediction_spec import read_asked
from rocelab.prediction.predictor import Setting, asked_fabric, predict_loads
from rocelab.results.job import JobReport
from rocelab.runs.jobs import run_jobs
from rocelab.traffic.taps import LinkPackets, Taps
from rocelab.wire.filters import data_filter
from tests.helpers.long import mostly_long
from tests.helpers.measured import measured
from tests.helpers.running import running

pytestmark = pytest.mark.side_by_side

KINDS = {
    "t-pred-clos": "{kind: clos, zones: 2, atsws: 2, racks: 2, spines: 2, servers_per_rack: 2}",
    "t-pred-rail": "{kind: rail, units: 2, servers_per_unit: 2, rails: 2, spines: 2}",
    "t-pred-hpn": "{kind: hpn, segments: 2, servers_per_segment: 2, rails: 2, ports_per_nic: 2, "
    "planes: 2, aggs: 2, cores: 2}",
    "t-pred-tree": "{kind: fat-tree, k: 4}",
}
REST = "dilation: 10000\nqueues: {buffer: 32MB}\n"


def job(**keys: object) -> JobSpec:
    shared = {"pattern": "alltoall", "ranks": 8, "size": "1MB", "iterations": 1}
    transport = {"qps": 5, "message": "32KB", "ecn": "not-ect"}
    return JobSpec.model_validate(shared | {"transport": transport} | keys)


def counted(lab: RunningLab, specs: Sequence[JobSpec]) -> tuple[tuple[JobReport, ...], LinkPackets]:
    """Data packets of jobs at once, by link and sender, by sockets of the ports' own kernels."""
    with (
        opened_namespaces(lab, lab.fabric.nodes) as netns_of,
        Taps(lab.fabric, netns_of, lab.fabric.links, data_filter(lab.fabric.family)) as taps,
    ):
        reports = run_jobs(lab, specs).reports
        return reports, taps.read()


def problems_of(run: tuple[tuple[JobReport, ...], LinkPackets]) -> list[str]:
    return [problem for report in run[0] for problem in report.problems]


def predicted(lab: RunningLab, fabric: Fabric, specs: Sequence[JobSpec]) -> LinkPackets:
    loads = predict_loads(fabric, rows_of_jobs(plan_jobs(fabric, specs)), Setting(lab.read_fibs()))
    assert loads.packets is not None
    return by_link(fabric, loads.packets)


def assert_equal(lab: RunningLab, fabric: Fabric, *specs: JobSpec) -> None:
    reports, packets = measured(lambda: counted(lab, specs), problems_of)
    assert [report.errors for report in reports] == [()] * len(specs)
    assert [report.roce.retransmitted for report in reports] == [0] * len(specs)
    expected = predicted(lab, fabric, specs)
    used = [link for link, count in expected.items() if count and link.is_between_switches]
    assert len(used) > 4
    assert {key: (packets[key], count) for key, count in expected.items()} == {
        key: (count, count) for key, count in expected.items()
    }


@pytest.fixture(scope="module", params=mostly_long(KINDS, ("t-pred-clos",)))
def lab(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningLab]:
    """A lab of each kind in turn."""
    name: str = request.param
    file = tmp_path_factory.mktemp("lab") / f"{name}.yaml"
    file.write_text(f"name: {name}\nfabric: {KINDS[name]}\n{REST}")
    with running(Lab.planned(file)) as made:
        yield made


def test_a_job_lands_where_it_was_predicted(lab: RunningLab) -> None:
    split = {"qps": 3, "strategy": "split", "ecn": "not-ect"}
    ring = job(pattern="allreduce", placement="fragmented", transport=split)
    assert_equal(lab, lab.fabric, job(), ring)


def scheme(kind: str) -> SchemeSpec:
    asked = read_asked(kind).scheme
    assert asked is not None
    return asked


@pytest.mark.parametrize("lab", ["t-pred-clos"], indirect=True, scope="module")
@pytest.mark.parametrize("kind", ["e-ecmp", "path-pinning"])
def test_steered_flows_land_where_they_were_predicted(lab: RunningLab, kind: str) -> None:
    with lab.locked():
        lab.steering.set_scheme(scheme(kind))
    try:
        assert_equal(lab, asked_fabric(lab.fabric, scheme(kind)), job())
    finally:
        with lab.locked():
            lab.steering.set_scheme(EcmpScheme())
