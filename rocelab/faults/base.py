"""What a fault is: keys in a file, and something that breaks a running lab and mends it again.

A kind of fault is a spec, which says what it is on a fabric, and a `Fault`, which breaks a running
lab and afterwards makes it exactly as `up` made it. A fault holds resolved names and no state:
whatever was done is found in the kernel and in FRR, so that another process can undo what a killed
one did. A kind that lasts by itself, such as flapping, is a `SeriesSpec` instead: it becomes single
faults.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, ClassVar, Protocol, Self, runtime_checkable

from pydantic import Field, model_validator

from rocelab.base.errors import InputError
from rocelab.base.units import SHARE, DurationNs
from rocelab.base.wording import RefusedError
from rocelab.faults.selectors import (
    LinkSelector,
    NodeName,
    check_end,
    check_node,
    check_switch,
    links_between,
    named,
)
from rocelab.lab.lab import RunningLab as RunningLab  # plug-ins take it from here
from rocelab.labfile.base import SECOND, SpecModel, split_nic
from rocelab.linux.bracket import Bracket
from rocelab.planning.fabric import DirectedLink, Fabric, Link

MAX_DURATION = 600 * SECOND
ALL_PPM = SHARE.units["%"] * 100
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


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

    def prepare(self, lab: RunningLab) -> None:
        """Do everything slow that has no effect yet. Raises InputError if the lab does not allow
        the fault, MachineError if this machine does not."""
        ...

    def intact(self, lab: RunningLab) -> frozenset[str]:
        """The things that it changes, as the kernel and FRR show them now. Once the fault has taken
        effect, none of those from before it is left.

        Only reads. Raises MachineError and OSError if that fails.
        """
        ...

    def inject(self, lab: RunningLab) -> Bracket:
        """Begin the fault at once; return when the kernel or the daemon did it."""
        ...

    def restore(self, lab: RunningLab) -> Bracket | None:
        """Undo the fault in any state: prepared, injected, half injected or restored. Returns when
        the kernel or the daemon began to; None if there was nothing to do."""
        ...

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        """The parts of it that the kernel and FRR still show; an empty tuple proves it undone.

        Routing may still be converging: a fault does not check the FIBs.
        """
        ...


@runtime_checkable
class ScheduledFault(Fault, Protocol):
    """A fault that the kernel begins and ends by itself, at exact instants."""

    def schedule(self, lab: RunningLab, start_ns: int, end_ns: int | None) -> Bracket:
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

    def severed(self) -> tuple[DirectedLink, ...]:
        """The links that no packet crosses; empty if some packets do."""
        ...


@runtime_checkable
class StoppingFault(Fault, Protocol):
    """A fault that stops every process of some servers, those that send and receive too."""

    def stopped(self) -> tuple[str, ...]:
        """The servers."""
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

    def links_at(self, node: str) -> list[Link]:
        """The links that end at a node."""
        return [link for link in self.links if node in (link.a.node, link.b.node)]

    def without(self, nodes: Set[str]) -> Self:
        """Its part that concerns none of these nodes, which may have no link."""
        left = (link for link in self.links if nodes.isdisjoint((link.a.node, link.b.node)))
        return replace(self, links=tuple(left))

    def prepare(self, lab: RunningLab) -> None:
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

    def prepare(self, lab: RunningLab) -> None:
        """Nothing takes time."""


class Target(StrEnum):
    """What a campaign draws for a fault: a link or a switch, or a switch above the racks. Without
    their only switch, a rack's servers lose all traffic, which routing cannot prevent."""

    LINK = "link"
    SWITCH = "switch"
    UPPER_SWITCH = "upper switch"


class TimedSpec(SpecModel):
    """When a fault begins and how long it lasts; a drill needs to know, a person at a running lab
    does not say."""

    no_lasts: ClassVar[tuple[str, str] | None] = None
    """Why a kind that ends by itself takes no `lasts`, and what to do instead."""
    instant: ClassVar[bool] = False
    """Whether it is over as soon as it is done."""

    kind: str
    at: Annotated[DurationNs, Field(ge=0, le=MAX_DURATION, description="after time 0")] = 0
    lasts: Annotated[
        DurationNs | None,
        Field(gt=0, le=MAX_DURATION, description="after this it is cleared; left out: at the end"),
    ] = None

    @property
    def last_change(self) -> int:
        """When it last changes the lab, as far as its keys say, ns after time 0."""
        return self.at + (self.lasts or 0)

    @model_validator(mode="after")
    def _has_one_end(self) -> Self:
        if self.no_lasts is not None and self.lasts is not None:
            raise RefusedError(*self.no_lasts, keys=("lasts",))
        return self


class SingleFaultSpec(TimedSpec):
    """A fault that begins once and ends once."""

    drawn: ClassVar[Target | None] = None
    """What a campaign draws for it; None: a campaign has none of this kind."""
    spares_packets: ClassVar[bool] = False
    """Whether it takes no packet itself: what is lost under it, a queue or a buffer counts."""

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of ports that it changes, by name: `rocelab status` and runs do not hold
        these values against the lab."""
        return NO_SETTINGS

    @abstractmethod
    def resolve(self, fabric: Fabric) -> Fault:
        """The fault on a fabric. Raises InputError if it does not fit."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A single fault from `begins_ns` to `ends_ns` after time 0; None: until the end of all."""

    spec: SingleFaultSpec
    begins_ns: int
    ends_ns: int | None


class SeriesSpec(TimedSpec):
    """Single faults, one after the other."""

    @abstractmethod
    def singles(self, fabric: Fabric) -> Sequence[Timed]:
        """The faults on a fabric, in any order. Raises InputError if they do not fit."""


class LinkChoice(SpecModel):
    """The keys that name one link, or several at once."""

    link: LinkSelector | None = None
    links: Annotated[
        tuple[LinkSelector, ...],
        Field(strict=False, max_length=64, description="instead of link: all of them at once"),
    ] = ()
    between: Annotated[
        tuple[NodeName, NodeName] | None,
        Field(strict=False, description="instead of link: every link between two nodes"),
    ] = None

    @model_validator(mode="after")
    def _one_way_to_name_links(self) -> Self:
        if [self.link is not None, bool(self.links), self.between is not None].count(True) != 1:
            raise RefusedError("expected one of link, links and between")
        return self

    def find(self, fabric: Fabric, end: str | None) -> tuple[Link, ...]:
        """The links meant in `fabric`, each once. Raises InputError as `LinkSelector.find` does,
        and where one does not end at the node `end`."""
        if self.between is not None:
            links = self._between(fabric, *self.between)
        else:
            selectors = self.links if self.link is None else (self.link,)
            links = tuple(dict.fromkeys(selector.find(fabric) for selector in selectors))
        for link in links:
            if end is not None:
                check_end(link, end)
        return links

    def _between(self, fabric: Fabric, one: str, other: str) -> tuple[Link, ...]:
        for name in (one, other):
            check_node(fabric, name)
        links = links_between(fabric, one, other)
        if not links:
            raise InputError(f"no link joins {one} and {other}")
        return links


class LinkFaultSpec(LinkChoice, SingleFaultSpec):
    """A fault of one link or of several at once."""


Towards = Annotated[
    NodeName | None,
    Field(description="the node at whose end packets are hit; without it, in both directions"),
]


class NicFaultSpec(SingleFaultSpec):
    """A fault of a server's NIC."""

    server: Annotated[NodeName, Field(description="a server, or its NIC, such as srv2-1:2")]
    nic: Annotated[int, Field(ge=1, le=64, description="from 1")] = 1

    @model_validator(mode="before")
    @classmethod
    def _nic_by_name(cls, data: object) -> object:
        return split_nic(data, "server", "nic")


class SwitchFaultSpec(SingleFaultSpec):
    """A fault of a switch."""

    switch: NodeName

    def find(self, fabric: Fabric) -> str:
        """The switch's name. Raises InputError where `fabric` has none of that name."""
        check_switch(fabric, self.switch)
        return self.switch
