"""Ports of a NIC: which port sends what, who moves when a port loses carrier, and who moves
back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocelab.agent.prober import ProbeFlow
from rocelab.agent.rc.queue_pair import QueuePair
from rocelab.agent.rc.responder import ACK
from rocelab.linux.lag import Lag, LagPort, affinity
from rocelab.wire.icrc import icrc_is_right
from tests.helpers.rc_fakes import FakeOutlet, header, nic, pair_settings

NAMES = ("tor1a", "tor1b")
MAC_BYTES = 12
MACS = (b"\x06\0\0\0\0\x01\x02\0\0\0\0\x01", b"\x06\0\0\0\0\x02\x02\0\0\0\0\x02")


class Recorder:
    """A member that only records its port."""

    def __init__(self) -> None:
        self.moves: list[str] = []

    def move(self, way: str, macs: bytes) -> None:
        assert macs == MACS[NAMES.index(way)]
        self.moves.append(way)


def lag(*homes: int) -> tuple[Lag[str], list[Recorder]]:
    ports = Lag([LagPort(name, name, macs) for name, macs in zip(NAMES, MACS, strict=True)])
    members = [Recorder() for _ in homes]
    for member, home in zip(members, homes, strict=True):
        ports.add(member, home)
    return ports, members


def test_ports_are_given_in_turn() -> None:
    assert [affinity(created, 2) for created in range(5)] == [0, 1, 0, 1, 0]
    assert [affinity(created, 1) for created in range(3)] == [0, 0, 0]


def test_those_on_a_port_that_loses_carrier_move_and_come_back_with_it() -> None:
    ports, (first, second) = lag(0, 1)
    ports.carrier("tor1a", False)
    assert (first.moves, second.moves) == (["tor1b"], [])
    ports.carrier("tor1a", True)
    assert (first.moves, second.moves) == (["tor1b", "tor1a"], [])


def test_without_any_carrier_nobody_moves_and_the_first_port_that_is_back_has_all() -> None:
    ports, (first, second) = lag(0, 1)
    ports.carrier("tor1a", False)
    ports.carrier("tor1b", False)
    assert (first.moves, second.moves) == (["tor1b"], [])
    ports.carrier("tor1a", True)
    assert (first.moves, second.moves) == (["tor1b", "tor1a"], ["tor1a"])
    ports.carrier("tor1b", True)
    assert second.moves == ["tor1a", "tor1b"]


def test_a_nic_with_one_port_has_nowhere_to_go() -> None:
    ports: Lag[str] = Lag([LagPort("tor1a", "tor1a", MACS[0])])
    member = Recorder()
    ports.add(member, 0)
    for present in (False, True):
        ports.carrier("tor1a", present)
    assert member.moves == []


@given(
    st.lists(st.tuples(st.sampled_from([*NAMES, "lo"]), st.booleans()), max_size=20),
    st.integers(0, 1),
)
def test_whatever_links_do_all_are_at_home_or_where_there_is_carrier(
    events: list[tuple[str, bool]], home: int
) -> None:
    ports, (member,) = lag(home)
    present = dict.fromkeys(NAMES, True)
    for name, carrier in events:
        ports.carrier(name, carrier)
        if name in present:
            present[name] = carrier
        at = member.moves[-1] if member.moves else NAMES[home]
        if present[NAMES[home]]:
            assert at == NAMES[home]
        elif any(present.values()):
            assert present[at]
    assert all(one != other for one, other in zip(member.moves, member.moves[1:], strict=False))


def test_a_queue_pair_that_moves_goes_on_where_it_was_with_the_other_ports_addresses() -> None:
    outlets = [FakeOutlet(), FakeOutlet()]
    lines = [nic(outlet) for outlet in outlets]
    pair = QueuePair(5, lines[0], header(), pair_settings(window=8), 1e9)
    ports = Lag(
        [LagPort(*port) for port in zip(NAMES, lines, MACS, strict=True)],
    )
    ports.add(pair, 0)
    pair.post(20 * 1024, 7)
    lines[0].send(0)
    assert len(outlets[0].sent) == 1
    ports.carrier("tor1a", False)
    assert pair.port_moves == 1
    now_ns = 10**6
    assert lines[0].send(now_ns) > now_ns
    lines[1].send(now_ns)
    while lines[1].send(now_ns := now_ns + 10_000) < 10**9:
        pass
    pair.on_ack(7, ACK, now_ns)
    while lines[1].send(now_ns := now_ns + 10_000) < 10**9:
        pass
    pair.responder.ack_due = ACK
    pair.answer()
    lines[1].send(now_ns)
    assert len(outlets[0].sent) == 1
    moved = outlets[1].sent
    assert len(moved) == 7 + 8 + 1
    assert {frame[:MAC_BYTES] for frame in moved} == {MACS[1]}
    assert all(icrc_is_right(frame) for frame in moved)
    assert outlets[0].sent[0][:MAC_BYTES] == header()[:MAC_BYTES]


def test_a_queue_pair_with_nothing_to_send_takes_no_turns_at_its_new_port() -> None:
    lines = [nic(FakeOutlet()), nic(FakeOutlet())]
    pair = QueuePair(5, lines[0], header(), pair_settings(), 1e9)
    pair.move(lines[1], MACS[1])
    assert not pair.active
    pair.post(100, 1)
    assert pair.active
    assert lines[0].send(0) > 10**9


def test_a_probe_flow_that_moves_counts_on() -> None:
    outlets = [FakeOutlet(), FakeOutlet()]
    template = MACS[0] + header()[MAC_BYTES:] + bytes(64)
    flow = ProbeFlow(outlets[0], template, 1000, 0)  # type: ignore[arg-type]
    flow.emit(1)
    flow.move(outlets[1], MACS[1])  # type: ignore[arg-type]
    assert flow.emit(2) == 1
    for outlet, macs in zip(outlets, MACS, strict=True):
        outlet.flush()
        (frame,) = outlet.sent
        assert frame[:MAC_BYTES] == macs
    assert flow.port_moves == 1
