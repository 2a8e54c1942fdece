"""Where a drill gets its lab from, and what becomes of the lab afterwards.

In: a planned lab. Out: the same lab, up, for as long as the context lasts: brought up and taken
down again, or used where it is up already and left. One drill at a time uses a lab.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from labs.errors import InputError
from labs.lab import Lab
from labs.runtime import kernel
from labs.runtime.base import Progress, ProgressSink
from labs.runtime.convergence import convergence_timeout_s
from labs.runtime.record import LabFiles
from labs.spec.model import LabSpec
from labs.spec.wording import listed
from scripts.drill.timeline import FibTimeline, opened_namespaces
from scripts.faults.injector import restore_recorded
from scripts.faults.record import read_faults

LabUse = Callable[[Lab, ProgressSink], AbstractContextManager[Lab]]
"""A way to have a planned lab up. The lab that the context gives is the one that runs."""


@contextmanager
def fresh(lab: Lab, progress: ProgressSink) -> Iterator[Lab]:
    """The lab, brought up for this and taken down after it. Raises as `Lab.up` does."""
    lab.up(progress)
    try:
        with _alone(lab):
            yield lab
    finally:
        lab.down(progress)


def kept(note: Callable[[str], None]) -> LabUse:
    """A way to leave the lab up afterwards, and to use it where it is up already.

    `note` is told what was found and done. The context raises InputError where the lab that is up
    is not the one planned, is used by another drill, or is broken on purpose; otherwise as `fresh`.
    """

    @contextmanager
    def use(lab: Lab, progress: ProgressSink) -> Iterator[Lab]:
        if lab.is_running:
            lab = _running(lab)
            with _alone(lab):
                _mend(lab, progress, note)
                yield lab
        else:
            lab.up(progress)
            with _alone(lab):
                yield lab

    return use


@contextmanager
def _alone(lab: Lab) -> Iterator[None]:
    """Hold the lab against other drills. Raises InputError where one holds it."""
    path = LabFiles(lab.name).root / "drill.lock"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another drill is running on lab {lab.name}",
                hint="wait for it to end, or give this one's lab another name",
            ) from None
        yield
    finally:
        os.close(descriptor)


def _running(planned: Lab) -> Lab:
    """The lab as it runs. Raises InputError where that is not as planned."""
    running = Lab.running(planned.name)
    differing = differing_keys(_possible(planned.fabric.spec), running.fabric.spec)
    if running.steering.read_scheme() != running.fabric.spec.scheme and "scheme" not in differing:
        differing = (*differing, "scheme")
    if differing:
        raise InputError(
            f"lab {planned.name} is up and not as the drill wants it: {listed(differing, 'and')} "
            f"differ{'s' if len(differing) == 1 else ''}",
            hint=f"take it down with `rocelab down {planned.name}`; the drill then brings up its "
            "own",
        )
    return running


def _possible(spec: LabSpec) -> LabSpec:
    """The spec as `Lab.up` realises it on a kernel that takes no hash seeds."""
    if spec.hashing.seed == 0 or kernel.seeds_supported():
        return spec
    return spec.model_copy(update={"hashing": spec.hashing.model_copy(update={"seed": 0})})


def differing_keys(wanted: LabSpec, running: LabSpec) -> tuple[str, ...]:
    """The keys, such as `routing.bfd`, whose values are not the same in two specs."""

    def keys(one: Mapping[str, object], other: Mapping[str, object], above: str) -> list[str]:
        found = []
        for key in sorted({*one, *other}):
            mine, theirs = one.get(key), other.get(key)
            if mine == theirs:
                continue
            if isinstance(mine, dict) and isinstance(theirs, dict):
                found += keys(mine, theirs, f"{above}{key}.")
            else:
                found.append(f"{above}{key}")
        return found

    return tuple(keys(wanted.model_dump(mode="json"), running.model_dump(mode="json"), ""))


def _mend(lab: Lab, progress: ProgressSink, note: Callable[[str], None]) -> None:
    """Undo what killed commands left on the lab, and return once every table is whole."""
    for fault in restore_recorded(lab, orphans_only=True):
        note(f"undid {fault.kind} of {fault.subject}, which a killed command had left")
    left = read_faults(LabFiles(lab.name))
    if left:
        numbers = listed([str(each.number) for each in left], "and")
        raise InputError(
            f"lab {lab.name} has fault{'s' * (len(left) > 1)} {numbers}: a drill needs it whole",
            hint=f"undo them with `rocelab fault restore {lab.name} --all`",
        )
    progress(Progress("routes", 0, 1))
    with (
        opened_namespaces(lab, lab.fabric.switches) as netns_of,
        FibTimeline(lab, netns_of) as fib,
    ):
        fib.wait_until_whole(convergence_timeout_s(lab.fabric))
    progress(Progress("routes", 1, 1))
    note(f"lab {lab.name} was up already and is used as it is")
