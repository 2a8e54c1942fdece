"""The ways of the packet engine's packets: of data by each scheme, and of what comes back."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest

from rocelab.jobs.job import JobSpec
from rocelab.jobs.spec import collective_job
from rocelab.results.simulation import Engine
from rocelab.sim.fabric.flows import Flows, Paths, paths_taken
from rocelab.sim.fabric.paths import paths_of
from rocelab.sim.fabric.routes import Routes
from rocelab.sim.packets.sending import ACK_BYTES
from rocelab.sim.simulate import Options, Simulation
from rocelab.spec.catalog import find_lab
from rocelab.spec.load import load_spec
from rocelab.spec.model import LabSpec


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
    found = simulation(scheme)
    network, flows, answers = found.network, found.flows, found.compiled.answers
    assert answers is not None
    forth = found.whole_paths
    if scheme == "te":
        # All pairs send both ways, and entries hold for data and ACKs alike.
        of_key = dict(zip(columns_of(flows), range(len(flows)), strict=True))
        back = paths_taken(forth, np.array([of_key[each] for each in columns_of(answers)]))
    else:
        back = paths_of(network, Routes(network), answers)
    in_reverse = [[send ^ 1 for send in reversed(row)] for row in rows_of(forth)]
    assert rows_of(back) != in_reverse
    run = found.run_packets()
    assert run.acks == len(flows) and not run.retransmitted.any()
    data = np.bincount(found.program.flow, found.program.size_bits)
    acks = np.full(len(flows), 8.0 * ACK_BYTES)
    expected = carried_bits(forth, data, network.sends) + carried_bits(back, acks, network.sends)
    assert run.sent_bits.tolist() == expected.tolist()
