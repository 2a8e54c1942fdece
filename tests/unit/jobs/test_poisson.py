"""Flows under Poisson arrivals: their sizes, times, ends and load are those that are asked for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from rocelab.base.errors import InputError
from rocelab.jobs.flow_list import FlowList
from rocelab.jobs.poisson import FlowSizes, PoissonSpec, distribution, poisson_flows

BPS = 100e9
LEAST_P = 0.001
"""Of a fixed seed: a test that fails by chance has failed since it was written."""


def drawn(
    sizes: FlowSizes, load: str, duration: str, nics: int | np.ndarray = 8, seed: int = 1
) -> FlowList:
    spec = PoissonSpec.model_validate({"sizes": sizes, "load": load, "duration": duration})
    nic_bps = np.full(nics, BPS) if isinstance(nics, int) else nics
    return poisson_flows(spec, nic_bps, seed)


@pytest.mark.parametrize("sizes", FlowSizes)
def test_sizes_are_those_of_the_published_distribution(sizes: FlowSizes) -> None:
    """The test of Kolmogorov and Smirnov, by a distribution made of the points anew."""
    result = drawn(sizes, "40%", "20ms").size_bytes
    known = distribution(sizes)
    assert result.min() >= 1 and result.max() <= known.size_bytes[-1]
    # Sizes are whole bytes: below x are those of which the part of a byte is cut off.
    spread_out = result + np.random.default_rng(2).random(len(result))
    assert stats.kstest(
        spread_out, lambda x: np.interp(x, known.size_bytes, known.share)
    ).pvalue > (LEAST_P)


def test_the_published_points_have_the_means_that_their_generator_computes() -> None:
    """Half the sum of neighbours by the share between them, in numbers of bytes."""
    means = {sizes: distribution(sizes).mean_bytes for sizes in FlowSizes}
    assert means == pytest.approx(
        {
            FlowSizes.WEBSEARCH: 1711250,
            FlowSizes.FB_HADOOP: 120420.75,
            FlowSizes.ALISTORAGE: 40869.8,
        }
    )


def test_flows_begin_as_a_poisson_process_of_the_load() -> None:
    flows = drawn(FlowSizes.ALISTORAGE, "30%", "40ms")
    expected = 8 * 0.3 * BPS * 40e-3 / (8 * distribution(FlowSizes.ALISTORAGE).mean_bytes)
    assert abs(len(flows) - expected) < 3.3 * expected**0.5
    assert (np.diff(flows.start_s) >= 0).all()
    gaps = np.diff(flows.start_s, prepend=0.0) * expected / 40e-3
    assert stats.kstest(gaps, "expon").pvalue > LEAST_P
    for source in range(8):
        sizes = flows.size_bytes[flows.source == source]
        share = 8 * sizes.sum() / (BPS * 40e-3)
        assert abs(share - 0.3) < 3.3 * 0.3 * (1 + (sizes.std() / sizes.mean()) ** 2) ** 0.5 / (
            len(sizes) ** 0.5
        )


def test_flows_go_to_any_other_nic_alike_and_faster_nics_send_more() -> None:
    nic_bps = np.array([100e9, 200e9, 400e9, 100e9])
    flows = drawn(FlowSizes.ALISTORAGE, "50%", "20ms", nic_bps)
    assert not (flows.source == flows.destination).any()
    sent = np.bincount(flows.source, minlength=4)
    assert stats.chisquare(sent, len(flows) * nic_bps / nic_bps.sum()).pvalue > LEAST_P
    for source in range(4):
        to = np.bincount(flows.destination[flows.source == source], minlength=4)
        assert stats.chisquare(np.delete(to, source)).pvalue > LEAST_P


def test_a_seed_draws_the_same_flows_and_another_one_others() -> None:
    one, same, other = (
        drawn(FlowSizes.WEBSEARCH, "50%", "5ms", seed=seed).start_s for seed in (1, 1, 2)
    )
    assert (one == same).all() and set(one).isdisjoint(other)


@pytest.mark.parametrize(
    ("duration", "nics", "message"),
    [
        ("1ms", 1, "flows between 1 NICs"),
        ("1ns", 2, "no flow begins; 50% of 2 NICs for 1 ns are"),
        ("600s", 1024, "at most 1,048,576 are simulated"),
    ],
)
def test_too_few_and_too_many_flows_are_refused(duration: str, nics: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        drawn(FlowSizes.WEBSEARCH, "50%", duration, nics)
