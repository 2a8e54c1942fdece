"""A simulation from a lab's name to a report, in Python and on the command line."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from html import unescape
from io import StringIO
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from rocelab.agent.nic import WIRE_OVERHEAD_BYTES
from rocelab.base.documents import to_json
from rocelab.base.errors import MachineError, RocelabError
from rocelab.base.options import read_options
from rocelab.cli.app import Settings
from rocelab.cli.main import command_line
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.jobs import merged_sends as collectives
from rocelab.jobs.job import JobSpec, schedule_of
from rocelab.jobs.job_spec import SimulatedJob, collective_job, find_jobs, load_jobs
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.jobs.performance import FRAME_OVERHEAD_BYTES, roofline_ns
from rocelab.jobs.training_spec import TrainingSpec
from rocelab.labfile.addresses import AddressesSpec, Families
from rocelab.labfile.base import SECOND
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec, LinksSpec
from rocelab.labfile.schemes.ecmp import EcmpScheme
from rocelab.labfile.schemes.spray import SprayScheme
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import Direction
from rocelab.prediction.matrix import rows_of_jobs
from rocelab.prediction.predictor import Setting, predict_document
from rocelab.report.renderers.page import html
from rocelab.report.renderers.terminal import print_document
from rocelab.report.simulation import plots
from rocelab.report.simulation.document import simulation_document
from rocelab.results.engines import Engine
from rocelab.results.simulation import SimulationReport, from_json
from rocelab.sim import size
from rocelab.sim.events.event_spec import RestartSpec, TimelineSpec
from rocelab.sim.events.expectation import expected_cost
from rocelab.sim.events.rates import HPN
from rocelab.sim.options import Options
from rocelab.sim.simulate import Simulation, simulate
from tests.helpers.narrow import broken

EXACT = Options(eps=0.0, hop_latency_ns=0.0)


def spec_of(name: str, **update: object) -> LabSpec:
    return load_spec(find_lab(name)).model_copy(update=update)


def collective(**keys: object) -> SimulatedJob:
    return collective_job(JobSpec.model_validate(keys))


def run(*arguments: str) -> tuple[int, str, str]:
    printed, said = StringIO(), StringIO()
    with redirect_stdout(printed), redirect_stderr(said):
        try:
            command_line()(args=arguments, obj=Settings(), prog_name="rocelab")
        except RocelabError as error:
            return error.exit_code, printed.getvalue(), str(error)
        except SystemExit as ended:
            assert isinstance(ended.code, int)
            return ended.code, printed.getvalue(), said.getvalue()
    raise AssertionError("a command line ends with SystemExit")


def terminal_text(report: SimulationReport) -> str:
    console = Console(file=io.StringIO(), width=200)
    print_document(simulation_document(report), console)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_a_ring_alone_on_its_leaf_takes_what_its_nics_need() -> None:
    report = simulate(
        spec_of("zone-1-1"),
        [collective(pattern="allreduce", ranks=4, size="64MB", transport={"qps": 4})],
        EXACT,
    )
    (job,) = report.jobs
    assert job.headline("jct_ratio").modelled.median == pytest.approx(1, rel=1e-3)
    assert job.headline("busbw").modelled.median == pytest.approx(50 * 4096 / 4178, rel=5e-3)
    assert all(use.balance.total == 0 for use in report.uses)


@pytest.mark.parametrize("engine", [Engine.FLUID, Engine.PACKETS])
def test_ipv6_costs_20_bytes_of_each_packet(engine: Engine) -> None:
    ring = collective(pattern="allreduce", ranks=4, size="16MB", transport={"qps": 4})
    options = Options(eps=0.0 if engine is Engine.FLUID else None, engine=engine)
    busbw = []
    for family in Families:
        addresses = AddressesSpec(family=family)
        report = simulate(spec_of("zone-1-1", addresses=addresses), [ring], options)
        busbw.append(report.jobs[0].headline("busbw").modelled.median)
    ipv4, ipv6, dual = busbw
    assert ipv4 == dual
    assert ipv4 / ipv6 == pytest.approx((4096 + 58 + 20 + 24) / (4096 + 58 + 24), rel=1e-3)


@pytest.mark.parametrize("most", [2**15, 0], ids=["ordered", "merged"])
def test_a_time_is_compared_with_the_bound_of_what_is_in_it(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """The pause between iterations is in neither."""
    monkeypatch.setattr(collectives, "MOST_ORDERED", most)
    ratios = []
    for compute in ("0ms", "100ms"):
        keys = {"ranks": 4, "size": "64MB", "iterations": 3, "compute": compute}
        (job,) = simulate(
            spec_of("zone-1-1"), [collective(pattern="allreduce", **keys)], EXACT
        ).jobs
        ratios.append(job.headline("jct_ratio").modelled.median)
    assert ratios[1] == pytest.approx(ratios[0])
    assert ratios[0] >= 1


@pytest.mark.parametrize("most", [2**15, 0], ids=["ordered", "merged"])
@pytest.mark.parametrize("iterations", [1, 5])
@pytest.mark.parametrize(
    ("keys", "ratio"),
    [
        ({"pattern": "broadcast"}, {1: 3.0, 5: 1.0}),
        ({"pattern": "allreduce", "algorithm": "tree"}, {1: 1.5, 5: 1.5}),
    ],
    ids=["broadcast", "tree"],
)
def test_the_bound_is_that_of_the_busiest_nic_as_in_the_lab(
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    iterations: int,
    keys: dict[str, str],
    ratio: dict[int, float],
) -> None:
    """The chain of a broadcast costs its first iteration only: the others follow in it."""
    monkeypatch.setattr(collectives, "MOST_ORDERED", most)
    job = JobSpec.model_validate(
        {"ranks": 4, "size": "400KB", "placement": "contiguous", "iterations": iterations, **keys}
    )
    (outcome,) = simulate(spec_of("zone-1-1"), [collective_job(job)], EXACT).jobs
    bound_ns = roofline_ns(
        schedule_of(job), 400 * 10**9, overhead_bytes=FRAME_OVERHEAD_BYTES + WIRE_OVERHEAD_BYTES
    )
    # The lab's leaves out the header that only a message's first packet has.
    assert outcome.roofline_ns == pytest.approx(bound_ns, rel=2e-3)
    result = outcome.headline("jct_ratio").modelled.median
    assert result == pytest.approx(ratio[iterations], rel=0.05)


@pytest.mark.parametrize("most", [2**15, 0], ids=["ordered", "merged"])
def test_the_last_transfer_is_over_when_its_job_is(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(collectives, "MOST_ORDERED", most)
    report = simulate(
        spec_of("zone-1-1"),
        [collective(pattern="allreduce", ranks=8, size="1MB")],
        Options(hop_latency_ns=5000),
    )
    assert report.finish_ns[-1] == pytest.approx(report.jobs[0].end_ns)


def test_of_few_transfers_each_time_is_that_of_one() -> None:
    jobs = [
        collective(pattern="incast", ranks=4, size=size).model_copy(update={"name": size})
        for size in ("1MB", "4MB")
    ]
    report = simulate(spec_of("zone-1-1"), jobs)
    assert 1 < len(set(report.finish_ns)) < 20 < len(report.finish_ns)


def test_a_spray_over_one_way_only_is_ecmp() -> None:
    """Queue pairs count when links are shared, and only the links that a path has take time."""
    clos = ClosSpec(racks=2, spines=1, servers_per_rack=2, nics_per_server=2)
    one_way = LabSpec(name="one-way", fabric=clos)
    jobs = [
        collective(
            pattern="pairs", ranks=2, size="8MB", placement=placement, transport={"qps": qps}
        ).model_copy(update={"name": f"qps{qps}"})
        for qps, placement in ((1, ["srv1-1:1", "srv2-1:1"]), (3, ["srv1-2:1", "srv2-2:1"]))
    ]
    near = collective(pattern="pairs", ranks=2, size="1MB", placement=["srv1-1:2", "srv1-2:2"])
    jobs.append(near.model_copy(update={"name": "near"}))
    times = [
        [
            job.iterations_ns[0]
            for job in simulate(
                one_way.model_copy(update={"scheme": scheme}), jobs, Options(eps=0.0)
            ).jobs
        ]
        for scheme in (EcmpScheme(kind="ecmp"), SprayScheme(kind="spray"))
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-9)
    assert times[0][0] > 1.2 * times[0][1]


def test_two_flows_on_one_uplink_take_twice_as_long() -> None:
    spec = spec_of("zone-1-1")
    job = collective(
        pattern="pairs",
        ranks=4,
        size="64MB",
        placement=["srv1-1:1", "srv2-1:1", "srv1-1:2", "srv2-1:2"],
    )
    fabric = build_fabric(spec)
    document = predict_document(
        fabric, rows_of_jobs(plan_jobs(fabric, [job.collective])), Setting()
    )
    most = max(link.flows for link in document.links)
    report = simulate(spec, [job], EXACT)
    assert report.jobs[0].headline("jct_ratio").modelled.median == pytest.approx(most)


def test_a_ring_over_many_leaves_takes_what_its_busiest_link_needs() -> None:
    job = collective(
        pattern="allreduce",
        ranks=16,
        size="2MB",
        placement="fragmented",
        transport={"qps": 4, "strategy": "split"},
    )
    report = simulate(spec_of("zone-1-1125"), [job], EXACT)
    busiest = max(
        max(use.bytes) / use.rate_bps for use in report.uses if use.direction is Direction.UP
    )
    (took_ns,) = report.jobs[0].iterations_ns
    assert took_ns == pytest.approx(busiest * 8e9, rel=0.02)
    assert took_ns > report.jobs[0].roofline_ns * 1.2


@pytest.mark.parametrize("lab", ["zones-small", "hpn-small", "rail-small", "fat-tree-4"])
@pytest.mark.parametrize("scheme", ["ecmp", "e-ecmp"])
def test_flows_per_link_are_those_of_a_prediction(lab: str, scheme: str) -> None:
    spec = LabSpec.model_validate(spec_of(lab).model_dump(mode="json") | {"scheme": scheme})
    transport = {"qps": 2, "strategy": "split"}
    job = collective(
        pattern="alltoall", ranks=6, size="6MB", placement="random", transport=transport
    )
    fabric = build_fabric(spec)
    document = predict_document(
        fabric, rows_of_jobs(plan_jobs(fabric, [job.collective])), Setting()
    )
    report = simulate(spec, [job], EXACT)
    predicted = {
        (tier, way): sorted(
            link.flows for link in document.links if (link.tier, link.direction) == (tier, way)
        )
        for tier, way in {(link.tier, link.direction) for link in document.links}
    }
    for use in report.uses:
        assert sorted(use.flows) == predicted[use.tier, use.direction]
    by_key = {(tier.tier, tier.direction): tier for tier in report.tiers}
    for tier in document.tiers:
        links = by_key[tier.tier, tier.direction]
        theirs = tier.flows.all_links
        assert links.all_links.total == theirs.total
        # A prediction counts all links, also those that no flow could take.
        assert links.all_links.links - links.all_links.unused == theirs.links - theirs.unused
        assert links.worst_group == tier.flows.worst_group


def test_jobs_beside_each_other_never_share_a_nic_and_each_has_its_figures() -> None:
    jobs = [
        collective(pattern="allreduce", ranks=4, size="8MB").model_copy(update={"name": name})
        for name in ("one", "two")
    ]
    report = simulate(spec_of("zone-1-1"), jobs, EXACT)
    assert [job.name for job in report.jobs] == ["one", "two"]
    assert not set(report.jobs[0].nics) & set(report.jobs[1].nics)
    assert all(job.headlines for job in report.jobs)
    for width in (80, 60):
        assert (
            broken(lambda console: print_document(simulation_document(report), console), width)
            == set()
        )


def test_a_job_that_starts_later_ends_later_and_takes_as_long() -> None:
    job = collective(pattern="allreduce", ranks=4, size="8MB")
    spec = spec_of("zone-1-1")
    now = simulate(spec, [job], EXACT).jobs[0]
    later = simulate(spec, [job.model_copy(update={"start": 5_000_000})], EXACT).jobs[0]
    assert now.end_ns is not None
    assert later.end_ns == pytest.approx(now.end_ns + 5e6)
    assert later.iterations_ns == pytest.approx(now.iterations_ns)


@pytest.mark.parametrize(
    ("delay", "option", "expected_ns"),
    [(None, None, 1000), ("500ns", None, 500), ("0ns", None, 0), ("500ns", "2us", 2000)],
)
def test_the_latency_of_a_link_is_that_of_the_lab_s_file(
    delay: str | None, option: str | None, expected_ns: float
) -> None:
    links = LinksSpec.model_validate({"delay": delay})
    spec = spec_of("zone-1-1").model_copy(update={"links": links})
    options = read_options(Options, {"eps": 0.0, "hop_latency": option})
    job = collective(pattern="allreduce", ranks=2, size="1KB")
    report = simulate(spec, [job], options)
    assert report.method.latency_ns == expected_ns
    without = simulate(spec, [job], EXACT).jobs[0].end_ns
    assert report.jobs[0].end_ns is not None and without is not None
    # Two NICs of a rack: two links there, and as many back in the ring's second step.
    assert report.jobs[0].end_ns - without == pytest.approx(4 * expected_ns, abs=1)


def test_a_blackhole_on_the_way_holds_a_job_up_for_its_length_and_a_timeout() -> None:
    job = collective(pattern="allreduce", ranks=16, size="1GB", transport={"qps": 4})
    spec = spec_of("zone-1-1")
    quiet = simulate(spec, [job], EXACT).jobs[0]
    failure = ["fail link rtsw3:ctsw4 at 5ms for 20s"]
    texts = {"eps": 0.0, "hop_latency": "1us", "event": failure, "prove": True}
    options = read_options(Options, texts)
    report = simulate(spec, [job], options)
    assert quiet.end_ns is not None
    assert report.jobs[0].end_ns is not None
    assert report.jobs[0].end_ns > quiet.end_ns + 1e9
    (event,) = report.events
    assert event.start_ns == 5e6
    assert event.routed_ns is not None


def test_a_document_reads_back() -> None:
    report = simulate(
        spec_of("zone-1-1"), [collective(pattern="alltoall", ranks=8, size="8MB")], EXACT
    )
    assert from_json(to_json(report)) == report


def test_the_page_stands_alone_and_shows_links_and_times() -> None:
    report = simulate(
        spec_of("zone-1-1"),
        [collective(pattern="allreduce", ranks=16, size="64MB", transport={"qps": 4})],
        EXACT,
    )
    page = html(simulation_document(report))
    assert page == html(simulation_document(report))
    assert "rtsw-ctsw up" in page
    addresses = set(re.findall(r"https?://(?!www\.w3\.org/)[^\"'\s<]+", page))
    assert addresses == {"https://d3js.org", "https://github.com/leeoniya/uPlot"}  # comments
    assert "default-src 'none'" in page
    assert page.count("<svg") >= 2


@pytest.mark.parametrize(("share", "unit"), [(1, "Tb/s"), (1e-3, "Gb/s"), (1e-5, "Mb/s")])
def test_rates_are_plotted_in_a_unit_of_their_size_as_wide_as_other_plots(
    share: float, unit: str
) -> None:
    report = simulate(
        spec_of("zone-1-1"), [collective(pattern="allreduce", ranks=16, size="64MB")], EXACT
    )
    most_bps, end_ns = share * max(report.rate.rate_bps), report.rate.time_ns[-1]
    halved = replace(
        report.rate, time_ns=(0.0, end_ns / 2, end_ns), rate_bps=(most_bps, most_bps / 2, 0.0)
    )
    slower = replace(report, rate=halved)
    figure, loads = plots.rates(slower), plots.heat(slower)
    assert figure is not None
    assert loads is not None
    assert figure.axes[0].get_ylabel() == f"all, on the wire, {unit}"
    assert figure.get_figwidth() == loads.get_figwidth()


def test_a_simulation_too_large_for_memory_is_refused_before_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(size, "available_bytes", lambda: 300 * 2**20)
    job = collective(
        pattern="allreduce", ranks=24576, size="1GB", transport={"qps": 64, "strategy": "split"}
    )
    with pytest.raises(MachineError, match=r"need about .* of memory, and .* are free"):
        simulate(spec_of("llama3-24k"), [job])


def test_transfers_and_windows_too_large_for_memory_are_refused_before_they_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    windows = {"selective_repeat": True, "strategy": "split", "window": 65536, "qps": 256}
    job = collective(pattern="alltoall", ranks=16, size="16MB", transport=windows)
    made = Simulation(spec_of("zone-1-1"), [job], Options(engine=Engine.PACKETS))
    monkeypatch.setattr(size, "available_bytes", lambda: 5 * 2**29)
    with pytest.raises(MachineError, match=r"61,440 flows .* need about 2.84 GiB"):
        made.run_packets()
    monkeypatch.setattr(size, "available_bytes", lambda: 8 * 10**6)
    with pytest.raises(MachineError, match=r"61,440 transfers need about 0.01 GiB"):
        size.check_steps_fit(made.jobs, made.workloads)


def test_the_command_prints_jobs_links_and_how_it_was_worked_out(tmp_path: Path) -> None:
    code, text, _ = run(
        *[
            "simulate",
            "zone-1-1",
            "--pattern",
            "allreduce",
            "--ranks",
            "16",
            "--size",
            "64MB",
            "--qps",
            "4",
            "--prove",
        ],
        "--out",
        str(tmp_path / "out"),
    )
    assert code == 0
    assert "rtsw-ctsw up" in text
    assert "each proven max-min fair" in text
    assert (tmp_path / "out" / "report.html").exists()
    assert from_json((tmp_path / "out" / "result.json").read_text()).method.proven


def test_the_command_prints_json_that_reads_back() -> None:
    code, text, _ = run(
        *[
            "simulate",
            "zone-1-1",
            "--pattern",
            "allreduce",
            "--ranks",
            "8",
            "--size",
            "1MB",
            "--iterations",
            "3",
            "--json",
        ]
    )
    assert code == 0
    report = from_json(text)
    assert len(report.jobs[0].iterations_ns) == 3


def test_a_file_of_jobs_that_ships_is_known_by_its_name() -> None:
    code, text, _ = run("simulate", "zone-256x32", "--job", "ranking-128", "--json")
    assert code == 0
    report = json.loads(text)
    assert report["jobs"][0]["ranks"] == 128


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["simulate", "zone-1-1"], "no job is described"),
        (["simulate", "zone-1-1", "--job", "nowhere.yaml"], "nowhere.yaml"),
        (
            ["simulate", "zone-1-1", "--pattern", "allreduce", "--ranks", "99", "--size", "1MB"],
            "99 ranks do not fit the 16 NICs",
        ),
        (
            ["simulate", "zone-1-1", "--job", "ranking-128", "--ranks", "2"],
            "--job with --ranks",
        ),
        (
            [
                "simulate",
                "zone-1-1",
                "--pattern",
                "allreduce",
                "--ranks",
                "4",
                "--size",
                "1MB",
                "--model",
                "crc8",
            ],
            "--model: expected kernel, crc16 or crc32, got 'crc8'",
        ),
        (
            [
                *[
                    "simulate",
                    "zone-1-1",
                    "--pattern",
                    "allreduce",
                    "--ranks",
                    "4",
                    "--size",
                    "1MB",
                    "--event",
                ],
                "drain ctsw9",
            ],
            "ctsw9",
        ),
    ],
)
def test_bad_input_is_a_message_and_exit_code_2(arguments: list[str], said: str) -> None:
    code, _, message = run(*arguments)
    assert code == 2
    assert said in message


def test_a_training_job_has_its_speed_and_tokens() -> None:
    training = {
        "model": "gpt3-175b", "tensor": 8, "pipeline": 2, "micro_batches": 4, "gpu_flops": "400T",
    }  # fmt: skip
    result = {}
    for peak in (None, "1P"):
        block = training | ({} if peak is None else {"gpu_peak": peak})
        job = SimulatedJob.model_validate({"name": "t", "iterations": 2, "training": block})
        (result[peak],) = simulate(spec_of("zone-1-1"), [job], EXACT).jobs
    outcome = result["1P"]
    values = {headline.name: headline.modelled.median for headline in outcome.headlines}
    iteration_s = values["iteration_time"] / 1e9
    assert values["tokens"] == pytest.approx(4 * 2048 / iteration_s)
    shape = TrainingSpec.model_validate(training).model
    flops = 3 * shape.forward_flops(4 * 2048, 2048) / 16 / iteration_s
    assert values["gpu_tflops"] == pytest.approx(flops / 1e12)
    assert 0 < values["gpu_tflops"] < 400
    assert values["mfu"] == pytest.approx(100 * flops / 1e15)
    assert "mfu" not in {headline.name for headline in result[None].headlines}


@pytest.mark.parametrize("most", [2**15, 0], ids=["ordered", "merged"])
def test_flows_are_written_with_when_each_began_and_was_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, most: int
) -> None:
    monkeypatch.setattr(collectives, "MOST_ORDERED", most)
    file = tmp_path / "flows.csv"
    job = ["--pattern", "allreduce", "--ranks", "8", "--size", "1MB", "--qps", "2"]
    code, text, _ = run("simulate", "zone-1-1", *job, "--flows", str(file), "--json")
    assert code == 0
    report = json.loads(text)
    with file.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert len(rows) == report["method"]["transfers"]
    assert sum(int(row["payload_bytes"]) for row in rows) == report["jobs"][0]["payload_bytes"]
    assert max(float(row["over_ns"]) for row in rows) == pytest.approx(report["jobs"][0]["end_ns"])
    assert all(float(row["start_ns"]) < float(row["over_ns"]) for row in rows)
    assert {(row["job"], row["source"]) for row in rows} == {
        ("allreduce", nic) for nic in report["jobs"][0]["nics"]
    }
    parquet = tmp_path / "flows.parquet"
    assert run("simulate", "zone-1-1", *job, "--flows", str(parquet))[0] == 0
    table = pq.read_table(parquet)
    assert table.column_names == list(rows[0])
    assert table["over_ns"].to_pylist() == [float(row["over_ns"]) for row in rows]
    code, _, said = run("simulate", "zone-1-1", *job, "--flows", str(tmp_path / "flows.txt"))
    assert code == 2
    assert "csv or .parquet" in said


def test_whatif_says_what_a_drained_spine_costs() -> None:
    code, text, _ = run(
        "whatif",
        "zone-1-1",
        "drain ctsw1 for 2h",
        *[
            "--pattern",
            "allreduce",
            "--ranks",
            "16",
            "--size",
            "1GB",
            "--qps",
            "16",
            "--scheme",
            "e-ecmp",
            "--json",
        ],
        "--placement",
        "fragmented",
    )
    assert code == 0
    document = json.loads(text)
    (job,) = document["jobs"]
    assert document["lasts_s"] == 7200
    assert job["during_s"] > job["before_s"]
    assert job["stall_s"] == 0
    assert job["extra_s"] == pytest.approx(job["slowed_s"])


def test_whatif_and_longrun_write_a_page_that_begins_with_the_cost(tmp_path: Path) -> None:
    job = ("--pattern", "allreduce", "--ranks", "16", "--size", "1GB")
    for command in (
        ("whatif", "zone-1-1125", "drain ctsw1 for 2h"),
        ("longrun", "zone-1-1125", "--rates", "llama3", "--work", "1d"),
    ):
        folder = tmp_path / command[0]
        code, out, err = run(*command, *job, "--out", str(folder))
        assert code == 0
        assert f"written: {folder}/result.json, report.html" in err
        page = (folder / "report.html").read_text()
        sentence = page.partition('<p class="sentence">')[2].partition("</p>")[0]
        assert sentence.endswith(".")
        assert unescape(sentence) in " ".join(out.split())
        assert "written" not in run(*command, *job, "--out", str(folder))[2]  # it is there already


def test_balance_is_that_of_the_links_that_the_job_can_use() -> None:
    """Two racks of four: the uplinks of the others are neither unused nor uneven."""
    job = collective(
        pattern="permutation",
        ranks=4,
        size="8MB",
        transport={"qps": 64, "source_port": "per-qp"},
        placement=["srv1-1:1", "srv2-1:1", "srv1-1:2", "srv2-1:2"],
    )
    spec = spec_of("zone-1-1")
    report = simulate(spec, [job], EXACT)
    uplinks = spec.fabric.spines * spec.fabric.links_per_pair
    for use in report.uses:
        assert (use.balance.links, use.balance.unused) == (2 * uplinks, 0)
        assert use.balance.mmr < 2
        assert len(use.bytes) == 4 * uplinks
    for tier in report.tiers:
        assert tier.all_links.links == 2 * uplinks


def test_uses_hold_what_links_carried() -> None:
    report: SimulationReport = simulate(
        spec_of("zones-small"),
        [collective(pattern="alltoall", ranks=6, size="6MB", placement="fragmented")],
        EXACT,
    )
    up = {use.tier: sum(use.bytes) for use in report.uses if use.direction is Direction.UP}
    down = {use.tier: sum(use.bytes) for use in report.uses if use.direction is Direction.DOWN}
    assert up == pytest.approx(down)
    assert up["rtsw-ctsw"] > up["ctsw-atsw"] > 0


def test_links_that_only_acks_take_are_not_among_those_of_the_job() -> None:
    """Three senders of a rack and one of another: their data go down to one leaf."""
    job = collective(pattern="incast", ranks=4, size="1MB", placement="fragmented")
    spec = spec_of("zones-small")
    fluid, packets = (
        simulate(spec, [job], Options(engine=engine)) for engine in (Engine.FLUID, Engine.PACKETS)
    )
    for one, other in zip(fluid.uses, packets.uses, strict=True):
        assert one.balance.links == other.balance.links
        assert one.balance.unused == other.balance.unused
    alone = [
        size
        for use in packets.uses
        for size, flows in zip(use.bytes, use.flows, strict=True)
        if size and not flows
    ]
    assert alone, "no link had only ACKs"


@pytest.mark.parametrize("engine", [Engine.FLUID, Engine.PACKETS])
def test_a_link_is_used_for_as_long_as_it_carries_also_what_never_ends(engine: Engine) -> None:
    spec = LabSpec.model_validate(
        {"name": "cut", "fabric": {"kind": "clos", "racks": 2, "spines": 1, "servers_per_rack": 2}}
    )
    jobs = [
        collective(pattern="pairs", ranks=2, size=size, placement=placement)
        for size, placement in (
            ("1KB", ["srv1-1:1", "srv2-1:1"]),
            ("200MB", ["srv1-2:1", "srv2-2:1"]),
        )
    ]
    timeline = TimelineSpec.model_validate(
        {"events": [{"at": "100us", "fail": "link rtsw1:ctsw1"}]}
    )
    report = simulate(spec, jobs, Options(engine=engine, timeline=timeline))
    assert [job.end_ns is None for job in report.jobs] == [False, True]
    (up,) = (use for use in report.uses if use.direction is Direction.UP)
    if engine is Engine.FLUID:
        assert up.utilisation_max == pytest.approx(8 * max(up.bytes) / (up.rate_bps * 100e-6))
        assert 0.9 < up.utilisation_max < 1 + 1e-9
    else:  # its queue pairs try again for long
        assert 0 < up.utilisation_max < 1


def test_each_job_retries_as_its_own_transport_says() -> None:
    """A leaf's only uplink is away for 20 ms; one job tries again after 0.1 s, the other 1 s."""
    spec = LabSpec.model_validate(
        {"name": "cut", "fabric": {"kind": "clos", "racks": 2, "spines": 1, "servers_per_rack": 2}}
    )
    jobs = [
        collective(
            pattern="pairs",
            ranks=2,
            size="200MB",
            placement=[f"srv1-{server}:1", f"srv2-{server}:1"],
            transport={"ack_timeout": timeout},
        ).model_copy(update={"name": timeout})
        for server, timeout in ((1, "100ms"), (2, "1s"))
    ]
    timeline = TimelineSpec.model_validate(
        {"events": [{"at": "1ms", "fail": "link rtsw1:ctsw1", "lasts": "20ms"}]}
    )
    for order in (jobs, jobs[::-1]):
        report = simulate(spec, order, Options(timeline=timeline))
        ends_s = [job.end_ns / 1e9 for job in report.jobs if job.end_ns is not None]
        quick_s, slow_s = ends_s if order is jobs else ends_s[::-1]
        assert 0.1 < quick_s < 0.2
        assert 1 < slow_s < 1.1


@pytest.mark.parametrize("engine", [Engine.FLUID, Engine.PACKETS])
def test_what_happens_when_all_is_over_changes_no_figure(engine: Engine) -> None:
    job = collective(pattern="alltoall", ranks=4, size="1MB", placement="fragmented")
    spec = spec_of("zone-small")

    def report_with(*events: dict[str, str]) -> SimulationReport:
        timeline = TimelineSpec.model_validate({"events": events})
        return simulate(spec, [job], Options(engine=engine, timeline=timeline))

    alone, later = report_with(), report_with({"at": "100s", "drain": "ctsw1"})
    assert (later.uses, later.tiers) == (alone.uses, alone.tiers)
    begun = report_with({"at": "0s", "drain": "ctsw1"})
    assert begun.tiers == alone.tiers, "of flows with all links up"
    assert begun.uses != alone.uses


def test_links_that_only_a_detour_takes_are_among_those_of_the_job() -> None:
    """A NIC of two ports goes on by the other plane when one has failed."""
    job = collective(pattern="pairs", ranks=2, size="8MB", transport={"qps": 1})
    timeline = TimelineSpec.model_validate(
        {"events": [{"at": "0s", "fail": "port srv1-1:1:1"}], "reaction": "0s"}
    )
    for engine in (Engine.FLUID, Engine.PACKETS):
        report = simulate(spec_of("hpn-small"), [job], Options(engine=engine, timeline=timeline))
        for use in report.uses:
            assert use.balance.total == pytest.approx(8 * sum(use.bytes), rel=0.02)


@pytest.mark.parametrize("engine", [Engine.PACKETS, Engine.LINKS])
def test_rates_over_time_hold_all_bytes_and_change(engine: Engine) -> None:
    jobs = load_jobs(find_jobs("websearch"))
    report = simulate(spec_of("zone-small"), jobs, Options(engine=engine))
    rates, times = report.rate.rate_bps, report.rate.time_ns
    bits = float(np.sum(np.array(rates[:-1]) * np.diff(times)))
    payload = sum(job.payload_bytes for job in report.jobs)
    assert 8 * payload < bits / 1e9 < 8.4 * payload
    assert len(set(rates)) > 100


def test_merged_sends_have_no_flow_completion_times() -> None:
    """Each is many sends of a lab, which wait for each other; those of another job have."""
    job = collective(pattern="allreduce", ranks=192, size="1MB")
    report = simulate(spec_of("llama3-24k"), [job], EXACT)
    assert report.flow_times is None and report.jobs[0].slowdown is None
    assert {flow.slowdown for flow in report.slowest} == {None}
    said = f"No times of flows of {job.name}: "
    assert said in terminal_text(report) and said in html(simulation_document(report))
    other = collective(pattern="pairs", ranks=2, size="8MB").model_copy(update={"name": "pair"})
    beside = simulate(spec_of("llama3-24k"), [job, other], EXACT)
    assert beside.flow_times is not None
    assert [job.slowdown is None for job in beside.jobs] == [True, False]
    alone = {flow.job: flow.slowdown is None for flow in beside.slowest}
    assert alone == {job.name: True, "pair": False}
    assert said in terminal_text(beside)


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("permutation", "slowdown: time over the least one"),
        (
            "pairs",
            "The slowdown of all flows (time over the least one, alone on the path) is within",
        ),
    ],
)
def test_the_slowdown_of_each_job_is_plotted_unless_all_are_alike(pattern: str, words: str) -> None:
    """Not of flows that begin at given times alone."""
    job = collective(pattern=pattern, ranks=8, size="8MB")
    report = simulate(spec_of("zone-1-1"), [job], EXACT)
    assert report.jobs[0].slowdown is not None and report.flow_times is not None
    assert report.jobs[0].slowdown.quantiles[-1] == report.flow_times.slowdown.maximum
    assert words in html(simulation_document(report))
    assert "Slowdown of flows, by size" not in terminal_text(report), "they have one size"


def test_a_long_run_goes_through_a_timeline_and_its_parts_add_up(tmp_path: Path) -> None:
    events = tmp_path / "events.yaml"
    events.write_text(
        "events:\n"
        "  - {at: 2h, blackhole: link rtsw1:ctsw1, lasts: 10h}\n"
        "  - {at: 20h, drain: switch ctsw2, lasts: 2h}\n"
    )
    arguments = [
        *["longrun", "zone-1-1", "--timeline", str(events), "--work", "1d"],
        *["--pattern", "allreduce", "--ranks", "16", "--size", "1GB", "--qps", "4"],
        *["--placement", "fragmented", "--scheme", "e-ecmp"],
    ]
    code, text, _ = run(*arguments, "--json")
    assert code == 0
    (job,) = json.loads(text)["jobs"]
    parts = ("stalled_s", "slowed_s", "restarting_s", "lost_work_s")
    assert job["jct_s"] == pytest.approx(job["healthy_s"] + sum(job[part] for part in parts))
    assert job["stalled_s"] > 0
    code, text, _ = run(*arguments)
    assert code == 0
    assert "2 failures, from a timeline" in text


def test_a_long_run_wants_a_timeline_or_rates() -> None:
    job = ["--pattern", "allreduce", "--ranks", "16", "--size", "1GB"]
    for more, said in (
        ([], "expected --timeline or --rates"),
        (["--rates", "nobody"], "there are no rates nobody"),
        (["--rates", "hpn", "--work", "soon"], "--work"),
    ):
        code, _, message = run("longrun", "zone-1-1", *job, *more)
        assert code == 2
        assert said in message


LONG_RUN = [
    *["longrun", "zone-1-1", "--rates", "hpn", "--repair", "1m", "--work", "2000d"],
    *["--pattern", "allreduce", "--ranks", "16", "--size", "1GB"],
]


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"checkpoint_every": "2d"},
        {"checkpoint_takes": "10m"},
        {"restart_takes": "1d"},
        {"checkpoint_every": "1d", "checkpoint_takes": "1h", "restart_takes": "12h"},
    ],
)
def test_how_a_job_restarts_is_asked_for_and_changes_its_time_as_the_closed_form_says(
    asked: dict[str, str],
) -> None:
    policy = RestartSpec.model_validate(asked)
    options = [part for key, value in asked.items() for part in (f"--{key}", value)]
    code, text, _ = run(*LONG_RUN, *(part.replace("_", "-") for part in options), "--json")
    assert code == 0
    document = json.loads(text)
    (job,) = document["jobs"]
    assert document["restart"] == {
        f"{key}_s": getattr(policy, key) / SECOND for key in RestartSpec.model_fields
    }
    whole = expected_cost(HPN.own_breaks_per_s(16), RestartSpec()).effective
    expected = expected_cost(HPN.own_breaks_per_s(16), policy).effective
    assert not asked or expected < whole - 0.03
    assert job["expected"] == pytest.approx(expected)
    assert job["effective"] == pytest.approx(expected, abs=0.02)


def test_a_long_run_says_what_was_drawn_and_how_jobs_restart() -> None:
    code, text, _ = run(*LONG_RUN, "--restart-takes", "12h")
    assert code == 0
    said = re.search(
        r"^- drawn: failures of the network \((.+)\) and breaks of each job \((.+)\)$",
        text,
        re.MULTILINE,
    )
    assert said is not None
    assert re.fullmatch(r"[\d,]+ of a port, [\d,]+ of a switch", said[1])
    assert said[2] == "any cause"
    assert "a checkpoint every 3 h takes 100 s, a restart 12 h" in text


@pytest.mark.long
def test_llama3s_54_days_by_the_command_are_as_published() -> None:
    """Llama 3 (arXiv 2407.21783, 3.3.4 and table 5): 419 interruptions, more than 90 %."""
    code, text, _ = run(
        *["longrun", "llama3-24k", "--rates", "llama3", "--work", "54d", "--json"],
        *["--pattern", "allreduce", "--ranks", "16384", "--size", "1GB"],
    )
    assert code == 0
    (job,) = json.loads(text)["jobs"]
    assert job["restarts"] == pytest.approx(419, abs=4 * math.sqrt(419))
    assert 0.9 < job["effective"] < 1
    assert job["effective"] == pytest.approx(job["expected"], abs=0.02)


def test_a_timeline_is_no_draw(tmp_path: Path) -> None:
    events = tmp_path / "events.yaml"
    events.write_text("events:\n  - {at: 2h, drain: switch ctsw2, lasts: 2h}\n")
    code, text, _ = run(*LONG_RUN[:2], *LONG_RUN[-6:], "--timeline", str(events))
    assert code == 0
    assert "drawn:" not in text


def test_the_memory_that_a_simulation_took_is_in_gib() -> None:
    report = simulate(spec_of("zone-1-1"), [collective(pattern="allreduce", ranks=4, size="1MB")])
    report = replace(report, cost=replace(report.cost, peak_memory_bytes=5 * 2**28))
    assert re.search(r" s and 1\.25 GiB\.", terminal_text(report))
