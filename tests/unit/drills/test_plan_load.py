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
