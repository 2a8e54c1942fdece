"""A lab as a library: plan it, bring it up, reach its nodes and links, take it down.

    lab = Lab.planned("zone-small").up()
    lab.node("rtsw1").exec(["ip", "route"])
    lab.down()

A `Lab` is planned; what needs nodes is a method of the `RunningLab` that `up` returns. Every
command on a lab is one of these calls. `rocelab.testkit.lab` adds traffic, faults and measurements.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Generic, Self, TypeVar

from rocelab.base.errors import ExpectationError, InputError, PackageGoneError
from rocelab.base.interruption import shielded
from rocelab.base.progress import ProgressSink, no_progress
from rocelab.base.wording import listed, name_hint
from rocelab.dataplane.impairments.control import Impairments
from rocelab.dataplane.steering import Steering
from rocelab.jobs.placement import find_nic
from rocelab.lab.convergence import NotConvergedError
from rocelab.lab.names import name_of
from rocelab.lab.node import NamespaceNode, VethLink
from rocelab.lab.providers import (
    NodeProvider,
    provider_of,
    recorded_provider,
)
from rocelab.lab.runtime import LabRuntime
from rocelab.lab.teardown import take_down
from rocelab.labfile.adopted import recorded_spec
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load, load_spec
from rocelab.labfile.model import LabSpec, differing_keys
from rocelab.labfile.networks import NetworksLabSpec
from rocelab.linux import namespaces
from rocelab.linux import settings as kernel
from rocelab.linux.fib import read_fib
from rocelab.linux.fibtable import FibOf
from rocelab.linux.fibwatch import FibWatch
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.planning.pfc import too_small
from rocelab.planning.tenancy import forwarded_to
from rocelab.record import (
    DamagedRecordError,
    LabFiles,
    State,
    locked,
    not_up,
    read_record,
    recorded_labs,
)
from rocelab.routes.path import Path as FlowPath
from rocelab.routes.path import walk
from rocelab.routes.planned import planned_fibs
from rocelab.routing.frr.kind import FrrMemory
from rocelab.routing.frr.memory import Memory, read_memory
from rocelab.routing.stack import Installation, stack_for

Spec = TypeVar("Spec", bound=LabSpec)


def as_it_runs(spec: Spec) -> Spec:
    """The spec as this machine runs it: one hash seed for all switches if the kernel cannot set
    seeds."""
    if kernel.seeds_supported():
        return spec
    if isinstance(spec, NetworksLabSpec):
        networks = {name: as_it_runs(network) for name, network in spec.networks.items()}
        return spec.model_copy(update={"networks": networks})
    if spec.hashing.seed == 0:
        return spec
    return spec.model_copy(update={"hashing": spec.hashing.model_copy(update={"seed": 0})})


def as_observed(spec: LabSpec) -> LabSpec:
    """The spec with what was observed of its lab, if that is up as the spec has it and its routing
    is the user's own."""
    if not spec.routing.is_own or spec.name not in recorded_labs():
        return spec
    try:
        record = read_record(spec.name)
        recorded = None if record is None else recorded_spec(record.spec, record.plugins)
    except (PermissionError, InputError, ValueError):
        return spec
    if recorded is None or differing_keys(as_it_runs(spec), recorded):
        return spec
    return recorded


def _not_up(text: str, name: str) -> InputError:
    """The error for a lab that is not up. Raises SpecError if nothing of it is here and its file
    has errors too."""
    try:
        path = find_lab(text)
    except InputError:
        hint = name_hint(name, recorded_labs()) or "none is: bring one up with `rocelab up LAB`"
        return not_up(name, hint)
    if name not in recorded_labs():
        load_spec(path)
    return not_up(name, f"bring it up with `rocelab up {text}`")


def _is_up(name: str) -> bool:
    record = read_record(name)
    return record is not None and record.state is State.RUNNING


Running = TypeVar("Running", bound="RunningLab", covariant=True)


class PlannedLab(Generic[Running]):
    """A planned lab: a spec and the fabric that it means."""

    running: type[Running]
    """The class of what `up` gives."""

    def __init__(self, fabric: Fabric, provider: NodeProvider | None = None) -> None:
        """`provider` makes its nodes (`rocelab.lab.providers`): namespaces by default."""
        self.fabric = fabric
        self.provider = provider or provider_of()
        self.on_unconverged: OnUnconverged | None = None

    @classmethod
    def planned(
        cls,
        text: str | Path,
        provider: NodeProvider | None = None,
        *,
        dilation: float | None = None,
    ) -> Self:
        """The lab of a file or a name (in `labs/` of the current folder, or shipped), running or
        not. `dilation` replaces the file's.

        Raises InputError, and SpecError with every problem of the file.
        """
        return cls(plan(load(text, dilation=dilation)), provider)

    @property
    def name(self) -> str:
        return self.fabric.name

    @property
    def spec(self) -> LabSpec:
        return self.fabric.spec

    def network(self, name: str | None = None) -> Self:
        """The network of that name of a lab with several, as if it were the lab; the first without
        a name. Raises InputError."""
        fabric = self.fabric.network(name)
        return self if fabric is self.fabric else type(self)(fabric, self.provider)

    @property
    def is_running(self) -> bool:
        """Whether a lab of this name is up: it has converged once, or is kept without."""
        return _is_up(self.name)

    def path(
        self, source: str, destination: str, sport: int, *, destination_qp: int | None = None
    ) -> FlowPath:
        """The path of a RoCEv2 flow between two servers' first NICs, by the tables that BGP will
        build. Raises InputError for a wrong name or a choice that cannot be predicted, NoPathError.
        """
        fabric = self.fabric.network()
        ends = find_nic(fabric, source), find_nic(fabric, destination)
        fibs = planned_fibs(fabric, fabric.prefixes_holding(forwarded_to(fabric, ends[1])))
        return walk(fabric, fibs, *ends, sport, destination_qp=destination_qp)

    def up(self, progress: ProgressSink = no_progress, *, keep: bool = False) -> Running:
        """Bring the lab up. `keep`: it stays up if it does not converge; the error is raised then
        too.

        If the kernel cannot seed its ECMP hash, the lab runs on the one secret that all namespaces
        share, as with `hashing: 0`; if it cannot mark as the spec asks, ports have simpler queues
        or none. `notes` of the running lab says so, and where its lossless classes lose packets.
        Raises as `rocelab.lab.runtime.LabRuntime.up` does.
        """
        lab = self.unstarted()
        lab.start(progress, keep=keep)
        return lab

    @contextmanager
    def brought_up(self, progress: ProgressSink = no_progress) -> Iterator[Running]:
        """Bring the lab up for the context and take it down after, however that ends. Raises as
        `up` does."""
        lab = self.unstarted()
        with shielded(f"lab {self.name} is taken down") as shield:
            try:
                with shield.lifted():
                    lab.start(progress)
                    yield lab
            finally:
                if lab.runtime.was_brought_up:
                    lab.down(progress)

    def unstarted(self) -> Running:
        """The lab that `up` is to start, as this kernel can run it."""
        spec = as_it_runs(self.spec)
        lab = self.running(self.fabric if spec == self.spec else plan(spec), self.provider)
        if spec != self.spec:
            lab.notes = (
                f"this kernel ({os.uname().release}) has no fib_multipath_hash_seed (Linux 6.11 "
                "has): all switches share one secret hash, so tiers polarize fully and paths "
                "cannot be predicted",
            )
        lab.on_unconverged = self.on_unconverged
        return lab


class RunningLab:
    """A lab that is up: its fabric, and the nodes and links that realise it."""

    def __init__(self, fabric: Fabric, provider: NodeProvider | None = None) -> None:
        """The lab of that fabric, which is up; `Lab.up` and `open` make one."""
        self.fabric = fabric
        self.runtime = LabRuntime(fabric, provider or provider_of())
        self.notes: tuple[str, ...] = ()
        self.on_unconverged: OnUnconverged | None = None
        self.whole: RunningLab = self
        """The lab that it is, or is a network of."""

    @classmethod
    def open(cls, text: str | Path) -> Self:
        """A lab that is up, by its name or by its file, as `Lab.planned` finds it.

        It is planned from its record, even if the file has changed since. Raises InputError if it
        is not up, SpecError for a file without a lab's name, ExpectationError if nodes of a lab
        that was adopted are gone.
        """
        lab = cls.recorded(text)
        gone = lab.runtime.provider.gone(lab.runtime.files)
        if gone:
            raise ExpectationError(
                f"{listed(gone, 'and')} of lab {lab.name} ended or was started again since it was "
                "adopted",
                f"`rocelab adopt` it again, or release it with `rocelab release {lab.name}`",
            )
        return lab

    @classmethod
    def recorded(cls, text: str | Path) -> Self:
        """A lab as `open` finds it, also if nodes of a lab that was adopted are gone."""
        name = name_of(text)
        record = read_record(name)
        if record is None or record.state is not State.RUNNING:
            raise _not_up(str(text), name)
        provider = recorded_provider(name, record.runtime)
        try:
            spec = recorded_spec(record.spec, record.plugins)
        except PackageGoneError as error:
            hint = f"install that package again, or take the lab down with `rocelab down {name}`"
            raise InputError(f"lab {name}: {error.message}", hint) from error
        except ValueError as error:
            first = str(error).splitlines()[0]
            raise DamagedRecordError(name, f"this version does not know it: {first}") from None
        return cls(plan(spec), provider)

    @property
    def name(self) -> str:
        return self.fabric.name

    @property
    def spec(self) -> LabSpec:
        return self.fabric.spec

    def network(self, name: str | None = None) -> Self:
        """The network of that name of a lab with several, as if it were the lab; the first without
        a name. Raises InputError."""
        fabric = self.fabric.network(name)
        if fabric is self.fabric:
            return self
        network = type(self)(fabric, self.runtime.provider)
        network.whole = self.whole
        return network

    @property
    def installation(self) -> Installation:
        """The routing stack that its switches run. Raises FileNotFoundError while it is not up."""
        return self.runtime.installation

    def check_frr(self, prefix: Path | None) -> None:
        """Raises InputError if the lab is up with another FRR than the one in `prefix`, and as
        `find_installation` does."""
        if prefix is not None and stack_for(self.fabric).find(prefix) != self.installation:
            raise InputError(
                f"lab {self.name} is up with FRR {self.installation.version} of "
                f"{self.installation.place}, not with the one in {prefix}",
                hint=f"take it down with `rocelab down {self.name}`, or leave --frr out",
            )

    @property
    def memory(self) -> Memory:
        """How the daemons of a lab that is up use memory."""
        return read_memory(self.runtime.files.root)

    @property
    def memory_text(self) -> str | None:
        """The same for people and results; None where switches do not run FRR."""
        return self.memory.text if stack_for(self.fabric).is_lean else None

    def check_memory(self, asked: FrrMemory | None) -> None:
        """Raises InputError if the lab is up and its daemons use memory in another way than
        `asked`."""
        if asked is not None and asked is not self.memory.kind:
            raise InputError(
                f"lab {self.name} is up with FRR's memory {self.memory.kind}, not {asked}",
                hint=f"take it down with `rocelab down {self.name}`, or leave --frr-memory out",
            )

    def daemons_of(self, node: str) -> tuple[str, ...]:
        """The routing daemons that a node should run, in start order. Raises as `installation`."""
        if self.fabric.observed is not None:
            return self.fabric.observed.daemons.get(node, ())
        return self.runtime.daemons_of(self.fabric.node(node))

    @property
    def is_running(self) -> bool:
        """Whether the lab is still up."""
        return _is_up(self.name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other commands from changing the lab. Raises InputError if one holds it already."""
        with locked(self.name):
            yield

    def start(self, progress: ProgressSink = no_progress, *, keep: bool = False) -> None:
        """Bring up this lab, which is not. `keep` and errors: as of `Lab.up`."""
        collect = None if self.on_unconverged is None else partial(self.on_unconverged, self)
        try:
            self.runtime.up(progress, collect, keep=keep)
        finally:
            # A lab of the user's own routing is known once it is whole.
            self.fabric = self.runtime.fabric
        self.notes += self.runtime.notes + too_small(self.fabric)

    @property
    def stage_seconds(self) -> Mapping[str, float]:
        """How long each stage took to bring it up; empty if another process did."""
        return self.runtime.stage_seconds

    def down(self, progress: ProgressSink = no_progress) -> None:
        """Take the lab down. Idempotent."""
        take_down(self.name, progress)

    def node(self, name: str) -> NamespaceNode:
        """The node of that name. Raises InputError if the lab has none."""
        if name not in self.fabric.node_by_name:
            raise InputError(
                f"lab {self.name} has no node {name}", name_hint(name, self.fabric.node_by_name)
            )
        return self.runtime.node(name)

    def link(self, name: str) -> VethLink:
        """The link of that name. Raises InputError if the lab has none."""
        if name not in self.fabric.link_by_name:
            raise InputError(
                f"lab {self.name} has no link {name}", name_hint(name, self.fabric.link_by_name)
            )
        return self.runtime.link(name)

    @property
    def steering(self) -> Steering:
        """How flows are spread over equal paths, in a lab with several networks in the first: read,
        or switched while the lab runs."""
        return Steering(self.fabric.network(), self.runtime.files)

    @property
    def has_own_scheme(self) -> bool:
        """Whether each network runs the scheme of the lab's file."""
        return all(
            Steering(network, LabFiles.of(network)).read_scheme() == network.spec.scheme
            for network in self.fabric.networks
        )

    @property
    def impairments(self) -> Impairments:
        """Impairments of cables while the lab runs: loss, corruption, delay."""
        return Impairments(self.whole.fabric, self.whole.runtime.files)

    def path(
        self, source: str, destination: str, sport: int, *, destination_qp: int | None = None
    ) -> FlowPath:
        """The path of a RoCEv2 flow between two servers' first NICs, by the kernels' tables and the
        scheme that runs. Raises as `Lab.path` does."""
        fabric = self.fabric.network()
        ends = find_nic(fabric, source), find_nic(fabric, destination)
        model = self.steering.model()
        return walk(
            fabric, self.read_fibs(), *ends, sport, destination_qp=destination_qp, steering=model
        )

    @contextmanager
    def watch_routes(self) -> Iterator[FibWatch]:
        """Every change of the switches' kernel routes during the context, from its `events`."""
        netns_of = {switch.name: self.node(switch.name).netns for switch in self.fabric.switches}
        with namespaces.opened(netns_of) as descriptors, FibWatch(descriptors) as watch:
            yield watch

    def read_fibs(self) -> FibOf:
        """The kernels' FIBs from now on, each read once: when it is first asked for."""
        return cache(lambda node: read_fib(self.node(node).netns))


class Lab(PlannedLab[RunningLab]):
    """A planned lab, for the packages below `rocelab.testkit`."""

    running = RunningLab


OnUnconverged = Callable[[RunningLab, NotConvergedError], str]
"""What to do with a lab that does not converge, before `Lab.up` takes it down: returns a line for
the error."""
