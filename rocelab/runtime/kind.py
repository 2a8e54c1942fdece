"""The names of the runtimes: what can be asked for with `--runtime`.

A module of their own: the command line reads its arguments without loading what makes a lab.
"""

from __future__ import annotations

from enum import StrEnum


class RuntimeKind(StrEnum):
    """What a lab's nodes are."""

    NETNS = "netns"
    MININET = "mininet"
    DOCKER = "docker"
    CONTAINERLAB = "containerlab"
