"""What a plan takes of a file in FRR's integrated form, and what is replaced or refused."""

from __future__ import annotations

import pytest

from rocelab.labfile.frr_file import read_frr_file

LEAF = """\
frr version 8.4.4
frr defaults datacenter
hostname other
log file /etc/passwd
password open
!
interface lo
 ip address 10.0.0.11/32
 ip ospf area 0
exit
!
interface Ethernet0
 ip address 10.1.0.0/31
 ip address 10.9.0.0/31 secondary
 ip ospf bfd
exit
!
router ospf
 ospf router-id 10.0.0.99
exit
!
router bgp 65000.7
 bgp router-id 10.0.0.11
 neighbor 10.0.0.1 remote-as internal
 neighbor 10.0.0.1 password kept
exit
!
ip route 10.8.0.0/16 blackhole
!
line vty
 exec-timeout 0 0
exit
end
"""


def test_a_file_says_daemons_numbers_and_first_addresses() -> None:
    file = read_frr_file(LEAF)

    assert file.daemons == ("zebra", "staticd", "bfdd", "ospfd", "bgpd")
    assert (file.asn, file.router_id, file.defaults) == (
        (65000 << 16) + 7,
        "10.0.0.11",
        "datacenter",
    )
    assert file.addresses == {"lo": "10.0.0.11/32", "Ethernet0": "10.1.0.0/31"}
    assert file.problems == ()


def test_logs_names_and_accounts_are_replaced_and_lines_keep_their_numbers() -> None:
    file = read_frr_file(LEAF)

    assert file.replaced == (
        *("hostname other", "log file /etc/passwd", "password open", "exec-timeout 0 0"),
    )
    kept = file.text.splitlines()
    assert len(kept) == len(LEAF.splitlines())
    assert " neighbor 10.0.0.1 password kept" in kept
    assert not {"hostname other", "log file /etc/passwd", "password open", "end"} & set(kept)


@pytest.mark.parametrize(
    "line",
    [
        *("start-shell bash", "do show version", "dump bgp all /tmp/x", "ping 10.0.0.1"),
        *("banner motd file /etc/shadow", " netns /run/netns/x", "script on", "write file"),
    ],
)
def test_what_reaches_beyond_the_switch_is_refused_with_its_line(line: str) -> None:
    (problem,) = read_frr_file(f"interface lo\nexit\n{line}\n").problems

    assert problem.line == 3
    assert line.strip() in problem.message


@pytest.mark.parametrize("text", ["\x1b[2J", "a\x07b", "router bgp " + "1" * 5000])
def test_control_characters_and_endless_lines_are_refused(text: str) -> None:
    (problem,) = read_frr_file(f"!\n{text}\n").problems

    assert problem.line == 2
    assert "printable text" in problem.message


def test_a_wrong_address_is_refused_with_its_line() -> None:
    (problem,) = read_frr_file("interface lo\n ip address 10.0.0.300/32\n").problems

    assert (problem.line, "10.0.0.300/32" in problem.message) == (2, True)


@pytest.mark.parametrize(
    "line", ["vrf RED", "router bgp 65000 vrf RED", "interface Ethernet0 vrf RED"]
)
def test_a_file_says_which_line_needs_a_vrf(line: str) -> None:
    assert read_frr_file(f"{line}\n").vrf == line
    assert read_frr_file("router bgp 65000\n").vrf is None


def test_isis_pim_and_static_routes_name_their_daemons() -> None:
    interface = "interface eth1\n ip router isis CORE\n ip pim\nexit\n"
    text = f"{interface}router isis CORE\nipv6 route ::/0 eth1\n"

    assert read_frr_file(text).daemons == ("zebra", "staticd", "isisd", "pimd")
