"""What was set on a port of a node that is not rocelab's own: kept before it goes down, set again
after it."""

from __future__ import annotations

import socket
import subprocess

import pytest

from rocelab.linux import namespaces, netlink, portstate
from rocelab.linux.links import read_links
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.side_by_side

BEFORE = """link add p type veth peer name q
link add other type veth peer name far
link set q up
link set p up
link set far up
link set other up
addr add 10.0.0.1/24 dev p
addr add 10.1.0.1/24 dev other
-6 addr add fd00::1/64 dev p"""
SET = {
    "a link-local address": "-6 addr add fe80::1/64 dev p nodad",
    "addresses in their order": """-6 addr add fd00:8::1/64 dev p preferred_lft 0 nodad
-6 addr add fd00:9::1/64 dev p nodad""",
    "a route": "route add 10.9.0.0/16 via 10.0.0.2 mtu 1400",
    "a permanent neighbour": "neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev p",
    "a neighbour that it answers for": "neigh add proxy 10.0.0.77 dev p",
    "a next hop": "nexthop add id 7 via 10.0.0.2 dev p\nroute add 10.7.0.0/16 nhid 7",
    "a group of next hops": """nexthop add id 7 via 10.0.0.2 dev p
nexthop add id 8 via 10.1.0.2 dev other
nexthop add id 3 group 7/8,5
route add 10.7.0.0/16 nhid 3""",
    "a source address": "-6 route add fd09::/64 via fd00::2 src fd00::1",
}
SHOWN = ("route", "-6 route", "nexthop", "neigh show nud permanent", "neigh show proxy")


@pytest.mark.parametrize("what", SET)
def test_what_was_set_is_set_again(what: str) -> None:
    def ip(line: str) -> str:
        done = subprocess.run(["ip", *line.split()], capture_output=True, text=True, check=True)
        return done.stdout

    def shown() -> list[str]:
        lines = [line for query in SHOWN for line in sorted(ip(query).splitlines())]
        return [*lines, *ip("-6 addr").splitlines()]

    def settled() -> list[str]:
        """Once no address is in duplicate detection."""
        wait_until(lambda: "tentative" not in ip("-6 addr"), "addresses")
        return shown()

    def read_port(channel: socket.socket) -> portstate.PortState:
        port = next(link for link in read_links(channel) if link.name == "p")
        return portstate.read_port(channel, port)

    def run() -> None:
        namespaces.unshare()
        with netlink.open_socket() as channel:
            for line in BEFORE.splitlines():
                ip(line)
            settled()
            for line in SET[what].splitlines():
                ip(line)
            before = settled()
            kept = portstate.from_json(portstate.to_json(read_port(channel))).kept
            ip("link set p down")
            assert shown() != before
            ip("link set p up")
            # The kernel makes one once the port has its carrier, which it notes later.
            wait_until(lambda: "scope link" in ip("-6 addr show dev p"), "a link-local address")
            portstate.send_back(channel, portstate.missing(kept, read_port(channel).kept))
            assert portstate.missing(kept, read_port(channel).kept) == ()
            assert settled() == before

    namespaces.on_own_thread(run)
