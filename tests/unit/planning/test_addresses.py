"""The address and AS plan: every number of a fabric lies in one range of its use."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from rocelab.base.family import Family
from rocelab.labfile.model import LabSpec
from rocelab.planning.addresses import AddressRange, AddressUse, address_plan
from rocelab.planning.build import plan
from tests.helpers.labs import planned


def test_the_plan_of_a_clos_has_its_blocks_loopbacks_links_and_as_numbers() -> None:
    fabric = planned("zone-small")
    assert address_plan(fabric, by_zone=False) == (
        AddressRange(AddressUse.ASN, None, ("ctsw",), None, 1, "4200000001", "4200000001"),
        AddressRange(AddressUse.ASN, None, ("rtsw",), None, 4, "4200000002", "4200000005"),
        AddressRange(
            AddressUse.LOOPBACK, Family.IPV4, ("ctsw",), None, 4, "198.18.0.32", "198.18.0.35"
        ),
        AddressRange(
            AddressUse.LOOPBACK, Family.IPV4, ("rtsw",), None, 4, "198.18.0.4", "198.18.0.28"
        ),
        AddressRange(
            AddressUse.BLOCK, Family.IPV4, ("rtsw",), None, 4, "198.18.0.0/29", "198.18.0.24/29"
        ),
        AddressRange(
            AddressUse.LINK,
            Family.IPV4,
            ("server", "rtsw"),
            None,
            8,
            "198.18.0.0/31",
            "198.18.0.26/31",
        ),
        AddressRange(
            AddressUse.LINK,
            Family.IPV4,
            ("rtsw", "ctsw"),
            None,
            32,
            "198.18.0.36/31",
            "198.18.0.98/31",
        ),
    )


@pytest.mark.parametrize("lab", ["zones-small", "hpn-small", "rail-small", "unnumbered"])
def test_each_address_of_a_port_lies_in_a_range(lab: str) -> None:
    fabric = planned(lab)
    ranges = [part for part in address_plan(fabric) if part.use is not AddressUse.ASN]
    for port in (end for link in fabric.links for end in (link.a, link.b)):
        if port.address is not None:
            address = int(ip_network(port.address, strict=False)[0])
            assert any(
                int(ip_network(part.first)[0]) <= address <= int(ip_network(part.last)[-1])
                for part in ranges
            ), port


def test_zones_have_ranges_of_their_own() -> None:
    ranges = address_plan(planned("zones-small"))
    blocks = {part.zone: part for part in ranges if part.use is AddressUse.BLOCK}
    assert (blocks[1].last, blocks[2].first) == ("198.18.0.12/30", "198.18.0.16/30")
    assert {part.zone for part in ranges if part.roles == ("atsw",)} == {None}


def test_a_dual_lab_has_ranges_of_both_families_and_none_of_shared_addresses() -> None:
    hpn = {"kind": "hpn", "segments": 1, "servers_per_segment": 1, "rails": 1, "aggs": 1}
    keys = {"name": "x", "fabric": hpn, "addresses": {"family": "dual"}}
    ranges = address_plan(plan(LabSpec.model_validate(keys)), by_zone=False)
    uses = {(part.use, part.family, part.roles): part.count for part in ranges if part.family}
    for family in Family:
        assert uses[AddressUse.LOOPBACK, family, ("tor",)] == 2
        assert uses[AddressUse.NIC, family, ("tor",)] == 1
        assert uses[AddressUse.BLOCK, family, ("tor",)] == 1
        assert (AddressUse.LINK, family, ("server", "tor")) not in uses
        assert uses[AddressUse.LINK, family, ("tor", "agg")] == 2
