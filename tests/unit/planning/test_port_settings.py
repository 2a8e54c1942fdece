"""The settings of nodes and of their ports: all that a node would inherit of its machine."""

from __future__ import annotations

import pytest

from rocelab.linux.links import IPV4_SETTINGS, IPV6_SETTINGS
from rocelab.planning.settings import node_settings, port_settings
from tests.helpers.labs import planned

LABS = ("tiny", "unnumbered", "zone-small", "lossless", "ipv6-only")
READ_ONLY = {"mc_forwarding"}


@pytest.mark.parametrize("lab", LABS)
def test_every_setting_of_ports_that_the_kernel_lets_a_namespace_inherit_is_planned(
    lab: str,
) -> None:
    fabric = planned(lab)
    for node in fabric.nodes:
        names = {name.split("/")[1] for name in port_settings(fabric, node) if "ipv4/" in name}
        assert names == set(IPV4_SETTINGS) - READ_ONLY


@pytest.mark.parametrize("lab", LABS)
def test_the_kernel_reports_every_planned_setting_of_ports(lab: str) -> None:
    fabric = planned(lab)
    reported = {*(f"ipv4/{name}" for name in IPV4_SETTINGS)}
    reported |= {f"ipv6/{name}" for name in IPV6_SETTINGS}
    for node in fabric.nodes:
        assert port_settings(fabric, node).keys() <= reported


@pytest.mark.parametrize("lab", LABS)
def test_what_a_container_starts_with_is_what_its_ports_have(lab: str) -> None:
    fabric = planned(lab)
    for node in fabric.nodes:
        ports = port_settings(fabric, node)
        for setting, value in node_settings(fabric, node).items():
            family, _, rest = setting.partition("/conf/")
            if rest:
                assert ports[f"{family}/{rest.split('/')[1]}"] == value


def test_forwarding_is_first_since_the_kernel_sets_others_with_it() -> None:
    fabric = planned("tiny")
    for node in fabric.nodes:
        ports = port_settings(fabric, node)
        assert next(iter(ports)) == "ipv4/forwarding"
        assert ports["ipv4/forwarding"] == str(int(node.is_switch))
        assert ports["ipv4/rp_filter"] == "0"


def test_a_switch_uses_no_port_without_carrier_and_answers_every_expired_packet() -> None:
    fabric = planned("tiny")
    for node in fabric.nodes:
        linkdown = "ignore_routes_with_linkdown"
        assert port_settings(fabric, node)[f"ipv4/{linkdown}"] == str(int(node.is_switch))
        settings = node_settings(fabric, node)
        if node.is_switch:
            assert settings[f"ipv4/conf/all/{linkdown}"] == "1"
            assert settings["ipv4/icmp_ratelimit"] == "0"
            assert int(settings["ipv4/icmp_msgs_per_sec"]) >= 100_000
            assert int(settings["ipv4/icmp_msgs_burst"]) >= 10_000
        else:
            assert "ipv4/icmp_ratelimit" not in settings


def test_ipv6_ports_keep_their_addresses_and_hash_as_ipv4_does() -> None:
    fabric = planned("ipv6-only")
    for node in fabric.nodes:
        ports, settings = port_settings(fabric, node), node_settings(fabric, node)
        assert (ports["ipv6/disable_ipv6"], ports["ipv6/keep_addr_on_down"]) == ("0", "1")
        assert ports["ipv6/forwarding"] == str(int(node.is_switch))
        assert ports["ipv6/accept_dad"] == "0"
        if node.is_switch:
            assert ports["ipv6/ignore_routes_with_linkdown"] == "1"
            policies = {settings[f"{ip}/fib_multipath_hash_policy"] for ip in ("ipv4", "ipv6")}
            assert policies == {"1"}
            assert settings["ipv6/icmp/ratelimit"] == "0"


def test_labs_without_ipv6_switch_it_off() -> None:
    fabric = planned("tiny")
    for node in fabric.nodes:
        assert port_settings(fabric, node)["ipv6/disable_ipv6"] == "1"
        assert not [name for name in node_settings(fabric, node) if "ipv6/fib" in name]
