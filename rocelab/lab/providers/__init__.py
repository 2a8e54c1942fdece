"""The ways to make nodes, by the name of their runtime."""

from __future__ import annotations

from pathlib import Path

from rocelab.base.errors import InputError
from rocelab.lab.kind import DEFAULT_RUNTIME, runtime_names
from rocelab.lab.providers.base import NodeProvider
from rocelab.lab.providers.door import RUNTIMES
from rocelab.routing.frr.kind import FrrMemory

__all__ = ["NodeProvider", "provider_of", "recorded_provider", "runtime_names"]


def provider_of(
    kind: str = DEFAULT_RUNTIME,
    image: str | None = None,
    frr: Path | None = None,
    frr_memory: FrrMemory | None = None,
) -> NodeProvider:
    """The runtime of that name. `image` is for containers, rocelab's own by default; `frr` is a
    folder with the FRR of other nodes, the machine's by default; `frr_memory` is how FRR's daemons
    are to use memory, `lean` by default.

    Raises InputError if there is no such runtime, for an image if nodes are no containers, and for
    a folder if they are.
    """
    return RUNTIMES.find(kind).provider(image, frr, frr_memory or FrrMemory.LEAN)


def recorded_provider(lab: str, runtime: str) -> NodeProvider:
    """The runtime of a lab whose record says `runtime`. Raises InputError if its package is
    gone."""
    if not RUNTIMES.has(runtime):
        raise InputError(
            f"lab {lab} was brought up with the runtime {runtime}, which is not installed here",
            f"install its package again, or take the lab down with `rocelab down {lab}`",
        )
    return RUNTIMES.find(runtime).recorded()
