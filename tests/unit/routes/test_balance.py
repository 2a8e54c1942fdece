"""Balance of parallel links and polarization, by hand, by property and against a table."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.statistics import spread
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.lab.lab import Lab
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import Direction
from rocelab.routes.balance import (
    PairedChoices,
    balance,
    leaf_uplinks,
    link_loads,
    polarization,
    random_groups,
    random_unused,
    tier_balances,
)
from tests.helpers.choices import Choice, polarizations

REFERENCE = Path(__file__).parents[2] / "data" / "mmr.csv"


def test_four_links_of_which_one_is_twice_as_busy() -> None:
    result = balance([10, 10, 20, 0])
    assert (result.links, result.total, result.unused) == (4, 40, 1)
    assert result.mmr == 2.0
    assert result.jfi == pytest.approx(1600 / (4 * 600))
    assert result.cov == pytest.approx(math.sqrt(200 / 4) / 10)


def test_links_that_carried_nothing_have_no_ratio() -> None:
    result = balance([0, 0])
    assert (result.mmr, result.jfi, result.cov, result.unused) == (None, None, None, 2)
    with pytest.raises(ValueError, match="negative"):
        balance([1, -1])
    with pytest.raises(ValueError, match="one or more"):
        balance([])


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=64).filter(any))
def test_jain_lies_in_one_over_n_to_one_and_mmr_in_one_to_n(loads: list[int]) -> None:
    result = balance(loads)
    assert result.jfi is not None
    assert result.mmr is not None
    assert result.cov is not None
    assert 1 / len(loads) - 1e-9 <= result.jfi <= 1 + 1e-9
    assert 1 - 1e-9 <= result.mmr <= len(loads) + 1e-9
    # Both are the same second moment: JFI = 1 / (1 + CoV^2).
    assert result.jfi == pytest.approx(1 / (1 + result.cov**2))


def test_random_hashing_agrees_with_the_reference_table() -> None:
    rows = list(csv.DictReader(REFERENCE.open()))
    assert len(rows) > 50
    for row in rows:
        groups = random_groups(((int(row["n"]), int(row["k"])),))
        place = f"n={row['n']} k={row['k']}"
        assert groups.mmr == pytest.approx(float(row["E[MMR]"]), rel=0.03), place
        assert groups.jfi == pytest.approx(float(row["E[JFI]"]), rel=0.03), place
        assert groups.cov == pytest.approx(float(row["E[CoV]"]), rel=0.04, abs=0.001), place
        assert groups.unused_fraction == pytest.approx(float(row["idle_frac"]), abs=0.006), place
        # A quantile of a discrete distribution jumps by one flow on the busiest link.
        step = int(row["k"]) / int(row["n"])
        assert groups.mmr_p99 == pytest.approx(float(row["p99MMR"]), rel=0.03, abs=1.01 * step), (
            place
        )


def test_random_hashing_is_exact_where_it_can_be_worked_out() -> None:
    two = random_groups(((2, 2),))
    assert two.mmr == pytest.approx(1.5, abs=0.03)
    assert two.unused_fraction == 0.25
    assert random_groups(((5, 1),)).mmr == 1.0


def test_random_hashing_is_the_same_in_every_run() -> None:
    once = random_groups(((64, 16),))
    random_groups.cache_clear()
    assert random_groups(((64, 16),)) == once


def test_flows_spread_evenly_over_racks_are_more_even_than_flows_hashed_over_all_links() -> None:
    # One flow per rack of two links: always one of the two, so the busiest has twice the mean.
    racks = random_groups(((1, 2),) * 8)
    assert (racks.flows, racks.links, racks.mmr, racks.unused_fraction) == (8, 16, 2.0, 0.5)
    assert random_groups(((8, 16),)).mmr > 3
    with pytest.raises(ValueError, match="one flow"):
        random_groups(((0, 4),))


def test_loads_are_grouped_by_the_lower_node_in_both_directions() -> None:
    fabric = build_fabric(LabSpec(name="two", fabric=ClosSpec(racks=2, spines=2)))
    up_and_down = {
        "rtsw1:ctsw1": (30, 40),
        "rtsw1:ctsw2": (10, 0),
        "rtsw2:ctsw1": (20, 0),
        "rtsw2:ctsw2": (20, 0),
    }
    packets = {
        way: count
        for link in fabric.sessions
        for way, count in zip((link.up, link.down), up_and_down[link.name], strict=True)
    }
    up, down = tier_balances(
        link_loads(fabric, packets),
        {("rtsw-ctsw", Direction.UP, "rtsw1"): 4, ("rtsw-ctsw", Direction.UP, "rtsw2"): 4},
    )
    assert (up.tier, up.direction, up.worst_group) == ("rtsw-ctsw", Direction.UP, "rtsw1")
    assert [group.balance.mmr for group in up.groups] == [1.5, 1.0]
    assert up.all_links.mmr == 1.5
    assert up.random is not None
    assert (up.random.flows, up.random.links) == (8, 4)
    assert down.random is None
    assert [group.balance.mmr for group in down.groups] == [2.0, None]
    assert down.all_links.unused == 3


@pytest.mark.parametrize(
    "lab", ["zone-small", "zones-small", "rail-small", "hpn-small", "fat-tree-4"]
)
def test_leaf_uplinks_are_those_of_the_first_tier_of_switches_in_every_kind(lab: str) -> None:
    fabric = Lab.planned(lab).fabric
    links = {link for server in fabric.servers for link in fabric.links_of[server.name]}
    leaves = {link.b.node for link in links}
    uplinks = [link for link in fabric.sessions if link.a.node in leaves]
    packets = dict.fromkeys(fabric.directed_links, 7)
    packets |= {link.up: 100 for link in uplinks[::2]}
    use = leaf_uplinks(tier_balances(link_loads(fabric, packets)))
    assert use == balance([packets[link.up] for link in uplinks])
    assert use.mmr is not None
    assert use.mmr > 1.5


def test_a_counter_that_was_not_read_is_not_a_load_of_zero() -> None:
    fabric = build_fabric(LabSpec(name="two", fabric=ClosSpec(racks=2, spines=2)))
    with pytest.raises(KeyError):
        link_loads(fabric, {})


def path(first: int, second: int, k: int = 4) -> list[Choice]:
    return [
        Choice("rtsw1", "rtsw up", first, k),
        Choice(f"ctsw{first}", "ctsw up", second, k),
        Choice("atsw1", "atsw down", 0, 1),
    ]


def test_a_second_tier_that_repeats_the_first_uses_one_link_in_k() -> None:
    (result,) = polarizations([path(i % 4, i % 4) for i in range(40)])
    assert (result.first, result.second, result.flows) == ("rtsw up", "ctsw up", 40)
    assert (result.used_links, result.offered_links, result.used_fraction) == (4, 16, 0.25)
    assert result.information == pytest.approx(1.0)
    assert result.information_if_independent is not None
    assert result.information_if_independent < 0.3


def test_a_second_tier_that_spreads_every_choice_uses_all_links() -> None:
    (result,) = polarizations([path(i % 4, i // 4 % 4) for i in range(64)])
    assert result.used_fraction == 1.0
    assert result.information == pytest.approx(0.0, abs=1e-12)


def test_unused_links_at_a_second_tier_stand_beside_what_choosing_anew_would_leave() -> None:
    # Four flows come to each of four switches; all of a switch's leave by one link of its four.
    (result,) = polarizations([path(i % 4, i % 4) for i in range(16)])
    assert result.unused_fraction == 0.75
    assert result.unused_if_random == pytest.approx(0.75**4)
    assert random_unused([(0, 4), (1, 1)]) == pytest.approx(4 / 5)


@pytest.mark.long
def test_a_hundred_thousand_flows_by_two_independent_choices_share_no_information() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 16, (2, 100_000))
    group = x + 16 * rng.integers(0, 8, 100_000)
    result = polarization(PairedChoices("up", "up again", x, y, group, np.full(100_000, 16)))
    random_groups(((780, 16),) * 128)
    assert result.used_links == result.offered_links == 128 * 16
    assert result.information is not None
    assert result.information == pytest.approx(result.information_if_independent, abs=5e-4)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_polarization_uses_no_more_links_than_there_are_and_counts_every_flow(
    choices: list[tuple[int, int]],
) -> None:
    (result,) = polarizations([path(first, second) for first, second in choices])
    assert result.flows == len(choices)
    assert result.used_links == len(set(choices))
    assert result.offered_links == 4 * len({first for first, _ in choices})


def test_two_tiers_with_single_links_have_no_second_choice_to_be_polarized() -> None:
    two_tier = [
        [Choice("rtsw1", "rtsw up", i % 4, 4), Choice("ctsw1", "ctsw down", 0, 1)] for i in range(8)
    ]
    assert polarizations(two_tier) == ()


def information(x: list[int], y: list[int]) -> float | None:
    columns = [np.array(column, np.int64) for column in (x, y, [0] * len(x), [8] * len(x))]
    return polarization(PairedChoices("first", "second", *columns)).information


def test_information_is_unknown_where_a_choice_never_varies() -> None:
    assert information([1, 1, 1], [0, 1, 2]) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=60))
def test_information_lies_in_zero_to_one_and_does_not_depend_on_the_side(
    pairs: list[tuple[int, int]],
) -> None:
    x, y = [a for a, _ in pairs], [b for _, b in pairs]
    forward, backward = information(x, y), information(y, x)
    if forward is None or backward is None:
        assert forward is backward is None
    else:
        assert 0 <= forward <= 1
        assert forward == pytest.approx(backward)


def test_the_spread_of_three_repeats() -> None:
    result = spread([10.0, 20.0, 60.0])
    assert (result.n, result.median, result.minimum, result.maximum) == (3, 20.0, 10.0, 60.0)
    assert result.cov == pytest.approx(math.sqrt(1400 / 2) / 30)
    assert spread([5.0]).cov is None
    assert spread([0.0, 0.0]).cov is None
    with pytest.raises(ValueError, match="nothing was measured"):
        spread([])


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=30))
def test_the_median_lies_between_the_extremes(values: list[float]) -> None:
    result = spread(values)
    assert result.minimum <= result.median <= result.maximum


MIXED = {
    "name": "mixed",
    "fabric": {"kind": "clos", "racks": 2, "spines": 2},
    "overrides": {"links": {"rtsw1:ctsw1": {"rate": "100G"}, "rtsw2:ctsw1": {"rate": "100G"}}},
}


def test_links_of_two_rates_between_two_roles_are_balanced_each_among_its_own() -> None:
    fabric = build_fabric(LabSpec.model_validate(MIXED))
    packets = {
        sent: (100 if sent.link.rate_bps == 100 * 10**9 else 400) for sent in fabric.directed_links
    }
    packets[fabric.link_by_name["rtsw1:ctsw1"].up] = 300
    tiers = tier_balances(link_loads(fabric, packets))
    assert {(tier.tier, tier.direction.value): tier.all_links.mmr for tier in tiers} == {
        ("rtsw-ctsw 100G", "up"): 1.5,
        ("rtsw-ctsw 100G", "down"): 1.0,
        ("rtsw-ctsw 400G", "up"): 1.0,
        ("rtsw-ctsw 400G", "down"): 1.0,
    }
    worst = leaf_uplinks(tiers)
    assert worst is not None
    assert (worst.links, worst.mmr) == (2, 1.5)


def test_one_slow_server_makes_no_tier_of_its_own() -> None:
    keys = {**MIXED, "overrides": {"links": {"srv1-1:rtsw1": {"rate": "100G"}}}}
    fabric = build_fabric(LabSpec.model_validate(keys))
    assert {link.tier for link in fabric.links} == {"server-rtsw", "rtsw-ctsw"}
