"""`python -m bench ns3`: what both engines are given, and ns-3's answer where it is installed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.campaign.pages import page_of
from bench.ns3.cases import Case, inputs, matrix, simulation
from bench.ns3.problem import Problem, problem_of, read_answer, read_problem, write_problem
from bench.ns3.study import FIGURES, NS3, OURS, STUDY, compile_program, figures_of, run_ns3
from rocelab import MachineError
from rocelab.jobs.flow_files import read_flow_file
from rocelab.jobs.flow_list import FlowList
from rocelab.sim.packets.run import run_packets
from tests.unit.bench.documents import document

SMALL = Case("small", 100_000, arity=4, over_ns=20_000)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return compile_program(tmp_path_factory.mktemp("ns3"))
    except MachineError as error:
        pytest.skip(str(error))


def problem(case: Case) -> Problem:
    return problem_of(*inputs(case, simulation(case)))


def listed(case: Case, folder: Path) -> FlowList:
    path = folder / "flows.cm"
    path.write_text(matrix(case))
    return read_flow_file(path)


def test_a_permutation_has_each_host_once_as_source_and_as_destination(tmp_path: Path) -> None:
    flows = listed(SMALL, tmp_path)
    assert sorted(flows.source.tolist()) == sorted(flows.destination.tolist()) == [*range(16)]
    assert set(flows.size_bytes.tolist()) == {100_000}
    assert len(set(flows.start_s.tolist())) == 16


def test_an_incast_is_of_other_hosts_to_the_first(tmp_path: Path) -> None:
    flows = listed(replace(SMALL, senders=5, over_ns=0), tmp_path)
    assert len(set(flows.source.tolist()) - {0}) == 5
    assert set(flows.destination.tolist()) == {0} == set(flows.start_s.tolist())


def test_a_problem_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = problem(replace(SMALL, spray=True, varied=True))
    write_problem(written, tmp_path / "problem")
    read = read_problem(tmp_path / "problem")
    for one, other in zip(asdict(written).values(), asdict(read).values(), strict=True):
        np.testing.assert_equal(one, other)
    assert max(map(len, read.data)) > 1


def test_flows_are_exported_with_their_windows_sizes_and_paths(tmp_path: Path) -> None:
    made = problem(replace(SMALL, window=7, ack_every=3, mtu=4096))
    start_ps, packets, first, middle, last, ack, window, every, acks_first = made.flows.T
    # 24 packets of 4,096 bytes, and one of 1,696. The first has an RETH, the last an immediate.
    assert set(packets) == {25}
    assert set(first - middle) == {16}
    assert set(middle - last) == {4096 - 1696 - 4}
    assert (set(ack - (middle - 4096)), set(window), set(every)) == ({4}, {7}, {3})
    assert set(acks_first) == {1}
    starts_s = listed(SMALL, tmp_path).start_s
    assert sorted(start_ps / 1e12) == pytest.approx(sorted(starts_s))
    for (sends,), (back,) in zip(made.data, made.acks, strict=True):
        assert len(sends) == len(back) > 1
        assert sends[0] ^ 1 == back[-1] and sends[-1] ^ 1 == back[0]


def test_acks_in_the_class_of_data_do_not_go_first() -> None:
    assert set(problem(replace(SMALL, acks_first=False)).flows[:, -1]) == {0}


def test_what_the_program_does_not_know_is_refused() -> None:
    taken = inputs(SMALL, simulation(SMALL))
    messages = taken[3].messages
    twice = replace(messages, count=2 * messages.count)
    with pytest.raises(ValueError, match="several messages of a flow"):
        problem_of(*taken[:3], replace(taken[3], messages=twice), taken[4])
    with pytest.raises(ValueError, match="classes that take turns"):
        problem_of(*taken[:3], replace(taken[3], ack_class=0 * taken[3].ack_class), taken[4])


def test_an_answer_in_which_a_flow_never_ended_is_none() -> None:
    assert read_answer("7\n8\n3 0.5 0.75 4096\n").end_s.tolist() == [7e-12, 8e-12]
    with pytest.raises(ValueError, match="not all flows ended"):
        read_answer("7\n-1\n3 0.5 0.75 4096\n")


def test_figures_of_several_draws_are_means_with_their_errors() -> None:
    figures = figures_of(np.array([[1.0, 3.0], [5.0, 7.0]]))
    assert (figures["mean"], figures["max"]) == (4.0, 5.0)
    assert figures["errors"]["mean"] == pytest.approx(2.0)
    assert "errors" not in figures_of(np.array([[1.0, 3.0]]))


def row(case: Case, engine: float, theirs: float, same: int | None) -> dict[str, Any]:
    def side(seconds: float) -> dict[str, Any]:
        cost = {"transmissions": 1, "run_s": 1.0, "cpu_s": 1.0, "peak_bytes": 1}
        errors = dict.fromkeys(FIGURES, 0.5) if case.spray else {}
        return {**dict.fromkeys(FIGURES, seconds), **cost, "errors": errors}

    sides = {OURS: side(engine), NS3: side(theirs)}
    worst = None if same is None else abs(engine / theirs - 1)
    counts = {"hosts": 16, "draws": case.draws, "flows": 16, "worst": worst, "same": same}
    return {**asdict(case), **counts, "sides": sides}


def page(*rows: dict[str, Any]) -> str:
    measured = document(*rows)
    return page_of(STUDY, replace(measured, environment={**measured.environment, **NAMED}))


NAMED = {"ns3": "3.37", "date": "2026-11-30"}


def test_the_page_says_how_many_flows_on_varied_links_end_alike() -> None:
    text = page(row(replace(SMALL, varied=True), 1.0, 1.0, 15), row(SMALL, 1.0, 1.0, 3))
    assert [line for line in text.splitlines() if line.startswith("- ")] == ["- small: 15 of 16"]


def test_the_page_says_how_far_apart_figures_are_at_most() -> None:
    sprayed = row(replace(SMALL, spray=True), 3.0, 2.0, None)
    text = page(row(SMALL, 1.0, 1.0, 16), row(SMALL, 1.1, 1.0, 0), sprayed)
    assert "no mean, p50, p99 or max by more than 10.000%" in text
    assert re.search(r"means differ by 50.00% at most, .* more than 1.4 standard errors", text)


def ends_ps(program: Path, folder: Path, made: Problem) -> Sequence[int]:
    write_problem(made, folder / "problem")
    ends: list[int] = (
        np.rint(run_ns3(program, folder / "problem").end_s * 1e12).astype(int).tolist()
    )
    return ends


def test_ns3_ends_a_flow_over_a_switch_as_worked_out_by_hand(program: Path, tmp_path: Path) -> None:
    # A byte takes 1 ns, a link 5 ns. Window 1: the first packet arrives after 210 ns, its ACK 50 ns
    # later; the last takes 130 ns, and its ACK 50 ns.
    latency_ps, rate_bps = np.full(4, 5000), np.full(4, 8 * 10**9)
    flow = np.array([[7, 2, 100, 80, 60, 20, 1, 1, 1]])
    made = Problem(latency_ps, rate_bps, flow, [[[0, 2]]], [[[3, 1]]])
    assert ends_ps(program, tmp_path, made) == [7 + 440_000]


@pytest.mark.parametrize("acks_first", [True, False])
def test_ns3_and_the_packet_engine_end_every_flow_at_the_same_picosecond(
    program: Path, tmp_path: Path, acks_first: bool
) -> None:
    case = replace(SMALL, senders=12, acks_first=acks_first)
    taken = inputs(case, simulation(case))
    ends = ends_ps(program, tmp_path, problem_of(*taken))
    engine = np.rint(run_packets(*taken).finish_s * 1e12).astype(int).tolist()
    assert len(set(ends)) == 12
    assert ends == engine
