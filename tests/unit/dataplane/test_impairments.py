"""Impairments of cables: errors, the hook of each direction, and delayed packets."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from rocelab.base.errors import InputError
from rocelab.dataplane.impairments import cables, program
from rocelab.dataplane.impairments.control import Impairments, _impairment, _part
from rocelab.dataplane.impairments.delayline import (
    PACKET_COST_BYTES,
    DelayQueues,
    HeldPacket,
    Lateness,
)
from rocelab.dataplane.impairments.impairment import MAX_DELAY_NS, Hooks, Impairment, ImpairmentKind
from rocelab.dataplane.impairments.maps import (
    IDLE,
    KINDS,
    ImpairmentCounters,
    Rule,
    RulePart,
    pack_rule,
    sum_counters,
    unpack_rule,
)
from rocelab.dataplane.steering import program as steering
from rocelab.faults.impairments import CableFault
from rocelab.labfile.model import LabSpec
from rocelab.linux import bracket, netlink, pidfile, tc
from rocelab.observe.cables import CableFigures
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.record import LabFiles
from tests.helpers.directed import towards

U64 = st.integers(0, 2**64 - 1)


def fabric_of(**fabric: object) -> Fabric:
    return plan(LabSpec.model_validate({"name": "lab", "fabric": fabric}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": ImpairmentKind.LOSS, "share": 0}, "a share of 0 of its packets"),
        ({"kind": ImpairmentKind.LOSS, "share": 1.1}, "a share of 1.1 of its packets"),
        ({"kind": ImpairmentKind.BLACKHOLE, "share": 0.5}, "a blackhole affects all packets"),
        ({"kind": ImpairmentKind.DELAY}, "with a delay of 0"),
        (
            {"kind": ImpairmentKind.DELAY, "delay_ns": MAX_DELAY_NS + 1},
            "with a delay of 10000000001 ns",
        ),
        ({"kind": ImpairmentKind.LOSS, "delay_ns": 1}, "kind LOSS with a delay"),
        ({"kind": ImpairmentKind.LOSS, "start_ns": 5, "end_ns": 5}, "last from 5 to 5 ns"),
    ],
)
def test_what_no_cable_does_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Impairment(**fields)  # type: ignore[arg-type]


def test_towards_a_switch_is_met_at_its_ingress_and_towards_a_server_before_the_cable() -> None:
    fabric = fabric_of(racks=2, spines=2)
    hooks = Hooks(fabric)
    up = hooks.find(towards(fabric, "rtsw1:ctsw2", "ctsw2"))
    down = hooks.find(towards(fabric, "rtsw1:ctsw2", "rtsw1"))
    server = hooks.find(towards(fabric, "srv1-1:rtsw1", "srv1-1"))
    assert (up.node, up.interface, up.at_egress) == ("ctsw2", "rtsw1", False)
    assert (down.node, down.interface, down.at_egress) == ("rtsw1", "ctsw2", False)
    assert (server.node, server.interface, server.at_egress) == ("rtsw1", "srv1-1", True)


@pytest.mark.parametrize(
    "fabric",
    [
        fabric_of(racks=3, spines=2, servers_per_rack=2),
        fabric_of(zones=2, racks=2, spines=2, atsws=2, links_per_pair=2),
    ],
    ids=["zone", "zones"],
)
def test_every_direction_has_a_slot_of_its_own_that_leads_back_to_it(fabric: Fabric) -> None:
    hooks = Hooks(fabric)
    slots = [hooks.find(directed_link).slot for directed_link in fabric.directed_links]
    assert sorted(slots) == list(range(1, hooks.most + 1))
    assert tuple(hooks.at(slot).link for slot in slots) == fabric.directed_links


PARTS = st.builds(RulePart, U64, U64, U64)
RULES = st.builds(
    Rule,
    st.integers(1, 2**31),
    st.booleans(),
    st.integers(0, 2**KINDS - 1),
    U64,
    st.tuples(*[PARTS] * KINDS),
)


@given(RULES)
def test_a_rule_survives_the_map(rule: Rule) -> None:
    assert unpack_rule(pack_rule(rule)) == rule


@given(RULES, st.sampled_from(ImpairmentKind), PARTS)
def test_kinds_of_one_port_do_not_disturb_each_other(
    rule: Rule, kind: ImpairmentKind, part: RulePart
) -> None:
    changed = rule.with_part(kind, part)
    cleared = changed.without(kind)
    for other in ImpairmentKind:
        if other is kind:
            assert changed.holds(kind) and changed.parts[kind] == part
            assert not cleared.holds(kind) and cleared.parts[kind] == IDLE
        else:
            assert changed.holds(other) == cleared.holds(other) == rule.holds(other)
            assert changed.parts[other] == cleared.parts[other] == rule.parts[other]


@given(st.floats(1e-9, 1), st.integers(0, 2**62), st.one_of(st.none(), st.integers(1, 2**62)))
def test_a_loss_reads_as_it_was_set(share: float, start_ns: int, length_ns: int | None) -> None:
    end_ns = None if length_ns is None else start_ns + length_ns
    wanted = Impairment(ImpairmentKind.LOSS, share, start_ns=start_ns, end_ns=end_ns)
    read = _impairment(ImpairmentKind.LOSS, _part(wanted), 0)
    assert read.share == pytest.approx(share, abs=2**-32)
    assert (read.start_ns, read.end_ns) == (start_ns, end_ns)


def test_a_share_too_small_for_the_program_is_the_smallest_it_has() -> None:
    assert _part(Impairment(ImpairmentKind.LOSS, 1e-12)).share == 1


def test_counters_are_the_sum_over_cpus() -> None:
    first, second = (1, 2, 3, 4, 5), (10, 20, 30, 40, 50)
    data = b"".join(number.to_bytes(8, sys.byteorder) for number in (*first, *second))
    assert sum_counters(data) == ImpairmentCounters(11, 22, 33, 44, 55)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1000)), max_size=60), st.data())
def test_a_delay_line_lets_every_packet_out_once_on_time_and_in_order(
    packets: list[tuple[int, int]], data: st.DataObject
) -> None:
    queues, out = DelayQueues(), list[tuple[int, bytes]]()

    def popped(now_ns: int) -> list[tuple[int, bytes]]:
        return [(slot, held.frame) for slot, held in queues.pop_due(now_ns)]

    latest: dict[int, int] = {}
    due = {}
    for number, (slot, due_ns) in enumerate(packets):
        queues.put(slot, due_ns, number.to_bytes(2, "big"))
        latest[slot] = due[number] = max(due_ns, latest.get(slot, 0))
    for now_ns in sorted(data.draw(st.lists(st.integers(0, 1000), max_size=5))):
        out += popped(now_ns)
        gone = {int.from_bytes(frame, "big") for _, frame in out}
        assert gone == {number for number, due_ns in due.items() if due_ns <= now_ns}
        assert queues.next_ns() == min(
            (due_ns for number, due_ns in due.items() if number not in gone), default=None
        )
    out += popped(1000)
    for slot in (1, 2, 3):
        expected = [number for number, packet in enumerate(packets) if packet[0] == slot]
        assert [int.from_bytes(frame, "big") for by, frame in out if by == slot] == expected
    assert queues.bytes == 0


def test_a_hastened_slot_leaves_at_once_and_others_stay() -> None:
    queues = DelayQueues()
    for number in range(4):
        queues.put(1 + number % 2, 10**9, bytes([number]))
    queues.make_due(1, 7)
    assert [(slot, held.frame) for slot, held in queues.pop_due(7)] == [(1, b"\0"), (1, b"\2")]
    assert [held.frame for _, held in queues.pop_due(10**9)] == [b"\1", b"\3"]


def test_a_packet_that_was_due_before_its_slot_was_hastened_is_as_late_as_it_is() -> None:
    queues = DelayQueues()
    for due_ns in (5, 50):
        queues.put(1, due_ns, b"", delay_ns=3)
    queues.make_due(1, 20)
    assert [(held.due_ns, held.delay_ns) for _, held in queues.pop_due(20)] == [(5, 3), (20, 3)]


def test_a_packet_is_late_more_than_a_tenth_of_its_delay_after_it_was_due() -> None:
    held = HeldPacket(1_000_000, b"", delay_ns=5_000)
    counted = Lateness()
    for late_ns in (-200, 500, 501):
        counted = counted.after(held, held.due_ns + late_ns)
    assert counted == Lateness(packets=3, late=1, total_ns=1_001)


def test_a_packet_is_very_late_more_than_twenty_delays_after_it_was_due() -> None:
    held = HeldPacket(1_000_000, b"", delay_ns=5_000)
    counted = Lateness().after(held, held.due_ns + 100_000)
    assert counted.very_late == 0
    assert counted.after(held, held.due_ns + 100_001).very_late == 1


def test_a_delay_below_the_least_counts_as_that_for_very_late_packets() -> None:
    held = HeldPacket(1_000_000, b"", delay_ns=5_000)
    counted = Lateness().after(held, held.due_ns + 160_000, least_ns=8_000)
    assert counted.very_late == 0
    assert counted.after(held, held.due_ns + 160_001, least_ns=8_000).very_late == 1


def test_a_run_over_cables_that_stood_still_is_no_measurement() -> None:
    lateness = Lateness(1000, 3, 10**9, very_late=2)
    (problem,) = CableFigures(5_000_000, lateness, broken=()).problems()
    assert "2 packets left a link more than 100 ms late (20 times links.delay)" in problem


@pytest.mark.parametrize(("late", "said"), [(10, False), (11, True)])
def test_a_run_says_where_latency_is_the_machine_s(late: int, said: bool) -> None:
    figures = CableFigures(5_000_000, Lateness(1000, late, 400_000_000), broken=())
    assert bool(figures.warnings()) is said
    assert figures.problems() == ()
    if said:
        assert "on average a link took 400 us more than 5 ms" in figures.warnings()[0]


def test_a_run_over_cables_that_lost_all_packets_is_no_measurement() -> None:
    (problem,) = CableFigures(5_000_000, Lateness(), broken=("rtsw1",)).problems()
    assert problem.startswith("not valid because the process that delayed packets on the cables of")


def test_a_delay_line_holds_no_more_than_its_limit() -> None:
    queues = DelayQueues(limit_bytes=10 * (100 + PACKET_COST_BYTES))
    for _ in range(15):
        queues.put(1, 5, bytes(100))
    assert len(list(queues.pop_due(5))) == 10
    queues.put(1, 6, bytes(100))
    assert len(list(queues.pop_due(6))) == 1


def test_the_wire_is_asked_before_steering() -> None:
    def priority(request: bytes) -> int:
        message = tcmsg(request)
        message.decode()
        return int(message["info"] >> 16)

    attached = tc.bpf_filter(3, tc.CLSACT_INGRESS, steering.PRIORITY, "rocelab", 1)
    assert 0 < program.IMPAIRMENTS.priority < priority(attached)


def test_netem_holds_for_the_delay_and_drops_nothing_by_chance() -> None:
    options = tc.netem_options(2_500_000, 1000)
    latency, limit, *rest = struct.unpack_from("=6I", options)
    assert (latency, limit, rest) == (0, 1000, [0, 0, 0, 0])
    ((kind, value),) = netlink.attributes(options[24:]).items()
    assert (kind, struct.unpack("=q", value)) == (10, (2_500_000,))


@pytest.mark.parametrize(
    ("links", "dilation", "message"),
    [
        ({"delay": "1s"}, 5000.0, "links.delay is 1.39 h in the lab's clock"),
        ({"delay": "1ms"}, 1.0, "the cables of rtsw1 hold 200 MB when they are full"),
    ],
)
def test_cables_that_cannot_be_held_are_refused(
    links: dict[str, str], dilation: float, message: str
) -> None:
    spec = {"name": "t", "fabric": {"racks": 1, "spines": 2}, "links": links, "dilation": dilation}
    with pytest.raises(InputError, match=message):
        cables.check(plan(LabSpec.model_validate(spec)))


HOLD = """
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from rocelab.linux.pidfile import claim
with claim(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_process_is_found_by_its_lock_and_not_after_its_end(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    assert pidfile.holder(file) is None
    with pytest.raises(FileNotFoundError):
        pidfile.claim(file)
    file.touch()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert pidfile.holder(file) == process.pid != os.getpid()
        with pytest.raises(BlockingIOError):
            pidfile.claim(file)
        pidfile.end(file, 5)
        assert process.wait() == -signal.SIGTERM
    assert pidfile.holder(file) is None
    assert pidfile.tell(file, signal.SIGHUP) is False
    pidfile.end(file, 5)


class SlowRules:
    """Maps of a lab behind whose senders each reading takes three seconds."""

    def __init__(self) -> None:
        self.now_ns, self.written = 0, 0

    def __enter__(self) -> SlowRules:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def rule(self, _: int) -> Rule:
        self.now_ns += 3 * 10**9
        return Rule(1, True).with_part(ImpairmentKind.LOSS, IDLE)

    def set_rules(self, rules: dict[int, Rule]) -> None:
        self.now_ns += 1000
        self.written += len(rules)


@pytest.mark.parametrize("towards_node", ["ctsw1", None])
def test_a_fault_of_a_link_is_told_to_the_kernel_with_no_other_work_between(
    monkeypatch: pytest.MonkeyPatch, towards_node: str | None
) -> None:
    """Else the fault may have begun seconds after its stamp."""
    fabric, maps = fabric_of(racks=2, spines=1), SlowRules()
    impairments = Impairments(fabric, LabFiles("lab"))
    monkeypatch.setattr(impairments, "_alone", nullcontext)
    monkeypatch.setattr(impairments, "_maps", lambda: maps)
    monkeypatch.setattr(impairments, "_rule", lambda hook: maps.rule(hook.slot))
    monkeypatch.setattr(bracket, "realtime_ns", lambda: maps.now_ns)
    link = next(link for link in fabric.links if link.is_between_switches)
    loss = Impairment(ImpairmentKind.LOSS, 0.02)
    fault = CableFault((link,), "grey-loss", loss, towards_node)
    lab = SimpleNamespace(impairments=impairments)
    timing = fault.schedule(cast(Any, lab), 10**9, None)
    directions = 1 if towards_node else 2
    assert (timing.width_ns, maps.written) == (1000, directions)
    assert maps.now_ns >= 3 * 10**9 * directions
