"""The names of the runtimes and of how FRR uses memory: values of `--runtime`, `--frr-memory`.

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


class FrrMemory(StrEnum):
    """How FRR's daemons use memory (`rocelab.lab.memory`)."""

    LEAN = "lean"
    PLAIN = "plain"


ADOPTED = "adopted"
"""The runtime of a lab that others deployed, which no command makes."""
