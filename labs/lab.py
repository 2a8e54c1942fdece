"""A lab as a library: plan it, bring it up, reach its nodes and links, take it down.

    lab = Lab.planned("zone-small")
    lab.up()
    lab.node("rtsw1").exec(["ip", "route"])
    lab.down()

Everything the command line does is one of these calls.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from labs.errors import InputError
from labs.forwarding.fib import Fib, FibOf, read_fib
from labs.plan.addressing import AddressSpaceFullError
from labs.plan.build import build_fabric
from labs.plan.fabric import Fabric
from labs.runtime import kernel
from labs.runtime.base import ProgressSink, no_progress
from labs.runtime.housing import Housing, RuntimeKind, housing_of
from labs.runtime.link import VethLink
from labs.runtime.node import NamespaceNode
from labs.runtime.record import State, locked, read_record, recorded_labs
from labs.runtime.runtime import LabRuntime
from labs.runtime.steering import Steering
from labs.runtime.teardown import take_down
from labs.runtime.wire.control import Wire
from labs.spec.catalog import find_lab
from labs.spec.load import load_spec
from labs.spec.model import LabSpec


def plan(spec: LabSpec) -> Fabric:
    """The fabric that a spec means. Raises InputError when it does not fit its address space."""
    try:
        return build_fabric(spec)
    except AddressSpaceFullError as error:
        raise InputError(
            f"lab {spec.name} does not fit: {error}",
            hint="fewer switches or NICs, or routing.numbering: unnumbered",
        ) from None


class Lab:
    """A fabric and the runtime that realises it."""

    def __init__(self, fabric: Fabric, housing: Housing | None = None) -> None:
        """`housing` makes its nodes (`labs.runtime.housing`): namespaces where nothing is said."""
        self.fabric = fabric
        self.runtime = LabRuntime(fabric, housing or housing_of(RuntimeKind.NETNS))
        self.notes: tuple[str, ...] = ()

    @classmethod
    def planned(cls, text: str | Path, housing: Housing | None = None) -> Lab:
        """The lab of a catalog name or a spec file, running or not.

        Raises InputError, and SpecError with every problem of the file.
        """
        return cls(plan(load_spec(find_lab(str(text)))), housing)

    @classmethod
    def running(cls, text: str | Path) -> Lab:
        """A lab that is up, by its name or by its spec's file or catalog name.

        What runs is what its record says, whatever the file says by now. Raises InputError when
        it is not up.
        """
        name = str(text)
        record = read_record(name)
        if record is None and name not in recorded_labs():
            name = cls.planned(text).name
            record = read_record(name)
        if record is None or record.state is not State.RUNNING:
            raise InputError(f"lab {name} is not up", hint=f"bring it up with `rocelab up {name}`")
        housing = housing_of(RuntimeKind(record.runtime))
        return cls(plan(LabSpec.model_validate(record.spec)), housing)

    @property
    def name(self) -> str:
        return self.fabric.name

    @property
    def is_running(self) -> bool:
        """Whether the lab is up and has converged once."""
        record = read_record(self.name)
        return record is not None and record.state is State.RUNNING

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other commands from changing the lab. Raises InputError when one does already."""
        with locked(self.name):
            yield

    def up(self, progress: ProgressSink = no_progress) -> Mapping[str, float]:
        """Bring the lab up and return the seconds each stage took.

        Where the kernel can not seed its ECMP hash the lab runs on the one secret that all
        namespaces share, as with `hashing: 0`; where it can not mark as asked, ports have simpler
        queues or none. `notes` says so. Raises as `labs.runtime.base.Runtime.up` does.
        """
        if self.fabric.spec.hashing.seed != 0 and not kernel.seeds_supported():
            self._run_unseeded()
        self.runtime.up(progress)
        self.notes += self.runtime.notes
        return dict(self.runtime.stage_seconds)

    def _run_unseeded(self) -> None:
        spec = self.fabric.spec
        hashing = spec.hashing.model_copy(update={"seed": 0})
        self.fabric = plan(spec.model_copy(update={"hashing": hashing}))
        self.runtime = LabRuntime(self.fabric, self.runtime.housing)
        self.notes = (
            f"this kernel ({os.uname().release}) has no fib_multipath_hash_seed (Linux 6.11 has): "
            "all switches share one secret hash, so tiers polarize fully and paths can not be "
            "predicted",
        )

    def down(self, progress: ProgressSink = no_progress) -> None:
        """Take the lab down. Idempotent."""
        take_down(self.name, progress)

    def node(self, name: str) -> NamespaceNode:
        """Raises InputError when the lab has no such node."""
        if name not in self.fabric.node_by_name:
            some = ", ".join(node.name for node in self.fabric.nodes[:6])
            raise InputError(
                f"lab {self.name} has no node {name}", hint=f"its nodes are {some} ..."
            )
        return self.runtime.node(name)

    def link(self, name: str) -> VethLink:
        """Raises InputError when the lab has no such link."""
        if name not in self.fabric.link_by_name:
            some = ", ".join(link.name for link in self.fabric.sessions[:4])
            raise InputError(
                f"lab {self.name} has no link {name}", hint=f"its links are {some} ..."
            )
        return self.runtime.link(name)

    @property
    def steering(self) -> Steering:
        """How flows are spread over equal paths: read, or switched while the lab runs."""
        return Steering(self.fabric, self.runtime.files)

    @property
    def wire(self) -> Wire:
        """What cables do to packets: lose them, corrupt them, delay them while the lab runs."""
        return Wire(self.fabric, self.runtime.files)

    @cached_property
    def fib_of(self) -> FibOf:
        """The running kernels' tables, each read once."""
        read: dict[str, Fib] = {}

        def fib_of(node: str) -> Fib:
            if node not in read:
                read[node] = read_fib(self.node(node).netns)
            return read[node]

        return fib_of
