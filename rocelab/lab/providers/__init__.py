"""The ways to make nodes, by the name of their runtime."""

from __future__ import annotations

from pathlib import Path

from rocelab.base.errors import InputError
from rocelab.lab.kind import ADOPTED, RuntimeKind
from rocelab.lab.providers.adopted import AdoptedProvider
from rocelab.lab.providers.base import NodeProvider
from rocelab.lab.providers.containerlab import ContainerlabProvider
from rocelab.lab.providers.docker import DockerProvider
from rocelab.lab.providers.mininet import MininetProvider
from rocelab.lab.providers.netns import NetnsProvider
from rocelab.routing.frr.kind import FrrMemory

__all__ = ["NodeProvider", "RuntimeKind", "provider_of", "recorded_provider"]


def provider_of(
    kind: RuntimeKind,
    image: str | None = None,
    frr: Path | None = None,
    frr_memory: FrrMemory | None = None,
) -> NodeProvider:
    """The runtime of that name. `image` is for containers, rocelab's own by default; `frr` is a
    folder with the FRR of other nodes, the machine's by default; `frr_memory` is how FRR's daemons
    are to use memory, `lean` by default.

    Raises InputError for an image if nodes are no containers, and for a folder if they are.
    """
    memory = frr_memory or FrrMemory.LEAN
    if frr is not None and kind in (RuntimeKind.DOCKER, RuntimeKind.CONTAINERLAB):
        raise InputError(
            f"nodes of the runtime {kind} run the FRR of their image",
            hint="name an image that has it with --image",
        )
    if kind is RuntimeKind.DOCKER:
        return DockerProvider(image, memory)
    if kind is RuntimeKind.CONTAINERLAB:
        return ContainerlabProvider(image, memory)
    if image is not None:
        raise InputError(
            f"nodes of the runtime {kind} have no image",
            hint="use it with --runtime docker or containerlab",
        )
    if kind is RuntimeKind.MININET:
        return MininetProvider(frr, memory)
    return NetnsProvider(frr, memory)


def recorded_provider(runtime: str) -> NodeProvider:
    """The runtime of a lab whose record says `runtime`. Raises ValueError if there is none."""
    if runtime == ADOPTED:
        return AdoptedProvider()
    return provider_of(RuntimeKind(runtime))
