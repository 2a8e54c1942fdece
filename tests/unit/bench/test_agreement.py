"""The comparison of lab and simulator: its plan, the simulator's side of a cell, and its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from bench.agreement.document import (
    AGREEMENT,
    SCHEMA_VERSION,
    Agreement,
    CellResult,
    LabResult,
    Loads,
    Run,
    ratio_of_medians,
)
from bench.agreement.plan import (
    INCAST,
    NOT_RUN,
    QUEUED,
    SHAPES,
    Cell,
    cells_of,
    chosen_labs,
    lab_spec,
)
from bench.agreement.queues import PortCounts, Queues
from bench.agreement.render import pages
from bench.agreement.run import loads_of
from bench.agreement.significance import Verdict
from bench.agreement.simulated import simulate_job, simulate_packets
from bench.agreement.store import Store
from rocelab.base.documents import to_json
from rocelab.base.errors import InputError
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.labfile.catalog import LABS, find_lab, shipped_names
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import build_fabric
from rocelab.planning.queues import BINS
from rocelab.prediction.loads import by_link
from rocelab.prediction.matrix import rows_of_jobs
from rocelab.prediction.predictor import Setting, predict_loads
from rocelab.results.environment import Environment

ENVIRONMENT = Environment("0", "Linux 6", "8", "3.11", "a CPU", 2, 2**34, "2026-01-01T00:00:00Z")
RING, ACROSS, ALLTOALL, _ = SHAPES


def spec_of(name: str) -> LabSpec:
    return load_spec(find_lab(name))


def cell_of(lab: str, shape: int, ranks: int) -> Cell:
    spec, job = spec_of(lab), SHAPES[shape].job(ranks, 2**17)
    return Cell(lab, SHAPES[shape], spec, job, simulate_job(spec, job))


def runs(*times_ns: float, **counts: int) -> tuple[Run, ...]:
    whole = {"marked": 0, "dropped": 0, "retransmitted": 0, "cnps": 0, "timeouts": 0} | counts
    return tuple(Run(time_ns, **whole) for time_ns in times_ns)


def result_of(**changes: object) -> CellResult:
    job = RING.job(4, 2**18).model_dump(mode="json", exclude_none=True)
    whole = CellResult(
        name="ring",
        title=RING.title,
        scheme="ecmp",
        job=job,
        attempts=3,
        problems=(),
        loads=Loads(8, 8, 8, 1000, 1000, ()),
        lab=(runs(40_000.0, 41_000.0, 42_000.0),),
        fluid_ns=40_500.0,
        bottleneck=0.5,
        least_ns=39_000.0,
        packets=runs(40_400.0, 40_600.0),
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def lab_of(name: str, *cells: CellResult, numbering: str = "numbered") -> LabResult:
    lab = {"routing": {"numbering": numbering}, "queues": {}}
    return LabResult(
        SCHEMA_VERSION, name, lab, (ENVIRONMENT,), (0.5, 0.5, 0.5), 4, 8000.0, cells, 60.0, None
    )


def page_of(*cells: CellResult, numbering: str = "numbered") -> str:
    lab = lab_of("tiny", *cells, numbering=numbering)
    agreement = Agreement(SCHEMA_VERSION, "python -m bench.agreement", (lab,), NOT_RUN)
    assert AGREEMENT.read(to_json(agreement)) == agreement
    return "\n".join(pages(agreement).values())


def test_every_lab_of_the_catalog_is_run_or_said_to_be_left_out() -> None:
    assert sorted((*chosen_labs(), *NOT_RUN)) == sorted((*shipped_names(LABS), *QUEUED))
    with pytest.raises(InputError, match="no lab fits"):
        chosen_labs("none-such")


@pytest.mark.parametrize(("lab", "ranks"), [("two-leaves", 8), ("hpn-small", 8)])
def test_simulated_packets_and_flows_of_every_link_are_the_predicted_ones(
    lab: str, ranks: int
) -> None:
    cell = cell_of(lab, 2, ranks)
    fabric = build_fabric(cell.spec)
    prediction = predict_loads(fabric, rows_of_jobs(plan_jobs(fabric, [cell.job])), Setting())
    assert prediction.packets is not None
    packets = by_link(fabric, prediction.packets)
    assert cell.simulated.packets == packets
    assert list(cell.simulated.flows.values()) == prediction.flows.tolist()
    loads = loads_of(cell, packets, cell.simulated.flows)
    assert loads.agree
    assert loads.packets == sum(packets.values()) > 0


def test_a_link_with_a_packet_more_does_not_agree() -> None:
    cell = cell_of("tiny", 1, 4)
    packets = dict(cell.simulated.packets)
    at = next(iter(packets))
    packets[at] += 1
    loads = loads_of(cell, packets, cell.simulated.flows)
    assert not loads.agree
    assert loads.equal == loads.links - 1
    assert f"{at.name} from {at.sender}: {packets[at]:,} packets" in loads.differing[0]


def test_four_nics_on_one_uplink_need_four_times_as_long() -> None:
    simulated = cell_of("two-leaves", 1, 8).simulated
    assert simulated.bottleneck == pytest.approx(4)
    assert fmean(simulated.iteration_ns) >= simulated.least_ns


def test_packet_by_packet_with_a_labs_ports_a_ring_takes_no_longer_than_as_a_fluid() -> None:
    cell = cell_of("four-ports", 0, 4)
    fluid_ns = fmean(cell.simulated.iteration_ns)
    assert fluid_ns == pytest.approx(cell.simulated.least_ns)
    # In each of 6 steps a host wakes to send the last packet, and another for what has arrived,
    # each 1.1 ms / 4,000 late at most.
    assert cell.spec.dilation == 4000
    run, _ = simulate_packets(cell.spec, cell.job, 1)
    assert 0 < run.iteration_ns - fluid_ns < 6 * 2 * 1.1e6 / 4000
    assert run != simulate_packets(cell.spec, cell.job, 2)[0]


def test_queues_that_serve_in_order_of_arrival_cost_an_alltoall_time() -> None:
    cell = cell_of("hpn-single-tor", 2, 8)
    draws = [simulate_packets(cell.spec, cell.job, seed)[0].iteration_ns for seed in range(4)]
    assert min(draws) >= cell.simulated.least_ns
    assert max(draws) > 1.2 * cell.simulated.least_ns


def test_labs_of_queues_mark_and_drop_thousands_of_packets() -> None:
    early, small = (
        [simulate_packets(cell.spec, cell.job, 1)[0] for cell in cells_of(name)] for name in QUEUED
    )
    assert all(run.marked > 1000 and run.dropped == 0 for run in early)
    assert early[2].cnps > 100 and early[3].cnps > 100
    assert min(small[0].dropped, small[2].retransmitted) > 1000
    assert all(run.timeouts > 0 for run in small)
    assert small[-1].timeouts > 1000


def test_ports_of_lossless_labs_pause() -> None:
    for name in ("lossless", "lossless-marked", "two-leaves-lossless"):
        cell = next(cell for cell in cells_of(name) if cell.shape is INCAST)
        _, queues = simulate_packets(cell.spec, cell.job, 1)
        assert sum(pauses for port in queues.ports for pauses in port.pauses) > 100, name


def test_busbw_is_the_factor_of_nccl_tests_over_the_mean_of_iterations() -> None:
    # nccl-tests: size over time, times 2 (n - 1) / n.
    assert result_of().busbw_gbs(40_500.0) == pytest.approx(4 * 2**18 / 40_500 * 1.5)


@pytest.mark.parametrize(
    ("lab_ns", "simulated_ns", "verdict"),
    [
        ((100, 101, 102), (101,), Verdict.AGREES),
        ((100, 101, 102), (90, 91, 92), Verdict.DIFFERS),
        ((100, 101, 102), (112,), Verdict.DIFFERS),
        ((80, 100, 120), (100,), Verdict.UNDECIDED),
        ((100, 101, 102), (80, 100, 120), Verdict.UNDECIDED),
    ],
)
def test_an_interval_decides_whether_medians_agree(
    lab_ns: tuple[float, ...], simulated_ns: tuple[float, ...], verdict: Verdict
) -> None:
    ratio = ratio_of_medians(lab_ns, simulated_ns)
    assert ratio.low <= ratio.value <= ratio.high
    assert ratio.verdict is verdict
    assert ratio == ratio_of_medians(lab_ns, simulated_ns)


@pytest.mark.long
def test_the_interval_of_a_median_holds_it_in_about_95_of_100_samples() -> None:
    draws = np.random.default_rng(7)
    held = 0
    for _ in range(200):
        lab_ns, simulated_ns = draws.normal(100, 5, 20), draws.normal(100, 5, 20)
        ratio = ratio_of_medians(lab_ns.tolist(), simulated_ns.tolist())
        held += ratio.low <= 1 <= ratio.high
    assert 180 <= held <= 199


def test_the_page_says_what_agrees_and_what_the_setting_decides() -> None:
    text = page_of(
        result_of(),
        result_of(least_ns=20_000.0),
        result_of(least_ns=20_000.0, packets=runs(30_000.0)),
    )
    assert "8 of 8 link directions" not in text
    assert "24 of 24 link directions have the same count" in text
    assert "| 8 = |" in text
    assert "| by construction | 1 | 1 | 0 | 0 | 1 | 0 | 0 |" in text
    assert "| predicted | 2 | 2 | 0 | 0 | 1 | 1 | 0 |" in text
    assert "| 38.36 [37.45..39.32] | 3 | 1.012 [0.988..1.037] **agrees** |" in text
    assert "meta-32k" in text
    assert "## Queues" not in text


def test_marks_and_losses_of_both_stand_side_by_side() -> None:
    text = page_of(
        result_of(
            lab=(runs(40_000.0, marked=1200) + runs(41_000.0, marked=1300),),
            packets=runs(40_000.0, marked=1250, dropped=3),
        )
    )
    assert "| 1,250 [1,200..1,300] / 1,250 [1,250..1,250] | 0 [0..0] / 3 [3..3] |" in text


def test_links_that_differ_and_runs_that_were_not_carried_are_named() -> None:
    loads = Loads(8, 6, 7, 1000, 1000, ("rtsw1:ctsw1 from rtsw1: 5 packets of 1 flows",))
    text = page_of(
        result_of(loads=loads),
        result_of(loads=None, lab=(), attempts=3, problems=("not valid because late",)),
        numbering="unnumbered",
    )
    assert "**6 of 8**" in text
    assert "order of next hops" in text
    assert "3 runs, not valid because late" in text


def test_the_page_counts_what_the_packet_engine_makes_of_a_fluid_s_verdicts() -> None:
    far, near, unsure = runs(60_000.0), runs(41_000.0), runs(30_000.0, 41_000.0, 52_000.0)
    text = page_of(
        result_of(),
        result_of(packets=far),
        result_of(fluid_ns=60_000.0, packets=near),
        result_of(fluid_ns=60_000.0, packets=far),
        result_of(fluid_ns=60_000.0, packets=unsure),
    )
    assert "| agrees | 2 | 1 | 1 | 0 |" in text
    assert "| differs | 3 | 1 | 1 | 1 |" in text
    assert "| is undecided | 0 | 0 | 0 | 0 |" in text


def test_halves_of_the_labs_have_scores_of_their_own() -> None:
    cell = result_of(least_ns=20_000.0)
    halves = [lab_of(name).half for name in chosen_labs()]
    assert min(halves.count(0), halves.count(1)) >= len(halves) / 4
    text = page_of(cell)
    rows = [f"| predicted, half {name} of the labs | " for name in "AB"]
    default = lab_of("tiny").half
    assert rows[default] + "1 | 1 | 0 | 0 | 1 | 0 | 0 |" in text
    assert rows[1 - default] + "0 | 0 | 0 | 0 | 0 | 0 | 0 |" in text


def test_a_distribution_of_another_width_differs_though_medians_are_equal() -> None:
    lab = [40_000.0 + 10 * step for step in range(-5, 5)]
    wide = [40_200.0 + 400 * step for step in range(-10, 10)]
    alike = result_of(least_ns=20_000.0, lab=(runs(*lab),), packets=runs(*lab, *lab))
    other = replace(alike, packets=runs(*wide))
    assert other.packets_ratio.value == pytest.approx(1, abs=0.001)
    assert alike.distribution_p > 0.9
    assert other.distribution_p < 0.03
    assert replace(other, lab=(runs(40_000.0),)).distribution_p == 1
    assert "times: 1 of 1 jobs" in page_of(other)
    assert "times: 0 of 2 jobs" in page_of(alike, other), "corrected for their number: 0.056"
    assert f"| {other.distribution_p:.2g} |" in page_of(other)


def test_jobs_that_are_contended_are_repeated_though_the_setting_decides() -> None:
    free = result_of()
    assert free.is_set and not free.is_repeated
    assert replace(free, bottleneck=1.06).is_repeated
    assert replace(free, least_ns=20_000.0).is_repeated
    assert not replace(free, packets=runs(30_000.0)).is_set, "ranks ran ahead"
    assert "times: 0 of 0 jobs" in page_of(free)


def test_a_run_whose_queues_were_not_counted_is_read_and_run_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    spec = lab_spec("tiny").model_dump(mode="json", exclude_none=True)
    counted = Queues((), (0,) * BINS, (0,) * BINS)
    for queues, finished in ((None, False), (counted, True)):
        result = replace(lab_of("tiny", result_of(lab_queues=queues)), lab=spec)
        store.write(result)
        assert store.read("tiny") == result
        assert store.is_finished("tiny") is finished


def test_runs_that_are_kept_of_a_job_come_before_new_ones_of_the_same_machine() -> None:
    none = Queues((), (0,) * BINS, (0,) * BINS)
    kept = result_of(lab=(runs(40_000.0),), attempts=2)
    cells = (
        result_of(lab=(runs(50_000.0),), attempts=1, lab_queues=none),
        result_of(name="other", lab=(runs(60_000.0),)),
    )
    other_job = replace(kept, name="other", job=RING.job(8, 2**18).model_dump(mode="json"))
    earlier, new = lab_of("tiny", kept, other_job), lab_of("tiny", *cells)
    same, other = new.after(earlier).cells
    assert same.lab == (runs(40_000.0, 50_000.0),)
    assert (same.attempts, same.lab_queues) == (3, none)
    assert other.lab == (runs(60_000.0),), "another job of that name"
    assert new.after(earlier).took_s == 120.0
    failed = replace(new, cells=cells[:1], failed="no memory")
    assert failed.after(earlier).cells == (same, other_job), "its runs are kept"
    other_release = replace(ENVIRONMENT, tool_version="0.3.0")
    assert new.after(replace(earlier, machines=(other_release,))) == new


def test_runs_of_another_machine_are_kept_apart_and_compared() -> None:
    elsewhere = replace(ENVIRONMENT, cpu_count=ENVIRONMENT.cpu_count + 1, started="2026-12-31")
    slow, fast = runs(*range(60_000, 60_030)), runs(*range(40_000, 40_030))
    contended = {"least_ns": 20_000.0}
    earlier = lab_of("tiny", result_of(lab=(slow,), **contended))
    there = replace(
        lab_of("tiny", result_of(lab=(fast,), **contended), result_of(name="new", lab=(fast,))),
        machines=(elsewhere,),
    )
    both = there.after(earlier)
    assert both.machines == (ENVIRONMENT, elsewhere)
    assert [cell.lab for cell in both.cells] == [(slow, fast), ((), fast)]
    assert both.cells[1].machines_p is None
    again = there.after(both)
    assert again.machines == both.machines
    assert [cell.lab for cell in again.cells] == [(slow, fast * 2), ((), fast * 2)]
    back = lab_of("tiny", result_of(lab=(slow,), **contended)).after(again)
    assert back.cells[0].lab == (slow * 2, fast * 2)
    for cell, differ in ((back.cells[0], 1), (replace(back.cells[0], lab=(slow, slow)), 0)):
        assert cell.machines_p is not None
        assert (cell.machines_p < 0.05) is (differ == 1)
        text = page_of(cell)
        assert f"times of the first and of the others differ in {differ} " in text
    assert "| 60 + 60 |" in page_of(back.cells[0])


def counted(marks: Sequence[int], pauses: Sequence[int], highest: Sequence[int]) -> Queues:
    """One port, and 1,000 packets in the first bin above kmin of which 12 were marked."""
    none = (0,) * len(marks)
    port = PortCounts("rtsw1:ctsw1", tuple(marks), none, tuple(highest), tuple(pauses))
    return Queues((port,), *(tuple(n * (bin_ == 8) for bin_ in range(BINS)) for n in (1000, 12)))


def test_the_page_has_ports_within_the_lab_s_range_and_marks_by_depth() -> None:
    cell = result_of(
        lab_queues=counted((10, 20), (0, 0), (100_000, 120_000)),
        packets_queues=counted((21, 21), (0, 0), (100_000, 100_000)),
    )
    text = page_of(cell)
    assert "| AllReduce, ring, leaf by leaf, 1 QPs | 0 of 1 |  |  | 1 of 1, 0.91 |" in text
    assert "| all | | 0 of 1 |  |  | 1 of 1 |" in text
    assert (
        "| tiny | 800 | 0.0% to 1.2% | 12 of 1,000 | 1 | agrees | 12 of 1,000 | 1 | agrees |"
        in text
    )
    assert "## Port by port" not in page_of(result_of())
    assert "## Marks by depth" not in page_of(result_of())


def test_the_page_says_how_the_lab_does_beside_itself() -> None:
    steady, spread_out = runs(*[40_000.0] * 6), runs(*[40_000.0, 60_000.0] * 3)
    unlike = runs(*[60_000.0] * 6)
    text = page_of(
        result_of(name="set"),
        result_of(name="steady", lab=(steady,), packets=unlike),
        result_of(name="apart", lab=(spread_out,), packets=unlike),
        result_of(name="wide", lab=(runs(*[40_000.0] * 2, *[60_000.0] * 4),), packets=unlike),
    )
    assert "of 3 predicted jobs 1 agree, 1 differ, 1 are undecided, among them 1 of the 2" in text
