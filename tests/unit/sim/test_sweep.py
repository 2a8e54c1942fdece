"""Sweeps: their files, that every cell runs exactly once despite interrupts, and their results."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.errors import InputError, MachineError, SpecError
from rocelab.base.outputs import open_folder
from rocelab.base.progress import ProgressSink
from rocelab.cli.app import run
from rocelab.cli.main import command_line
from rocelab.fabrics.roles import Role
from rocelab.jobs.job_spec import load_jobs
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.planning.build import build_fabric
from rocelab.report.renderers.page import html
from rocelab.results.engines import Engine
from rocelab.sim.sweep import report, store
from rocelab.sim.sweep import run as sweep_run
from rocelab.sim.sweep.cells import cells_of, run_cell, tool_version
from rocelab.sim.sweep.command import command_of
from rocelab.sim.sweep.report import MOST_DRAWN, layout_of, numbers, small_multiples, sweep_document
from rocelab.sim.sweep.run import run_sweep
from rocelab.sim.sweep.store import TABLE, CellRecord, open_journal, table_metadata, write_table
from rocelab.sim.sweep.sweep_spec import Axis, Sweep, read_sweep
from rocelab.sim.sweep.workerpool import WorkerPool, check_workers, cluster, worker_processes
from tests.helpers import sweep_cells
from tests.helpers.cells import plain_cells
from tests.helpers.limits import LIMIT_S

JOB = "{pattern: allreduce, ranks: 4, size: 1MB}"


def test_the_sweep_that_ships_is_the_one_that_its_page_shows() -> None:
    root = Path(__file__).parents[3]
    shipped = root / "examples" / "uplinks.yaml"
    assert len(cells_of(read_sweep(shipped))) == 27
    _schema, _title, *lines = shipped.read_text().splitlines()
    assert "\n".join(lines) in (root / "docs/sweep.md").read_text()


def test_the_sweep_of_packets_on_the_page_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/sweep.md").read_text()
    (block,) = re.findall(r"```yaml\n(lab: lossless\n.*?)```", page, re.DOTALL)
    (tmp_path / "sweep.yaml").write_text(block)
    cells = cells_of(read_sweep(tmp_path / "sweep.yaml"))
    assert [cell.inputs["simulate"]["engine"] for cell in cells] == ["packets"] * 6


def written(
    folder: Path, over: str, *, lab: str = "zone-small", job: str = JOB, more: str = ""
) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(f"lab: {lab}\njob: {job}\n{more}over:\n{over}")
    return path


def swept(folder: Path, over: str, **other: str) -> Sweep:
    return read_sweep(written(folder, over, **other))


@contextmanager
def one_thread() -> Iterator[WorkerPool]:
    with ThreadPoolExecutor(1) as executor:
        yield WorkerPool(executor, lambda: 1)


GRID = "  lab.fabric.spines: [2, 4]\n  job.transport.qps: [1, 2, 4]\n"


def test_the_grid_has_every_combination_with_the_last_key_fastest(tmp_path: Path) -> None:
    cells = cells_of(swept(tmp_path, GRID))
    assert [tuple(cell.values.values()) for cell in cells] == [
        (spines, qps) for spines in (2, 4) for qps in (1, 2, 4)
    ]
    for cell in cells:
        assert cell.inputs["lab"]["fabric"]["spines"] == cell.values["lab.fabric.spines"]
        assert cell.inputs["job"]["transport"]["qps"] == cell.values["job.transport.qps"]
    assert len({cell.digest for cell in cells}) == 6


def test_zipped_keys_change_together_and_repeats_are_seeds(tmp_path: Path) -> None:
    sweep = swept(
        tmp_path,
        "  job.seed: {repeat: 3}\n",
        more="zip:\n  lab.fabric.zones: [1, 2]\n  lab.fabric.atsws: [0, 2]\n",
    )
    cells = [tuple(cell.values.values()) for cell in cells_of(sweep)]
    assert cells == [(seed, *pair) for seed in (1, 2, 3) for pair in ((1, 0), (2, 2))]
    assert [axis.repeats for axis in sweep.axes] == [True, False]


def test_a_short_form_a_block_and_a_training_job_can_be_swept(tmp_path: Path) -> None:
    over = "  lab.scheme: [ecmp, {kind: flowlet, gap: 1ms}]\n  simulate.eps: [0, 0.01]\n"
    kinds = [cell.inputs["lab"]["scheme"]["kind"] for cell in cells_of(swept(tmp_path, over))]
    assert kinds == ["ecmp", "ecmp", "flowlet", "flowlet"]


@pytest.mark.parametrize(
    ("over", "said"),
    [
        (
            "  lab.fabric.spine: [2]\n",
            "sweep.yaml:4: over.'lab.fabric.spine'[0]: unknown key\n  hint: did you mean spines?",
        ),
        ("  labs.fabric.spines: [2]\n", "hint: did you mean lab.fabric.spines?"),
        (
            "  job.transport.qps:\n  - 4\n  - 400\n",
            "sweep.yaml:6: over.'job.transport.qps'[1]: expected a whole number from 1 to 256, "
            "got 400 (1 of 2 cells, the only with job.transport.qps: 400)",
        ),
        (
            "  lab.fabric.zones: [1, 2]\n",
            "2 zones need at least one ATSW to join them "
            "(1 of 2 cells, the only with lab.fabric.zones: 2)",
        ),
        ("  job.ranks: [8, 9]\n", "sweep.yaml:4: over.'job.ranks'[1]: 9 ranks on the 8 NICs"),
        (
            "  lab.fabric.racks: [1, 4]\n",
            "sweep.yaml:2: job.ranks: 4 ranks on the 2 NICs of the fabric (1 of 2 cells",
        ),
        ("  lab.scheme.kind.x: [1]\n", "scheme is not a block of keys"),
        ("  job.seed: {repeat: 1}\n", "expected {repeat: N} with N from 2"),
        ("  job.seed: 3\n", "expected a list of values, got 3"),
        ("  job.seed: [3, 3]\n", "3 is given twice"),
        (
            "  lab.scheme: [ecmp]\n  lab.scheme.kind: [spray]\n",
            "lab.scheme.kind is part of lab.scheme",
        ),
        (
            "  job.seed: {repeat: 1000}\n  job.transport.qps: [1, 2, 3]\n"
            "  lab.hashing.seed: [1, 2, 3, 4, 5, 6, 7]\n",
            "1000 x 3 x 7 values are 21,000 cells; at most 20,000 are run",
        ),
    ],
)
def test_bad_sweeps_are_refused_where_they_are_wrong(over: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as refused:
        cells_of(swept(tmp_path, over))
    assert said in str(refused.value)


def test_all_problems_of_all_cells_are_shown_at_once(tmp_path: Path) -> None:
    over = "  lab.fabric.spines: [2, 0, 999]\n  job.transport.qps: [0, 1]\n  simulate.eps: [2.5]\n"
    with pytest.raises(SpecError) as refused:
        cells_of(swept(tmp_path, over))
    keys = [problem.key for problem in refused.value.problems]
    assert sorted(keys) == [
        "over.'job.transport.qps'[0]",
        "over.'lab.fabric.spines'[1]",
        "over.'lab.fabric.spines'[2]",
        "over.'simulate.eps'[0]",
    ]
    assert "(2 of 6 cells, the first with lab.fabric.spines: 0, job.transport.qps: 0" in str(
        refused.value
    )


def test_a_lab_that_is_not_there_is_refused_at_its_line(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"sweep.yaml:1: lab: there is no lab 'zone-smal'"):
        swept(tmp_path, GRID, lab="zone-smal")


def test_a_digest_is_of_values_and_not_of_how_they_are_written(tmp_path: Path) -> None:
    plain = cells_of(swept(tmp_path, "  job.size: [1MB]\n"))[0].digest
    spelt = "{size: 2MB, ranks: 4, pattern: allreduce, seed: 1}  # the default\n"
    assert cells_of(swept(tmp_path, "  job.size: [1000KB]\n", job=spelt))[0].digest == plain
    assert cells_of(swept(tmp_path, "  job.size: [1MiB]\n"))[0].digest != plain


@pytest.mark.parametrize(
    "lab", ["zone-small", "zones-small", "rail-small", "hpn-small", "fat-tree-4", "four-ports"]
)
def test_nics_are_counted_as_the_plan_has_them(lab: str, tmp_path: Path) -> None:
    fabric = build_fabric(load_spec(find_lab(lab)))
    servers = {node.name for node in fabric.nodes if node.role is Role.SERVER}
    assert servers
    over = "  job.seed: [1]\n"
    cell = cells_of(swept(tmp_path, over, lab=lab, job=JOB.replace("4", "2", 1)))[0]
    assert cell.nics == sum(len(fabric.nics(server)) for server in servers)


RECORDS = [
    CellRecord(f"{n:032x}", {"job.seed": n}, {"busbw": n / 3}, None, 0.5, n) for n in range(4)
]


@given(cut=st.integers(min_value=0, max_value=10_000))
def test_a_journal_torn_anywhere_keeps_what_was_wholly_written(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    with open_journal(folder) as journal:
        journal.add(RECORDS)
    file = folder / "cells.jsonl"
    whole = file.read_bytes()
    kept = whole[: cut % (len(whole) + 1)]
    file.write_bytes(kept)
    lines = kept.count(b"\n")
    with open_journal(folder) as journal:
        assert list(journal.records.values()) == RECORDS[:lines]
        journal.add(RECORDS[lines:])
    assert file.read_bytes() == whole


def test_a_journal_with_a_foreign_line_within_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cells.jsonl").write_text("hello\nworld\n")
    with (
        pytest.raises(InputError, match=r"cells.jsonl:1: not a line of a sweep's journal"),
        open_journal(tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    "damage",
    [
        '"digest": []',
        '"figures": null',
        '"figures": {"busbw": "fast"}',
        '"wall_s": "long"',
        '"error": 5',
        f'"values": {"[" * 100_000}',
    ],
)
def test_a_journal_with_a_damaged_record_is_refused(tmp_path: Path, damage: str) -> None:
    with open_journal(tmp_path) as journal:
        journal.add(RECORDS)
    file = tmp_path / "cells.jsonl"
    first, rest = file.read_text().split("\n", 1)
    file.write_text(f"{first[:-1]}, {damage}}}\n{rest}")
    with (
        pytest.raises(InputError, match=r"cells.jsonl:1: not a line of a sweep's journal"),
        open_journal(tmp_path),
    ):
        pass


def test_a_journal_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    secret, folder = tmp_path / "secret", tmp_path / "out"
    secret.write_text("of root\n")
    folder.mkdir()
    (folder / "cells.jsonl").symlink_to(secret)
    with pytest.raises(InputError, match=r"cells\.jsonl cannot be written"), open_journal(folder):
        pass
    assert secret.read_text() == "of root\n"


def test_a_name_that_no_folder_can_have_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"cells\.jsonl cannot be written: File name too long"),
        open_journal(tmp_path / ("a" * 300)),
    ):
        pass


def test_two_sweeps_in_one_folder_are_refused(tmp_path: Path) -> None:
    sweep = swept(tmp_path, GRID)
    with (
        open_journal(tmp_path / "out"),
        pytest.raises(InputError, match="another sweep is working in"),
    ):
        run_sweep(sweep, tmp_path / "out", one_thread, function=sweep_cells.closed_form)


def test_processes_run_a_sweep_into_a_typed_table_and_a_page(tmp_path: Path) -> None:
    over = GRID + "  lab.scheme: [ecmp, {kind: flowlet}]\n"
    said: list[str] = []
    rows = run_sweep(
        swept(tmp_path, over),
        tmp_path / "out",
        partial(worker_processes, 2),
        function=sweep_cells.closed_form,
        say=said.append,
    )
    assert (rows.ran, rows.reused, rows.left, rows.failed) == (12, 0, 0, ())
    assert said[0].startswith("12 of 12 cells to run; the largest has 8 NICs and about 16 flows")
    table = pq.read_table(tmp_path / "out" / "sweep.parquet")
    types = {field.name: str(field.type) for field in table.schema}
    assert types == {
        "lab.fabric.spines": "int64",
        "job.transport.qps": "int64",
        "lab.scheme": "string",
        "iteration_time": "double",
        "busbw": "double",
        "wall_s": "double",
        "peak_memory_bytes": "int64",
        "error": "string",
        "warnings": "string",
    }
    assert table["busbw"].to_pylist() == [qps * 2.5 for _ in (2, 4) for qps in (1, 1, 2, 2, 4, 4)]
    assert min(table["peak_memory_bytes"].to_pylist()) > 10**7
    metadata = json.loads(table.schema.metadata[b"rocelab.sweep"])
    assert metadata["sweep"]["over"]["lab.fabric.spines"] == [2, 4]
    assert set(metadata["versions"]) == {"rocelab", "numpy", "pyarrow"}
    assert not list((tmp_path / "out").glob("*.new"))


def test_a_second_run_does_nothing_and_a_changed_sweep_runs_only_what_is_new(
    tmp_path: Path,
) -> None:
    sweep = partial(run_sweep, folder=tmp_path / "out", hire=one_thread)
    sweep(swept(tmp_path, GRID), function=sweep_cells.closed_form)
    outputs = [tmp_path / "out" / name for name in ("sweep.parquet", "report.html", "cells.jsonl")]
    before = [path.stat().st_mtime_ns for path in outputs]
    again = sweep(swept(tmp_path, GRID), function=sweep_cells.fails_with_two_spines)
    assert (again.ran, again.reused) == (0, 6)
    assert [path.stat().st_mtime_ns for path in outputs] == before
    changed = GRID.replace("[2, 4]", "[4, 8]") + "  job.seed: [1]\n"
    rows = sweep(swept(tmp_path, changed), function=sweep_cells.closed_form)
    assert (rows.ran, rows.reused, len(rows.rows)) == (3, 3, 6)
    assert [row["iteration_time"] for row in rows.rows] == [250001.0] * 3 + [125001.0] * 3
    assert pq.read_table(outputs[0]).num_rows == 6


def test_engines_are_compiled_before_any_cell_and_billed_to_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    monkeypatch.setattr(time, "perf_counter", lambda: 100.0 * len(steps))

    def compile_missing(engine: Engine, progress: ProgressSink) -> None:
        steps.append(f"compiled {engine}")

    def load(engine: Engine) -> None:
        steps.append(f"loaded {engine}")

    def cell(inputs: dict[str, Any]) -> dict[str, Any]:
        steps.append("simulated")
        return sweep_cells.closed_form(inputs)

    monkeypatch.setattr(sweep_run, "compile_missing", compile_missing)
    monkeypatch.setattr(sweep_run, "compile_ahead", load)
    over = "  simulate.engine: [packets]\n  lab.fabric.spines: [2, 4]\n"
    rows = run_sweep(swept(tmp_path, over), tmp_path / "out", one_thread, function=cell)
    assert steps == ["compiled packets", *["loaded packets", "simulated"] * 2]
    assert [row["wall_s"] for row in rows.rows] == [100.0, 100.0], "of the step that simulated"


def test_a_cell_that_fails_is_recorded_and_the_others_go_on(tmp_path: Path) -> None:
    sweep = partial(run_sweep, swept(tmp_path, GRID), tmp_path / "out", one_thread)
    rows = sweep(function=sweep_cells.fails_with_two_spines)
    assert [row["error"] for row in rows.rows] == ["ValueError: two are too few"] * 3 + [None] * 3
    assert len(rows.failed) == 3
    table = pq.read_table(tmp_path / "out" / "sweep.parquet")
    assert table["busbw"].to_pylist() == [None, None, None, 2.5, 5.0, 10.0]
    assert "two are too few" in (tmp_path / "out" / "report.html").read_text()
    mended = sweep(function=sweep_cells.closed_form)
    assert (mended.ran, mended.reused, mended.failed) == (3, 3, ())


@pytest.mark.long
def test_the_cell_that_kills_its_process_is_the_one_to_blame(tmp_path: Path) -> None:
    rows = run_sweep(
        swept(tmp_path, "  lab.fabric.spines: [4, 2, 8]\n"),
        tmp_path,
        partial(worker_processes, 2),
        function=sweep_cells.dies_with_two_spines,
    )
    errors = [row["error"] for row in rows.rows]
    assert errors == [None, "its process died; it may have run out of memory", None]


def test_an_interrupt_lets_running_cells_end_and_hands_out_no_more(tmp_path: Path) -> None:
    said: list[str] = []

    def interrupt_once(_: object) -> None:
        if not said[1:]:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    sweep = partial(run_sweep, swept(tmp_path, GRID), tmp_path, one_thread, say=said.append)
    rows = sweep(function=sweep_cells.closed_form, progress=interrupt_once)
    assert (rows.ran, rows.left) == (0, 6)
    assert said[1].startswith("stopping when the running cells end")
    assert not (tmp_path / "sweep.parquet").exists()
    assert signal.getsignal(signal.SIGINT) is before
    assert sweep(function=sweep_cells.closed_form).ran == 6


@pytest.mark.long
def test_workers_end_with_their_killed_parent_and_its_sweep_is_resumed_with_every_cell_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sweep_cells.FOLDER, str(tmp_path))
    file = written(tmp_path, "  job.transport.qps: [1, 2, 3, 4, 5, 6, 7, 8]\n")
    command = [sys.executable, sweep_cells.__file__, str(file), str(tmp_path / "out")]
    killed = subprocess.Popen(command, start_new_session=True)
    journal = tmp_path / "out" / "cells.jsonl"
    until(lambda: journal.exists() and journal.read_bytes().count(b"\n") == 4)
    until(lambda: len((tmp_path / "begun").read_text().split()) == 6)
    killed.kill()
    killed.wait()
    until(lambda: not in_session(killed.pid))
    with journal.open("a") as torn:
        torn.write('{"digest": "12')
    (tmp_path / "go").touch()
    run_sweep(read_sweep(file), tmp_path / "out", one_thread, function=sweep_cells.counted)
    ended = Counter((tmp_path / "ended").read_text().split())
    assert ended == Counter("12345678")
    table = pq.read_table(tmp_path / "out" / "sweep.parquet")
    assert table["busbw"].to_pylist() == [1, 2, 3, 4, 5, 6, 7, 8]


def in_session(session: int) -> list[int]:
    """The processes of a session that are not yet reaped or dead."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, leader = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(leader) == session and state != "Z":
            pids.append(int(stat.parent.name))
    return pids


def until(true: object) -> None:
    assert callable(true)
    end = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def command(*arguments: object) -> int:
    """The exit code of `rocelab sweep`."""
    with pytest.raises(SystemExit) as ended:
        run(command_line(), ["sweep", *map(str, arguments)])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_the_command_says_what_failed_and_then_that_there_is_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file, folder = written(tmp_path, GRID), tmp_path / "out"
    fails = partial(run_sweep, function=sweep_cells.fails_with_two_spines)
    monkeypatch.setattr("rocelab.sim.sweep.run.run_sweep", fails)
    assert command(file, "--out", folder, "--workers", 1) == 1
    out, err = capfd.readouterr()
    words = [line.split()[:7] for line in out.splitlines()]
    assert ["4", "4", "1", "250", "us", "10", "GB/s"] in words
    assert "failed: ValueError: two are too few (3 cells, the first with lab.fabric.spines" in err
    run_sweep(read_sweep(file), folder, one_thread, function=sweep_cells.closed_form)
    assert command(file, "--out", folder, "--json") == 0
    out, err = capfd.readouterr()
    assert [row["busbw"] for row in json.loads(out)] == [2.5, 5.0, 10.0] * 2
    assert "nothing to do: all 6 cells are there" in err


def test_the_command_refuses_workers_of_a_cluster(tmp_path: Path) -> None:
    file = written(tmp_path, GRID)
    assert command(file, "--workers", 2, "--cluster", "scheduler:8786") == 2


@pytest.mark.long
def test_two_dask_workers_share_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv(sweep_cells.FOLDER, str(tmp_path))
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address=None,
        silence_logs="ERROR",
    ) as dask:
        address = dask.scheduler_address.removeprefix("tcp://")
        rows = run_sweep(
            swept(tmp_path, GRID), tmp_path, partial(cluster, address), function=sweep_cells.where
        )
    assert (rows.ran, rows.failed) == (6, ())
    pids = {row["pid"] for row in rows.rows}
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_a_cluster_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(MachineError, match=r"no Dask scheduler answers at 127.0.0.1:1"):
        run_sweep(swept(tmp_path, GRID), tmp_path, partial(cluster, "127.0.0.1:1", connect_s=0.2))


def test_a_cell_is_simulated(tmp_path: Path) -> None:
    """Two NICs of one rack at 400G: nothing but headers is between them and the NIC's rate."""
    over = "  simulate.hop_latency: [0us, 10us]\n"
    job = "{pattern: pairs, ranks: 2, size: 32MB}"
    at_once, later = cells_of(swept(tmp_path, over, job=job))
    figures = run_cell(at_once.inputs)
    assert figures["jct_ratio"] == pytest.approx(1, rel=1e-9)
    assert figures["busbw"] == pytest.approx(50 * 4096 / 4178, rel=1e-4)
    assert figures["mmr.rtsw-ctsw.up"] is None
    assert run_cell(later.inputs)["iteration_time"] == pytest.approx(
        figures["iteration_time"] + 2 * 10_000, rel=1e-9
    )


def test_a_cell_is_simulated_with_packets(tmp_path: Path) -> None:
    """A lower threshold pauses more often, and fills no queue beyond what it lets in."""
    job = "{poisson: {sizes: websearch, load: 50%, duration: 500us}}"
    options = "simulate: {engine: packets}\n"
    over = "  lab.queues.pfc.xoff: [64KB, 100KB]\n"
    cells = cells_of(swept(tmp_path, over, lab="lossless", job=job, more=options))
    low, high = (run_cell(cell.inputs) for cell in cells)
    assert 1 <= low["slowdown_p50"] <= low["slowdown_p99"]
    assert low["paused"] > high["paused"] > 0
    assert 0 < low["highest_queue"] < high["highest_queue"]
    assert {row[key] for row in (low, high) for key in ("marks", "drops", "retransmitted")} == {0}
    file, folder = tmp_path / "sweep.yaml", tmp_path / "out"
    assert command(file, "--workers", 1, "--out", folder) == 0
    page = (folder / "report.html").read_text()
    assert "All pauses" in page


def test_seeds_of_the_packet_engine_are_repeats_of_a_cell(tmp_path: Path) -> None:
    job = "{pattern: incast, ranks: 6, size: 500KB, iterations: 1}"
    over = "  simulate.engine_seed: {repeat: 2}\n"
    more = "simulate: {engine: packets}\n"
    cells = cells_of(swept(tmp_path, over, lab="zone-1-1", job=job, more=more))
    assert [cell.inputs["simulate"]["engine_seed"] for cell in cells] == [1, 2]
    first, other = (run_cell(cell.inputs) for cell in cells)
    assert first["marks"] > 0 and first != other


def test_flows_are_of_the_folder_of_the_sweep_and_a_change_of_them_is_another_cell(
    tmp_path: Path,
) -> None:
    flows = tmp_path / "flows.txt"
    flows.write_text("1\n0 1 3 100 1000 0.0\n")
    over = "  lab.fabric.spines: [2]\n"
    sweep = swept(tmp_path, over, job="{flows: {file: flows.txt}}")
    (one,) = cells_of(sweep)
    assert run_cell(one.inputs)["slowdown_p50"] == pytest.approx(1)
    (same,) = cells_of(sweep)
    flows.write_text("1\n0 1 3 100 2000 0.0\n")
    (other,) = cells_of(sweep)
    assert same.digest == one.digest != other.digest


def test_a_cell_is_simulated_link_by_link(tmp_path: Path) -> None:
    job = "{poisson: {sizes: alistorage, load: 50%, duration: 100us}}"
    over = "  job.poisson.load: [20%, 80%]\n"
    cells = cells_of(swept(tmp_path, over, job=job, more="simulate: {engine: links}\n"))
    low, high = (run_cell(cell.inputs) for cell in cells)
    assert 1 <= low["slowdown_p99"] < high["slowdown_p99"]
    assert low["highest_queue"] < high["highest_queue"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("{engine: packets, eps: 0.1}", "simulate.eps: packets are simulated exactly"),
        ("{ports: lab}", "simulate.ports: only the engine packets has several models of ports"),
        ("{engine_seed: 2}", "simulate.engine_seed: a fluid draws nothing"),
        ("{engine: links, eps: 0.1}", "simulate.eps: packets are simulated exactly"),
        ("{engine: ns3}", "simulate.engine: expected fluid, packets or links, got 'ns3'"),
    ],
)
def test_what_an_engine_does_not_have_is_refused(tmp_path: Path, options: str, said: str) -> None:
    with pytest.raises(SpecError, match=re.escape(said)):
        cells_of(swept(tmp_path, GRID, more=f"simulate: {options}\n"))


def test_a_worker_with_another_version_is_refused() -> None:
    check_workers({"tcp://a:1": tool_version(), "tcp://b:1": tool_version()}, "scheduler:8786")
    with pytest.raises(MachineError, match=r"the worker tcp://b:1 has rocelab 0.0.1 instead of "):
        check_workers({"tcp://a:1": tool_version(), "tcp://b:1": "0.0.1"}, "scheduler:8786")
    with pytest.raises(MachineError, match="scheduler:8786 has no worker"):
        check_workers({}, "scheduler:8786")


def test_without_pyarrow_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MachineError, match="needs pyarrow, which is not installed"):
        run_sweep(swept(tmp_path, GRID), tmp_path / "out", one_thread)
    assert not (tmp_path / "out").exists()


def test_schemes_are_lines_and_the_longest_numeric_key_is_the_x_axis() -> None:
    scheme = Axis(("lab.scheme",), (("ecmp",), ("e-ecmp",)))
    sizes = Axis(("job.size",), (("1MB",), ("64MB",), ("1GB",)))
    spines = Axis(("lab.fabric.spines",), ((16,), (18,)))
    seeds = Axis(("job.seed",), ((1,), (2,), (3,), (4,)), repeats=True)
    layout = layout_of([Axis(("lab.fabric.zones",), ((1,),)), scheme, spines, seeds, sizes])
    assert (layout.x, layout.lines, layout.columns, layout.rows) == (sizes, (scheme,), spines, None)
    assert numbers(sizes) == [1e6, 64e6, 1e9]
    assert numbers(scheme) is None
    assert layout_of([seeds]).x is seeds


def test_every_line_is_in_the_legend_and_long_values_are_cut_in_plots() -> None:
    files = ("_b.txt", f"{'a' * 200}-small.txt", f"{'a' * 200}-large.txt")
    of_files = Axis(("job.flows.file",), tuple((file,) for file in files))
    placements = Axis(("job.placement",), tuple((file,) for file in (*files, "random")))
    rows = [
        {"job.flows.file": file, "job.placement": place, "busbw": 1.0}
        for (file,) in of_files.settings
        for (place,) in placements.settings
    ]
    figure = small_multiples(layout_of([of_files, placements]), rows, "busbw")
    legend = [text.get_text().strip() for text in figure.legends[0].get_texts()]
    ticks = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    for texts in (legend, ticks[:3]):
        assert texts[0] == "_b.txt"
        assert [text[-10:] for text in texts[1:]] == ["-small.txt", "-large.txt"]
        assert max(map(len, texts)) == MOST_DRAWN


def test_the_page_stands_alone_and_shows_medians_and_extremes(tmp_path: Path) -> None:
    sweep = swept(tmp_path, GRID + "  job.seed: {repeat: 3}\n  lab.scheme: [ecmp, e-ecmp]\n")
    rows = run_sweep(sweep, tmp_path, one_thread, function=sweep_cells.closed_form)
    page = (tmp_path / "report.html").read_text()
    assert page == html(sweep_document(sweep, rows.rows))
    # The time is drawn in the answer, and busbw folded, each for screens of two widths.
    assert page.count("<svg") == 4
    assert page.count('class="at-wide"') == page.count('class="at-narrow"') == 2
    assert '<td class="n">250 us</td>' in plain_cells(page)
    for outside in ("<link", 'src="', "url(http"):
        assert outside not in page


@pytest.mark.usefixtures("drawn")
def test_a_name_with_signs_of_mathematics_is_drawn_as_it_is(tmp_path: Path) -> None:
    names = ("$x^{$.csv", "$y$.csv")
    for name in names:
        (tmp_path / name).write_text("source,destination,bytes,start\nsrv1-1,srv2-1,1MB,0ms\n")
    over = f"  job.flows.file: {list(names)}\n  lab.fabric.spines: [2, 4]\n"
    sweep = swept(tmp_path, over, job=f"{{flows: {{file: {names[0]!r}}}}}")
    run_sweep(sweep, tmp_path / "out", one_thread, function=lambda _: {"busbw": 2.5})
    drawn = (tmp_path / "out" / "report.html").read_text().partition("<svg")[2]
    assert all(f"{name}</text>" in drawn for name in names)


JOBS = {
    "a collective": JOB,
    "a block": "{poisson: {sizes: websearch, load: 50%, duration: 1ms}, transport: {dcqcn: false}}",
    "a file beside the sweep": "{flows: {file: flows.csv}}",
    "a trace beside the sweep": "{trace: {file: traces}}",
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
@pytest.mark.parametrize("folder", ["beside", "be\u200bside"], ids=["", "a sign that is not shown"])
def test_the_command_of_a_cell_simulates_that_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, folder: str
) -> None:
    beside = tmp_path / folder
    beside.mkdir()
    columns = "source,destination,bytes,start"
    (beside / "flows.csv").write_text(f"{columns}\nsrv1-1,srv2-1,1MB,0ms\n")
    over = "  lab.fabric.spines: [2]\n  job.transport.mtu: [1024, 4096]\n  simulate.ports: [lab]\n"
    over += "  simulate.hop_latency: [500ns]\n  simulate.engine_seed: [3]\n"
    monkeypatch.chdir(tmp_path)
    sweep = swept(Path(folder), over, job=job, more="simulate: {engine: packets}\n")
    for number, cell in enumerate(cells_of(sweep)):
        text = command_of(sweep, cell.values, f"cell-{number}")
        *files, command = re.findall(
            r"^cat > (\S+) <<'END'\n(.*?)^END$|^(rocelab .*)$", text, re.M | re.S
        )
        for name, content, _ in files:
            (tmp_path / name).write_text(content)
        words = shlex.split(command[2])
        assert words[:5] == [
            "rocelab",
            "simulate",
            f"./cell-{number}-lab.yaml",
            "--job",
            f"./cell-{number}-job.yaml",
        ]
        arguments = ["--engine", "packets", "--ports", "lab", "--hop-latency", "500ns"]
        arguments += ["--engine-seed", "3"]
        assert words[5:] == [*arguments, "--out", f"results/cell-{number}"]
        assert load_spec(Path(words[2])).model_dump(mode="json") == cell.inputs["lab"]
        (made,) = load_jobs(Path(words[4]))
        assert made.model_dump(mode="json") == cell.inputs["job"]
        assert made.workload is None or all(file.is_file() for file in made.workload.digested)


def test_a_page_has_commands_of_its_first_rows_and_links_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "MOST_COMMANDS", 3)
    sweep = swept(tmp_path, GRID + "  job.seed: {repeat: 2}\n")
    run_sweep(sweep, tmp_path, one_thread, function=sweep_cells.closed_form)
    page = (tmp_path / "report.html").read_text()
    assert re.findall(r'href="#(cell-\d)"', page) == ["cell-1", "cell-2", "cell-3"]
    assert re.findall(r'<pre id="(cell-\d)"', page) == ["cell-1", "cell-2", "cell-3"]
    assert "The first 3 of 6 rows have a command." in page
    assert "The cell is the first of its row&#39;s repeats." in page


@pytest.mark.parametrize("damage", [b"PAR1\x0e", b"PAR1" + b"\x0e" * 200 + b"\x08\0\0\0PAR1", b""])
def test_a_damaged_table_is_written_anew(tmp_path: Path, damage: bytes) -> None:
    folder = open_folder(tmp_path)
    write_table(folder, [{"a": 1}], {"cells": "x"})
    table = tmp_path / TABLE
    whole = table.read_bytes()
    for content in (damage, whole[:-60] + b"\x0e" * 52 + whole[-8:], whole[: len(whole) // 2]):
        table.write_bytes(content)
        assert table_metadata(folder) is None


def test_a_journal_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_journal(tmp_path) as journal:
        journal.add(RECORDS)
    with (tmp_path / "cells.jsonl").open("ab") as file:
        file.truncate(2**40)
    with pytest.raises(InputError, match=r"the journal has 1\.1 TB, and at most 537 MB"):
        open_journal(tmp_path).__enter__()
    with (tmp_path / "cells.jsonl").open("wb") as file:
        file.write(b'{"digest": "' + b"a" * 1000)
    monkeypatch.setattr(store, "MAX_LINE_BYTES", 100)
    with pytest.raises(InputError, match=r":1: not a line of a sweep's journal"):
        open_journal(tmp_path).__enter__()


@pytest.mark.parametrize("lab", ["half-migrated", "two-networks", "ospf-ibgp"])
def test_labs_of_several_files_and_of_several_networks_can_be_swept(
    lab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cell's own lab file has what the lab's other files hold."""
    monkeypatch.chdir(tmp_path)
    (cell,) = cells_of(sweep := swept(tmp_path, "  job.transport.qps: [1]\n", lab=lab))
    assert cell.inputs["lab"] == load_spec(find_lab(lab)).model_dump(mode="json")
    name, content = re.findall(
        r"^cat > (\S+) <<'END'\n(.*?)^END$", command_of(sweep, cell.values, "cell"), re.M | re.S
    )[0]
    (tmp_path / name).write_text(content)
    assert load_spec(tmp_path / name).model_dump(mode="json") == cell.inputs["lab"]


def test_keys_of_one_network_are_swept_and_its_nics_counted(tmp_path: Path) -> None:
    over = "  lab.networks.frontend.links.rate: [100G, 200G]\n"
    job = "{network: frontend, pattern: allreduce, ranks: 4, size: 1MB}"
    cells = cells_of(swept(tmp_path, over, lab="two-networks", job=job))
    assert [cell.nics for cell in cells] == [6, 6]
    slow, fast = (run_cell(cell.inputs)["busbw"] for cell in cells)
    assert isinstance(slow, float) and isinstance(fast, float) and slow < fast
