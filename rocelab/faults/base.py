"""The interface of a fault, which breaks a running lab and restores it.

After the restore the lab is exactly as `up` made it. A fault holds resolved names and no state: its
effects are found in the kernel and in FRR, so that another process can undo what a killed one did.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from rocelab.kernel.bracket import Bracket
from rocelab.plan.fabric import Fabric
from rocelab.runtime.lab import Lab


class Fault(Protocol):
    """A way to break a lab."""

    @property
    def kind(self) -> str:
        """Its name in drills and reports, such as `carrier-down`."""
        ...

    @property
    def subject(self) -> str:
        """The thing that it breaks, such as `rtsw1:ctsw2` or `ctsw2`."""
        ...

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes concerned, from which evidence is collected."""
        ...

    def prepare(self, lab: Lab) -> None:
        """Do everything slow that has no effect yet. Raises InputError if the lab does not allow
        the fault, MachineError if this machine does not."""
        ...

    def intact(self, lab: Lab) -> frozenset[str]:
        """The things that it changes, as the kernel and FRR show them now. Once the fault has taken
        effect, none of those from before it is left.

        Only reads. Raises MachineError and OSError if that fails.
        """
        ...

    def inject(self, lab: Lab) -> Bracket:
        """Begin the fault at once; return when the kernel or the daemon did it."""
        ...

    def restore(self, lab: Lab) -> Bracket | None:
        """Undo the fault in any state: prepared, injected, half injected or restored. Returns when
        the kernel or the daemon began to; None if there was nothing to do."""
        ...

    def remains(self, lab: Lab) -> tuple[str, ...]:
        """The parts of it that the kernel and FRR still show; an empty tuple proves it undone.

        Routing may still be converging: a fault does not check the FIBs.
        """
        ...


@runtime_checkable
class ScheduledFault(Fault, Protocol):
    """A fault that the kernel begins and ends by itself, at exact instants."""

    def schedule(self, lab: Lab, start_ns: int, end_ns: int | None) -> Bracket:
        """Instead of `inject`: begin at `start_ns` and end at `end_ns`, CLOCK_MONOTONIC; without an
        end it lasts until `restore`. Returns when the kernel had the order: the fault begins then
        if `start_ns` has passed."""
        ...


@runtime_checkable
class CarrierFault(Fault, Protocol):
    """A fault that removes carriers at its first instant."""

    def dark_ports(self, fabric: Fabric) -> tuple[tuple[str, str], ...]:
        """Node and interface of each port that has no carrier from that instant on."""
        ...


@runtime_checkable
class SeveringFault(Fault, Protocol):
    """A fault that may lose every packet from its first instant on."""

    def severed(self) -> tuple[tuple[str, str], ...]:
        """Links, each with the node towards which no packet crosses; empty if some packets do."""
        ...
