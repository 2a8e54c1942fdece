"""What a daemon of FRR runs, against what was rendered for it."""

from __future__ import annotations

from rocelab.routing.frr.configuration import frr_configuration
from rocelab.routing.frr.differences import changed_lines
from tests.helpers.labs import planned

RENDERED = """\
hostname rtsw1
ip prefix-list OWN permit 198.18.0.0/30
router bgp 65001
 bgp log-neighbor-changes
 neighbor UP interface remote-as 65000
 !
 address-family ipv4 unicast
  network 198.18.0.0/30
  maximum-paths 128
 exit-address-family
exit
line vty
"""
RUNNING = """\
frr version 8.4.4
hostname rtsw1
no ipv6 forwarding
!
router bgp 65001
 neighbor UP remote-as 65000
 !
 address-family ipv4 unicast
  network 198.18.0.0/30
  maximum-paths 128
 exit-address-family
!
exit
!
ip prefix-list OWN seq 5 permit 198.18.0.0/30
"""


def test_what_frr_writes_in_another_way_is_no_change() -> None:
    assert changed_lines(RENDERED, RUNNING) == ()


def test_an_added_and_a_removed_line_stand_with_their_blocks() -> None:
    running = RUNNING.replace("  maximum-paths 128\n", "  neighbor UP weight 5\n")
    assert changed_lines(RENDERED, running) == (
        "+ router bgp 65001: address-family ipv4 unicast: neighbor UP weight 5",
        "- router bgp 65001: address-family ipv4 unicast: maximum-paths 128",
    )


def test_a_line_in_another_block_is_a_change() -> None:
    running = RUNNING.replace("ip prefix-list", "route-map X permit 10\n maximum-paths 128\n!\nip")
    assert "+ route-map X permit 10: maximum-paths 128" in changed_lines(RENDERED, running)


def test_no_line_that_decides_routes_is_ignored() -> None:
    fabric = planned("unnumbered")
    text = frr_configuration(fabric, fabric.node("rtsw1"))["bgpd"]
    removed = changed_lines(text, "")
    for part in (
        "maximum-paths",
        "remote-as",
        "timers 3 9",
        "network",
        "prefix-list",
        "peer-group",
    ):
        assert any(part in line for line in removed), part
