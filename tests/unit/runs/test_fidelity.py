"""A sender's stalls while its flow was cut off, and their effect on a repeat's validity."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest

from rocelab.jobs.flow import ProbeStream as TrafficFlow
from rocelab.results.convergence import FlowSamples, MeasurementMethod
from rocelab.results.probes import Event, Flow, ProbeRun, Timeline, probe_run
from rocelab.runs.fidelity import STALL_LIMIT_NS, judged, longest_stall_ns
from rocelab.traffic.result import AgentRecord, FlowTransmission, TrafficResult

MS = 10**6
ZERO_NS = 1_000 * 10**9
SENT = 1000
FIRST_LOST, FIRST_BACK = 400, 500
EVENT_NS = ZERO_NS + FIRST_LOST * MS - MS // 2


def flow(name: str) -> Flow:
    return Flow(name, "srv1-1", "srv2-1", "198.18.0.0", "198.18.0.2", 49152, 4791)


def samples(
    lost: Collection[int] = (), stalled_before: int | None = None, stall_ms: int = 0
) -> FlowSamples:
    """A packet a millisecond, of which `lost` do not arrive; the sender stalls before one."""
    seq = np.arange(SENT, dtype=np.int64)
    sent_ns = ZERO_NS + seq * MS
    if stalled_before is not None:
        sent_ns[stalled_before:] += stall_ms * MS
    got = np.array([number for number in seq if number not in lost], dtype=np.int64)
    return FlowSamples(seq, sent_ns, got, sent_ns[got] + 50_000)


def timeline(event_ns: int = EVENT_NS, window_ms: int = 5000) -> Timeline:
    event = Event(event_ns, "carrier-down", "begin", "rtsw1:ctsw1")
    return Timeline((event,), ZERO_NS, ZERO_NS + 3 * SENT * MS, window_ms * MS)


def repeat(flows: dict[Flow, FlowSamples], line: Timeline, *problems: str) -> ProbeRun:
    return probe_run(flows, line, MeasurementMethod(10 * MS, 100 * MS), problems=problems)


def stall_ms(flows: dict[Flow, FlowSamples], line: Timeline | None = None) -> float | None:
    line = line or timeline()
    gap_ns = longest_stall_ns(repeat(flows, line), flows, line.events[0].t_ns)
    return None if gap_ns is None else gap_ns / MS


CUT_OFF = range(FIRST_LOST, FIRST_BACK)


@pytest.mark.parametrize(
    ("stalled_before", "longest_ms"),
    [
        (FIRST_LOST - 1, 1),
        (FIRST_LOST, 31),
        (450, 1),
        (FIRST_BACK, 31),
        (FIRST_BACK + 1, 1),
        (900, 1),
    ],
)
def test_a_stall_counts_where_the_outage_begins_and_where_it_ends(
    stalled_before: int, longest_ms: int
) -> None:
    # The event comes after the stall that precedes the outage.
    line = timeline(EVENT_NS + (30 * MS if stalled_before <= FIRST_LOST else 0))
    assert stall_ms({flow("f1"): samples(CUT_OFF, stalled_before, 30)}, line) == longest_ms


def test_the_worst_of_all_flows_that_were_cut_off_counts() -> None:
    flows = {
        flow("f1"): samples(CUT_OFF, FIRST_BACK, 4),
        flow("f2"): samples(CUT_OFF, FIRST_BACK, 9),
        flow("f3"): samples(stalled_before=450, stall_ms=200),
    }
    assert stall_ms(flows) == 10


def test_a_stall_at_another_time_changes_nothing() -> None:
    assert stall_ms({flow("f1"): samples(stalled_before=450, stall_ms=30)}) == 1
    before_the_event = {flow("f1"): samples(range(100, 110), 110, 30)}
    assert stall_ms(before_the_event, timeline(EVENT_NS + 30 * MS)) == 1
    after_its_window = {flow("f1"): samples(range(800, 810), 810, 30)}
    assert stall_ms(after_its_window, timeline(window_ms=100)) == 1


def test_of_a_flow_that_never_recovers_only_the_beginning_counts() -> None:
    for_good = range(FIRST_LOST, SENT)
    assert stall_ms({flow("f1"): samples(for_good, SENT - 1, 30)}) == 1
    late = timeline(EVENT_NS + 30 * MS)
    assert stall_ms({flow("f1"): samples(for_good, FIRST_LOST, 30)}, late) == 31


def test_an_outage_from_the_first_packet_on_is_measured_too() -> None:
    line = timeline(ZERO_NS - MS)
    assert stall_ms({flow("f1"): samples(range(0, 10), 10, 30)}, line) == 31


def test_an_outage_may_hide_in_a_stall_of_any_flow_as_the_event_comes() -> None:
    line = timeline(EVENT_NS + 5 * MS)
    flows = {flow("f1"): samples(), flow("f2"): samples((), FIRST_LOST, 40)}
    assert stall_ms(flows, line) == 41


def rejected(outage_ms: int, trials: int = 300) -> int:
    """The number of rejected outages if the sender stalls at random, twice a second
    for 25 to 60 ms; packets wait for it and none is skipped."""
    draw = np.random.default_rng(outage_ms)
    count = 0
    for _ in range(trials):
        due_ns = np.arange(outage_ms + 1000, dtype=np.int64) * MS
        sent_ns = due_ns.copy()
        for begins in np.flatnonzero(draw.random(len(due_ns)) < 0.002):
            ends_ns = due_ns[begins] + int(draw.integers(25, 60)) * MS
            sent_ns[begins:] = np.maximum(sent_ns[begins:], ends_ns)
        lost = (sent_ns >= 500 * MS) & (sent_ns < (500 + outage_ms) * MS)
        seq = np.arange(len(due_ns), dtype=np.int64)
        one = FlowSamples(seq, sent_ns + ZERO_NS, seq[~lost], sent_ns[~lost] + ZERO_NS + 50_000)
        line = Timeline(
            (Event(ZERO_NS + 500 * MS, "blackhole", "begin", "rtsw1:ctsw1"),),
            ZERO_NS,
            ZERO_NS + int(sent_ns[-1]) + MS,
            60_000 * MS,
        )
        flows = {flow("f1"): one}
        measured = judged(repeat(flows, line), flows, line, traffic((0, 0)), 0.0)
        count += not measured.valid
    return count


@pytest.mark.long
def test_long_outages_are_not_rejected_more_often_than_short_ones() -> None:
    short, long = rejected(100), rejected(4000)
    assert 0 < short < 150
    # Five standard deviations of the difference of two such counts.
    assert abs(long - short) < 5 * (2 * 300 * 0.25) ** 0.5


def test_no_valid_outage_is_longer_or_shorter_than_reported_by_more_than_its_resolution() -> None:
    """Whatever the sender does around it: the outage lasts exactly 100 ms."""
    draw = np.random.default_rng(5)
    for _ in range(200):
        sent_ns = ZERO_NS + np.sort(draw.integers(0, 1000 * MS, 800))
        begins_ns = ZERO_NS + int(draw.integers(300, 500)) * MS
        lost = (sent_ns >= begins_ns) & (sent_ns < begins_ns + 100 * MS)
        seq = np.arange(len(sent_ns), dtype=np.int64)
        one = FlowSamples(seq, sent_ns, seq[~lost], sent_ns[~lost] + 50_000)
        event = Event(begins_ns - 3 * MS, "carrier-down", "begin", "rtsw1:ctsw1", took_ns=4 * MS)
        line = Timeline((event,), ZERO_NS, ZERO_NS + 1000 * MS, 5000 * MS)
        overall = repeat({flow("f1"): one}, line).overall
        assert overall.loss_of_connectivity_ns is not None
        assert overall.full_convergence_ns is not None
        assert abs(overall.loss_of_connectivity_ns - 100 * MS) <= overall.resolution_ns
        assert abs(overall.full_convergence_ns - 100 * MS) <= overall.resolution_ns


def traffic(*lags_ns: tuple[int, int], cpu_s: tuple[float, ...] = ()) -> TrafficResult:
    nothing = np.array([], dtype=np.int64)
    records = [
        FlowTransmission(
            flow=TrafficFlow(number, "srv1-1", 1, "srv2-1", 1, 49152, 2, 1000, 64),
            sent_seq=nothing,
            sent_ns=nothing,
            refused_seq=nothing,
            refused_ns=nothing,
            received_seq=nothing,
            send_ns=nothing,
            receive_ns=nothing,
            ttl=nothing.astype(np.uint8),
            intended=0,
            lag_p99_ns=p99_ns,
            lag_max_ns=max_ns,
        )
        for number, (p99_ns, max_ns) in enumerate(lags_ns)
    ]
    agents = [
        AgentRecord(f"srv{n}-1", stalls, 0, 0, {}, 0, 0, True) for n, stalls in enumerate(cpu_s)
    ]
    return TrafficResult(tuple(records), tuple(agents), 0, 0, 0, 0, ())


def judgement(stalled_ms: int, *problems: str) -> ProbeRun:
    flows = {flow("f1"): samples(CUT_OFF, FIRST_BACK, stalled_ms - 1)}
    line = timeline()
    carried = traffic((3 * MS, 4 * MS), (2 * MS, 9 * MS), cpu_s=(0.5, 0.25))
    return judged(repeat(flows, line, *problems), flows, line, carried, 1.5)


def test_a_repeat_has_the_worst_lags_the_stall_and_the_cpu_time_of_all_agents() -> None:
    fidelity = judgement(7).fidelity
    assert fidelity is not None
    assert (fidelity.lag_p99_ns, fidelity.lag_max_ns, fidelity.stall_ns) == (3 * MS, 9 * MS, 7 * MS)
    assert (fidelity.agents_cpu_s, fidelity.stolen_s) == (0.75, 1.5)


def test_a_stall_up_to_the_limit_is_valid_and_a_longer_one_is_not() -> None:
    """Beyond the time between two packets, which is 1 ms."""
    limit_ms = STALL_LIMIT_NS // MS + 1
    assert judgement(limit_ms).valid
    (problem,) = judgement(limit_ms + 1).problems
    assert problem.startswith("not valid because a sender stalled for 22 ms just as an outage")
    assert problem.endswith("(the limit is 21 ms)")


def test_a_flow_of_few_packets_has_not_stalled_between_them() -> None:
    sent = np.arange(100, dtype=np.int64)
    sent_ns = ZERO_NS + sent * 100 * MS
    got = np.concatenate([sent[:50], sent[53:]])
    flows = {flow("f1"): FlowSamples(sent, sent_ns, got, sent_ns[got] + 50_000)}
    event = Event(ZERO_NS + 4950 * MS, "carrier-down", "begin", "rtsw1:ctsw1")
    line = Timeline((event,), ZERO_NS, ZERO_NS + 10_000 * MS, 5_000 * MS)
    run = probe_run(flows, line, MeasurementMethod(1000 * MS, 1000 * MS))
    assert judged(run, flows, line, traffic((MS, MS)), 0.0).problems == ()


def test_problems_that_a_repeat_has_already_stay_first() -> None:
    problems = judgement(100, "the clock jumped").problems
    assert problems[0] == "the clock jumped"
    assert len(problems) == 2
    assert judgement(1, "the clock jumped").problems == ("the clock jumped",)
