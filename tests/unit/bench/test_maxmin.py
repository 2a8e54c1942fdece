"""The rates of `bench.maxmin`, beside the engine's oracle."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bench.maxmin import max_min_rates
from tests.helpers.engine_samples import drawn_capacity, drawn_paths
from tests.helpers.fluid_oracle import rates_in_rounds


@given(seed=st.integers(0, 2**32 - 1))
def test_rates_on_any_network_are_those_of_the_oracle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    flows, sends = int(rng.integers(1, 80)), int(rng.integers(1, 20))
    network, capacity = drawn_paths(rng, flows, sends, shared=False), drawn_capacity(rng, sends)
    oracle = rates_in_rounds(network, capacity, np.ones(flows, np.int32))
    np.testing.assert_allclose(max_min_rates(network, capacity), oracle, rtol=1e-9)
