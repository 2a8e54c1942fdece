"""The names of the runtimes: what can be asked for with `--runtime`."""

from __future__ import annotations

from enum import StrEnum


class RuntimeKind(StrEnum):
    """What a lab's nodes are."""

    NETNS = "netns"
    MININET = "mininet"
    DOCKER = "docker"
    CONTAINERLAB = "containerlab"
