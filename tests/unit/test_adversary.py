"""The adversarial suite's own arithmetic: its evaluation of captures, and its verdicts."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from ipaddress import IPv4Address
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rocelab.agent.nic import BATCH
from rocelab.results.convergence import FlowSamples, MeasurementMethod
from rocelab.results.probes import Event, Flow, ProbeRun, Timeline, probe_run
from tests.adversary import portwatch
from tests.adversary.conftest import pairs, table
from tests.adversary.jobs import compare_report
from tests.adversary.observer import PACKET, Packets, PortChange
from tests.adversary.run import Outcome
from tests.adversary.truth import (
    MAGIC,
    Comparison,
    compare_repeat,
    flow_truth,
    on_one_clock,
    ports_on_one_clock,
)

MS = 10**6
START = 10**18
COUNT = 2000
LOST = range(1000, 1100)
EVENT_NS = START + 1000 * MS - MS // 2
TOOK_NS = 100_000
TO = Flow("f1", "srv1-1", "srv2-1", "10.0.0.1", "10.0.0.2", 49152, 4791)
ADDRESS = int(IPv4Address(TO.destination_ip))
METHOD = MeasurementMethod(10 * MS, 200 * MS)


def probe(number: int, time_ns: int, stamp_ns: int, outgoing: bool) -> Packets:
    packet = np.zeros((), PACKET)
    packet["magic"], packet["flow"], packet["destination"] = MAGIC, 0, ADDRESS
    packet["sequence"], packet["stamp_ns"] = number, stamp_ns
    packet["time_ns"], packet["outgoing"] = time_ns, outgoing
    return packet


def captured(
    held_up_ns: dict[int, int] | None = None,
    unsent: range = range(0),
    lost: Sequence[int] = LOST,
) -> Packets:
    """A flow of 1,000 packets/s of which `lost` are lost. `held_up_ns`: the delay of a packet after
    its stamp; `unsent` packets never left."""
    rows = []
    for number in range(COUNT):
        stamp_ns = START + number * MS
        left_ns = stamp_ns + 20_000 + (held_up_ns or {}).get(number, 0)
        if number not in unsent:
            rows.append(probe(number, left_ns, stamp_ns, True))
        if number not in lost:
            rows.append(probe(number, left_ns + 90_000, stamp_ns, False))
    return np.array(rows, PACKET)


def measured(
    event_ns: int = EVENT_NS, kind: str = "carrier-down", lost: Sequence[int] = LOST
) -> tuple[ProbeRun, Timeline]:
    numbers = np.arange(COUNT, dtype=np.int64)
    got = np.delete(numbers, lost)
    samples = FlowSamples(numbers, START + numbers * MS, got, START + got * MS + 110_000)
    event = Event(event_ns, kind, "begin", "rtsw1:ctsw1", took_ns=TOOK_NS)
    timeline = Timeline((event,), START, START + COUNT * MS, 900 * MS)
    return probe_run({TO: samples}, timeline, METHOD), timeline


def dark(time_ns: int) -> PortChange:
    return PortChange(time_ns, "rtsw1", "ctsw1", running=False)


def compared(packets: Packets, event_ns: int = EVENT_NS, dark_ns: int = EVENT_NS) -> list[str]:
    """The failed comparisons."""
    repeat, timeline = measured(event_ns)
    comparisons = compare_repeat(repeat, timeline, METHOD, packets, [dark(dark_ns)])
    assert len(comparisons) >= 8
    return [comparison.what for comparison in comparisons if not comparison.right]


def test_a_packet_lost_singly_long_before_an_outage_is_no_recovery() -> None:
    lost, event_ns = [700, *LOST], START + 400 * MS + MS // 2
    repeat, timeline = measured(event_ns, lost=lost)
    assert repeat.overall.full_convergence_ns == 1100 * MS - (event_ns - START)
    comparisons = compare_repeat(repeat, timeline, METHOD, captured(lost=lost), [dark(event_ns)])
    wrong = [comparison.what for comparison in comparisons if not comparison.right]
    assert [what for what in wrong if "event 1" in what] == []


def test_a_right_repeat_is_right() -> None:
    assert compared(captured()) == []


def test_a_flow_as_captured() -> None:
    truth = flow_truth(captured(), ADDRESS, 0, START, START + COUNT * MS)
    assert truth is not None
    (outage,) = truth.outages
    assert (truth.offered, truth.arrived, outage.lost) == (COUNT, COUNT - len(LOST), len(LOST))
    assert outage.start_ns == START + 1000 * MS + 20_000
    assert outage.end_ns == START + 1100 * MS + 20_000
    assert flow_truth(captured(), ADDRESS + 1, 0, START, START + COUNT * MS) is None


def test_what_a_dead_port_did_not_take_is_lost_too() -> None:
    assert compared(captured(unsent=LOST)) == []
    truth = flow_truth(captured(unsent=LOST), ADDRESS, 0, START, START + COUNT * MS)
    assert truth is not None
    (outage,) = truth.outages
    assert outage.uncertain_ns >= MS


def test_packets_that_left_later_than_stamped_move_the_end_of_an_outage() -> None:
    wrong = compared(captured({1100: 15 * MS}))
    assert "f1 outage 1 end" in wrong
    assert "event 1 full convergence" in wrong
    assert "event 1 loss of connectivity" in wrong


def test_a_packet_that_was_lost_and_not_counted_is_seen() -> None:
    packets = captured()
    late = (packets["sequence"] == 1500) & ~packets["outgoing"]
    wrong = compared(packets[~late])
    assert {"f1 received", "f1 outages", "packets lost"} <= {*wrong}


def test_packets_that_came_twice_or_in_another_order_and_were_not_counted_are_seen() -> None:
    packets = captured()
    came = (packets["sequence"] == 1500) & ~packets["outgoing"]
    again = packets[came]
    again["time_ns"] += 10 * MS
    assert compared(np.concatenate((packets, again))) == ["f1 duplicated"]
    packets["time_ns"][came] += 3 * MS + MS // 2
    assert compared(packets) == ["f1 reordered"]
    truth = flow_truth(packets, ADDRESS, 0, START, START + COUNT * MS)
    assert truth is not None
    assert (truth.reordered, truth.duplicated) == (1, 0)


def test_a_loss_derived_time_of_another_rate_is_seen() -> None:
    packets = captured()
    since_ns = packets["time_ns"] - EVENT_NS
    packets["time_ns"] = EVENT_NS + since_ns * 9 // 10
    wrong = compared(packets)
    assert "event 1 f1 loss-derived convergence" in wrong
    assert "event 1 loss-derived convergence" in wrong


def test_an_event_stamped_too_early_or_too_late_is_seen() -> None:
    what = "event 1: the first port went dark"
    assert compared(captured(), dark_ns=EVENT_NS + 20 * MS) == [what]
    wrong = compared(captured(), EVENT_NS + 30 * MS)
    assert wrong == ["outages of no event in which one came", what]
    lost = "event 1: the first packet was lost not before it"
    assert compared(captured({1000: -30 * MS})) != []
    assert lost in compared(captured({1000: -30 * MS}))


def test_a_payload_that_changed_on_its_way_is_no_truth() -> None:
    packets = captured()
    packets["stamp_ns"][~packets["outgoing"] & (packets["sequence"] == 3)] += 1
    with pytest.raises(ValueError, match="another payload"):
        flow_truth(packets, ADDRESS, 0, START, START + COUNT * MS)


@pytest.mark.parametrize(
    ("claimed", "true", "right"),
    [(None, None, True), (None, 1, False), (1, None, False), (10, 12, True), (10, 13, False)],
)
def test_a_comparison(claimed: float | None, true: float | None, right: bool) -> None:
    assert Comparison("x", claimed, true, 2).right is right


def test_a_clock_that_was_set_is_taken_back() -> None:
    packets = captured()
    packets["time_ns"][packets["time_ns"] >= START + 1500 * MS] += 300 * MS
    steps = [(START + 1800 * MS, START + 3000 * MS, 300 * MS)]
    assert compared(on_one_clock(packets, steps)) == []
    (change,) = ports_on_one_clock([dark(START + 1900 * MS)], steps)
    assert change.time_ns == START + 1600 * MS


QP, ACKS = 7, 8
MTU = 1024
_ITERATIONS = 3


def job_packets() -> Packets:
    """Three iterations, 10 ms apart, of one message of two packets each; the last is sent twice."""
    rows = []
    for psn, (iteration, last) in enumerate((i, last) for i in range(3) for last in (False, True)):
        packet = np.zeros((), PACKET)
        packet["opcode"], packet["queue_pair"], packet["psn"] = 0x09 if last else 0x06, QP, psn
        packet["ip_bytes"] = 44 + MTU + (4 if last else 16)
        packet["magic"] = iteration << 22 | 5 if last else 0
        packet["time_ns"] = START + iteration * 10 * MS + psn % 2 * MS
        for outgoing in (True, True, False) if psn == 5 else (True, False):
            packet["outgoing"] = outgoing
            rows.append(packet.copy())
    return np.array(rows, PACKET)


def job_report(paused_until_ns: int | None = 1, **figures: Any) -> Any:
    flow = {
        **{"rank": 0, "peer": 1, "dest_qp": QP, "acks_qp": ACKS, "packets": 7, "retransmitted": 1},
        **{"ce": 0, "cnps": 0, "bytes": 6 * MTU},
    }
    times = [SimpleNamespace(lab_ns=figures.pop("iteration_ns", 10 * MS)) for _ in range(2)]
    return SimpleNamespace(
        flows=[SimpleNamespace(**flow | figures)],
        ranks=[SimpleNamespace(nic="srv1-1:1")],
        lossless=SimpleNamespace(spans=[SimpleNamespace(node="srv1-1", end_ns=paused_until_ns)]),
        iterations=times,
        errors=(),
        job={"warmup_iterations": 1, "compute": "0ns"},
        clock=SimpleNamespace(dilation=1.0),
        resolution=SimpleNamespace(lab_ns=MS // 2),
        roce=SimpleNamespace(refused=0, icrc_errors=0),
    )


def test_a_jobs_figures_are_those_of_the_wire() -> None:
    comparisons = list(compare_report(job_report(), job_packets()))
    assert [comparison.what for comparison in comparisons if not comparison.right] == []
    assert (
        len([comparison for comparison in comparisons if comparison.what.startswith("iteration")])
        == 2
    )


@pytest.mark.parametrize(
    ("figure", "value", "what"),
    [
        ("packets", 8, "packets"),
        ("retransmitted", 0, "sent again"),
        ("bytes", 5 * MTU, "bytes"),
        ("ce", 1, "marks"),
        ("cnps", 1, "CNPs"),
        ("iteration_ns", 12 * MS, "iteration 1 in ns"),
    ],
)
def test_a_jobs_wrong_figure_is_seen(figure: str, value: int, what: str) -> None:
    comparisons = compare_report(job_report(**{figure: value}), job_packets())
    assert next(comparison.what for comparison in comparisons if not comparison.right).endswith(
        what
    )


def test_a_batch_may_wait_in_a_port_that_is_paused_at_the_end() -> None:
    def wrong(packets: int) -> list[str]:
        comparisons = compare_report(job_report(None, packets=packets), job_packets())
        return [comparison.what for comparison in comparisons if not comparison.right]

    assert wrong(7 + BATCH) == []
    assert wrong(8 + BATCH) == ["rank 0 to 1, QP 7 packets"]


def test_ports_as_netlink_tells_of_them() -> None:
    name = b"ctsw1\0".ljust(8, b"\0")
    body = struct.pack("=BxHiII", 0, 1, 7, 0x43, 0) + struct.pack("=HH", 10, 3) + name
    message = struct.pack("=IHHII", 16 + len(body), 16, 0, 0, 0) + body
    other = struct.pack("=IHHII", 16, 24, 0, 0, 0)
    assert portwatch.links(message + other + message) == [("ctsw1", True)] * 2


def test_what_is_run_is_what_was_asked_for() -> None:
    assert pairs("link-flap", "none late") == [("link-flap", "none"), ("link-flap", "late")]
    assert pairs("allreduce", "none late nothing") == [("allreduce", "none")]
    assert pairs("link-flap drain", "partly") == [("drain", "partly")]
    every = pairs("", "")
    assert ("storm", "steal") in every
    assert not [pair for pair in every if pair[1] == "clock"], "only where it is asked for"
    assert pairs("storm", "clock") == [("storm", "clock")]
    with pytest.raises(pytest.UsageError, match="no such drill or disturbance: x"):
        pairs("x", "")


def test_the_table_counts_each_disturbance() -> None:
    wrong = Outcome(1, 1, (Comparison("x", 1, 2), Comparison("y", 1, 1)))
    refused = Outcome(1, 0, (), refused="no")
    lines = table(
        [("a", "steal", wrong), ("b", "steal", refused), ("a", "none", Outcome(2, 1, ()))]
    )
    assert [line.split() for line in lines[1:]] == [
        ["none", "1", "2", "1", "1", "0", "0", "0", "0"],
        ["steal", "2", "2", "1", "0", "1", "1", "0", "2"],
    ]
