"""The door of runtimes: the ways to make nodes that are registered, ours and those of installed
packages.

An entry point of the group `rocelab.providers` has the name of a runtime, as in `--runtime NAME`
and in records, and an object with what `Runtime` says:

    netns = "rocelab.lab.providers.netns:NETNS"
"""

from __future__ import annotations

from collections.abc import Sequence
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


def image_refused(kind: str, image: str | None) -> None:
    """Raises InputError if an image is named for nodes that are no containers."""
    if image is not None:
        raise InputError(
            f"nodes of the runtime {kind} have no image",
            hint="use it with --runtime docker or containerlab",
        )


def frr_refused(kind: str, frr: Path | None) -> None:
    """Raises InputError if a folder with FRR is named for nodes that are containers."""
    if frr is not None:
        raise InputError(
            f"nodes of the runtime {kind} run the FRR of their image",
            hint="name an image that has it with --image",
        )
