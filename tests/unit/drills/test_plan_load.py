"""Probes that a lab's links cannot carry are refused before it comes up."""

from __future__ import annotations

import pytest

from rocelab.base.errors import InputError
from rocelab.drills.drill_spec import TrafficSpec
from rocelab.drills.plan import probe_flows
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan


@pytest.mark.parametrize(("rate", "fits"), [("400G", True), ("100G", False)])
def test_a_nic_carries_its_probes_or_they_are_refused(rate: str, fits: bool) -> None:
    """24 flows of two servers: 12 x 1,000 packets/s of 256 bytes and headers, 30 Mb/s each way;
    100 Gb/s at the usual dilation are 20 Mb/s."""
    lab = {"name": "two", "fabric": {"racks": 2}, "links": {"server_rate": rate}}
    fabric = plan(LabSpec.model_validate(lab))
    traffic = TrafficSpec.model_validate({"flows": 24, "rate_pps": 1000, "payload": "256B"})
    if fits:
        assert len(probe_flows(fabric, traffic)) == 24
        return
    with pytest.raises(InputError, match=r"to send 30\.1 Mb/s of probes.*20 Mb/s"):
        probe_flows(fabric, traffic)


NODES = {"leaf*": {"role": "leaf"}, "srv*": {"role": "server"}}
TRAFFIC = TrafficSpec.model_validate({"flows": 24, "rate_pps": 1000, "payload": "256B"})


def test_a_link_of_a_nic_that_is_slower_than_the_others_counts() -> None:
    overrides = {"links": {"srv2-1:rtsw2": {"rate": "100G"}}}
    lab = {"name": "two", "fabric": {"racks": 2}, "overrides": overrides}
    with pytest.raises(InputError, match="srv2-1:1 is to send"):
        probe_flows(plan(LabSpec.model_validate(lab)), TRAFFIC)


@pytest.mark.parametrize("ports", [1, 2])
def test_both_ports_of_a_nic_carry_its_probes(ports: int) -> None:
    """Each NIC sends and receives 30 Mb/s; a port of 100 Gb/s carries 20 Mb/s."""
    links: list[object] = ["leaf1:x -- leaf3:x", "leaf2:x -- leaf4:x", "leaf1:y -- leaf2:y"]
    for server, first in (("srv1", 1), ("srv2", 3)):
        links += [
            {"a": f"{server}:e{n}", "b": f"leaf{first + n}:h", "nic": 1, "rate": "100G"}
            for n in range(ports)
        ]
    lab = {"name": "two", "fabric": {"kind": "graph", "nodes": NODES, "links": links}}
    fabric = plan(LabSpec.model_validate(lab))
    if ports == 2:
        assert len(probe_flows(fabric, TRAFFIC)) == 24
        return
    with pytest.raises(InputError, match=r"30\.1 Mb/s of probes.*20 Mb/s"):
        probe_flows(fabric, TRAFFIC)


def test_what_a_nic_is_to_receive_counts_too() -> None:
    """Of one flow either the sender's or the receiver's link is too slow."""
    traffic = TrafficSpec.model_validate({"flows": 1, "rate_pps": 12_000, "payload": "256B"})
    messages = []
    for link in ("srv1-1:rtsw1", "srv2-1:rtsw2"):
        overrides = {"links": {link: {"rate": "100G"}}}
        lab = {"name": "two", "fabric": {"racks": 2}, "overrides": overrides}
        with pytest.raises(InputError) as refused:
            probe_flows(plan(LabSpec.model_validate(lab)), traffic)
        messages.append(refused.value.message)
    assert sorted("to receive" in message for message in messages) == [False, True]
    assert sorted("to send" in message for message in messages) == [False, True]
