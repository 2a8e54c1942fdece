"""Studies: what is measured, point by point, and the page that says what came of it.

A `Study` is data and functions; `bench.campaign.run` measures it, `bench.campaign.pages` renders
it. A point is one row of a page or one way to do a thing; a sample is one measurement of it, as
JSON has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.campaign.document import Document

Measure = Callable[[Any], Any]
"""From what a point is to a sample of it."""

BENCH = Path(__file__).parents[1]


class RejectedSampleError(Exception):
    """A sample that says nothing, as the machine did not carry it: its point has another turn."""


def of_this_machine() -> dict[str, Any]:
    """The machine with its FRR. Raises MachineError without one."""
    from rocelab.observe.environment import read_environment

    return asdict(read_environment())


@dataclass(frozen=True, slots=True)
class Series:
    """Points that take turns, so that all see the same machine."""

    points: Mapping[str, Any]
    """What `measure` is called with, by the point's name."""

    prepared: Callable[[Sequence[str]], AbstractContextManager[Measure]]
    """What the points of these names need, such as labs that stay up; inside it one is measured."""

    turns: int = 1

    @classmethod
    def alone(cls, points: Mapping[str, Any], measure: Measure, turns: int = 1) -> Series:
        """Points that need nothing before them."""
        return cls(points, lambda _: nullcontext(measure), turns)


@dataclass(frozen=True, slots=True)
class Publication:
    """Files of a study that has more than its data and a page in bench/."""

    folder: Path
    files: Callable[[Document], Mapping[str, str]]
    """By name, of what was measured."""

    again: Callable[[], Mapping[str, str]]
    """Its pages and plots of the data that is published."""

    partial: bool = False
    """Whether pages can lack points."""


@dataclass(frozen=True, slots=True)
class Study:
    """A subject that is measured, with its page."""

    name: str
    """That of its data and its page, unless `page` is another."""

    about: str
    """What it measures, in a line."""

    series: Callable[[], Sequence[Series]]

    figures: Callable[[Document], Mapping[str, Any]] = lambda _: {}
    """What its page prints beside the document; pure."""

    environment: Callable[[], dict[str, Any]] = of_this_machine
    """The machine and what is on it. Raises MachineError where it cannot measure the study."""

    page: str = ""
    publication: Publication | None = None
    is_published: bool = True
    """Whether its data and page are in the tree; else its page is only printed."""

    @property
    def folder(self) -> Path:
        """Where its files go once all is measured."""
        return BENCH if self.publication is None else self.publication.folder

    @property
    def is_partial(self) -> bool:
        """Whether its pages can lack points."""
        return self.publication is None or self.publication.partial

    @property
    def stem(self) -> str:
        """The name of its page and its data, without a suffix."""
        return self.page or self.name
