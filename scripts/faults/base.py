"""What a fault is: something that breaks a running lab and mends it again.

In: a running lab. Out: the lab broken, and afterwards exactly as `up` made it. A fault holds
resolved names and no state: whatever was done is found in the kernel and in FRR, so that another
process can undo what a killed one did.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from labs.lab import Lab


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

    def inject(self, lab: Lab) -> None:
        """Break it, at once."""
        ...

    def restore(self, lab: Lab) -> None:
        """Mend it, whatever state it is in: prepared, injected, half injected or mended."""
        ...

    def remains(self, lab: Lab) -> tuple[str, ...]:
        """What of it is still there, as the kernel and FRR say; nothing proves it undone.

        Routing may still be converging: that every FIB is whole is not a fault's to say.
        """
        ...


@runtime_checkable
class ScheduledFault(Fault, Protocol):
    """A fault that the kernel begins and ends by itself, at exact instants."""

    def schedule(self, lab: Lab, start_ns: int, end_ns: int | None) -> None:
        """Instead of `inject`: begin at `start_ns` and end at `end_ns`, CLOCK_MONOTONIC; without
        an end it lasts until `restore`."""
        ...
