"""Measures convergence times: traffic through a lab while faults are injected.

    with lab.measure(lab.traffic(flows=24)) as run:
        with lab.fault("carrier-down", link="rtsw1:ctsw1"):
            run.hold("1s")
    assert run.full_convergence <= "300ms"

The figures of docs/results.md are available after the block: by then routing has recovered and
traffic has continued for the Sustained Convergence Validation Time (RFC 6412 section 3.7.5), which
distinguishes recovery from a pause.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from rocelab.base import quantities
from rocelab.base.errors import ExpectationError, InputError
from rocelab.drills.drill_spec import MeasureSpec
from rocelab.drills.probes import wait_until
from rocelab.faults.injector import Injector
from rocelab.faults.schedule import expand
from rocelab.faults.timetable import carry_out
from rocelab.lab.convergence import convergence_timeout_s
from rocelab.lab.inuse import turn
from rocelab.labfile.base import SECOND
from rocelab.linux.closing import Holding
from rocelab.observe.timeline import FibTimeline, opened_namespaces
from rocelab.results.convergence import Overall
from rocelab.results.probes import ProbeRun
from rocelab.runs.probes import FaultedRun, ProbeSettings
from rocelab.testkit.duration import Duration
from rocelab.testkit.traffic import Traffic
from rocelab.testkit.written import as_fault

if TYPE_CHECKING:
    from rocelab.testkit.kit import Experiment

AHEAD_NS = 100_000_000
"""Scheduled faults begin this long after the call, so that they begin on time."""

LEAST_PACKETS = 5
"""The fewest packets of a flow in a sampling interval: with fewer the rate-derived method sees
nothing."""


class InvalidRunError(ExpectationError):
    """The machine could not keep up with a run: its figures would measure the machine."""


class NotMeasuredError(AssertionError):
    """A figure that a run does not have. It meets no expectation, in either direction."""


class Measurement(Holding):
    """A run under traffic: a `with` block, and afterwards its figures."""

    def __init__(
        self,
        experiment: Experiment,
        traffic: Traffic,
        spec: MeasureSpec,
        *,
        accept_invalid: bool,
    ) -> None:
        """Plans only. Raises InputError if the flows do not fit the lab or the method."""
        _check_sampling(traffic, spec)
        self._experiment = experiment
        self._traffic = traffic
        self._spec = spec
        self._accept_invalid = accept_invalid
        self._run: FaultedRun | None = None
        self._fib: FibTimeline | None = None
        self._problems: tuple[str, ...] = ()
        self._repeat: ProbeRun | None = None
        self.open_faults = 0

    def _enter(self, stack: ExitStack) -> None:
        """Start the traffic and return after the warm-up. Raises InputError if another measurement
        runs, MachineError if an agent does not start."""
        if self._experiment.measuring is not None:
            raise InputError("a measurement runs already", hint="end its `with` block first")
        if self._repeat is not None or self._run is not None:
            raise InputError("this measurement is over", hint="make another with measure(...)")
        lab, spec = self._experiment.lab, self._spec
        settings = ProbeSettings(spec.method, self._traffic.warmup_ns, spec.event_window)
        stack.enter_context(turn())
        netns_of = stack.enter_context(opened_namespaces(lab, lab.fabric.switches))
        self._fib = stack.enter_context(FibTimeline(lab, netns_of))
        self._fib.wait_until_whole(convergence_timeout_s(lab.fabric))
        run = FaultedRun(lab, self._traffic.flows, settings, self._fib)
        self._run = stack.enter_context(run)
        wait_until(run.zero_ns)
        self._experiment.measuring = self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait until routing has recovered and stayed whole, end the traffic, and measure.

        Raises InvalidRunError if the machine did not carry the run, unless accepted,
        ExpectationError if the lab does not recover, InputError if there was no fault.
        """
        self._experiment.measuring = None
        if error is not None:
            self._cleanup.__exit__(kind, error, trace)
            return
        with self._cleanup:
            self._finish()
        assert self._repeat is not None
        self._experiment.runs.append(self._repeat)
        if self._repeat.problems and not self._accept_invalid:
            raise InvalidRunError(
                "this run does not count:\n  " + "\n  ".join(self._repeat.problems),
                hint="fewer flows, a lower rate_pps or a smaller lab; let nothing else run; or "
                "measure(..., accept_invalid=True) and look at run.problems",
            )

    def _finish(self) -> None:
        assert self._run is not None
        assert self._fib is not None
        if not self.injector.changes:
            raise InputError(
                "there was no fault during the measurement, and convergence begins with a fault",
                hint="use `with fault(...)` or run.carry_out(...) inside the block of measure(...)",
            )
        if not self.open_faults:
            self.injector.prove()
            self._fib.wait_until_whole(convergence_timeout_s(self._experiment.lab.fabric))
        slowest_pps = min(flow.rate_pps for flow in self._traffic.flows)
        # Both methods need complete intervals and packets after that time.
        margin_ns = 2 * self._spec.sampling_interval + 2 * SECOND // slowest_pps
        self._hold_ns(self._spec.sustained + margin_ns)
        self._repeat = self._run.finish(problems=self._problems)

    @property
    def injector(self) -> Injector:
        """The injector of this measurement. Raises InputError if the measurement does not run."""
        if self._run is None:
            raise InputError("the measurement has not begun", hint="use it as a `with` block")
        return self._run.injector

    def hold(self, duration: str) -> None:
        """Let the traffic run for a time such as `500ms`."""
        self._must_run()
        self._hold_ns(Duration.written(duration).ns)

    def carry_out(self, kind: str, **keywords: object) -> None:
        """Inject and repair a fault by a schedule; return after the last change.

        `kind` and the keys are those of a drill file's fault: `lasts`, `at` (from now), and for
        `flapping` and `campaign` the keys that say how often. If the kernel can end a fault by
        itself, as with a blackhole, `lasts` is exact. Raises SpecError for a wrong key, InputError
        if the fault does not fit the lab.
        """
        self._must_run()
        spec = as_fault(kind, keywords)
        fabric = self._experiment.lab.fabric
        faults = expand(fabric, [spec])
        for timed in faults:
            self._experiment.faults.append(timed.spec.resolve(fabric))
            if timed.ends_ns is None and not timed.spec.instant:
                raise InputError(
                    f"carry_out({kind!r}) does not say how long the fault lasts",
                    hint=f'give it lasts="1s", or use `with fault({kind!r}, ...)`',
                )
        zero_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) + AHEAD_NS
        self._problems += carry_out(self.injector, faults, zero_ns, wait_until)
        # The kernel may end it: the test continues after the fault.
        wait_until(zero_ns + max(timed.ends_ns or timed.begins_ns for timed in faults))

    def _must_run(self) -> None:
        if self._experiment.measuring is not self:
            raise InputError("the measurement does not run", hint="call it inside its `with` block")

    def _hold_ns(self, duration_ns: float) -> None:
        wait_until(time.clock_gettime_ns(time.CLOCK_REALTIME) + round(duration_ns))

    @property
    def repeat(self) -> ProbeRun:
        """All measurements: flows, events, the FIB of every switch over time. Raises InputError
        before the block has ended."""
        if self._repeat is None:
            raise InputError(
                "nothing is measured yet", hint="look at figures after the block of measure(...)"
            )
        return self._repeat

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the run is invalid; empty if it is valid."""
        return self.repeat.problems

    @property
    def full_convergence(self) -> Duration:
        """The time from the event to the recovery of the last affected flow (RFC 6412 section
        3.6.1), of the worst event. Raises NotMeasuredError, as all times do."""
        return self._time("full_convergence", self._overall.full_convergence_ns)

    @property
    def first_route_convergence(self) -> Duration:
        """The time from the event to the recovery of the first affected flow (RFC 6412 section
        3.6.2)."""
        return self._time("first_route_convergence", self._overall.first_route_convergence_ns)

    @property
    def loss_derived_convergence(self) -> Duration:
        """Packets that the affected flows lost over their rate (RFC 6412 section 3.6.4)."""
        return self._time("loss_derived_convergence", self._overall.loss_derived_ns)

    @property
    def rate_derived_convergence(self) -> Duration:
        """Until throughput returns to the offered load and stays there (RFC 6412 section 3.5.1)."""
        return self._time("rate_derived_convergence", self._overall.rate_derived_ns)

    @property
    def loss_of_connectivity(self) -> Duration:
        """The longest time that a flow was cut off, summed until it recovered (RFC 6412 3.6.5)."""
        return self._time("loss_of_connectivity", self._overall.loss_of_connectivity_ns)

    @property
    def resolution(self) -> Duration:
        """The packet interval of the slowest flow, the resolution of all times."""
        return Duration(self._overall.resolution_ns)

    @property
    def restored(self) -> bool:
        """Whether every affected flow recovered."""
        return self._overall.restored

    @property
    def affected_flows(self) -> int:
        """Flows that lost packets because of a fault."""
        return self._overall.affected_flows

    @property
    def lost_packets(self) -> int:
        """Sent and never received, over all flows."""
        return self._overall.lost

    @property
    def lost_outside_events(self) -> int:
        """Lost packets that no fault accounts for."""
        return self._overall.lost_outside_events

    @property
    def reordered_packets(self) -> int:
        """Packets that arrived after later ones (RFC 4737 section 3.3)."""
        return self._overall.reordered

    @property
    def duplicated_packets(self) -> int:
        """Further copies of packets that had arrived (RFC 5560)."""
        return self._overall.duplicated

    @property
    def _overall(self) -> Overall:
        return self.repeat.overall

    def _time(self, name: str, measured_ns: float | None) -> Duration:
        if measured_ns is not None:
            return Duration(measured_ns)
        if self.affected_flows == 0:
            why = "no flow lost a packet: none crossed the fault, or the fault lost none"
        elif self.restored:
            why = "the losses are too few to be distinguished from noise, or are cut short"
        else:
            why = "an affected flow had not recovered when the traffic ended"
        raise NotMeasuredError(f"{name} was not measured: {why}")


def _check_sampling(traffic: Traffic, spec: MeasureSpec) -> None:
    slowest_pps = min((flow.rate_pps for flow in traffic.flows), default=LEAST_PACKETS)
    if spec.sampling_interval * slowest_pps < LEAST_PACKETS * SECOND:
        raise InputError(
            f"a sampling interval of {quantities.duration(spec.sampling_interval)} holds fewer "
            f"than {LEAST_PACKETS} packets of a flow at {slowest_pps} packets/s",
            hint="make sampling_interval at least "
            f"{quantities.duration(LEAST_PACKETS * SECOND / slowest_pps)}",
        )
