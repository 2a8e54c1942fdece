"""What is known of a lab's nodes before any of them is made: the names of runtimes that more than
their own modules know, and the options that choose a runtime."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rocelab.base.doors import registered
from rocelab.base.options import member_of, option
from rocelab.routing.frr.kind import FrrMemory

DEFAULT_RUNTIME = "netns"
CONTAINER_LABEL = "org.rocelab.record"
"""The label of the containers that rocelab makes."""
ADOPTED = "adopted"
"""The runtime of a lab that others deployed, which no command makes."""


def runtime_names() -> tuple[str, ...]:
    """The runtimes that `--runtime` takes: all but that of labs that others deployed."""
    return tuple(sorted(registered("rocelab.providers") - {ADOPTED}))


@dataclass(frozen=True, slots=True)
class UpOptions:
    """How a lab is brought up: what its nodes are made by, the pace of its clock, its FRR."""

    runtime: str = option(
        DEFAULT_RUNTIME,
        "The type of nodes: netns, mininet, docker, containerlab, or that of a plug-in.",
        metavar="NAME",
        words=runtime_names,
    )
    image: str | None = option(
        None, "Image of containers; without it one is built from Debian packages."
    )
    dilation: float | None = option(
        None,
        "How many times slower than the modelled network the lab runs, in place of its file's "
        "value: a greater one asks less of this machine.",
        metavar="D",
        minimum=1,
        maximum=10**9,
    )
    frr: Path | None = option(
        None,
        "The folder of the FRR that switches run; this machine's FRR by default.",
        metavar="PREFIX",
    )
    frr_memory: FrrMemory | None = option(
        None,
        "How much memory FRR's daemons use: less (lean, the default) or FRR's default (plain).",
        metavar="<lean|plain>",
        read=partial(member_of, FrrMemory),
        words=lambda: tuple(FrrMemory),
    )
