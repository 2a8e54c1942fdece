"""What a fault is: keys in a file, and something that breaks a running lab and mends it again.

A kind of fault is a spec, which says what it is on a fabric, and a `Fault`. In: a running lab. Out:
the lab broken, and afterwards exactly as `up` made it. A fault holds resolved names and no state:
whatever was done is found in the kernel and in FRR, so that another process can undo what a killed
one did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol, Self, runtime_checkable

from pydantic import Field, model_validator

from rocelab.faults.selectors import LinkSelector, NodeName, check_end, check_switch, named
from rocelab.kernel.bracket import Bracket
from rocelab.plan.fabric import Fabric, Link
from rocelab.runtime.lab import Lab
from rocelab.spec.base import SECOND, SpecModel
from rocelab.units import SHARE, DurationNs
from rocelab.wording import RefusedError

MAX_DURATION = 600 * SECOND
ALL_PPM = SHARE.units["%"] * 100


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

    def severed(self) -> tuple[tuple[str, str], ...]:
        """Link, and the node towards which no packet crosses it; none where some do."""
        ...


@dataclass(frozen=True, slots=True)
class LinksFault:
    """What faults of links have in common."""

    links: tuple[Link, ...]

    @property
    def subject(self) -> str:
        return named(self.links)

    @property
    def nodes(self) -> tuple[str, ...]:
        ends = (node for link in self.links for node in (link.a.node, link.b.node))
        return tuple(dict.fromkeys(ends))

    def prepare(self, lab: Lab) -> None:
        """Nothing takes time."""


@dataclass(frozen=True, slots=True)
class NodeFault:
    """What faults of a switch or a server have in common."""

    node: str

    @property
    def subject(self) -> str:
        return self.node

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)

    def prepare(self, lab: Lab) -> None:
        """Nothing takes time."""


class TimedSpec(SpecModel):
    """When a fault begins and how long it lasts; a drill needs to know, a person at a running lab
    does not say."""

    no_lasts: ClassVar[tuple[str, str] | None] = None
    """Of a kind that ends by itself: why it takes no `lasts`, and what to do instead."""
    instant: ClassVar[bool] = False
    """Whether it is over as soon as it is done."""

    at: Annotated[DurationNs, Field(ge=0, le=MAX_DURATION, description="after time 0")] = 0
    lasts: Annotated[
        DurationNs | None,
        Field(gt=0, le=MAX_DURATION, description="then it is undone; without it, at the end"),
    ] = None

    @model_validator(mode="after")
    def _ends_once(self) -> Self:
        if self.no_lasts is not None and self.lasts is not None:
            raise RefusedError(*self.no_lasts, keys=("lasts",))
        return self


class LinkFaultSpec(TimedSpec):
    """A fault of one link or of several at once."""

    link: LinkSelector | None = None
    links: Annotated[
        tuple[LinkSelector, ...],
        Field(strict=False, max_length=64, description="instead of link: all of them at once"),
    ] = ()

    @model_validator(mode="after")
    def _one_way_to_name_links(self) -> Self:
        if (self.link is None) == (not self.links):
            raise RefusedError("expected link or links, one of the two")
        return self

    def find(self, fabric: Fabric, end: str | None) -> tuple[Link, ...]:
        """The links meant in `fabric`, each once. Raises InputError as `LinkSelector.find` does,
        and where one does not end at the node `end`."""
        selectors = self.links if self.link is None else (self.link,)
        links = tuple(dict.fromkeys(selector.find(fabric) for selector in selectors))
        for link in links:
            if end is not None:
                check_end(link, end)
        return links


Towards = Annotated[
    NodeName | None,
    Field(description="the node at whose end packets are hit; without it, in both directions"),
]


class NicFaultSpec(TimedSpec):
    """A fault of a server's NIC."""

    server: NodeName
    nic: Annotated[int, Field(ge=1, le=64, description="from 1")] = 1


class SwitchFaultSpec(TimedSpec):
    """A fault of a switch."""

    switch: NodeName

    def find(self, fabric: Fabric) -> str:
        """The switch's name. Raises InputError where `fabric` has none of that name."""
        check_switch(fabric, self.switch)
        return self.switch
