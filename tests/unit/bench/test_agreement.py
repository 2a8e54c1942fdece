"""The comparison of lab and simulator: its plan, the simulator's side of a cell, and its page."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from bench.agreement.document import AGREEMENT, Agreement, CellResult, Evidence, LabResult, Loads
from bench.agreement.plan import NOT_RUN, SHAPES, Cell, chosen_labs
from bench.agreement.render import page
from bench.agreement.run import loads_of
from bench.agreement.simulated import simulate_job, simulate_packets
from rocelab.documents import to_json
from rocelab.errors import InputError
from rocelab.jobs.jobplan import plan_jobs
from rocelab.plan.build import build_fabric
from rocelab.predict.loads import by_link
from rocelab.predict.matrix import rows_of_jobs
from rocelab.predict.predictor import Setting, predict_loads
from rocelab.results.environment import Environment
from rocelab.spec.catalog import catalog_names, find_lab
from rocelab.spec.load import load_spec
from rocelab.spec.model import LabSpec

ENVIRONMENT = Environment("0", "Linux 6", "8", "3.11", "a CPU", 2, 2**34, "2026-01-01T00:00:00Z")
RING, ACROSS, ALLTOALL, _ = SHAPES


def spec_of(name: str) -> LabSpec:
    return load_spec(find_lab(name))


def cell_of(lab: str, shape: int, ranks: int) -> Cell:
    spec, job = spec_of(lab), SHAPES[shape].job(ranks, 2**17)
    return Cell(lab, SHAPES[shape], spec, job, simulate_job(spec, job))


def result_of(**changes: object) -> CellResult:
    job = RING.job(4, 2**18).model_dump(mode="json", exclude_none=True)
    whole = CellResult(
        name="ring",
        title=RING.title,
        scheme="ecmp",
        job=job,
        attempts=1,
        problems=(),
        loads=Loads(8, 8, 8, 1000, 1000, ()),
        evidence=Evidence(500, 0, 0, 0, 0, 0, 100.0, 900.0, 0.001, 10.0),
        lab_ns=(40_000.0, 42_000.0),
        simulated_ns=(40_500.0, 40_500.0),
        bottleneck=0.5,
        least_ns=39_000.0,
        packet_ns=(40_000.0, 41_500.0),
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def page_of(*cells: CellResult, numbering: str = "numbered") -> str:
    lab = LabResult(
        1, "tiny", {"routing": {"numbering": numbering}}, ENVIRONMENT, (0.5, 0.5, 0.5), 4, 5000.0,
        8000.0, cells, 60.0, None,
    )  # fmt: skip
    found = Agreement(1, "python -m bench.agreement", (lab,), NOT_RUN)
    assert AGREEMENT.read(to_json(found)) == found
    return page(found)


def test_every_lab_of_the_catalog_is_run_or_said_to_be_left_out() -> None:
    assert sorted((*chosen_labs(), *NOT_RUN)) == sorted(catalog_names())
    with pytest.raises(InputError, match="no lab fits"):
        chosen_labs("none-such")


@pytest.mark.parametrize(("lab", "ranks"), [("two-leaves", 8), ("hpn-small", 8)])
def test_simulated_packets_and_flows_of_every_link_are_the_predicted_ones(
    lab: str, ranks: int
) -> None:
    cell = cell_of(lab, 2, ranks)
    fabric = build_fabric(cell.spec)
    found = predict_loads(fabric, rows_of_jobs(plan_jobs(fabric, [cell.job])), Setting())
    assert found.packets is not None
    packets = by_link(fabric, found.packets)
    assert cell.simulated.packets == packets
    assert list(cell.simulated.flows.values()) == found.flows.tolist()
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


def test_packet_by_packet_a_ring_takes_a_packet_longer_in_each_step() -> None:
    cell = cell_of("four-ports", 0, 4)
    packets_ns = fmean(simulate_packets(cell.spec, cell.job, 0.0, 1))
    fluid_ns = fmean(cell.simulated.iteration_ns)
    assert fluid_ns == pytest.approx(cell.simulated.least_ns)
    # The last packet of a chunk of 32 has a second link to cross.
    assert packets_ns == pytest.approx(fluid_ns * 33 / 32, rel=0.002)


def test_queues_that_serve_in_order_of_arrival_cost_an_alltoall_time() -> None:
    cell = cell_of("two-leaves", 2, 8)
    draws = [fmean(simulate_packets(cell.spec, cell.job, 118.0, seed)) for seed in range(2)]
    assert min(draws) >= cell.simulated.least_ns
    assert max(draws) > 1.02 * fmean(cell.simulated.iteration_ns)


def test_busbw_is_of_all_iterations_together() -> None:
    found = result_of()
    # nccl-tests: size over time, times 2 (n - 1) / n.
    assert found.simulated_gbs == pytest.approx(4 * 2**18 / 40_500 * 1.5)
    mean, slowest, fastest = found.lab_gbs
    assert mean == pytest.approx(4 * 2**18 / 41_000 * 1.5)
    assert slowest < mean < fastest
    assert found.agrees


def test_the_page_says_what_agrees() -> None:
    text = page_of(result_of())
    assert "8 of 8 link directions have the same count" in text
    assert "| 8 = |" in text
    assert "| 1.012 |" in text
    assert "Beyond 5 %" not in text
    assert "meta-32k" in text


def test_what_is_beyond_the_limit_stands_with_its_cause() -> None:
    slow = (45_000.0, 46_000.0)
    queues = page_of(result_of(lab_ns=slow, packet_ns=(44_000.0, 46_500.0), bottleneck=2.0))
    assert "**1.123**" in queues
    assert "order of service in queues: 1." in queues
    unknown = page_of(result_of(lab_ns=slow))
    assert "not known: 1." in unknown
    idle = Evidence(500, 0, 0, 0, 0, 0, 100.0, 900.0, 0.008, 10.0)
    assert "for lack of CPU, and every step" in page_of(result_of(lab_ns=slow, evidence=idle))
    lost = Evidence(500, 20, 7, 3, 0, 0, 100.0, 900.0, 0.001, 10.0)
    again = page_of(result_of(lab_ns=slow, evidence=lost))
    assert "20 packets sent again" in again


def test_links_that_differ_and_runs_that_were_not_carried_are_named() -> None:
    loads = Loads(8, 6, 7, 1000, 1000, ("rtsw1:ctsw1 from rtsw1: 5 packets of 1 flows",))
    text = page_of(
        result_of(loads=loads),
        result_of(
            loads=None, evidence=None, lab_ns=(), attempts=3, problems=("not valid because late",)
        ),
        numbering="unnumbered",
    )
    assert "**6 of 8**" in text
    assert "order of next hops" in text
    assert "3 runs, not valid because late" in text
