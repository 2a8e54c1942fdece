"""What a fault is: something that breaks a running lab and mends it again.

In: a running lab. Out: the lab broken, and afterwards exactly as `up` made it. A fault holds
resolved names and no state: whatever was done is found in the kernel and in FRR, so that another
process can undo what a killed one did.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from rocelab.kernel.bracket import Bracket
from rocelab.plan.fabric import DirectedLink, Fabric
from rocelab.runtime.lab import Lab


class Fault(Protocol):
    """A way to break a lab."""

    @property
    def kind(self) -> str:
        """What drills and reports call it, such as `carrier-down`."""
        ...

    @property
    def subject(self) -> str:
        """What it breaks, such as `rtsw1:ctsw2` or `ctsw2`."""
        ...

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes concerned: where evidence is looked for."""
        ...

    def prepare(self, lab: Lab) -> None:
        """Do what takes time and can not be felt yet. Raises InputError where the lab does not
        allow the fault, MachineError where this machine does not."""
        ...

    def intact(self, lab: Lab) -> frozenset[str]:
        """What it changes, each as the kernel and FRR show it now: none of what was there before it
        began is there any more once it has taken effect.

        Reads only. Raises MachineError and OSError where it can not be read.
        """
        ...

    def inject(self, lab: Lab) -> Bracket:
        """Break it, at once, and say when the kernel, or the daemon asked, did it."""
        ...

    def restore(self, lab: Lab) -> Bracket | None:
        """Mend it, whatever state it is in: prepared, injected, half injected or mended. When the
        kernel, or the daemon asked, began to; None where nothing was to be done."""
        ...

    def remains(self, lab: Lab) -> tuple[str, ...]:
        """What of it is still there, as the kernel and FRR say; nothing proves it undone.

        Routing may still be converging: that every FIB is whole is not a fault's to say.
        """
        ...


@runtime_checkable
class ScheduledFault(Fault, Protocol):
    """A fault that the kernel begins and ends by itself, at exact instants."""

    def schedule(self, lab: Lab, start_ns: int, end_ns: int | None) -> Bracket:
        """Instead of `inject`: begin at `start_ns` and end at `end_ns`, CLOCK_MONOTONIC; without
        an end it lasts until `restore`. When the kernel had been told: it begins then where
        `start_ns` is over."""
        ...


@runtime_checkable
class CarrierFault(Fault, Protocol):
    """A fault that takes carriers at the instant itself."""

    def dark_ports(self, fabric: Fabric) -> tuple[tuple[str, str], ...]:
        """Node and interface of each port that is dark from the instant on."""
        ...


@runtime_checkable
class SeveringFault(Fault, Protocol):
    """A fault that may lose every packet from the instant itself."""

    def severed(self) -> tuple[DirectedLink, ...]:
        """The links that no packet crosses; none where some do."""
        ...
