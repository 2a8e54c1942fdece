"""Tenants of planned fabrics: addresses, MTUs, what is announced, and who reaches whom."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from rocelab.base.errors import InputError
from rocelab.labfile.model import LabSpec
from rocelab.planning.addresses import AddressUse, address_plan
from rocelab.planning.build import build_fabric
from rocelab.planning.document import plan_document
from rocelab.planning.fabric import Fabric, Nic
from rocelab.planning.settings import port_settings
from rocelab.planning.tenancy import (
    check_reached,
    forwarded_to,
    is_reached,
    leaves_of,
    next_hop_mac,
    tenant_links,
)

TENANTS = {
    "red": {"vni": 10010, "subnet": "10.10.0.0/24", "members": ["srv*-1"]},
    "blue": {"vni": 10020, "subnet": "10.20.0.0/24", "members": ["srv1-2", "srv2-2"]},
}


def fabric_of(tenants: Mapping[str, object] | None = None, **keys: object) -> Fabric:
    clos = {"kind": "clos", "racks": 3, "spines": 2, "servers_per_rack": 3}
    spec = {"name": "t-tenants", "fabric": clos, "tenants": tenants or TENANTS, **keys}
    return build_fabric(LabSpec.model_validate(spec))


def nic(fabric: Fabric, server: str) -> Nic:
    return fabric.nics(server)[0]


def test_members_have_addresses_of_their_tenants_subnet_and_their_leaves_ports_none() -> None:
    fabric = fabric_of()

    assert [nic(fabric, name).ip for name in ("srv1-1", "srv2-1", "srv3-1")] == [
        "10.10.0.1",
        "10.10.0.2",
        "10.10.0.3",
    ]
    assert nic(fabric, "srv2-2").ip == "10.20.0.2"
    link = fabric.link_by_name["srv1-1:rtsw1"]
    assert (link.a.address, link.b.address) == ("10.10.0.1/24", None)
    assert nic(fabric, "srv1-3").ip.startswith("198.18.")
    assert fabric.link_by_name["srv1-3:rtsw1"].b.address is not None


def test_links_between_switches_carry_what_tenants_send_and_50_bytes() -> None:
    fabric = fabric_of(links={"mtu": 9216}, overrides={"links": {"rtsw1:ctsw1": {"mtu": 4300}}})

    assert fabric.link_by_name["srv3-1:rtsw3"].mtu == 4250
    assert fabric.link_by_name["srv3-3:rtsw3"].mtu == 9216
    assert fabric.link_by_name["rtsw2:ctsw1"].mtu == 9216


def test_a_leaf_without_a_routed_nic_announces_its_loopback_alone() -> None:
    whole = fabric_of({"red": {"vni": 1, "subnet": "10.1.0.0/24", "members": ["rtsw1", "srv2-1"]}})

    announced = {name: whole.prefixes_of[name] for name in ("rtsw1", "rtsw2", "rtsw3")}
    assert [prefix.prefix for prefix in announced["rtsw1"]] == [
        f"{whole.node('rtsw1').loopback}/32"
    ]
    assert [prefix.prefix.endswith("/29") for prefix in announced["rtsw2"]] == [True]
    plain = build_fabric(LabSpec.model_validate({"name": "t", "fabric": whole.spec.fabric}))
    assert announced["rtsw3"] == plain.prefixes_of["rtsw3"]


def test_switches_forward_to_the_loopback_of_a_members_leaf() -> None:
    fabric = fabric_of()

    assert forwarded_to(fabric, nic(fabric, "srv2-1")) == fabric.node("rtsw2").loopback
    assert forwarded_to(fabric, nic(fabric, "srv2-3")) == nic(fabric, "srv2-3").ip


def test_only_nics_of_one_tenant_or_of_none_reach_each_other() -> None:
    fabric = fabric_of()
    red, red_too, blue, routed, routed_too = (
        nic(fabric, name) for name in ("srv1-1", "srv3-1", "srv1-2", "srv1-3", "srv3-2")
    )

    assert is_reached(fabric, red, red_too)
    assert is_reached(fabric, routed, routed_too)
    assert not is_reached(fabric, red, blue)
    assert not is_reached(fabric, red, routed)
    with pytest.raises(InputError, match=r"srv1-1 is in tenant red and srv1-2 is in tenant blue"):
        check_reached(fabric, red, blue)


def test_a_member_sends_to_the_other_nics_mac_and_others_to_their_leafs() -> None:
    fabric = fabric_of()
    red, routed = (nic(fabric, name).links[0] for name in ("srv1-1", "srv1-3"))

    assert next_hop_mac(fabric, red, nic(fabric, "srv3-1")) == nic(fabric, "srv3-1").links[0].a.mac
    assert next_hop_mac(fabric, routed, nic(fabric, "srv3-2")) == routed.b.mac


def test_leaves_bridge_the_tenants_whose_nics_they_have() -> None:
    fabric = fabric_of()
    red, blue = fabric.tenants

    assert leaves_of(fabric, red) == ("rtsw1", "rtsw2", "rtsw3")
    assert leaves_of(fabric, blue) == ("rtsw1", "rtsw2")
    assert list(tenant_links(fabric, "rtsw1")) == [red, blue]
    assert tenant_links(fabric, "ctsw1") == {}
    assert (red.bridge, blue.tunnel) == ("br10010", "vni10020")


@pytest.mark.parametrize(
    ("members", "servers"),
    [
        (["rtsw"], 9),
        (["server"], 9),
        (["rtsw2"], 3),
        (["rtsw?"], 9),
        (["srv1-*", "srv2-1:1"], 4),
        (["srv1-1", "srv1-1", "srv1-?"], 3),
    ],
)
def test_members_are_named_by_server_nic_leaf_role_or_pattern(
    members: list[str], servers: int
) -> None:
    tenants = {"red": {"vni": 1, "subnet": "10.1.0.0/24", "members": members}}

    assert len(fabric_of(tenants).tenants[0].links) == servers


def test_nics_of_one_server_may_be_in_several_tenants() -> None:
    tenants: dict[str, object] = {
        "one": {"vni": 1, "subnet": "10.1.0.0/24", "members": ["srv*:1"]},
        "two": {"vni": 2, "subnet": "10.2.0.0/24", "members": ["srv*:2"]},
    }
    clos = {"kind": "clos", "racks": 2, "spines": 1, "servers_per_rack": 1, "nics_per_server": 2}
    fabric = fabric_of(tenants, fabric=clos)

    assert [one.ip for one in fabric.nics("srv2-1")] == ["10.1.0.2", "10.2.0.2"]


def test_a_tenant_of_a_dual_lab_has_an_address_of_each_family() -> None:
    tenants: dict[str, object] = {
        "red": {"vni": 1, "subnet": ["fd00:1::/64", "10.1.0.0/24"], "members": ["srv*-1"]}
    }
    port = fabric_of(tenants, addresses={"family": "dual"}).nics("srv2-1")[0].links[0].a

    assert (port.address, port.other_address) == ("10.1.0.2/24", "fd00:1::2/64")


def test_the_address_plan_has_no_row_of_a_tenants_subnet() -> None:
    everyone = {"red": {"vni": 1, "subnet": "10.1.0.0/24", "members": ["server"]}}
    ranges = address_plan(fabric_of(everyone))

    assert not any("10.1." in part.first for part in ranges)
    assert {part.roles for part in ranges if part.use is AddressUse.LINK} == {("rtsw", "ctsw")}


def test_servers_of_a_lab_of_tenants_answer_for_their_own_address_only() -> None:
    fabric = fabric_of()
    plain = build_fabric(LabSpec.model_validate({"name": "t", "fabric": fabric.spec.fabric}))
    of = [port_settings(one, one.node("srv1-1")) for one in (fabric, plain)]

    assert [settings["ipv4/arp_ignore"] for settings in of] == ["1", "0"]
    assert port_settings(fabric, fabric.node("rtsw1")) == port_settings(plain, plain.node("rtsw1"))


def test_a_port_with_the_name_of_a_bridge_is_refused() -> None:
    links = ["s1:br7 -- l1:s1", "l1:srv1 -- h1:l1", "s1:l2 -- l2:s1", "l2:srv2 -- h2:l2"]
    graph = {
        "kind": "graph",
        "nodes": {
            name: {"role": {"s": "spine", "l": "leaf", "h": "server"}[name[0]]}
            for name in ("s1", "l1", "l2", "h1", "h2")
        },
        "links": links,
    }
    tenants: dict[str, object] = {"red": {"vni": 7, "subnet": "10.1.0.0/24", "members": ["server"]}}

    with pytest.raises(InputError, match=r"s1:br7 has the name of a tenant's bridge"):
        fabric_of(tenants, fabric=graph)


def test_the_plan_document_has_tenants_only_in_a_lab_of_tenants() -> None:
    fabric = fabric_of()
    document = json.loads("".join(plan_document(fabric)))
    plain = build_fabric(LabSpec.model_validate({"name": "t", "fabric": fabric.spec.fabric}))

    assert document["tenants"][1] == {
        "name": "blue",
        "vni": 10020,
        "subnets": ["10.20.0.0/24"],
        "leaves": [
            {"node": name, "vtep": fabric.node(name).loopback} for name in ("rtsw1", "rtsw2")
        ],
        "links": ["srv1-2:rtsw1", "srv2-2:rtsw2"],
    }
    assert "tenants" not in json.loads("".join(plan_document(plain)))
