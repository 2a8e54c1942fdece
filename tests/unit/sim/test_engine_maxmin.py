"""Max-min fair rates: worked examples, the proof, and both backends on random networks."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.sim.engine.backend import Backend
from rocelab.sim.engine.maxmin import max_min_rates
from rocelab.sim.engine.proof import NotFairError, prove
from tests.helpers.engine_samples import BACKENDS, drawn_capacity, drawn_paths, paths

each_backend = pytest.mark.parametrize("backend", BACKENDS)
LINE = paths([0, 1, 2], [0], [1], [2])


@each_backend
def test_on_a_parking_lot_the_long_flow_gets_as_much_as_each_short_one(backend: Backend) -> None:
    rates = max_min_rates(LINE, np.ones(3), backend=backend)
    np.testing.assert_allclose(rates, [0.5, 0.5, 0.5, 0.5])


@each_backend
def test_what_a_flow_can_not_use_goes_to_the_others(backend: Backend) -> None:
    rates = max_min_rates(LINE, np.array([1.0, 2.0, 10.0]), backend=backend)
    np.testing.assert_allclose(rates, [0.5, 0.5, 1.5, 9.5])


@each_backend
def test_a_dumbbell_shares_its_middle_equally(backend: Backend) -> None:
    dumbbell = paths([0, 4, 2], [1, 4, 3], [1, 3])
    rates = max_min_rates(dumbbell, np.array([9.0, 9.0, 9.0, 9.0, 4.0]), backend=backend)
    np.testing.assert_allclose(rates, [2.0, 2.0, 7.0])


@each_backend
def test_a_flow_that_is_half_on_a_link_counts_half_there(backend: Backend) -> None:
    sprayed = paths([0, 1, 2], [1], share=[1.0, 0.5, 0.5, 1.0])
    rates = max_min_rates(sprayed, np.array([8.0, 3.0, 8.0]), backend=backend)
    np.testing.assert_allclose(rates, [2.0, 2.0])


@each_backend
def test_transfers_on_one_flow_are_shared_between_as_if_each_had_its_own(backend: Backend) -> None:
    flow = np.array([1, 0, 1], np.int32)
    rates = max_min_rates(paths([0], [0, 1]), np.array([3.0, 9.0]), flow, backend)
    np.testing.assert_allclose(rates, [1.0, 1.0, 1.0])


@each_backend
def test_nothing_arrives_without_a_path_or_over_a_dead_link(backend: Backend) -> None:
    rates = max_min_rates(paths([], [0, 1], [1]), np.array([0.0, 5.0]), backend=backend)
    np.testing.assert_allclose(rates, [0.0, 0.0, 5.0])


@each_backend
def test_a_link_of_thousands_of_flows_is_shared_exactly(backend: Backend) -> None:
    flows, leaves = 3000, 40
    incast = paths(*([flow % leaves, leaves] for flow in range(flows)))
    capacity = np.append(np.linspace(1.0, 90.0, leaves), 1000.0)
    prove(incast, capacity, max_min_rates(incast, capacity, backend=backend))


@each_backend
def test_capacities_sends_and_shares_that_can_not_be_are_refused(backend: Backend) -> None:
    with pytest.raises(ValueError, match="capacity"):
        max_min_rates(LINE, np.array([1.0, np.inf, 1.0]), backend=backend)
    with pytest.raises(ValueError, match="send outside"):
        max_min_rates(LINE, np.ones(2), backend=backend)
    with pytest.raises(ValueError, match="share"):
        max_min_rates(paths([0], share=[0.0]), np.ones(1), backend=backend)


@given(seed=st.integers(0, 2**32 - 1), shared=st.booleans(), several=st.booleans())
def test_rates_on_any_network_are_proven_and_equal_on_both_backends(
    seed: int, shared: bool, several: bool
) -> None:
    rng = np.random.default_rng(seed)
    flows, sends = int(rng.integers(1, 80)), int(rng.integers(1, 20))
    network, capacity = drawn_paths(rng, flows, sends, shared=shared), drawn_capacity(rng, sends)
    flow = rng.integers(0, flows, 90).astype(np.int32) if several else None
    rates = [max_min_rates(network, capacity, flow, backend) for backend in BACKENDS]
    for one in rates:
        prove(network, capacity, one, flow)
        np.testing.assert_allclose(one, rates[0], rtol=1e-9)


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
    engine = "rocelab.sim.engine"
    code = f"import sys, {engine}.run, {engine}.maxmin; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
