"""Max-min fair rates: worked examples, the proof, and the oracle on random networks."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.arrays import Floats
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.engine.incremental import Incremental
from rocelab.sim.engine.proof import NotFairError, prove
from tests.helpers.engine_samples import drawn_capacity, drawn_paths, paths, program
from tests.helpers.fluid_oracle import rates_in_rounds

Rates = Callable[[Paths, Floats], Floats]
LINE = paths([0, 1, 2], [0], [1], [2])


def engine_rates(network: Paths, capacity: Floats) -> Floats:
    """The rates of the engine when all flows begin at once."""
    at_once = program([(flow, 1.0) for flow in range(len(network))])
    engine = Incremental(at_once, network, capacity, 0.0)
    engine.advance(math.inf, one_event=True)
    flow, rates = engine.rates()
    assert flow.tolist() == list(range(len(network)))
    return rates


def oracle_rates(network: Paths, capacity: Floats) -> Floats:
    return rates_in_rounds(network, capacity, np.ones(len(network), np.int32))


each_engine = pytest.mark.parametrize("rates_of", [engine_rates, oracle_rates])


@each_engine
def test_on_a_parking_lot_the_long_flow_gets_as_much_as_each_short_one(rates_of: Rates) -> None:
    rates = rates_of(LINE, np.ones(3))
    np.testing.assert_allclose(rates, [0.5, 0.5, 0.5, 0.5])


@each_engine
def test_what_a_flow_can_not_use_goes_to_the_others(rates_of: Rates) -> None:
    rates = rates_of(LINE, np.array([1.0, 2.0, 10.0]))
    np.testing.assert_allclose(rates, [0.5, 0.5, 1.5, 9.5])


@each_engine
def test_a_dumbbell_shares_its_middle_equally(rates_of: Rates) -> None:
    dumbbell = paths([0, 4, 2], [1, 4, 3], [1, 3])
    rates = rates_of(dumbbell, np.array([9.0, 9.0, 9.0, 9.0, 4.0]))
    np.testing.assert_allclose(rates, [2.0, 2.0, 7.0])


@each_engine
def test_a_flow_that_is_half_on_a_link_counts_half_there(rates_of: Rates) -> None:
    sprayed = paths([0, 1, 2], [1], share=[1.0, 0.5, 0.5, 1.0])
    rates = rates_of(sprayed, np.array([8.0, 3.0, 8.0]))
    np.testing.assert_allclose(rates, [2.0, 2.0])


@each_engine
def test_nothing_arrives_without_a_path_or_over_a_dead_link(rates_of: Rates) -> None:
    rates = rates_of(paths([], [0, 1], [1]), np.array([0.0, 5.0]))
    np.testing.assert_allclose(rates, [0.0, 0.0, 5.0])


@each_engine
def test_a_link_of_thousands_of_flows_is_shared_exactly(rates_of: Rates) -> None:
    flows, leaves = 3000, 40
    incast = paths(*([flow % leaves, leaves] for flow in range(flows)))
    capacity = np.append(np.linspace(1.0, 90.0, leaves), 1000.0)
    prove(incast, capacity, rates_of(incast, capacity))


def test_capacities_sends_and_shares_that_can_not_be_are_refused() -> None:
    with pytest.raises(ValueError, match="capacity"):
        engine_rates(LINE, np.array([1.0, np.inf, 1.0]))
    with pytest.raises(ValueError, match="send outside"):
        engine_rates(LINE, np.ones(2))
    with pytest.raises(ValueError, match="share"):
        engine_rates(paths([0], share=[0.0]), np.ones(1))


@given(seed=st.integers(0, 2**32 - 1), shared=st.booleans())
def test_rates_on_any_network_are_proven_and_those_of_the_oracle(seed: int, shared: bool) -> None:
    rng = np.random.default_rng(seed)
    flows, sends = int(rng.integers(1, 80)), int(rng.integers(1, 20))
    network, capacity = drawn_paths(rng, flows, sends, shared=shared), drawn_capacity(rng, sends)
    rates = engine_rates(network, capacity)
    prove(network, capacity, rates)
    np.testing.assert_allclose(rates, oracle_rates(network, capacity), rtol=1e-9)


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ([0.6, 0.5, 0.5, 0.5], "send 0 carries"),
        ([0.4, 0.6, 0.6, 0.6], "transfer 0 at 0.4 bit/s has no bottleneck"),
        ([0.5, 0.4, 0.5, 0.5], "transfer 1 at 0.4 bit/s has no bottleneck"),
        ([0.5, 0.5, np.nan, 0.5], "negative or not finite"),
    ],
)
def test_the_proof_says_what_is_violated(rates: list[float], message: str) -> None:
    with pytest.raises(NotFairError, match=message):
        prove(LINE, np.ones(3), np.array(rates))


def test_the_proof_refuses_a_rate_without_a_path() -> None:
    with pytest.raises(NotFairError, match="no path"):
        prove(paths([], [0]), np.ones(1), np.array([1.0, 1.0]))


def test_the_proof_counts_full_sends() -> None:
    proof = prove(LINE, np.array([1.0, 2.0, 99.0]), np.array([0.5, 0.5, 1.5, 98.5]))
    assert (proof.transfers, proof.full_sends) == (4, 3)


def test_importing_the_engine_does_not_import_numba() -> None:
    code = "import sys, rocelab.sim.engine.run; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
