"""The evaluation of agents' reports: records per flow, and reasons why a run is not valid."""

from __future__ import annotations

import numpy as np
import pytest

from rocelab.agent.demux import ProbeLog
from rocelab.jobs.flow import ProbeStream
from rocelab.traffic.result import (
    SECOND_NS,
    AgentRecord,
    Arrivals,
    FlowTransmission,
    find_problems,
    flow_record,
    packets_due,
    read_arrivals,
)
from rocelab.wire.probe import NO_FLOW

FIRST_NS = 1_700_000_000 * SECOND_NS
MS = 1_000_000


def flow(flow_id: int = 0, rate_pps: int = 1000) -> ProbeStream:
    return ProbeStream(flow_id, "srv1-1", 1, "srv2-1", 1, 0xC000, 2, rate_pps, 64)


def arrivals(*packets: tuple[int, int, int, int, int]) -> Arrivals:
    columns = list(zip(*packets, strict=True)) or [()] * 5
    flows, sequences, sent, received, ttls = columns
    return Arrivals(
        np.array(flows, np.uint32),
        np.array(sequences, np.int64),
        np.array(sent, np.int64),
        np.array(received, np.int64),
        np.array(ttls, np.uint8),
    )


def record(
    *,
    lags_ns: list[int],
    rate_pps: int = 1000,
    refused: tuple[int, ...] = (),
    stopped_ns: int | None = None,
    seen: Arrivals | None = None,
) -> FlowTransmission:
    due = [FIRST_NS + n * SECOND_NS // rate_pps for n in range(len(lags_ns))]
    return flow_record(
        flow(rate_pps=rate_pps),
        offered_ns=np.array([d + lag for d, lag in zip(due, lags_ns, strict=True)], np.int64),
        refused_seq=np.array(refused, np.int64),
        first_ns=FIRST_NS,
        stopped_ns=due[-1] if stopped_ns is None else stopped_ns,
        arrivals=seen or arrivals(),
    )


def agent(**changed: object) -> AgentRecord:
    values: dict[str, object] = {
        "server": "srv1-1",
        "cpu_s": 1.0,
        "backlog_ns": 0,
        "socket_drops": 0,
        "send_errors": {},
        "icrc_errors": 0,
        "unexpected": 0,
        "drained": True,
    }
    return AgentRecord(**(values | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("elapsed_ns", "packets"), [(-1, 0), (0, 1), (MS - 1, 1), (MS, 2), (SECOND_NS, 1001)]
)
def test_the_packet_of_the_first_deadline_counts_as_due(elapsed_ns: int, packets: int) -> None:
    assert packets_due(elapsed_ns, 1000) == packets


def test_refused_packets_are_kept_apart_from_those_that_were_sent() -> None:
    run = record(lags_ns=[0] * 5, refused=(1, 2))
    assert run.sent_seq.tolist() == [0, 3, 4]
    assert (run.sent_ns - FIRST_NS).tolist() == [0, 3 * MS, 4 * MS]
    assert run.refused_seq.tolist() == [1, 2]
    assert run.offered == run.intended == 5


def test_arrivals_keep_their_order_and_lose_other_flows() -> None:
    seen = arrivals((0, 2, 5, 9, 62), (7, 0, 1, 2, 61), (0, 1, 4, 10, 60))
    run = record(lags_ns=[0] * 3, seen=seen)
    assert run.received_seq.tolist() == [2, 1]
    assert run.send_ns.tolist() == [5, 4]
    assert run.receive_ns.tolist() == [9, 10]
    assert run.ttl.tolist() == [62, 60]


def test_lag_is_counted_from_the_deadline_even_at_a_rate_that_divides_no_second() -> None:
    run = record(lags_ns=[3, 4, 5] * 100, rate_pps=997)
    assert (run.lag_p99_ns, run.lag_max_ns) == (5, 5)


def test_an_agents_log_of_probes_becomes_numbers() -> None:
    log = ProbeLog()
    log.flow.extend([3, NO_FLOW])
    log.sequence.extend([2**40, 6])
    log.send_ns.extend([FIRST_NS, 8])
    log.receive_ns.extend([FIRST_NS + 999_999_999, 9 * SECOND_NS + 1])
    log.ttl.extend([64, 255])
    seen = read_arrivals(log.columns())
    assert seen.flow.tolist() == [3, NO_FLOW]
    assert seen.sequence.tolist() == [2**40, 6]
    assert seen.send_ns.tolist() == [FIRST_NS, 8]
    assert seen.receive_ns.tolist() == [FIRST_NS + 999_999_999, 9 * SECOND_NS + 1]
    assert seen.ttl.tolist() == [64, 255]


def test_a_run_as_intended_has_no_problems() -> None:
    assert find_problems([record(lags_ns=[MS // 10] * 1000)], [agent()], 1000, 0) == ()


def test_a_sender_more_than_one_percent_short_is_a_problem() -> None:
    at_the_limit = record(lags_ns=[0] * 990, stopped_ns=FIRST_NS + 999 * MS)
    short = record(lags_ns=[0] * 980, stopped_ns=FIRST_NS + 999 * MS)
    assert find_problems([at_the_limit], [agent()], 0, 0) == ()
    (problem,) = find_problems([at_the_limit, short], [agent()], 0, 0)
    assert problem.startswith("not valid because 1 of 2 flows")
    assert "980 of 1,000 packets" in problem


def test_a_few_packets_are_not_short_by_the_one_due_as_they_stop() -> None:
    assert find_problems([record(lags_ns=[0], stopped_ns=FIRST_NS + MS)], [agent()], 0, 0) == ()


def test_late_packets_are_a_problem_by_their_99th_percentile_and_by_their_maximum() -> None:
    (often,) = find_problems([record(lags_ns=[0] * 900 + [6 * MS] * 100)], [agent()], 0, 0)
    assert "6.0 ms late (99th percentile" in often
    (once,) = find_problems([record(lags_ns=[0] * 999 + [51 * MS])], [agent()], 0, 0)
    assert "51.0 ms late (maximum" in once


def test_packets_refused_by_a_full_queue_are_a_problem_and_by_a_dead_interface_are_not() -> None:
    (problem,) = find_problems([], [agent(send_errors={"ENOBUFS": 3, "ENETDOWN": 9})], 0, 0)
    assert "srv1-1's kernel had no room for 3 packets to send" in problem
    assert find_problems([], [agent(send_errors={"ENETDOWN": 9})], 0, 0) == ()


def test_drops_at_the_receiver_unfinished_arrivals_and_clock_jumps_are_problems() -> None:
    problems = find_problems([], [agent(socket_drops=1200, drained=False)], -2 * MS, 7)
    assert [p.removeprefix("not valid because ") for p in problems] == [
        "srv1-1's receiver had no room for 1,200 packets",
        "packets were still arriving at srv1-1 when it stopped waiting for them",
        "the kernel's receive backlog had no room for 7 packets",
        "the machine's clock jumped by -2.000 ms",
    ]


def test_a_clock_that_was_set_and_put_back_is_a_problem() -> None:
    (problem,) = find_problems([], [agent()], 0, 0, clock_was_set=True)
    assert problem == "not valid because the machine's clock was set during the run, and set back"


def test_packets_stamped_by_another_clock_are_no_measurement() -> None:
    (problem,) = find_problems([], [agent(), agent(server="srv2-1", misdated=3)], 0, 0)
    assert "the kernel stamps packets for srv2-1 with another time" in problem
