"""The document of a diagnosis: what slowed a job down, where, by how much, and the evidence.

`rocelab.diagnose` makes the findings. A frozen `Diagnosis` is written as JSON and reads back into
an equal object. docs/documents/ is generated from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rocelab.base.documents import Format
from rocelab.results.job import Times

SCHEMA_VERSION = 2


class Cause(StrEnum):
    """What slowed a job down; INVALID for an invalid run, which says nothing about the network."""

    HOST_PAUSE = "host-pause"
    GREY_LINK = "grey-link"
    SLOW_LINK = "slow-link"
    CONGESTED_LINK = "congested-link"
    SLOW_RECEIVER = "slow-receiver"
    PAUSE_STORM = "pause-storm"
    INCAST = "incast"
    VICTIM = "victim"
    NONE = "none"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class SuspectLink:
    """A directed link by the names of its link and ends."""

    link: str
    sender: str
    receiver: str


@dataclass(frozen=True, slots=True)
class CauseVerdict:
    """A cause and its subject: a server with its ranks, or links that cannot be told apart."""

    cause: Cause
    subject: str
    server: str | None
    ranks: tuple[int, ...]
    links: tuple[SuspectLink, ...]
    excess: Times
    """How much longer transfers on the critical paths took than others of their size, as far as
    they cross this cause."""
    iterations: tuple[int, ...]
    """Those that show it, 0 is the first, warm-up included."""
    evidence: tuple[str, ...]
    """The measurements, a sentence each."""

    @property
    def finding(self) -> str:
        """Cause and subject, such as `slow-receiver srv2-1`, of a victim without the port that it
        shares; `none` without a cause."""
        if self.cause is Cause.NONE:
            return str(self.cause)
        return f"{self.cause} {self.subject}".partition(", at ")[0]


@dataclass(frozen=True, slots=True)
class PathPart:
    """A part of an iteration's critical path: a send from its earliest start to its end."""

    send: int
    source: int
    destination: int
    posted: Times
    took: Times
    excess: Times
    """Its time beyond that of other sends of its size in the job."""
    hosts: Times
    """The part of the excess in which the server at one of its ends stood still."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The diagnosis of one job."""

    schema_version: int
    lab: str
    pattern: str
    ranks: int
    recorded: int
    """How many iterations have times."""
    verdict: CauseVerdict
    """The cause with the greatest excess, or that the run was invalid and why."""
    others: tuple[CauseVerdict, ...]
    """Further findings, including those without an effect on the job's time."""
    problems: tuple[str, ...]
    """Why the run was invalid, empty if it was valid."""
    notes: tuple[str, ...]
    """The job's own collisions, the machine's stalls, why paths are unknown."""
    typical: Times
    """The median time of all recorded."""
    shown: int
    """The recorded iteration that shows the verdict most, or without a cause the one with the
    greatest excess."""
    took: Times
    """Its time."""
    path: tuple[PathPart, ...]
    """Its critical path."""
    network: str | None = None
    """The network of the job, in a lab with several: hosts, links and ports are of this one, and
    nothing is known of another."""


_FORMAT = Format(
    Diagnosis, SCHEMA_VERSION, "a diagnosis", "give what `rocelab diagnose --json` wrote"
)


def from_json(text: str) -> Diagnosis:
    """The diagnosis that `rocelab.base.documents.to_json` wrote. Raises InputError for anything
    else."""
    return _FORMAT.read(text)
