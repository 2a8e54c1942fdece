"""The configuration of switches by the user's values, templates and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rocelab.base.errors import InputError, SpecError
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import Fabric
from rocelab.render.difference import configuration_difference
from rocelab.render.frr_image import frr_files
from rocelab.routing.frr import own
from rocelab.routing.frr.installation import find_installation
from rocelab.routing.stack import stack_for
from tests.helpers.labs import planned

LOGS = Path("/logs")


def fabric_with(**routing: Any) -> Fabric:
    return build_fabric(
        LabSpec.model_validate(
            {"name": "mine", "fabric": {"racks": 2, "spines": 2}, "routing": routing}
        )
    )


def texts_of(fabric: Fabric, name: str) -> dict[str, str]:
    node = fabric.node(name)
    names = own.daemons_of(fabric, node)
    return dict(own.configuration_of(fabric, node, names, LOGS, interfaces=False))


def with_templates(**texts: str) -> Fabric:
    names = {name.replace("__", "/") + ".conf.j2": text for name, text in texts.items()}
    return fabric_with(templates={"folder": "t", "texts": names})


def test_a_file_is_for_all_daemons_and_each_has_a_log_of_its_own() -> None:
    texts = texts_of(planned("ospf-ibgp"), "rtsw1")

    assert list(texts) == ["frr", "zebra", "ospfd", "bgpd"]
    assert texts["ospfd"].splitlines()[2] == "log file /logs/ospfd.log informational"
    assert "router" not in texts["ospfd"]
    assert texts["frr"].endswith(
        "router bgp 65000\n bgp log-neighbor-changes\nexit\nrouter ospf\n no proactive-arp\nexit\n"
    )


def test_zebra_writes_next_hops_into_routes() -> None:
    assert "no zebra nexthop kernel enable" in texts_of(planned("ospf-ibgp"), "ctsw1")["zebra"]


def test_daemons_are_those_that_the_lab_names() -> None:
    fabric = fabric_with(daemons={"rtsw": ["ospfd"], "rtsw2": ["bgpd", "pimd"]})

    assert own.daemons_of(fabric, fabric.node("rtsw1")) == ("zebra", "ospfd")
    assert own.daemons_of(fabric, fabric.node("rtsw2")) == ("zebra", "pimd", "bgpd")
    assert own.daemons_of(fabric, fabric.node("ctsw1")) == ("zebra", "bgpd")


def test_the_nearest_template_is_taken_and_others_are_the_kit_s() -> None:
    fabric = with_templates(
        bgpd='{% extends "frr/bgpd.conf.j2" %}{% block bgp %} all {{ role }}\n{% endblock %}',
        nodes__rtsw1__bgpd="one {{ links[0].neighbor }} {{ node.asn }}\n",
        roles__rtsw__staticd="! {{ switches | length }}\n",
    )

    first, second = texts_of(fabric, "rtsw1"), texts_of(fabric, "rtsw2")
    assert set(first) == {"zebra", "staticd", "bgpd"}
    assert f"one srv1-1 {fabric.node('rtsw1').asn}" in first["bgpd"]
    assert " all rtsw\n" in second["bgpd"]
    assert " bgp router-id" not in second["bgpd"]
    assert second["zebra"] == texts_of(fabric_with(), "rtsw2")["zebra"]
    assert second["staticd"].endswith("! 4\n")


def test_a_template_s_log_and_name_are_replaced() -> None:
    text = "frr defaults traditional\nhostname x\nlog file /etc/evil\nrouter bgp 65000\nexit\n"
    made = texts_of(with_templates(bgpd=text), "rtsw1")["bgpd"].splitlines()

    assert made == [
        "frr defaults traditional",
        "hostname rtsw1",
        "log file /logs/bgpd.log informational",
        "log timestamp precision 6",
        "router bgp 65000",
        "exit",
    ]


def test_a_template_s_line_that_reaches_beyond_the_switch_is_refused() -> None:
    with pytest.raises(SpecError, match=r"bgpd.conf of rtsw1:1: `dump bgp all /x` is refused"):
        texts_of(with_templates(bgpd="dump bgp all /x\n"), "rtsw1")


def test_a_session_has_the_password_of_either_end() -> None:
    fabric = fabric_with(policy={"rtsw1": {"password": "one", "gtsm": True}})

    address = fabric.links_of["ctsw1"][0].a.ip
    text = texts_of(fabric, "ctsw1")["bgpd"]
    assert f" neighbor {address} password one\n neighbor {address} ttl-security hops 1\n" in text
    assert text.count("password") == 1


def test_two_passwords_of_a_session_are_refused() -> None:
    fabric = fabric_with(policy={"rtsw1": {"password": "one"}, "ctsw": {"password": "two"}})

    with pytest.raises(InputError, match="the two ends of rtsw1:ctsw1 different passwords"):
        own.check_sessions(fabric)


def test_values_are_lines_of_frr() -> None:
    policy = {
        "local_as": {"asn": 65100, "replace_as": False},
        "hold": "6s",
        "advertisement_interval": "0s",
        "dampening": {"half_life": "10m"},
        "graceful_shutdown": True,
        "maximum_prefix": 7,
        "communities": ["65000:1", "no-export"],
        "prefix_lists": {"A": ["permit 10.0.0.0/8 le 32", "deny any"]},
        "community_lists": {"B": ["permit 65000:1"]},
        "as_path_lists": {"C": ["permit ^65001_"]},
        "route_maps": {"M": [{"match": ["as-path C"], "call": "N"}, {"action": "deny"}], "N": [{}]},
        "route_map_in": {"ctsw": "M"},
        "aggregates": [{"prefix": "198.18.0.0/24", "summary_only": True}],
    }
    text = texts_of(fabric_with(policy={"rtsw1": policy}), "rtsw1")["bgpd"]

    for line in (
        "ip prefix-list A seq 20 deny any",
        "bgp community-list standard B seq 10 permit 65000:1",
        "bgp as-path access-list C seq 10 permit ^65001_",
        "route-map M permit 10\n match as-path C\n call N",
        "route-map M deny 20",
        " set community 65000:1 no-export",
        " bgp graceful-shutdown",
        " neighbor CTSWS local-as 65100 no-prepend",
        " neighbor CTSWS timers 3 6",
        " neighbor CTSWS advertisement-interval 0",
        "  bgp dampening 10 750 2000 60",
        "  aggregate-address 198.18.0.0/24 summary-only",
        "  neighbor CTSWS maximum-prefix 7",
        "  neighbor CTSWS route-map M in",
        "ip prefix-list OWN permit 198.18.0.0/24",
    ):
        assert f"{line}\n" in text


def test_neighbours_know_a_switch_by_its_local_as() -> None:
    fabric = fabric_with(policy={"rtsw1": {"local_as": 65100}})

    assert "remote-as 65100\n" in texts_of(fabric, "ctsw1")["bgpd"]
    assert "ip prefix-list rtsw1 permit" in texts_of(fabric, "ctsw1")["bgpd"]


def test_frr_refuses_a_value_that_it_does_not_know() -> None:
    policy = {"rtsw1": {"route_maps": {"M": [{"match": ["banana split"]}]}}}

    with pytest.raises(
        SpecError, match=r"bgpd.conf of rtsw1:\d+: FRR refuses `match banana split`"
    ):
        own.check_configuration(fabric_with(policy=policy), find_installation())


def test_frr_takes_what_the_kit_makes_of_values() -> None:
    policy = {"rtsw": {"dampening": True, "gtsm": True, "aggregates": ["198.18.0.0/24"]}}

    own.check_configuration(fabric_with(policy=policy), find_installation())
    own.check_configuration(planned("ospf-ibgp"), find_installation())


def test_the_difference_shows_what_is_not_the_kit_s() -> None:
    fabric = with_templates(
        nodes__rtsw1__bgpd='{% extends "frr/bgpd.conf.j2" %}'
        "{% block bgp %}{{ super() }} bgp bestpath compare-routerid\n{% endblock %}"
    )

    lines = list(configuration_difference(fabric))
    changed = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert changed == ["+ bgp bestpath compare-routerid"]
    assert "+++ rtsw1/bgpd.conf" in lines
    assert list(configuration_difference(fabric_with())) == []


def test_the_difference_of_a_whole_file_is_from_all_that_the_kit_renders() -> None:
    lines = list(configuration_difference(planned("ospf-ibgp")))

    assert "--- kit/rtsw1/frr.conf" in lines
    assert "+router ospf" in lines
    assert "-router bgp 65000" not in lines


def test_files_of_an_image_have_the_switch_s_own_file() -> None:
    fabric = planned("ospf-ibgp")
    files = frr_files(fabric, fabric.node("rtsw1"))

    assert "\nospfd=yes\n" in files["daemons"]
    assert "router ospf\n ospf router-id 10.0.0.11\n" in files["frr.conf"]
    assert files["frr.conf"].count("frr defaults") == 1
    assert "neighbor CTSWS" not in files["frr.conf"]


def test_files_of_an_image_have_what_templates_make() -> None:
    fabric = with_templates(
        bgpd='{% extends "frr/bgpd.conf.j2" %}{% block bgp %} changed\n{% endblock %}',
        staticd="ip route 203.0.113.0/24 blackhole\n",
    )
    files = frr_files(fabric, fabric.node("rtsw1"))

    assert "\nstaticd=yes\n" in files["daemons"]
    assert "\n changed\n" in files["frr.conf"]
    assert "ip route 203.0.113.0/24 blackhole" in files["frr.conf"]
    assert files["frr.conf"].count("log file") == 1


def test_bird_takes_none_of_it() -> None:
    fabric = fabric_with(stack="bird", policy={"rtsw1": {"gtsm": True}})

    with pytest.raises(InputError, match=r"has routing.policy, which rocelab does not run"):
        stack_for(fabric).check(fabric)


def test_a_vrf_is_refused_where_the_kernel_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = fabric_with(
        config={"files": {"rtsw1": "a.conf"}, "texts": {"rtsw1": "vrf RED\nexit-vrf\n"}}
    )
    monkeypatch.setattr("rocelab.routing.frr.own.linkkinds.is_known", lambda kind: False)

    with pytest.raises(SpecError, match=r"a.conf: `vrf RED` needs a VRF, and this kernel has none"):
        own.check_configuration(fabric, find_installation())


def test_switches_of_a_lab_of_tenants_tell_of_evpn_and_its_leaves_of_their_vnis() -> None:
    fabric = planned("evpn-vxlan")
    of = {
        name: stack_for(fabric).configuration(
            fabric, fabric.node(name), ["bgpd"], LOGS, interfaces=False
        )["bgpd"]
        for name in ("rtsw1", "ctsw1")
    }

    block = of["rtsw1"][of["rtsw1"].index(" address-family l2vpn evpn") :]
    assert block.splitlines()[:4] == [
        " address-family l2vpn evpn",
        "  neighbor CTSWS activate",
        "  advertise-all-vni",
        " exit-address-family",
    ]
    assert "  neighbor RTSWS activate\n exit-address-family" in of["ctsw1"]
    assert "advertise-all-vni" not in of["ctsw1"]
    plain = planned("tiny")
    text = stack_for(plain).configuration(
        plain, plain.node("rtsw1"), ["bgpd"], LOGS, interfaces=False
    )["bgpd"]
    assert "evpn" not in text
