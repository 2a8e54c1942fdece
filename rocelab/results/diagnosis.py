"""The document of a diagnosis: what slowed a job down, where, by how much and what says so.

In: findings of `rocelab.diagnose`. Out: a frozen `Diagnosis`, as JSON that reads back into the
same object. docs/documents.md is made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rocelab.documents import Format
from rocelab.results.job import Times

SCHEMA_VERSION = 2


class Cause(StrEnum):
    """What slowed a job down; INVALID where its run was, so that nothing is said of the network."""

    HOST_PAUSE = "host-pause"
    GREY_LINK = "grey-link"
    SLOW_LINK = "slow-link"
    CONGESTED_LINK = "congested-link"
    NONE = "none"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class SuspectLink:
    """A directed link by the names of its link and ends."""

    link: str
    sender: str
    receiver: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A cause and its subject: a server with its ranks, or links that can not be told apart.

    excess: how much longer transfers on the critical paths took than others of their size, as far
    as this cause lies on their way. iterations: those it shows in, 0 is the first, warm-up
    included. evidence: what was measured, a sentence each.
    """

    cause: Cause
    subject: str
    server: str | None
    ranks: tuple[int, ...]
    links: tuple[SuspectLink, ...]
    excess: Times
    iterations: tuple[int, ...]
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of an iteration's critical path: a send from when it could start to when it was over.

    excess: beyond what a send of its size took elsewhere in the job; hosts: of that, while the
    server at one of its ends stood still.
    """

    send: int
    source: int
    destination: int
    posted: Times
    took: Times
    excess: Times
    hosts: Times


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found out about one job.

    recorded: how many iterations have times. verdict: the cause with the greatest excess, or that
    the run was invalid and why. others: further findings, those without an effect on the job's time
    included. problems: why the run was invalid, none where it was not. notes: the job's own
    collisions, the machine's stalls, why paths are not known. typical: the median time of all
    recorded. shown: the recorded iteration that the verdict shows in most, or without a cause the
    one with the greatest excess. took: its time. path: its critical path.
    """

    schema_version: int
    lab: str
    pattern: str
    ranks: int
    recorded: int
    verdict: Verdict
    others: tuple[Verdict, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    typical: Times
    shown: int
    took: Times
    path: tuple[Stretch, ...]


_FORMAT = Format(
    Diagnosis, SCHEMA_VERSION, "a diagnosis", "give what `rocelab diagnose --json` wrote"
)


def from_json(text: str) -> Diagnosis:
    """The diagnosis that `rocelab.documents.to_json` wrote. Raises InputError on anything else."""
    return _FORMAT.read(text)
