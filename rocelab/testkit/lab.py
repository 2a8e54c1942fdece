"""`rocelab.Lab` and `rocelab.RunningLab`: a running lab with traffic, faults and measurements.

with lab.measure(lab.traffic(flows=24)) as run, lab.fault("carrier-down", link="rtsw1:ctsw1"):
    run.hold("1s")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rocelab.lab import lab
from rocelab.lab.lab import PlannedLab

if TYPE_CHECKING:
    from rocelab.programs.running import OutputLine
    from rocelab.results.programs import ProgramReport
    from rocelab.testkit.kit import Experiment, InjectedFault, Pairs
    from rocelab.testkit.measurement import Measurement
    from rocelab.testkit.traffic import Traffic


def nothing_of(line: OutputLine) -> None:
    """Does nothing with a line that a program wrote."""


class RunningLab(lab.RunningLab):
    """A lab that is up: its fabric, and the nodes and links that realise it."""

    def traffic(self, pairs: Pairs | None = None, **keywords: object) -> Traffic:
        """Flows between servers of different racks, each at a constant rate.

        For `measure`, or a `with` block that sends them. Keywords are those of a drill's
        `traffic`: `flows`, `rate_pps`, `payload`, `warmup`, `seed`. With `pairs` there is one flow
        from the first to the second server of each instead; a pair may be repeated. Raises
        SpecError for a wrong key, InputError if the flows do not fit the lab.
        """
        return self.experiment.traffic(pairs, **keywords)

    def fault(self, kind: str, **keywords: object) -> InjectedFault:
        """A `with` block with a fault in the lab.

        `kind` and keys are those of a drill's fault (docs/drills.md), without `at` and `lasts`. It
        is also repaired when the block raises, and by another process when this one is killed.
        Raises SpecError for a wrong key, InputError for a kind that begins and ends by itself.
        """
        return self.experiment.fault(kind, **keywords)

    def measure(
        self, traffic: Traffic, *, accept_invalid: bool = False, **keywords: object
    ) -> Measurement:
        """A `with` block under that traffic, whose figures are available after it.

        Keywords are those of a drill's `measure`: `sampling_interval`, `sustained`, `event_window`.
        With `accept_invalid` a run that the machine did not carry is no error, and `problems` says
        why it does not count. Raises SpecError for a wrong key, InputError if the traffic does not
        fit the method.
        """
        return self.experiment.measure(traffic, accept_invalid=accept_invalid, **keywords)

    def run(
        self,
        command: Sequence[str],
        on: Sequence[str] = (),
        *,
        per_server: int = 1,
        env: Mapping[str, str] | None = None,
        network: str | None = None,
        folder: str | Path = ".",
        on_line: Callable[[OutputLine], object] = nothing_of,
    ) -> ProgramReport:
        """Run an unmodified program on servers until it has ended, as `rocelab run` does.

        `on` are servers, by name or by pattern, in the order of ranks; all without one. `on_line`
        gets each line that a program writes, as it comes: `rank`, `stream`, `text`, `at_ns`. A
        program that fails ends the others and is no error: see `code` and `ranks` of the report. In
        a `with lab.fault(...)` block it runs under the fault. Raises InputError for a server or a
        network that the lab does not have, and while something measures on the lab; MachineError if
        programs cannot be started; PermissionError without root's rights.
        """
        # Late: who only looks at a lab runs nothing.
        from rocelab.testkit.programs import run_command

        return run_command(
            self, command, on, per_server, env, network, folder=Path(folder), on_line=on_line
        )

    @cached_property
    def experiment(self) -> Experiment:
        """The faults and measurements of this object."""
        # Late: who only looks at a lab measures nothing.
        from rocelab.testkit.kit import Experiment

        return Experiment(self)


class Lab(PlannedLab[RunningLab]):
    """A planned lab: a spec and the fabric that it means."""

    running = RunningLab
