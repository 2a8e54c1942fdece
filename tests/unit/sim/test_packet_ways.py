"""The ways of the packet engine's packets: of data by each scheme, and of what comes back."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest

from rocelab.base.errors import InputError
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import collective_job
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec
from rocelab.results.engines import Engine
from rocelab.routes.arrays import ways as ways_module
from rocelab.routes.arrays.flows import Flows, Paths, Ways, paths_taken
from rocelab.routes.arrays.paths import paths_of
from rocelab.routes.arrays.routes import Routes
from rocelab.sim.events.sentence import parse_event
from rocelab.sim.events.timeline import outage_of
from rocelab.sim.options import Options
from rocelab.sim.packets import run as run_module
from rocelab.sim.packets.run import run_packets
from rocelab.sim.simulate import Simulation
from tests.unit.sim.packet_runs import ACK_BYTES, ACK_PS, FULL_PS, LATENCY_PS, Flow, arranged

ROUND_PS = 3 * (FULL_PS + ACK_PS + 2 * LATENCY_PS)
"""From a packet over three links to its ACK."""


def simulation(
    scheme: object = "ecmp",
    lab: str = "fat-tree-4",
    engine: Engine = Engine.PACKETS,
    **keys: object,
) -> Simulation:
    """An AlltoAll of all sixteen hosts of a fabric whose tiers have two paths each."""
    spec = load_spec(find_lab(lab)).model_dump(mode="json") | {"scheme": scheme}
    job = {"pattern": "alltoall", "ranks": 16, "size": "256KB", "transport": {"qps": 2}} | keys
    return Simulation(
        LabSpec.model_validate(spec),
        [collective_job(JobSpec.model_validate(job))],
        Options(engine=engine),
    )


def carried_bits(paths: Paths, bits: np.ndarray, sends: int) -> np.ndarray:
    """Of each send, if flow f puts so many bits on all of its path."""
    return np.bincount(paths.sends, np.repeat(bits, np.diff(paths.start)), minlength=sends)


def rows_of(paths: Paths) -> list[list[int]]:
    return [paths.sends[a:b].tolist() for a, b in pairwise(paths.start)]


def columns_of(flows: Flows) -> list[tuple[int, ...]]:
    names = [column.name for column in fields(Flows)]
    return list(zip(*(getattr(flows, name).tolist() for name in names), strict=True))


def test_a_queue_pair_answers_as_it_sends() -> None:
    """With the addresses, port and number that its own data has."""
    compiled = simulation(lab="hpn-small", ranks=8).compiled
    assert compiled.answers is not None
    flows, answers = columns_of(compiled.flows), columns_of(compiled.answers)
    assert answers != flows
    assert sorted(answers) == sorted(flows), "in an AlltoAll all pairs send both ways"
    for flow, answer in zip(flows, answers, strict=True):
        assert answer[:2] == flow[1::-1]


@pytest.mark.parametrize("scheme", ["ecmp", "e-ecmp", "path-pinning", "resilient", "te"])
def test_packets_take_the_ways_of_their_scheme_and_acks_those_of_their_own_headers(
    scheme: str,
) -> None:
    outcome = simulation(scheme)
    network, flows, answers = outcome.network, outcome.flows, outcome.compiled.answers
    assert answers is not None
    forth = outcome.whole_paths
    if scheme == "te":
        # All pairs send both ways, and entries hold for data and ACKs alike.
        of_key = dict(zip(columns_of(flows), range(len(flows)), strict=True))
        back = paths_taken(forth, np.array([of_key[column] for column in columns_of(answers)]))
    else:
        back = paths_of(network, Routes(network), answers)
    in_reverse = [[send ^ 1 for send in reversed(row)] for row in rows_of(forth)]
    assert rows_of(back) != in_reverse
    run = outcome.run_packets()
    assert run.acks == len(flows) and not run.retransmitted.any()
    data = np.bincount(outcome.program.flow, outcome.program.size_bits)
    acks = np.full(len(flows), 8.0 * ACK_BYTES)
    expected = carried_bits(forth, data, network.sends) + carried_bits(back, acks, network.sends)
    assert run.sent_bits.tolist() == expected.tolist()


@pytest.mark.parametrize("event", [None, "fail p1-edge1:p1-agg1"])
@pytest.mark.parametrize("scheme", ["spray", "flowlet"])
def test_ways_are_drawn_as_often_as_the_fluid_divides_flows(scheme: str, event: str | None) -> None:
    outcome = simulation(scheme)
    up = np.ones(outcome.network.links, np.bool_)
    if event is not None:
        up[outage_of(outcome.network, parse_event(event)).links] = False
    ways, flows = outcome._ways_over(up), len(outcome.flows)
    shares = outcome.routing.paths(outcome.flows, up)
    assert shares.share is not None
    flow = np.repeat(np.arange(flows), np.diff(shares.start))
    expected = np.bincount(flow * outcome.network.sends + shares.sends, shares.share)
    odds = 1 / np.diff(ways.first)
    drawn = np.zeros(len(expected))
    for number in range(flows):
        for way in ways.way[ways.first[number] : ways.first[number + 1]]:
            sends = ways.paths.sends[ways.paths.start[way] : ways.paths.start[way + 1]]
            drawn[number * outcome.network.sends + sends] += odds[number]
    assert drawn.tolist() == pytest.approx(expected.tolist())
    ways_of_answers = np.diff(ways.first)[flows:]
    assert (ways_of_answers.max() == 1) == (scheme == "spray"), "switches spray data only"


def test_sprayed_packets_spread_over_links_and_receivers_that_take_any_order_send_none_again() -> (
    None
):
    keys = {"pattern": "incast", "ranks": 4, "size": "8MB", "placement": "fragmented"}
    any_order = simulation("spray", transport={"out_of_order": True}, **keys).run_packets()
    assert any_order.out_of_order.sum() > 0
    assert any_order.retransmitted.sum() == any_order.naks.sum() == 0
    in_order = simulation("spray", **keys)
    assert any("--out-of-order" in text for text in in_order.report().warnings)
    ran = in_order.run_packets()
    assert ran.out_of_order.sum() > ran.naks.sum() > 0
    assert ran.retransmitted.sum() > 0
    assert ran.end_s.max() > any_order.end_s.max()
    network = in_order.network
    up = np.array([network.tier[node] == 1 for node in network.sender]) & (
        np.arange(network.sends) % 2 == 0
    )
    (used,) = np.nonzero(up & (any_order.sent_bits > 10**6))
    assert len(used) == 6, "both uplinks of the three leaves that send"
    pairs = any_order.sent_bits[used].reshape(3, 2)
    assert (pairs.max(axis=1) < 1.15 * pairs.min(axis=1)).all()


@pytest.mark.parametrize(
    ("gap_s", "changes"),
    [(3e-6, True), (30e-6, False), ((ROUND_PS - 1) / 1e12, True), (ROUND_PS / 1e12, False)],
)
def test_a_flowlet_may_choose_anew_after_a_pause_only(gap_s: float, changes: bool) -> None:
    """With a window of one packet each waits for the ACK of the one before."""
    program, (wiring,), *others = arranged([Flow([0, 2, 6], 64 * 4096, window=1)])
    there = [0, 2, 6], [0, 4, 6]
    back = [7, 3, 1]
    paths = Paths(np.arange(0, 10, 3), np.array([*there[0], *there[1], *back], np.int32))
    ways = Ways(np.array([0, 2, 3]), np.arange(3), paths, gap_s)
    run = run_packets(program, [replace(wiring, ways=ways)], *others)
    used = run.sent_bits[[2, 4]]
    assert used.sum() == run.sent_bits[0]
    if changes:
        assert used.min() > 0.25 * used.sum()
    else:
        assert used.min() == 0


def test_more_ways_than_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways_module, "MOST_CELLS", 1000)
    with pytest.raises(InputError, match="ways"):
        simulation("spray").run_packets()


def test_windows_of_any_order_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "MOST_AWAITED", 1000)
    with pytest.raises(InputError, match="beyond gaps"):
        simulation("spray", transport={"out_of_order": True}).run_packets()
