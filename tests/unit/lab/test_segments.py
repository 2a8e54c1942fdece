"""What leaves know of tenants, from tables of their kernels, and the devices that they have."""

from __future__ import annotations

from ipaddress import ip_address

from rocelab.lab.segments import announcement, lacks, segment_of
from rocelab.lab.status import EvpnSessions, LabStatus
from rocelab.lab.tunnels import tunnel_messages, tunnel_settings
from rocelab.lab.wiring import bring_up, server_routes
from rocelab.linux.bridges import FLOODED, ForwardingEntry
from rocelab.planning.fabric import Fabric
from rocelab.planning.tenant import Tenant
from tests.helpers.labs import planned

FABRIC: Fabric = planned("evpn-vxlan")
RED: Tenant = FABRIC.tenants[0]
LEAVES = ("rtsw1", "rtsw2", "rtsw3", "rtsw4")


def whole_table(leaf: str) -> list[ForwardingEntry]:
    """The table of a leaf that knows all of tenant red, as Linux lists it."""
    entries = []
    for name in RED.links:
        link = FABRIC.link_by_name[name]
        if link.b.node == leaf:
            entries.append(ForwardingEntry(link.b.index, link.a.mac, None, is_own=False))
            entries.append(ForwardingEntry(link.b.index, link.b.mac, None, is_own=True))
            continue
        loopback = FABRIC.node(link.b.node).loopback
        tunnel = RED.tunnel_index
        entries.append(ForwardingEntry(tunnel, FLOODED, loopback, is_own=False))
        entries.append(ForwardingEntry(tunnel, link.a.mac, loopback, is_own=False))
        entries.append(ForwardingEntry(tunnel, link.a.mac, None, is_own=False))
    return entries


def test_a_leaf_that_knows_all_is_complete() -> None:
    for leaf in LEAVES:
        segment = segment_of(FABRIC, RED, leaf, whole_table(leaf))

        assert segment.is_complete
        assert (segment.far_leaves, segment.macs) == (3, 4)
        assert list(lacks(segment)) == []


def test_a_leaf_that_does_not_know_another_leaf_is_not_whole() -> None:
    lost = FABRIC.node("rtsw3").loopback
    table = [entry for entry in whole_table("rtsw1") if entry.far_end != lost]

    segment = segment_of(FABRIC, RED, "rtsw1", table)

    assert not segment.is_whole
    assert list(lacks(segment)) == [
        "rtsw1 knows 2 of 3 other leaves of tenant red",
        "rtsw1 knows where 3 of 4 NICs of tenant red are",
    ]


def test_a_nic_that_was_silent_is_no_loss_and_is_named() -> None:
    mac = FABRIC.link_by_name["srv1-1:rtsw1"].a.mac
    segment = segment_of(
        FABRIC, RED, "rtsw1", [entry for entry in whole_table("rtsw1") if entry.mac != mac]
    )

    assert segment.is_whole
    assert not segment.is_complete
    assert segment.silent == ("srv1-1:rtsw1",)


def test_a_mac_at_another_leaf_than_planned_is_misplaced() -> None:
    mac = FABRIC.link_by_name["srv2-1:rtsw2"].a.mac
    table = [
        ForwardingEntry(entry.interface, mac, FABRIC.node("rtsw4").loopback, is_own=False)
        if entry.mac == mac and entry.far_end
        else entry
        for entry in whole_table("rtsw1")
    ]

    segment = segment_of(FABRIC, RED, "rtsw1", table)

    assert segment.misplaced == (f"{mac} at rtsw4",)
    assert not segment.is_whole


def test_a_leaf_that_is_gone_knows_nothing() -> None:
    segment = segment_of(FABRIC, RED, "rtsw1", ())

    assert (segment.far_leaves, segment.macs) == (0, 0)


def test_a_lab_whose_leaf_lacks_another_is_not_converged() -> None:
    good, bad = (segment_of(FABRIC, RED, "rtsw1", table) for table in (whole_table("rtsw1"), ()))

    assert LabStatus("t", (), segments=(good,)).converged
    assert not LabStatus("t", (), segments=(good, bad)).converged
    assert not LabStatus("t", (), evpn_sessions={"rtsw1": EvpnSessions(1, 2)}).converged


def test_a_gratuitous_arp_request_names_the_nic_as_sender_and_as_target() -> None:
    link = FABRIC.link_by_name["srv2-1:rtsw2"]
    frame = announcement(link)

    mac, ip = bytes.fromhex(link.a.mac.replace(":", "")), ip_address("10.10.0.2").packed
    assert frame[:14] == b"\xff" * 6 + mac + b"\x08\x06"
    assert frame[14:22] == bytes.fromhex("0001080006040001")
    assert frame[22:] == mac + ip + bytes(6) + ip


def test_only_leaves_of_tenants_have_bridges_and_tunnels() -> None:
    made = [message for message in tunnel_messages(FABRIC, FABRIC.node("rtsw1")) if message]

    for name in (b"br10010\0", b"vni10010\0", b"br10020\0", b"vni10020\0"):
        assert sum(name in message for message in made) == 1
    assert tunnel_messages(FABRIC, FABRIC.node("ctsw1")) == []
    plain = planned("tiny")
    assert tunnel_messages(plain, plain.node("rtsw1")) == []


def test_a_leaf_routes_nothing_of_tenants() -> None:
    settings = tunnel_settings(FABRIC, FABRIC.node("rtsw1"))

    assert settings["ipv4/conf/br10010/forwarding"] == "0"
    assert settings["ipv4/conf/vni10020/forwarding"] == "0"
    assert tunnel_settings(FABRIC, FABRIC.node("ctsw1")) == {}


def test_nics_of_a_tenant_have_no_gateway_and_no_fixed_neighbour() -> None:
    link = FABRIC.link_by_name["srv1-1:rtsw1"]

    assert server_routes(FABRIC, "srv1-1") == []
    assert len(bring_up(link, "srv1-1")) == len(bring_up(link, "rtsw1")) == 1
