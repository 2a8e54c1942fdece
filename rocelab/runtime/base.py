"""What every runtime offers, so that traffic, faults and drills run unchanged on each.

A runtime realises a `Fabric`: it brings nodes and links up and takes them down again, and hands
out one handle per node and per link. It never plans: names, addresses and routes come from the
fabric.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rocelab.kernel.links import LinkCounters
from rocelab.plan.fabric import Fabric
from rocelab.progress import ProgressSink, no_progress


class NodeHandle(Protocol):
    """A running node."""

    @property
    def name(self) -> str: ...

    @property
    def netns(self) -> Path:
        """A path that `setns(2)` takes: the node's network namespace."""
        ...

    def exec(
        self, argv: Sequence[str], *, timeout_s: float = 30.0
    ) -> subprocess.CompletedProcess[str]:
        """Run `argv` in the node and give its output. Raises InputError if it is not there."""
        ...

    def daemons(self) -> dict[str, int]:
        """Process ids of the routing daemons alive in the node, by daemon name."""
        ...


class LinkHandle(Protocol):
    """A running link."""

    @property
    def name(self) -> str: ...

    def down(self) -> None:
        """Take the carrier away at both ends, as a pulled cable does."""
        ...

    def up(self) -> None:
        """Give the carrier back."""
        ...

    def counters(self) -> dict[str, LinkCounters]:
        """Counters of both ports, by node name."""
        ...


class Runtime(Protocol):
    """Realises a fabric and owns what it creates."""

    @property
    def fabric(self) -> Fabric: ...

    def up(self, progress: ProgressSink = no_progress) -> None:
        """Create everything and return when every FIB is complete. Undoes itself on failure."""
        ...

    def down(self, progress: ProgressSink = no_progress) -> None:
        """Remove everything that `up` created. Idempotent."""
        ...

    def node(self, name: str) -> NodeHandle: ...

    def link(self, name: str) -> LinkHandle: ...
