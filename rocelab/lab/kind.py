"""The names of the runtimes: values of `--runtime`.

A separate module, so that the command line parses its arguments without loading the runtimes.
"""

from __future__ import annotations

from enum import StrEnum


class RuntimeKind(StrEnum):
    """How a lab's nodes are made."""

    NETNS = "netns"
    MININET = "mininet"
    DOCKER = "docker"
    CONTAINERLAB = "containerlab"


ADOPTED = "adopted"
"""The runtime of a lab that others deployed, which no command makes."""
