"""In which order the daemons of switches start."""

from __future__ import annotations

import pytest

from rocelab.lab.runtime import start_order
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan


@pytest.mark.parametrize(
    ("racks", "cpus", "before_upper_tiers"),
    [(16, 2, 6), (16, 4, 0), (3, 2, 0), (300, 2, 0)],
    ids=["some leaves start early", "all start in a second", "few leaves", "a large fabric"],
)
def test_leaves_start_within_a_second_of_the_upper_ends_that_open_their_sessions(
    racks: int, cpus: int, before_upper_tiers: int
) -> None:
    spec = {"name": "t-order", "fabric": {"kind": "clos", "racks": racks, "spines": 4}}
    fabric = plan(LabSpec.model_validate(spec))
    order = start_order(fabric, cpus)
    upper = [place for place, node in enumerate(order) if not node.is_leaf]
    assert upper == list(range(before_upper_tiers, before_upper_tiers + 4))
    assert sorted(node.name for node in order) == sorted(node.name for node in fabric.switches)
