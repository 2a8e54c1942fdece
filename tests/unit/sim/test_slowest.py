"""The flows that a simulation's document lists: which, with what figures, over which links."""

from __future__ import annotations

import csv
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import collective_job
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec
from rocelab.labfile.schemes.spray import SprayScheme
from rocelab.planning.build import plan
from rocelab.results.engines import Engine
from rocelab.sim import slowest
from rocelab.sim.flowtable import flow_file, write_flows
from rocelab.sim.options import Options
from rocelab.sim.simulate import Simulation, simulate

JOB = {"pattern": "alltoall", "ranks": 8, "size": "8MB", "placement": "fragmented"}


@pytest.fixture
def spec() -> LabSpec:
    return load_spec(find_lab("zone-small"))


@pytest.mark.parametrize("engine", [Engine.FLUID, Engine.PACKETS])
def test_every_flow_is_there_with_its_bytes_times_and_path(spec: LabSpec, engine: Engine) -> None:
    report = simulate(spec, [collective_job(JobSpec.model_validate(JOB))], Options(engine=engine))
    flows = report.slowest
    assert len(flows) == report.method.flows
    assert sum(flow.transfers for flow in flows) == report.method.transfers
    assert sum(flow.payload_bytes for flow in flows) == report.jobs[0].payload_bytes
    times = [flow.longest_ns for flow in flows]
    assert times == sorted(times, reverse=True)
    assert report.flow_times is not None
    assert times[0] == pytest.approx(report.flow_times.time_ns.maximum)
    assert max(flow.slowdown for flow in flows) <= report.flow_times.slowdown.maximum
    assert max(flow.over_ns for flow in flows) == pytest.approx(report.finish_ns[-1])
    ends = {link.name: {link.a.node, link.b.node} for link in plan(spec).links}
    for flow in flows:
        assert flow.source.partition(":")[0] in ends[flow.links[0]]
        assert flow.destination.partition(":")[0] in ends[flow.links[-1]]
        assert all(ends[one] & ends[next_] for one, next_ in pairwise(flow.links))


def test_a_flow_begins_with_its_first_transfer_and_is_as_slow_as_its_slowest(
    spec: LabSpec, tmp_path: Path
) -> None:
    job = JOB | {"pattern": "allreduce", "iterations": 2}
    simulation = Simulation(spec, [collective_job(JobSpec.model_validate(job))])
    write_flows([(simulation, simulation.run())], flow_file(tmp_path / "flows.csv", overwrite=True))
    rows = defaultdict(list)
    with (tmp_path / "flows.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            ends = row["source"], row["destination"]
            rows[*ends, int(row["source_port"]), int(row["dest_qp"])].append(row)
    flows = simulation.report().slowest
    assert len(flows) == len(rows)
    for flow in flows:
        transfers = rows[flow.source, flow.destination, flow.source_port, flow.dest_qp]
        times = [(float(row["start_ns"]), float(row["over_ns"])) for row in transfers]
        took_ns = [over - start for start, over in times]
        worst = took_ns.index(max(took_ns))
        assert flow.start_ns == min(start for start, _ in times) < max(start for start, _ in times)
        assert flow.over_ns == max(over for _, over in times)
        assert flow.longest_ns == pytest.approx(took_ns[worst])
        assert flow.slowdown == pytest.approx(float(transfers[worst]["slowdown"]))


@pytest.mark.parametrize("engine", [Engine.FLUID, Engine.PACKETS])
def test_a_sprayed_flow_has_the_links_of_all_its_ways(spec: LabSpec, engine: Engine) -> None:
    spec = spec.model_copy(update={"scheme": SprayScheme(kind="spray")})
    report = simulate(spec, [collective_job(JobSpec.model_validate(JOB))], Options(engine=engine))
    leaf = next(iter(plan(spec).links)).b.node
    up = {link.name for link in plan(spec).links if link.a.node == leaf}
    flow = next(flow for flow in report.slowest if up & set(flow.links) and leaf in flow.links[0])
    assert up <= set(flow.links)


def test_of_very_many_flows_and_links_the_slowest_are_there(
    spec: LabSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = collective_job(JobSpec.model_validate(JOB))
    whole = simulate(spec, [job]).slowest
    monkeypatch.setattr(slowest, "MOST_FLOWS", 5)
    assert simulate(spec, [job]).slowest == whole[:5]
    monkeypatch.setattr(slowest, "MOST_LINKS", sum(len(flow.links) for flow in whole[:3]))
    assert simulate(spec, [job]).slowest == whole[:3]
