"""Traffic, faults and measurements on a lab that is up, as `with` blocks.

Keywords are the keys of a drill file (docs/drills.md) and are validated in the same way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType

from rocelab.base.errors import InputError
from rocelab.drills.drill_spec import MeasureSpec, TrafficSpec
from rocelab.faults.base import Fault, SingleFaultSpec
from rocelab.faults.injector import Injector
from rocelab.jobs.flow import FIRST_QP, ProbeStream, permutation, resolve_flow
from rocelab.jobs.sport import FIRST_SPORT, QPN_LIMIT, SPORTS
from rocelab.lab.lab import RunningLab
from rocelab.results.probes import ProbeRun
from rocelab.testkit.measurement import Measurement
from rocelab.testkit.traffic import Traffic
from rocelab.testkit.written import as_block, lasting

Pairs = Sequence[tuple[str, str]]


class Experiment:
    """The faults and measurements of a lab that is up, now and so far.

    `on_failure` is called with what failed before a fault is repaired, if a block raises meanwhile.
    """

    def __init__(
        self, lab: RunningLab, on_failure: Callable[[str], object] = lambda why: None
    ) -> None:
        self.lab = lab
        self.on_failure = on_failure
        self.measuring: Measurement | None = None
        self.faults: list[Fault] = []
        self.runs: list[ProbeRun] = []

    def traffic(self, pairs: Pairs | None = None, **keywords: object) -> Traffic:
        """As `RunningLab.traffic`."""
        if "duration" in keywords:
            raise InputError(
                "traffic(...) has the key duration, and traffic runs as long as it is measured",
                hint="leave duration out; run.hold(...) inside `with measure(...)` takes time",
            )
        if pairs is not None and "flows" in keywords:
            raise InputError("traffic(...) has flows and pairs", hint="give it one of the two")
        spec = as_block("traffic", TrafficSpec, keywords)
        fabric = self.lab.fabric
        if pairs is None:
            flows = permutation(fabric, spec.flows, spec.rate_pps, spec.payload, spec.seed)
        else:
            flows = between(pairs, spec)
        for flow in flows:
            resolve_flow(fabric, flow)
        return Traffic(self.lab, flows, spec.warmup)

    def fault(self, kind: str, **keywords: object) -> InjectedFault:
        """As `RunningLab.fault`."""
        return InjectedFault(self, lasting(kind, keywords))

    def measure(
        self, traffic: Traffic, *, accept_invalid: bool = False, **keywords: object
    ) -> Measurement:
        """As `RunningLab.measure`."""
        spec = as_block("measure", MeasureSpec, keywords)
        return Measurement(self, traffic, spec, accept_invalid=accept_invalid)


def between(pairs: Pairs, spec: TrafficSpec) -> tuple[ProbeStream, ...]:
    """A flow for each pair of servers, by their first NICs; source ports and QPs are drawn."""
    draw = random.Random(spec.seed)  # noqa: S311 - repeatable draws, not secrets
    return tuple(
        ProbeStream(
            id=number,
            source=source,
            source_nic=1,
            destination=destination,
            destination_nic=1,
            sport=FIRST_SPORT + draw.randrange(SPORTS),
            dest_qp=draw.randrange(FIRST_QP, QPN_LIMIT),
            rate_pps=spec.rate_pps,
            payload_bytes=spec.payload,
        )
        for number, (source, destination) in enumerate(pairs)
    )


class InjectedFault:
    """A fault that is injected for a `with` block, which gets the `Fault`, and repaired at its
    end."""

    def __init__(self, experiment: Experiment, spec: SingleFaultSpec) -> None:
        self._experiment = experiment
        self._spec = spec
        self._cleanup = ExitStack()

    def __enter__(self) -> Fault:
        """Inject the fault, and outside a measurement wait until its effect is seen; a measurement
        looks when the fault ends. Raises InputError if it does not fit the lab, MachineError if
        this machine cannot, ExpectationError if no effect is seen."""
        run = self._experiment.measuring
        with ExitStack() as stack:
            if run is not None:
                injector = run.injector
                run.open_faults += 1
                stack.callback(_close_fault, run)
            else:
                injector = stack.enter_context(Injector(self._experiment.lab))
            held = injector.prepare(self._spec)
            self._experiment.faults.append(held.fault)
            stack.callback(injector.restore, held)
            injector.inject(held)
            if run is None:
                injector.wait_for_effect(held)
            self._cleanup = stack.pop_all()
        return held.fault

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Repair the fault and, outside a measurement, verify that. Raises ExpectationError if it
        cannot be undone."""
        try:
            if error is not None and not isinstance(error, KeyboardInterrupt | GeneratorExit):
                self._experiment.on_failure("the test failed during a fault")
        finally:
            self._cleanup.__exit__(kind, error, trace)


def _close_fault(run: Measurement) -> None:
    run.open_faults -= 1


TrafficMaker = Callable[..., Traffic]
FaultMaker = Callable[..., InjectedFault]
MeasureMaker = Callable[..., Measurement]
"""The fixtures `traffic`, `fault` and `measure`: methods of the fixture `lab`."""
