"""Flows that begin at given times: their files, queue pairs, times and figures."""

from __future__ import annotations

import csv
import io
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rocelab.base.documents import to_json
from rocelab.base.errors import InputError, SpecError
from rocelab.base.wording import RefusedError
from rocelab.jobs import flow_files, merged_sends
from rocelab.jobs.flow_files import read_flow_file
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import SimulatedJob, collective_job, load_jobs
from rocelab.jobs.placement import Placement
from rocelab.jobs.sport import source_port
from rocelab.labfile.model import LabSpec
from rocelab.report.renderers.page import html
from rocelab.report.renderers.terminal import print_document
from rocelab.report.simulation.document import simulation_document
from rocelab.results.engines import Engine
from rocelab.results.flowtimes import Distribution, slowdown_by_size
from rocelab.results.simulation import SimulationReport, from_json
from rocelab.sim.engine.completion import Completion, flow_times
from rocelab.sim.events.event_spec import TimelineSpec
from rocelab.sim.events.sentence import parse_event
from rocelab.sim.flowtable import flow_file, write_flows
from rocelab.sim.options import Options
from rocelab.sim.reliability import event_cost
from rocelab.sim.simulate import Simulation, simulate
from tests.unit.sim.packet_runs import ACK_BYTES

SPEC = LabSpec.model_validate(
    {
        "name": "small",
        "fabric": {"kind": "clos", "racks": 2, "spines": 2, "servers_per_rack": 4},
        "links": {"rate": "100G", "server_rate": "100G", "delay": "1us"},
    }
)
NS3 = """\
4
2 0 3 100 1000000 2
3 0 3 100 1000 2.00001
2 0 3 100 1000 2.00001
7 6 3 100 64 2.000000001

First line: # of flows
src0 dst0 3 dst_port0 size0 start_time0
"""
HTSIM = """\
# made by hand
Nodes 8
Connections 4
Triggers 0
2->0 id 1 start 2000000000000 size 1000000
3->0 id 2 start 2000010000000 size 1000
2->0 size 1000 start 2.00001e12
7->6 id 4 start 2000000001000 size 64
"""


def job(tmp_path: Path, text: str, **keys: object) -> SimulatedJob:
    (tmp_path / "flows.txt").write_text(text)
    lines = "".join(f"    {key}: {value}\n" for key, value in keys.items())
    (tmp_path / "jobs.yaml").write_text(
        f"jobs:\n  - name: web\n    flows: {{file: flows.txt}}\n{lines}"
    )
    (loaded,) = load_jobs(tmp_path / "jobs.yaml")
    return loaded


@pytest.mark.parametrize("text", [NS3, HTSIM])
def test_both_formats_give_flows_with_times_from_the_first_one_on(
    text: str, tmp_path: Path
) -> None:
    (tmp_path / "flows").write_text(text)
    flows = read_flow_file(tmp_path / "flows")
    assert flows.ranks == 8
    assert flows.source.tolist() == [2, 3, 2, 7]
    assert flows.destination.tolist() == [0, 0, 0, 6]
    assert flows.size_bytes.tolist() == [1000000, 1000, 1000, 64]
    assert flows.start_s.tolist() == pytest.approx([0, 10e-6, 10e-6, 1e-9], abs=1e-15)


def test_lines_after_the_announced_flows_are_ignored_and_said(tmp_path: Path) -> None:
    (tmp_path / "flows").write_text("1\n1 0 3 100 5 2\n2 0 3 100 5 2\n")
    flows = read_flow_file(tmp_path / "flows")
    assert len(flows) == 1 and flows.ranks == 2
    (warning,) = flows.warnings
    assert "says 1 flow; 1 line after them" in warning
    (tmp_path / "flows").write_text("2\n1 0 3 100 5 2\n2 0 4 100 5 2\n")
    assert "pg is ignored" in read_flow_file(tmp_path / "flows").warnings[0]


HEAD = "Nodes 4\nConnections 1\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", None, "the file is empty"),
        ("source,destination\n", 1, "expected the number of flows, or Nodes of a matrix"),
        ("0\n", 1, "a whole number from 1"),
        ("2\n0 1 3 100 5 2\n", 1, "2 flows announced, and 1 are there"),
        ("1\n0 1 3 5 2\n", 2, "expected 6 columns, got 5"),
        ("1\n0 1 3 100 5.5 2\n", 2, "size_bytes: expected a whole number from 1"),
        ("1\n0 1 3 100 0 2\n", 2, "size_bytes: expected a whole number from 1"),
        ("1\n0 1 3 100 5 soon\n", 2, "start_s: expected seconds, got 'soon'"),
        ("1\n0 1 3 100 5 nan\n", 2, "start_s: expected seconds"),
        ("1\n0 1 3 100 5 -1\n", 2, "start_s: expected seconds"),
        ("1\n\n1 1 3 100 5 2\n", 3, "host 1 would send to itself"),
        ("1\n-1 1 3 100 5 2\n", 2, "src: expected a whole number from 0"),
        (HEAD + "0->1 id 1 start 0 size 0\n", 3, "size: expected a whole number from 1"),
        (HEAD + "0->1 id 1 start 0\n", 3, "size missing"),
        (HEAD + "0->1 id 1 size 5\n", 3, "start missing"),
        (HEAD + "0->4 id 1 start 0 size 5\n", 3, "there is no node 4: Nodes is 4"),
        (HEAD + "0->0 id 1 start 0 size 5\n", 3, "host 0 would send to itself"),
        (HEAD + "0->1 id 1 trigger 1 size 5\n", 3, "triggers of htsim are not simulated"),
        (HEAD + "0->1 start 0 size 5 send_done_trigger 1\n", 3, "triggers of htsim"),
        (HEAD + "0->1 start 0 size 5 recv_done_trigger 1\n", 3, "triggers of htsim"),
        (HEAD + "0->1 start 0 size 5 prio 1\n", 3, "priorities of connections of htsim"),
        (HEAD + "0->1 start 0 size 5 weight 1\n", 3, "expected id, start or size, got 'weight'"),
        (HEAD + "0->1 start 0 size 5 size 6\n", 3, "size is said twice"),
        ("Nodes 4\nNodes 5\nConnections 1\n0->1 start 0 size 5\n", 2, "said twice"),
        (HEAD + "0->1 start 0 size\n", 3, "size: expected a whole number from 1"),
        (HEAD + "0->1 start 0 size 5\ntrigger id 1 oneshot\n", 4, "triggers of htsim"),
        (HEAD + "failure switch_type TOR switch_id 0 link_id 1\n", 3, "failures of htsim"),
        (HEAD + "Failures 1\n0->1 start 0 size 5\n", 3, "failures of htsim"),
        (HEAD + "Triggers 2\n0->1 start 0 size 5\n", 3, "triggers of htsim"),
        (HEAD + "0->1 start 0 size 5\n1->0 start 0 size 5\n", 2, "1 connection announced, and 2"),
        ("Connections 1\n0->1 start 0 size 5\n", None, "Nodes: missing"),
        ("Nodes 4\nConnections\n0->1 start 0 size 5\n", 2, "a whole number from 1"),
        ("Nodes 4\nConnections 1\n0>1 start 0 size 5\n", 3, "expected src->dst, got '0>1'"),
    ],
)
def test_what_a_file_says_wrong_is_named_with_its_line(
    text: str, line: int | None, message: str, tmp_path: Path
) -> None:
    (tmp_path / "flows").write_text(text)
    with pytest.raises(SpecError) as caught:
        read_flow_file(tmp_path / "flows")
    (problem,) = caught.value.problems
    assert problem.line == line and message in str(problem)


def test_a_file_elsewhere_is_not_quoted(tmp_path: Path) -> None:
    secret, jobs = tmp_path / "secret", tmp_path / "here" / "jobs.yaml"
    secret.write_text("root:hunter2\n")
    jobs.parent.mkdir()
    jobs.write_text(f"jobs: [{{name: a, flows: {{file: {secret}}}}}]\n")
    with pytest.raises(SpecError, match="not quoted") as caught:
        load_jobs(jobs)
    assert "hunter2" not in str(caught.value)
    assert f"{secret}:1" in str(caught.value)


def test_only_what_is_wrong_in_a_list_is_named(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.yaml"
    poisson = "{sizes: websearch, load: 150%, duration: 10ms}"
    jobs.write_text(f"jobs: [{{name: a, poisson: {poisson}}}]\n")
    with pytest.raises(SpecError) as caught:
        load_jobs(jobs)
    assert [problem.key for problem in caught.value.problems] == ["jobs[0].poisson.load"]
    jobs.write_text("jobs: []\n")
    with pytest.raises(SpecError, match="at least 1 item, got an empty list"):
        load_jobs(jobs)


def test_all_bad_lines_of_a_file_are_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "flows").write_text("3\n0 1 3 100 0 2\n0 1 3 100 5 2\n0 0 3 100 5 2\n")
    with pytest.raises(SpecError) as caught:
        read_flow_file(tmp_path / "flows")
    assert [problem.line for problem in caught.value.problems] == [2, 4]
    with pytest.raises(SpecError, match="cannot be read"):
        read_flow_file(tmp_path / "none")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"iterations": 2}, "are not repeated"),
        ({"transport": "{qps: 4}"}, "a queue pair of its own, not 4"),
        ({"trace": "{file: t}"}, "got trace and flows"),
    ],
)
def test_what_flows_do_not_have_is_refused(
    keys: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=message):
        job(tmp_path, NS3, **keys)


def test_each_flow_has_a_queue_pair_and_a_source_port_of_its_own(tmp_path: Path) -> None:
    simulation = Simulation(SPEC, [job(tmp_path, NS3)])
    flows = simulation.flows
    assert flows.source.tolist() == [2, 3, 2, 7]
    local = [3, 5, 7, 9]
    assert flows.dest_qp.tolist() == [2, 4, 6, 8], "two numbers for each, the lower rank's first"
    base = flows.sport[0] - local[0]
    ports = [
        source_port(
            simulation.jobs[0].transport.source_port, local_qpn=local_qpn, remote_qpn=far, base=base
        )
        for local_qpn, far in zip(local, flows.dest_qp.tolist(), strict=True)
    ]
    assert flows.sport.tolist() == ports and len(set(ports)) == 4


@pytest.mark.parametrize("engine", Engine)
def test_flows_begin_at_their_times_and_none_waits_for_another(
    engine: Engine, tmp_path: Path
) -> None:
    simulation = Simulation(SPEC, [job(tmp_path, NS3, start="5us")], Options(engine=engine))
    outcome = simulation.run()
    assert outcome.start_s.tolist() == pytest.approx([5e-6, 15e-6, 15e-6, 5.001e-6], abs=1e-12)
    first, second, third, _ = outcome.end_s.tolist()
    assert max(second, third) < first / 2, "though one of them is between the same two NICs"
    assert first == pytest.approx(5e-6 + 1_020_000 * 8 / 100e9, rel=0.1)


def test_flows_share_the_network_with_other_jobs(tmp_path: Path) -> None:
    two = job(tmp_path, "1\n0 1 3 100 5 0\n", placement="[srv1-3, srv2-3]")
    keys = {"sizes": "alistorage", "load": "10%", "duration": "1ms"}
    rest = SimulatedJob.model_validate({"name": "load", "poisson": keys})
    simulation = Simulation(SPEC, [two, rest])
    assert [places.tolist() for places in simulation.places] == [[2, 6], [0, 1, 3, 4, 5, 7]]
    numbers = simulation.flows.dest_qp
    assert len(set(numbers.tolist())) == len(numbers), "jobs have no queue pair in common"


@pytest.mark.parametrize("placement", Placement)
def test_random_flows_are_refused_where_other_jobs_leave_no_nic(placement: Placement) -> None:
    keys = {"sizes": "alistorage", "load": "10%", "duration": "1ms"}
    all_nics, rest = (
        SimulatedJob.model_validate({"name": name, "placement": placement, "poisson": keys})
        for name in ("first", "load")
    )
    with pytest.raises(InputError, match=r"^load: flows between 0 NICs"):
        Simulation(SPEC, [all_nics, rest])


@pytest.fixture(scope="module")
def loaded() -> Simulation:
    keys = {"sizes": "alistorage", "load": "40%", "duration": "3ms"}
    random = SimulatedJob.model_validate({"name": "load", "poisson": keys})
    return Simulation(SPEC, [random])


@pytest.fixture(scope="module")
def report(loaded: Simulation) -> SimulationReport:
    return loaded.report()


def test_random_flows_take_all_nics_or_those_listed(loaded: Simulation) -> None:
    assert len(loaded.places[0]) == 8
    keys = {"sizes": "alistorage", "load": "40%", "duration": "1ms"}
    two = SimulatedJob.model_validate(
        {"name": "load", "placement": ["srv1-2", "srv2-1"], "poisson": keys}
    )
    assert set(Simulation(SPEC, [two]).flows.source.tolist()) == {1, 4}


def test_a_report_has_the_slowdown_of_flows_by_size(
    report: SimulationReport, loaded: Simulation
) -> None:
    slowdown = report.jobs[0].slowdown
    assert slowdown is not None and report.flow_times is not None
    flows = report.flow_times.transfers
    assert sum(size_bin.flows for size_bin in slowdown.bins) == flows == len(loaded.flows)
    assert all(abs(size_bin.flows - flows / 20) <= 0.1 * flows / 20 for size_bin in slowdown.bins)
    ends = [size_bin.largest_bytes for size_bin in slowdown.bins]
    assert ends == sorted(set(ends)) and ends[-1] == loaded.compiled.payload_bytes.max()
    assert all(1 <= size_bin.p50 <= size_bin.p95 <= size_bin.p99 for size_bin in slowdown.bins)
    assert slowdown.bins[-1].p50 > 1.2 > slowdown.bins[0].p50, "latency hides what small flows wait"
    assert list(slowdown.quantiles) == sorted(slowdown.quantiles) and len(slowdown.quantiles) == 101
    assert slowdown.quantiles[50] == report.flow_times.slowdown.p50
    assert slowdown.quantiles[-1] == report.flow_times.slowdown.maximum
    assert from_json(to_json(report)) == report


@pytest.mark.usefixtures("drawn")
def test_a_terminal_and_a_page_show_the_slowdown_by_size(report: SimulationReport) -> None:
    console = Console(file=io.StringIO(), width=200)
    print_document(simulation_document(report), console)
    assert report.jobs[0].slowdown is not None
    output = f"{report.jobs[0].slowdown.bins[-1].p99:.2f}"
    page = html(simulation_document(report))
    for text in (console.file.getvalue(), page):  # type: ignore[attr-defined]
        assert "p99" in text and output in text
    assert "Slowdown of flows, by size" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "slowdown: time over the least one" in page


def test_the_table_of_flows_has_the_slowdown_of_each(tmp_path: Path) -> None:
    simulation = Simulation(SPEC, [job(tmp_path, NS3)])
    write_flows([(simulation, simulation.run())], flow_file(tmp_path / "out.csv", overwrite=True))
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    assert [row["step"] for row in rows] == ["flow 1", "flow 2", "flow 3", "flow 4"]
    assert [int(row["payload_bytes"]) for row in rows] == [1000000, 1000, 1000, 64]
    for row in rows:
        took_ns = float(row["over_ns"]) - float(row["start_ns"])
        least_ns = int(row["wire_bytes"]) * 8 / 100 + 2 * 1000
        assert float(row["slowdown"]) == pytest.approx(took_ns / least_ns)
    assert float(rows[3]["slowdown"]) == pytest.approx(1)
    assert float(rows[1]["slowdown"]) > 1.01


@pytest.mark.parametrize("engine", [Engine.PACKETS, Engine.LINKS])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_table_of_flows_has_what_packets_took(
    engine: Engine, suffix: str, tmp_path: Path
) -> None:
    simulation = Simulation(SPEC, [job(tmp_path, NS3)], Options(engine=engine))
    ran, path = simulation.run(), tmp_path / f"out.{suffix}"
    write_flows([(simulation, ran)], flow_file(path, overwrite=True))
    rows = list(csv.DictReader(path.open())) if suffix == "csv" else pq.read_table(path).to_pylist()
    assert [int(row["payload_bytes"]) for row in rows] == [1000000, 1000, 1000, 64]
    assert [float(row["over_ns"]) for row in rows] == pytest.approx((ran.finish_s * 1e9).tolist())
    # Alone: two links, each of which stores it, and its ACK the same way back.
    alone_ns = 2 * (int(rows[3]["wire_bytes"]) + ACK_BYTES) * 8 / 100 + 4 * 1000
    took_ns = float(rows[3]["over_ns"]) - float(rows[3]["start_ns"])
    assert took_ns == pytest.approx(alone_ns, rel=0.001)
    assert float(rows[3]["slowdown"]) == pytest.approx(alone_ns / (2 * 1000 + 12), rel=0.01)
    assert float(rows[1]["slowdown"]) > float(rows[3]["slowdown"])


@pytest.mark.parametrize("most", [0, merged_sends.MOST_ORDERED])
def test_the_table_of_flows_is_the_same_in_both_formats_and_tells_iterations_apart(
    most: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also of merged sends, which have no slowdown."""
    monkeypatch.setattr(merged_sends, "MOST_ORDERED", most)
    keys = {"pattern": "allreduce", "ranks": 4, "size": "1MB", "iterations": 2}
    simulation = Simulation(SPEC, [collective_job(JobSpec.model_validate(keys))])
    ran = simulation.run()
    for suffix in ("csv", "parquet"):
        write_flows([(simulation, ran)], flow_file(tmp_path / f"out.{suffix}", overwrite=True))
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    written = list(csv.DictReader((tmp_path / "out.csv").open()))
    assert written == [
        {name: "" if value is None else str(value) for name, value in row.items()} for row in rows
    ]
    assert {row["slowdown"] is None for row in rows} == {most == 0}
    assert {row["iteration"] for row in rows} == {0, 1}
    for row in rows:
        assert row["step"].startswith(f"iteration {row['iteration'] + 1}")


@pytest.mark.parametrize(("flows", "p50", "p99"), [(1000, 500.5, 990.01), (2, 1.5, 1.99)])
def test_quantiles_of_times_are_interpolated_between_flows_that_were_over(
    flows: int, p50: float, p99: float
) -> None:
    slowdown = np.append(np.arange(flows, 0.0, -1), np.inf)
    times = flow_times(Completion(slowdown * 1e-6, np.full(flows + 1, 1e-6)))
    assert times is not None and times.transfers == flows
    expected = Distribution((flows + 1) / 2, p50, p99, flows)
    assert astuple(times.slowdown) == pytest.approx(astuple(expected))
    assert astuple(times.time_ns) == pytest.approx([1000 * time_s for time_s in astuple(expected)])


def test_bins_of_sizes_keep_equal_flows_together() -> None:
    size = np.repeat([10, 20, 30], [1500, 400, 100])
    sizes = slowdown_by_size(size, np.arange(2000.0))
    assert sizes is not None
    assert [(size_bin.largest_bytes, size_bin.flows) for size_bin in sizes.bins] == [
        (10, 1500),
        (20, 400),
        (30, 100),
    ]
    assert sizes.bins[0].p50 == pytest.approx(749.5) and sizes.bins[2].p99 == pytest.approx(1998.01)
    assert [size_bin.p95 for size_bin in sizes.bins] == pytest.approx([1424.05, 1879.05, 1994.05])
    few = slowdown_by_size(np.arange(1, 251), np.ones(250))
    assert few is not None and [size_bin.flows for size_bin in few.bins] == [125, 125]
    never = slowdown_by_size(np.array([1, 2]), np.array([np.inf, 3.0]))
    assert never is not None and never.bins[0].flows == 1
    assert slowdown_by_size(np.array([1]), np.array([np.inf])) is None


@pytest.mark.parametrize(
    ("flows", "bins"),
    [(199, [199]), (200, [100] * 2), (302, [101, 101, 100]), (2200, [110] * 20)],
)
def test_sizes_are_in_as_many_bins_as_have_a_hundred_flows_and_in_twenty_at_most(
    flows: int, bins: list[int]
) -> None:
    sizes = slowdown_by_size(np.arange(flows), np.ones(flows))
    assert sizes is not None and [size_bin.flows for size_bin in sizes.bins] == bins


def test_a_failure_has_no_cost_by_iterations(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no iterations to compare"):
        event_cost(SPEC, [job(tmp_path, NS3)], parse_event("fail rtsw1:ctsw1 at 0ms for 1s"))


def test_warnings_of_a_file_are_in_the_report(tmp_path: Path) -> None:
    report = simulate(SPEC, [job(tmp_path, NS3)])
    assert any("2 lines after them are ignored" in text for text in report.warnings)


def test_a_failure_costs_flows_that_are_under_way_and_none_that_begins_later(
    tmp_path: Path,
) -> None:
    """Of a NIC's only link: a flow waits for a retry of its own queue pair, from its own begin."""
    lines = "0 4 3 100 12500000 0\n0 4 3 100 1000 0.003\n0 4 3 100 1000 0.007\n"
    flows = job(tmp_path, f"3\n{lines}", transport="{ack_timeout: 10ms}")
    event = parse_event("fail srv1-1:rtsw1 at 0.5ms for 4ms")
    timeline = TimelineSpec(events=(event,))
    outcome = Simulation(SPEC, [flows], Options(timeline=timeline)).run()
    early, during, later = outcome.end_s.tolist()
    assert early == pytest.approx(10.5e-3 + 0.5e-3, abs=0.1e-3)
    assert during == pytest.approx(13e-3, abs=0.1e-3)
    assert later == pytest.approx(7e-3, abs=0.01e-3)


WORDS = ["0", "1", "12", "2000000", "-1", "1.5", "1e-3", "nan", "x"]


@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=5, max_size=7), min_size=1, max_size=4))
def test_all_lines_at_once_are_read_as_one_by_one(rows: list[list[str]]) -> None:
    columns = flow_files._ns3_columns(rows)
    try:
        flows = [flow_files._ns3_flow(words) for words in rows]
        assert all(source != destination for source, destination, *_ in flows)
    except (RefusedError, AssertionError):
        assert columns is None
    else:
        assert columns is not None
        assert list(zip(*(column.tolist() for column in columns), strict=True)) == flows
