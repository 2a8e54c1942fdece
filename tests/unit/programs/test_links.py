"""What links carried while programs ran: differences of counters, and the connections that are
known to cross a link."""

from __future__ import annotations

import pytest

from rocelab.labfile.load import load
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.planning.queues import lab_rate_bps
from rocelab.programs.links import LinkCounts, link_uses, udp_counts, udp_uses
from rocelab.results.programs import ProgramLink, Stall, TcpConnection, UdpCounts

S = 10**9
Datagrams = dict[str, tuple[int, int, int]]
SNMP = """Ip: Forwarding DefaultTTL
Ip: 2 64
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors
Udp: 40 2 3 50 3
UdpLite: InDatagrams NoPorts
UdpLite: 7 7
"""


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return plan(load("two-networks"))


def counts(
    fabric: Fabric, *, sent: int = 0, drops: int = 0, udp: Datagrams | None = None
) -> LinkCounts:
    ports = [(link.sender, link.port.interface) for link in fabric.directed_links]
    switches = [port for port in ports if fabric.node(port[0]).is_switch]
    return LinkCounts(dict.fromkeys(ports, sent), dict.fromkeys(switches, drops), udp or {})


def connection(source: str, destination: str, network: str, *stalls: Stall) -> TcpConnection:
    return TcpConnection(
        source, 40_000, destination, 7000, 0, 10 * S, 1000, 200, 300, 20, stalls, network
    )


def use_of(uses: tuple[ProgramLink, ...], link: str, receiver: str) -> ProgramLink:
    (use,) = (use for use in uses if (use.link, use.receiver) == (link, receiver))
    return use


def test_a_connection_is_of_the_links_of_its_nics_in_its_network_alone(fabric: Fabric) -> None:
    rows = (
        connection("srv1-1:1", "sto2:1", "frontend", Stall(S, 2 * S), Stall(4 * S, 7 * S)),
        connection("srv1-2:1", "srv2-1:1", "backend"),
    )
    uses = link_uses(fabric, counts(fabric), counts(fabric, sent=9, drops=4), rows, S)
    up = use_of(uses, "srv1-1:fsw1", "fsw1")
    assert (up.network, up.connections, up.resent_bytes) == ("frontend", 1, 200)
    assert (up.stalls, up.longest_stall_ns, up.queue_drops) == (2, 3 * S, None)
    assert use_of(uses, "sto2:fsw2", "sto2").connections == 1
    assert use_of(uses, "sto2:fsw2", "fsw2").connections == 0
    assert use_of(uses, "srv1-1:rtsw1", "rtsw1").connections == 0
    trunk = use_of(uses, "fsw1:fsw2", "fsw2")
    assert (trunk.connections, trunk.resent_bytes, trunk.stalls) == (None, None, None)
    assert (trunk.sent_bytes, trunk.queue_drops) == (9, 4)


def test_a_share_is_of_the_rate_in_the_lab_and_the_busiest_link_is_first(fabric: Fabric) -> None:
    link = fabric.link_by_name["fsw1:fsw2"]
    rate = round(lab_rate_bps(link, fabric.spec.dilation) / 8)
    after = counts(fabric, sent=1)
    busy = LinkCounts(
        {**after.sent_bytes, ("fsw1", "fsw2"): rate}, after.queue_drops, after.datagrams
    )
    uses = link_uses(fabric, counts(fabric), busy, (), 2 * S)
    assert (uses[0].link, uses[0].sender) == ("fsw1:fsw2", "fsw1")
    assert uses[0].share == pytest.approx(0.5)


def test_what_was_counted_anew_and_what_sent_nothing_is_left_out(fabric: Fabric) -> None:
    assert link_uses(fabric, counts(fabric, sent=5), counts(fabric, sent=3), (), S) == ()
    assert link_uses(fabric, counts(fabric, sent=5), counts(fabric, sent=5), (), S) == ()


def test_datagrams_are_those_of_servers_that_had_any(fabric: Fabric) -> None:
    assert udp_counts(SNMP) == (50, 40, 3)
    before = counts(fabric, udp={"srv1-1": (1, 2, 0), "srv1-2": (5, 5, 5), "sto1": (9, 0, 0)})
    after = counts(fabric, udp={"srv1-1": (1, 8, 1), "srv1-2": (5, 5, 5), "sto1": (0, 1, 0)})
    assert udp_uses(before, after) == (UdpCounts("srv1-1", 0, 6, 1),)
