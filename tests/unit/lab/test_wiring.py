"""Interface indexes, planned before there is an interface."""

from __future__ import annotations

from collections import Counter

import pytest

from rocelab.lab.wiring import LOOPBACK_INDEX
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.planning.build import plan


@pytest.mark.parametrize("lab", ["zone-small", "zones-small", "hpn-small", "fat-tree-4"])
def test_no_two_interfaces_of_a_node_and_no_two_ends_of_a_link_share_an_index(lab: str) -> None:
    fabric = plan(load_spec(find_lab(lab)))
    ports = [end for link in fabric.links for end in (link.a, link.b)]
    assert max(Counter((port.node, port.index) for port in ports).values()) == 1
    assert min(port.index for port in ports) > LOOPBACK_INDEX
    for link in fabric.links:
        assert link.a.index != link.b.index, "its loss of carrier would be told up to 1 s late"
