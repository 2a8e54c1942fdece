"""Interface indexes, planned before there is an interface."""

from __future__ import annotations

from collections import Counter

import pytest

from rocelab.plan.build import plan
from rocelab.runtime.wiring import LOOPBACK_INDEX, interface_indexes
from rocelab.spec.catalog import find_lab
from rocelab.spec.load import load_spec


@pytest.mark.parametrize("lab", ["zone-small", "zones-small", "hpn-small", "fat-tree-4"])
def test_no_two_interfaces_of_a_node_and_no_two_ends_of_a_link_share_an_index(lab: str) -> None:
    fabric = plan(load_spec(find_lab(lab)))
    indexes = interface_indexes(fabric)
    of_node = Counter((node, index) for (node, _), index in indexes.items())
    assert max(of_node.values()) == 1
    assert min(indexes.values()) > LOOPBACK_INDEX
    for link in fabric.links:
        ends = [indexes[end.node, end.interface] for end in (link.a, link.b)]
        assert ends[0] != ends[1], "the kernel would tell its loss of carrier up to 1 s late"
