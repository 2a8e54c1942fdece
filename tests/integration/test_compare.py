"""A comparison from the command to its report: two schemes, two numbers of queue pairs."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest

from rocelab.base.errors import MachineError
from rocelab.planning.fabric import Direction
from rocelab.record import recorded_labs
from rocelab.results.comparison import Comparison, ComparisonRun, Status, from_json
from tests.helpers.command import rocelab
from tests.helpers.measured import measured
from tests.integration.conftest import MakeLab

pytestmark = [pytest.mark.few_at_once, pytest.mark.long]

NAME = "t-compare"
BODY = "fabric: {racks: 2, spines: 2, servers_per_rack: 2}\ndilation: 10000\n"


def compare(lab: Path, folder: Path, schemes: str, qps: str, *more: str) -> Comparison:
    lists = ["--schemes", schemes, "--qps", qps, "--placement", "fragmented"]
    done = rocelab("compare", lab, *lists, "--size", "1MB", "--out", folder, *more)
    # Others run beside it: a cell that the machine did not carry is there all the same, and marked.
    document = from_json((folder / "result.json").read_text())
    carried = any(cell.status is Status.MEASURED for cell in document.cells)
    assert done.returncode == (0 if carried else MachineError.exit_code), done.stderr
    assert f"fragmented placement, {qps[-1]} QP" in done.stdout
    return document


def predicted(run: ComparisonRun) -> Counter[tuple[str, Direction]]:
    """The packets of each link between switches by the paths of the run's flows, which cross two of
    them or none."""
    packets: Counter[tuple[str, Direction]] = Counter()
    for flow in run.flows:
        for link, direction in zip(flow.links[1:-1], Direction, strict=False):
            packets[link, direction] += flow.packets
    return packets


def problems_of(comparison: Comparison) -> list[str]:
    """Why its runs are not valid."""
    return [problem for cell in comparison.cells for run in cell.runs for problem in run.problems]


def test_two_schemes_by_two_numbers_of_queue_pairs_in_one_command(
    make_lab: MakeLab, tmp_path: Path
) -> None:
    make_lab(NAME, BODY)

    def compared() -> tuple[Comparison, Path]:
        out = Path(tempfile.mkdtemp(dir=tmp_path))
        lab = tmp_path / f"{NAME}.yaml"
        return compare(lab, out, "ecmp,e-ecmp", "1,4", "--iterations", "2"), out

    comparison, out = measured(compared, lambda made: problems_of(made[0]))
    assert NAME not in recorded_labs()
    assert (comparison.kinds, comparison.qps, comparison.placements) == (
        ("ecmp", "e-ecmp"),
        (1, 4),
        ("fragmented",),
    )
    for cell in comparison.cells:
        assert cell.figures is not None, cell.reason
        assert cell.runs[0].errors == ()
        assert cell.runs[0].transport.retransmitted == 0
        # 4 ranks in a ring, 3 iterations of 2 (n - 1) / n of 1 MB from each; 2 of a rack go up.
        assert sum(link.packets for link in cell.runs[0].links) > 0
        assert cell.figures.misplaced_packets == 0
        assert predicted(cell.runs[0]) == {
            (link.link, link.direction): link.packets for link in cell.runs[0].links if link.packets
        }
        assert cell.figures.jct_ratio.median > 0.9
    page = (out / "report.html").read_text()
    assert "E-ECMP (destination QP in the hash)" in page
    assert page.count("<svg") == 3


def test_a_lab_that_is_up_stays_up_with_the_scheme_that_it_had(
    make_lab: MakeLab, tmp_path: Path
) -> None:
    lab = make_lab(NAME, BODY + "scheme: path-pinning\n")
    lab.start()
    compare(tmp_path / f"{NAME}.yaml", tmp_path / "out", "e-ecmp", "1", "--iterations", "1")
    assert lab.is_running
    assert lab.steering.read_scheme().kind == "path-pinning"
