"""The /etc/hosts of a lab's nodes."""

from __future__ import annotations

import pytest

from rocelab.lab.hosts import hosts_file
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan


@pytest.mark.parametrize(
    "fabric",
    [
        {"kind": "clos", "racks": 2, "spines": 2, "servers_per_rack": 1},
        {"kind": "rail", "units": 2, "servers_per_unit": 2, "rails": 2, "spines": 2},
    ],
    ids=["clos", "rail"],
)
def test_every_node_has_one_address_and_every_address_one_node(fabric: dict[str, object]) -> None:
    planned = plan(LabSpec.model_validate({"name": "t-hosts", "fabric": fabric}))
    first, *lines = hosts_file(planned).splitlines()
    assert first == "127.0.0.1 localhost"
    address_of = {name: address for address, name in (line.split() for line in lines)}
    assert address_of.keys() == planned.node_by_name.keys()
    assert len(set(address_of.values())) == len(lines)
    for node in planned.nodes:
        address = node.loopback if node.is_switch else planned.nics(node.name)[0].ip
        assert address_of[node.name] == address
