"""`rocelab.Lab` and `rocelab.RunningLab`: a running lab with traffic, faults and measurements.

with lab.measure(lab.traffic(flows=24)) as run, lab.fault("carrier-down", link="rtsw1:ctsw1"):
    run.hold("1s")
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from rocelab.lab import lab
from rocelab.lab.lab import PlannedLab

if TYPE_CHECKING:
    from rocelab.testkit.kit import Experiment, InjectedFault, Pairs
    from rocelab.testkit.measurement import Measurement
    from rocelab.testkit.traffic import Traffic


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

    @cached_property
    def experiment(self) -> Experiment:
        """The faults and measurements of this object."""
        # Late: who only looks at a lab measures nothing.
        from rocelab.testkit.kit import Experiment

        return Experiment(self)


class Lab(PlannedLab[RunningLab]):
    """A planned lab: a spec and the fabric that it means."""

    running = RunningLab
