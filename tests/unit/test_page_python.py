"""The Python of README and docs/ that needs no lab runs as it is typed. What needs one is run by
`tests/integration/test_page_python.py`, and test files by `tests/integration/test_examples.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rocelab.base.documents import to_json
from rocelab.sim.sweep.run import run_sweep
from rocelab.sim.sweep.sweep_spec import read_sweep
from rocelab.sim.sweep.workerpool import worker_processes
from tests.helpers import sweep_cells
from tests.helpers.job_cases import planned, report
from tests.helpers.long import mostly_long
from tests.helpers.nccl_sample import nccl_output
from tests.helpers.page_python import (
    BLOCKS,
    ON_A_LAB,
    ROOT,
    TEST_FILES,
    WITH_A_LAB_OF_THEIR_OWN,
    run_here,
)
from tests.helpers.pytorch_trace import pytorch_trace
from tests.helpers.trace_files import write_trace_file

SWEEP = """lab: zone-small
job: {pattern: allreduce, ranks: 4, size: 1MB}
over: {job.transport.qps: [1, 2]}
"""


def write_nothing(folder: Path) -> None:
    """The block reads no file."""


def write_result(folder: Path) -> None:
    (folder / "results/job").mkdir(parents=True)
    (folder / "results/job/result.json").write_text(to_json(report(planned())))


def write_sweep(folder: Path) -> None:
    (folder / "uplinks.yaml").write_text(SWEEP)


def run_the_sweep(folder: Path) -> None:
    write_sweep(folder)
    out = folder / "results/sweep-uplinks"
    sweep = read_sweep(folder / "uplinks.yaml")
    run_sweep(sweep, out, partial(worker_processes, 1), function=sweep_cells.closed_form)


def write_traces(folder: Path) -> None:
    pytest.importorskip("google.protobuf", reason="the extra `chakra` is not installed")
    (folder / "traces").mkdir()
    for name in ("traces/chakra.0.et", "traces/chakra.1.et", "chakra.0.et"):
        write_trace_file(folder / name, pytorch_trace())


def write_nccl_output(folder: Path) -> None:
    (folder / "nccl.txt").write_text(nccl_output())


WITHOUT_A_LAB: dict[str, Callable[[Path], None]] = {
    "docs/dev/fault.md 1": write_nothing,
    "docs/fabrics.md 1": write_nothing,
    "docs/forensics.md 1": write_result,
    "docs/hashing.md 1": write_nothing,
    "docs/plugins.md 1": write_nothing,
    "docs/schemes.md 1": write_nothing,
    "docs/schemes.md 2": write_nothing,
    "docs/simulate.md 1": write_nothing,
    "docs/traffic.md 2": write_nothing,
    "docs/sweep.md 1": run_the_sweep,
    "docs/sweep.md 2": write_sweep,
    "docs/traces.md 1": write_traces,
    "docs/traces.md 2": write_nccl_output,
    "docs/training.md 1": write_nothing,
    "docs/training.md 2": write_nothing,
    "docs/training.md 3": write_nothing,
    "docs/training.md 4": write_nothing,
    "docs/training.md 5": write_nothing,
    "docs/whatif.md 1": write_nothing,
}
"""What writes the files that a block reads."""

LONG = ("docs/simulate.md 1", "docs/sweep.md 1", "docs/sweep.md 2", "docs/training.md 1")
"""Simulations."""

PRINTS = {"docs/whatif.md 1": "0.57\n0.91\n"}
"""What pages say that blocks print."""


@pytest.mark.parametrize("name", mostly_long(WITHOUT_A_LAB, WITHOUT_A_LAB.keys() - LONG))
def test_python_of_a_page_runs_as_it_is_typed(name: str, tmp_path: Path) -> None:
    WITHOUT_A_LAB[name](tmp_path)
    printed = run_here(name, tmp_path)
    assert name not in PRINTS or printed == PRINTS[name]


@pytest.mark.parametrize("name", TEST_FILES)
def test_a_test_file_of_a_page_is_the_one_that_is_run(name: str) -> None:
    assert BLOCKS[name] == (ROOT / "examples" / TEST_FILES[name]).read_text()


def test_every_block_is_run() -> None:
    run = [*WITHOUT_A_LAB, *ON_A_LAB, *WITH_A_LAB_OF_THEIR_OWN, *TEST_FILES]
    assert sorted(run) == sorted(BLOCKS)
