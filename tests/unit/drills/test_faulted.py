"""A drill's traffic on a machine that hardly sends it."""

from __future__ import annotations

import numpy as np
import pytest

from rocelab.drills.faulted import check_sent, counted_samples
from rocelab.errors import MachineError
from rocelab.jobs.flow import Flow
from rocelab.plan.build import build_fabric
from rocelab.results.convergence import FlowSamples, Method, Window, measure_flow, offered_rate_pps
from rocelab.results.probes import Timeline
from rocelab.traffic.result import Arrivals, flow_record
from tests.helpers.report_sample import flows, lab

ONE, OTHER = flows(build_fabric(lab()), 2)


def sent(*times_ns: int) -> FlowSamples:
    nothing = np.array([], dtype=np.int64)
    numbers = np.arange(len(times_ns), dtype=np.int64)
    return FlowSamples(numbers, np.array(times_ns, dtype=np.int64), nothing, nothing)


@pytest.mark.parametrize("few", [sent(), sent(7), sent(7, 7)])
def test_a_flow_without_a_rate_is_the_machines_fault_and_says_what_to_do(few: FlowSamples) -> None:
    with pytest.raises(MachineError, match="1 of 2 flows sent fewer than two") as caught:
        check_sent({ONE: sent(1, 2), OTHER: few})
    assert "traffic.rate_pps" in str(caught.value)
    assert caught.value.exit_code == 3


def test_two_packets_are_enough() -> None:
    check_sent({ONE: sent(1, 2)})


MS = 10**6
PORT_DOWN = np.arange(200, 300, dtype=np.int64)


def test_what_a_dead_port_did_not_take_was_offered_and_is_lost() -> None:
    """A sender of 1,000 packets/s whose own port is down for 100 ms."""
    due_ns = np.arange(1000, dtype=np.int64) * MS
    got = np.delete(np.arange(1000, dtype=np.int64), PORT_DOWN)
    record = flow_record(
        Flow(0, "srv1-1", 1, "srv2-1", 1, 49152, 2, 1000, 64),
        offered_ns=due_ns,
        refused_seq=PORT_DOWN,
        first_ns=0,
        stopped_ns=1000 * MS,
        arrivals=Arrivals(
            np.zeros(len(got), np.uint32), got, got * MS, got * MS + 50_000, np.full(len(got), 60)
        ),
    )
    counted = counted_samples(record, Timeline((), 0, 1000 * MS, 1000 * MS))
    rate_pps = offered_rate_pps(counted.sent_ns)
    measured = measure_flow(
        counted, [Window(200 * MS, 1000 * MS)], rate_pps, Method(10 * MS, 100 * MS)
    )
    assert rate_pps == 1000
    assert (measured.sent, measured.lost) == (1000, 100)
    (event,) = measured.events
    assert event.affected
    assert event.convergence_ns == event.loss_of_connectivity_ns == 100 * MS
