"""A drill's traffic on a machine that hardly sends it, and faults that take effect late."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import ClassVar

import numpy as np
import pytest

from rocelab.base.errors import MachineError
from rocelab.faults.base import Fault
from rocelab.faults.injector import InjectedChange
from rocelab.faults.kinds.carrier_down import CarrierDown
from rocelab.jobs.flow import ProbeStream, permutation
from rocelab.lab.lab import Lab
from rocelab.linux.bracket import realtime_ns
from rocelab.linux.fibtable import Fib
from rocelab.linux.linkwatch import LinkEvent
from rocelab.observe import processes
from rocelab.observe.health.health_spec import HealthSpec
from rocelab.observe.processes import NO_CONTROLLER
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import Link
from rocelab.results.convergence import (
    FlowSamples,
    MeasurementMethod,
    Window,
    measure_flow,
    offered_rate_pps,
)
from rocelab.results.probes import FibChange, Timeline
from rocelab.routes.planned import planned_fibs
from rocelab.runs import observers, probes
from rocelab.runs.probes import FaultedRun, ProbeSettings, check_sent, counted_samples
from rocelab.traffic.result import Arrivals, TrafficResult, flow_record
from tests.helpers.impaired import blackhole
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
        ProbeStream(0, "srv1-1", 1, "srv2-1", 1, 49152, 2, 1000, 64),
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
        counted, [Window(200 * MS, 1000 * MS)], rate_pps, MeasurementMethod(10 * MS, 100 * MS)
    )
    assert rate_pps == 1000
    assert (measured.sent, measured.lost) == (1000, 100)
    (event,) = measured.events
    assert event.affected
    assert event.convergence_ns == event.loss_of_connectivity_ns == 100 * MS


# --- a run whose faults take effect late ----------------------------------------------------------

LAB = Lab.planned("zone-small").unstarted()


@pytest.fixture(autouse=True)
def daemons_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab is only planned: no daemon of it runs."""
    monkeypatch.setattr(processes, "idle_daemons", lambda lab, switch: ())


PACKETS = 3000
BEGAN_MS = 1000


class Tables:
    """What a lab's tables say that never change."""

    def read(self) -> dict[str, Fib]:
        fib_of = planned_fibs(LAB.fabric, LAB.fabric.prefixes)
        return {node.name: fib_of(node.name) for node in LAB.fabric.switches}

    def wait_until_whole(self, timeout_s: float) -> None:
        """They are."""

    def overflowed(self) -> tuple[str, ...]:
        return ()

    def changes(self, start_ns: int, end_ns: int) -> tuple[FibChange, ...]:
        return ()


class Session:
    """A session that began three seconds ago and sent a packet a millisecond since; `lost` of them
    on every flow."""

    lost: ClassVar[range] = range(0)

    def __init__(
        self,
        fabric: object,
        netns_of: object,
        flows: Sequence[ProbeStream],
        *,
        is_watched: bool,
    ) -> None:
        self._flows = flows
        self._start_ns = realtime_ns() - PACKETS * MS

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was started."""

    def start(self) -> int:
        return self._start_ns

    def stop(self) -> TrafficResult:
        seq = np.arange(PACKETS, dtype=np.int64)
        sent_ns = self._start_ns + seq * MS
        got = np.delete(seq, self.lost)
        records = []
        for flow in self._flows:
            ids = np.full(len(got), flow.id, np.uint32)
            came_ns = sent_ns[got]
            arrivals = Arrivals(ids, got, came_ns, came_ns + 50_000, np.full(len(got), 60))
            records.append(
                flow_record(
                    flow,
                    offered_ns=sent_ns,
                    refused_seq=np.array([], np.int64),
                    first_ns=self._start_ns,
                    stopped_ns=self._start_ns + PACKETS * MS,
                    arrivals=arrivals,
                )
            )
        return TrafficResult(tuple(records), (), self._start_ns, realtime_ns(), 0, 0, ())


def problems(
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[Link], Fault],
    *,
    dark_ms: int | None = None,
    lost: range = range(0),
) -> list[str]:
    """What a run says of a fault of its flow's first uplink that is stamped at BEGAN_MS."""
    ports: list[LinkEvent] = []

    @contextmanager
    def link_events(lab: Lab) -> Iterator[Sequence[LinkEvent]]:
        yield ports

    monkeypatch.setattr(probes, "TrafficSession", Session)
    monkeypatch.setattr(probes, "link_events", link_events)
    monkeypatch.setattr(Session, "lost", lost)
    settings = ProbeSettings(MeasurementMethod(10 * MS, 100 * MS), 0, 5000 * MS)
    fib = Tables()
    with FaultedRun(LAB, permutation(LAB.fabric, 1, 1000, 64, 1), settings, fib) as run:  # type: ignore[arg-type]
        (path,) = run._paths.values()
        hop = next(hop.link for hop in path.hops if hop.link.is_between_switches)
        began_ns = run.zero_ns + BEGAN_MS * MS
        run.injector.changes.append(InjectedChange(fault(hop.link), True, began_ns, 0))
        if dark_ms is not None:
            at_ns, port = began_ns + dark_ms * MS, hop.link.a
            ports.append(LinkEvent(at_ns, port.node, port.interface, True, False, 2))
        return [text for text in run.finish().problems if "after the stamp" in text]


def test_a_run_during_which_a_carrier_goes_long_after_the_stamp_is_not_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def pulled(link: Link) -> Fault:
        return CarrierDown((link,))

    lost = range(BEGAN_MS, BEGAN_MS + 5)
    assert problems(monkeypatch, pulled, dark_ms=1, lost=lost) == []
    (problem,) = problems(monkeypatch, pulled, dark_ms=939, lost=lost)
    assert "its first port lost its carrier 939 ms after the stamp of carrier-down" in problem


def test_a_run_whose_blackhole_takes_packets_long_after_the_stamp_is_not_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hole(link: Link) -> Fault:
        return blackhole((link,))

    assert problems(monkeypatch, hole, lost=range(BEGAN_MS, BEGAN_MS + 60)) == []
    (problem,) = problems(monkeypatch, hole, lost=range(BEGAN_MS + 98, BEGAN_MS + 104))
    assert "the first packet was lost 98 ms after the stamp of blackhole" in problem


@pytest.mark.parametrize("lacks", [False, True])
def test_a_run_whose_schemes_controller_had_ended_is_not_valid(
    lacks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "TrafficSession", Session)
    monkeypatch.setattr(probes, "link_events", lambda lab: nullcontext([]))
    monkeypatch.setattr(processes, "lacks_controller", lambda files: lacks)
    settings = ProbeSettings(MeasurementMethod(10 * MS, 100 * MS), 0, 5000 * MS)
    with FaultedRun(LAB, permutation(LAB.fabric, 1, 1000, 64, 1), settings, Tables()) as run:  # type: ignore[arg-type]
        began_ns = run.zero_ns + BEGAN_MS * MS
        fault = CarrierDown((LAB.fabric.sessions[0],))
        run.injector.changes.append(InjectedChange(fault, True, began_ns, 0))
        assert (NO_CONTROLLER in run.finish().problems) is lacks


def test_evidence_is_collected_after_the_traffic_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captures and dumps of daemons take CPU time, which a measurement must not lose."""
    done: list[str] = []

    class Watched(Session):
        def stop(self) -> TrafficResult:
            done.append("traffic is over")
            return super().stop()

    class Monitor:
        report = None

        def __init__(self, *_: object, **__: object) -> None:
            """Watches nothing."""

        def __enter__(self) -> Monitor:
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing was started."""

        def collect_evidence(self) -> None:
            done.append("evidence")

    monkeypatch.setattr(probes, "TrafficSession", Watched)
    monkeypatch.setattr(observers, "HealthMonitor", Monitor)
    monkeypatch.setattr(probes, "link_events", lambda lab: nullcontext([]))
    settings = ProbeSettings(
        MeasurementMethod(10 * MS, 100 * MS), 0, 5000 * MS, health=HealthSpec()
    )
    with FaultedRun(LAB, permutation(LAB.fabric, 1, 1000, 64, 1), settings, Tables()) as run:  # type: ignore[arg-type]
        link = LAB.fabric.sessions[0]
        began_ns = run.zero_ns + BEGAN_MS * MS
        run.injector.changes.append(InjectedChange(CarrierDown((link,)), True, began_ns, 0))
        run.finish()
    assert done == ["traffic is over", "evidence"]
