"""The engine: takes the turns that points of a study lack, and keeps each sample at once.

A campaign that a signal or a crash ended continues with the turns that are missing. An error of one
point is kept with it, the others have their turns.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from bench.campaign.document import SCHEMA_VERSION, Document, PointResult
from bench.campaign.guard import BusyMachineError, wait_until_quiet
from bench.campaign.store import Start, Store
from bench.campaign.study import RejectedSampleError, Series, Study
from rocelab import InputError, MachineError, RocelabError

MOST_REJECTED = 3
"""Times the turns of a point: then the machine is too busy to measure it."""

ERRORS = (RocelabError, OSError, ValueError, KeyError, RuntimeError, subprocess.SubprocessError)
"""What may go wrong with a point; anything else ends the campaign."""

Sink = Callable[[str], None]
"""Receives a line for people."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """A study that is measured, in a store."""

    study: Study
    store: Store
    only: str = "*"
    """The points that are measured, as a shell's glob."""

    turns: int | None = None
    """Of each point, instead of the study's."""

    guard: Callable[[], float] = wait_until_quiet
    """Waits for a quiet machine before a turn, and says what other work takes."""

    @property
    def series(self) -> tuple[tuple[Series, tuple[str, ...]], ...]:
        """Each series with its chosen points. Raises InputError if there are none in any."""
        every = [(series, tuple(series.points)) for series in self.study.series()]
        chosen = tuple(
            (series, tuple(name for name in names if fnmatchcase(name, self.only)))
            for series, names in every
        )
        if not any(names for _, names in chosen):
            points = ", ".join(name for _, names in every for name in names)
            raise InputError(f"no point fits {self.only}", hint=f"points are {points}")
        return chosen

    def wanted(self, series: Series) -> int:
        return series.turns if self.turns is None else self.turns

    def lacking(self, series: Series, names: Sequence[str]) -> tuple[str, ...]:
        """Points that still have turns."""
        wanted = self.wanted(series)
        return tuple(name for name in names if self.store.point(name).lacks(wanted))

    def measure(self, say: Sink) -> None:
        """Take all turns that are missing. Raises MachineError where the machine cannot measure the
        study or does other work, and InputError as `series`."""
        todo = [(series, self.lacking(series, names)) for series, names in self.series]
        if not any(names for _, names in todo):
            return
        self._start()
        for series, names in todo:
            if names:
                self._measure_series(series, names, say)

    def _start(self) -> None:
        # As it is read back: tuples are lists.
        environment: dict[str, Any] = json.loads(json.dumps(self.study.environment()))
        start = self.store.start()
        if start is None:
            pairs = tuple(environment.items())
            self.store.write_start(Start(SCHEMA_VERSION, pairs, os.getloadavg()))
            return
        before = dict(start.environment)
        changed = [
            name
            for name, value in environment.items()
            if name not in ("started", "date", "command") and before.get(name) != value
        ]
        if changed:
            name = changed[0]
            raise InputError(
                f"{self.store.folder} was measured with {name.replace('_', ' ')} {before.get(name)}"
                f", which is {environment[name]} now",
                hint="`--again` forgets it and measures all points",
            )

    def _measure_series(self, series: Series, names: Sequence[str], say: Sink) -> None:
        failed: set[str] = set()
        try:
            self._note_other_work(self.guard())
            with series.prepared(names) as measure:
                for turn in range(1, self.wanted(series) + 1):
                    waiting = [
                        name
                        for name in names
                        if name not in failed and self.store.point(name).lacks(turn)
                    ]
                    if waiting and turn > 1:
                        self._note_other_work(self.guard())
                    for name in waiting:
                        say(f"{name}: {turn} of {self.wanted(series)}")
                        result = self._taken(name, partial(measure, series.points[name]), series)
                        self.store.write(result)
                        if result.failed is not None:
                            failed.add(name)
        except BusyMachineError:
            raise
        except MachineError as error:
            # What all points need is not to be had here.
            for name in names:
                self.store.write(replace(self.store.point(name), missing=error.message))

    def _taken(self, name: str, sample: Callable[[], Any], series: Series) -> PointResult:
        """The point after a turn."""
        result = self.store.point(name)
        while True:
            try:
                return result.with_sample(sample())
            except RejectedSampleError as reason:
                result = replace(result, rejected=result.rejected + 1)
                if result.rejected > MOST_REJECTED * self.wanted(series):
                    return replace(result, failed=f"{result.rejected} samples rejected: {reason}")
            except MachineError as error:
                return replace(result, missing=error.message)
            except ERRORS as error:
                return replace(result, failed=_text(error))

    def _note_other_work(self, cpus: float) -> None:
        start = self.store.start()
        assert start is not None, "a campaign notes its start first"
        if cpus > start.busy_cpus:
            self.store.write_start(replace(start, busy_cpus=cpus))

    def document(self) -> Document:
        """What is measured by now, of all points. Raises InputError if nothing is."""
        start = self.store.start()
        if start is None:
            raise InputError(f"nothing is measured in {self.store.folder}")
        return Document(
            schema_version=SCHEMA_VERSION,
            study=self.study.name,
            environment=dict(start.environment),
            load_average={"before": start.load_average, "after": os.getloadavg()},
            points=tuple(
                self.store.point(name) for series in self.study.series() for name in series.points
            ),
            busy_cpus=start.busy_cpus,
        )

    @property
    def failures(self) -> dict[str, str]:
        """The errors of points, by name."""
        results = [self.store.point(name) for _, names in self.series for name in names]
        return {result.name: result.failed for result in results if result.failed is not None}

    @property
    def is_whole(self) -> bool:
        """Whether every point of the study has all the turns that the study asks for."""
        return not any(
            self.store.point(name).lacks(series.turns)
            for series in self.study.series()
            for name in series.points
        )


def _text(error: Exception) -> str:
    """An error in a line."""
    if isinstance(error, subprocess.CalledProcessError):
        last = (error.stderr or "").strip().splitlines()[-1:]
        return " ".join((f"{error.cmd[0]} ended with {error.returncode}", *last))
    text = error.message if isinstance(error, RocelabError) else str(error)
    return f"{type(error).__name__}: {text}"
