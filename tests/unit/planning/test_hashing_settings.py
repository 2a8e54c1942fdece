"""The results of `hashing`: sysctls of the switches, and lines of their BGP configuration."""

from __future__ import annotations

import pytest

from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.labfile.model import HashField, HashingSpec, HashPolicy, HashWeights, LabSpec
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import Fabric
from rocelab.planning.settings import node_settings
from rocelab.routing.frr.configuration import frr_configuration


def fabric_with(hashing: HashingSpec) -> Fabric:
    fabric = ClosSpec(zones=2, racks=1, spines=2, atsws=1)
    return build_fabric(LabSpec(name="hashing", fabric=fabric, hashing=hashing))


@pytest.mark.parametrize(
    ("fields", "bits"),
    [
        (("source-ip", "destination-ip", "protocol"), 0x07),
        (("destination-port", "source-port", "source-ip", "destination-ip", "protocol"), 0x37),
        (("source-port", "flow-label"), 0x18),
    ],
)
def test_the_custom_policy_and_its_fields_are_written_to_every_switch(
    fields: tuple[str, ...], bits: int
) -> None:
    hashing = HashingSpec.model_validate({"policy": "custom", "fields": list(fields)})
    fabric = fabric_with(hashing)
    for node in fabric.switches:
        settings = node_settings(fabric, node)
        assert settings["ipv4/fib_multipath_hash_policy"] == "3"
        assert settings["ipv4/fib_multipath_hash_fields"] == str(bits)


def test_the_fields_are_those_of_ipv6_too_where_the_lab_has_it() -> None:
    hashing = {"policy": "custom", "fields": ["source-ip", "flow-label"]}
    keys = {"name": "six", "fabric": {"kind": "clos", "racks": 1, "spines": 1}, "hashing": hashing}
    for family, names in (("ipv4", {"ipv4"}), ("ipv6", {"ipv4", "ipv6"})):
        spec = LabSpec.model_validate({**keys, "addresses": {"family": family}})
        fabric = build_fabric(spec)
        settings = node_settings(fabric, fabric.node("rtsw1"))
        fields = {
            key.partition("/")[0]: value
            for key, value in settings.items()
            if key.endswith("fib_multipath_hash_fields")
        }
        assert fields == dict.fromkeys(names, str(0x01 | 0x08))


def test_no_fields_are_written_for_other_policies() -> None:
    fabric = fabric_with(HashingSpec(policy=HashPolicy.L3))
    assert all(
        "ipv4/fib_multipath_hash_fields" not in node_settings(fabric, node) for node in fabric.nodes
    )


def test_fields_are_kept_once_and_in_one_order() -> None:
    hashing = HashingSpec.model_validate(
        {"policy": "custom", "fields": ["source-port", "source-ip", "source-port"]}
    )
    assert hashing.fields == (HashField.SOURCE_IP, HashField.SOURCE_PORT)


def test_weights_by_paths_are_announced_to_every_group_of_neighbours() -> None:
    fabric = fabric_with(HashingSpec(weights=HashWeights.PATHS))
    groups = {"z1-rtsw1": {"CTSWS"}, "z1-ctsw1": {"RTSWS", "ATSWS"}, "atsw1": {"CTSWS"}}
    for name, expected in groups.items():
        lines = frr_configuration(fabric, fabric.node(name))["bgpd"].splitlines()
        assert " set extcommunity bandwidth num-multipaths" in lines
        texts = {line.split()[1] for line in lines if line.endswith("route-map PATHS out")}
        assert texts == expected


def test_equal_weights_announce_no_bandwidth() -> None:
    fabric = fabric_with(HashingSpec())
    for node in fabric.switches:
        assert "bandwidth" not in frr_configuration(fabric, node)["bgpd"]
