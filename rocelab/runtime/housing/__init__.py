"""The ways to make nodes, by the name of their runtime."""

from __future__ import annotations

from pathlib import Path

from rocelab.errors import InputError
from rocelab.runtime.housing.base import Housing
from rocelab.runtime.housing.netns import NetnsHousing
from rocelab.runtime.kind import RuntimeKind

__all__ = ["Housing", "RuntimeKind", "housing_of"]


def housing_of(kind: RuntimeKind, image: str | None = None, frr: Path | None = None) -> Housing:
    """The runtime of that name. `image` is that of containers, ours where none is named; `frr` a
    folder with the FRR that other nodes run (`rocelab.runtime.installation`), the machine's where
    none is named.

    Raises InputError for an image where nodes are no containers, and for a folder where they are.
    """
    if frr is not None and kind in (RuntimeKind.DOCKER, RuntimeKind.CONTAINERLAB):
        raise InputError(
            f"nodes of the runtime {kind} run the FRR of their image",
            hint="name an image that has it with --image",
        )
    # Here and not above: `netns` does not wait for the libraries of others.
    if kind is RuntimeKind.DOCKER:
        from rocelab.runtime.housing.docker import DockerHousing

        return DockerHousing(image)
    if kind is RuntimeKind.CONTAINERLAB:
        from rocelab.runtime.housing.containerlab import ContainerlabHousing

        return ContainerlabHousing(image)
    if image is not None:
        raise InputError(
            f"nodes of the runtime {kind} have no image",
            hint="use it with --runtime docker or containerlab",
        )
    if kind is RuntimeKind.MININET:
        from rocelab.runtime.housing.mininet import MininetHousing

        return MininetHousing(frr)
    return NetnsHousing(frr)
