"""The door of runtimes: the ways to make nodes that are registered, ours and those of installed
packages.

An entry point of the group `rocelab.providers` has the name of a runtime, as in `--runtime NAME`
and in records, and an object with what `Runtime` says:

    netns = "rocelab.lab.providers.netns:NETNS"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from rocelab.base.doors import Door
from rocelab.base.errors import InputError
from rocelab.lab.checks import Check
from rocelab.lab.providers.base import NodeProvider
from rocelab.routing.frr.kind import FrrMemory


@runtime_checkable
class Runtime(Protocol):
    """A runtime as registered."""

    def provider(self, image: str | None, frr: Path | None, frr_memory: FrrMemory) -> NodeProvider:
        """What makes the nodes of a lab. `image` is for containers; `frr` is a folder with the FRR
        of other nodes. Raises InputError for what does not go with the runtime."""
        ...

    def recorded(self) -> NodeProvider:
        """What reaches and removes the nodes of a lab that is up."""
        ...

    def checks(self) -> Sequence[Check]:
        """What `rocelab doctor` says of this machine for the runtime; none is needed by labs of
        others."""
        ...


def _runtime(_: str, value: object) -> Runtime:
    if not isinstance(value, Runtime):
        raise TypeError("expected an object with provider, recorded and checks")
    return value


RUNTIMES: Door[Runtime] = Door("rocelab.providers", "runtime", _runtime)


@dataclass(frozen=True, slots=True)
class HostRuntime:
    """A runtime whose nodes are no containers: `made` takes the folder of another FRR and how FRR
    is to use memory."""

    kind: str
    made: Callable[[Path | None, FrrMemory], NodeProvider]
    checks: Callable[[], Sequence[Check]] = tuple

    def provider(self, image: str | None, frr: Path | None, frr_memory: FrrMemory) -> NodeProvider:
        if image is not None:
            raise InputError(
                f"nodes of the runtime {self.kind} have no image",
                hint="use it with --runtime docker or containerlab",
            )
        return self.made(frr, frr_memory)

    def recorded(self) -> NodeProvider:
        return self.made(None, FrrMemory.LEAN)


@dataclass(frozen=True, slots=True)
class ContainerRuntime:
    """A runtime whose nodes are containers: `made` takes their image and how FRR is to use
    memory."""

    kind: str
    made: Callable[[str | None, FrrMemory], NodeProvider]
    checks: Callable[[], Sequence[Check]] = tuple

    def provider(self, image: str | None, frr: Path | None, frr_memory: FrrMemory) -> NodeProvider:
        if frr is not None:
            raise InputError(
                f"nodes of the runtime {self.kind} run the FRR of their image",
                hint="name an image that has it with --image",
            )
        return self.made(image, frr_memory)

    def recorded(self) -> NodeProvider:
        return self.made(None, FrrMemory.LEAN)
