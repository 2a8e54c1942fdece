"""The callables of the fixtures `traffic`, `fault` and `measure`.

They make flows, faults as `with` blocks, and measurements on the test's lab. Keywords are the keys
of a drill file (docs/drills.md) and are validated in the same way.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

from rocelab.drills.spec import MeasureSpec, TrafficSpec
from rocelab.errors import InputError
from rocelab.faults.base import Fault
from rocelab.faults.injector import Injector
from rocelab.faults.spec import SingleFaultSpec
from rocelab.jobs.flow import FIRST_QP, Flow, permutation, resolve_flow
from rocelab.jobs.sport import FIRST_SPORT, QPN_LIMIT, SPORTS
from rocelab.plan.fabric import Fabric
from rocelab.testkit.bench import Bench
from rocelab.testkit.measurement import Measurement, Traffic
from rocelab.testkit.written import as_block, lasting

Pairs = Sequence[tuple[str, str]]


class TrafficMaker:
    """The fixture `traffic`."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    def __call__(self, pairs: Pairs | None = None, **keywords: object) -> Traffic:
        """Flows between servers of different racks, each at a constant rate.

        Keywords are those of a drill's `traffic`: `flows`, `rate_pps`, `payload`, `warmup`, `seed`.
        With `pairs` there is one flow from the first to the second server of each instead; a pair
        may be repeated. Raises SpecError for a wrong key, InputError if the flows do not fit the
        lab.
        """
        if "duration" in keywords:
            raise InputError(
                "traffic(...) has the key duration, and traffic runs as long as it is measured",
                hint="leave duration out; run.hold(...) inside `with measure(...)` takes time",
            )
        if pairs is not None and "flows" in keywords:
            raise InputError("traffic(...) has flows and pairs", hint="give it one of the two")
        spec = as_block("traffic", TrafficSpec, keywords)
        if pairs is None:
            flows = permutation(self._fabric, spec.flows, spec.rate_pps, spec.payload, spec.seed)
        else:
            flows = between(pairs, spec)
        for flow in flows:
            resolve_flow(self._fabric, flow)
        return Traffic(flows, spec.warmup)


def between(pairs: Pairs, spec: TrafficSpec) -> tuple[Flow, ...]:
    """A flow for each pair of servers, by their first NICs; source ports and QPs are drawn."""
    draw = random.Random(spec.seed)  # noqa: S311 - repeatable draws, not secrets
    return tuple(
        Flow(
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

    def __init__(self, bench: Bench, spec: SingleFaultSpec) -> None:
        self._bench = bench
        self._spec = spec
        self._cleanup = ExitStack()

    def __enter__(self) -> Fault:
        """Inject the fault, and outside a measurement wait until its effect is seen; a measurement
        looks when the fault ends. Raises InputError if it does not fit the lab, MachineError if
        this machine cannot, ExpectationError if no effect is seen."""
        run = self._bench.measuring
        with ExitStack() as stack:
            if run is not None:
                injector = run.injector
                run.open_faults += 1
                stack.callback(_close_fault, run)
            else:
                injector = stack.enter_context(Injector(self._bench.lab))
            held = injector.prepare(self._spec)
            self._bench.note_fault(held.fault)
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
                self._bench.collect("the test failed while it had broken something")
        finally:
            self._cleanup.__exit__(kind, error, trace)


def _close_fault(run: Measurement) -> None:
    run.open_faults -= 1


class FaultMaker:
    """The fixture `fault`."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def __call__(self, kind: str, **keywords: object) -> InjectedFault:
        """A `with` block with a fault in the lab.

        `kind` and keys are those of a drill's fault (docs/drills.md), without `at` and `lasts`. It
        is also repaired when the block raises, and by another process when this one is killed.
        Raises SpecError for a wrong key, InputError for a kind that begins and ends by itself.
        """
        return InjectedFault(self._bench, lasting(kind, keywords))


class MeasureMaker:
    """The fixture `measure`."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def __call__(
        self, traffic: Traffic, *, accept_invalid: bool = False, **keywords: object
    ) -> Measurement:
        """A `with` block under that traffic, whose figures are available after it.

        Keywords are those of a drill's `measure`: `sampling_interval`, `sustained`, `event_window`.
        With `accept_invalid` a run that the machine did not carry is no error, and `problems` says
        why it does not count. Raises SpecError for a wrong key, InputError if the traffic does not
        fit the method.
        """
        spec = as_block("measure", MeasureSpec, keywords)
        return Measurement(self._bench, traffic, spec, accept_invalid=accept_invalid)
