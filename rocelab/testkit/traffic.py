"""Flows on a lab that is up: sent by a measurement, or while a `with` block runs.

with lab.traffic(flows=24) as traffic:
    ...
print(traffic.result.problems)
"""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

from rocelab.base.errors import InputError
from rocelab.drills.probes import wait_until
from rocelab.jobs.flow import ProbeStream
from rocelab.lab.lab import RunningLab
from rocelab.linux.closing import Holding
from rocelab.traffic.result import TrafficResult
from rocelab.traffic.session import TrafficSession


class Traffic(Holding):
    """Flows that run together, with a warm-up of `warmup_ns`."""

    def __init__(self, lab: RunningLab, flows: tuple[ProbeStream, ...], warmup_ns: int) -> None:
        self.lab = lab
        self.flows = flows
        self.warmup_ns = warmup_ns
        self._session: TrafficSession | None = None
        self._result: TrafficResult | None = None

    def _enter(self, stack: ExitStack) -> None:
        """Send the flows and return after the warm-up. Raises MachineError if an agent does not
        start."""
        session = TrafficSession(
            self.lab.fabric, lambda name: self.lab.node(name).netns, self.flows
        )
        self._session = stack.enter_context(session)
        wait_until(session.start() + self.warmup_ns)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the traffic and collect its result. Raises MachineError."""
        with self._cleanup:
            if error is None:
                assert self._session is not None
                self._result = self._session.stop()

    @property
    def result(self) -> TrafficResult:
        """Every packet sent and received. Raises InputError before the block has ended."""
        if self._result is None:
            raise InputError(
                "no traffic was sent yet", hint="look at result after the block of traffic(...)"
            )
        return self._result
