"""How a drill gets its lab, and what happens to the lab afterwards.

Within the context a planned lab is up: it is brought up and taken down again, or used as it runs
and left up. While a drill uses a lab no other drill, job or fault by hand can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from rocelab.base.errors import InputError
from rocelab.base.interruption import undone
from rocelab.base.progress import Progress, ProgressSink
from rocelab.base.wording import listed
from rocelab.faults.injector import restore_recorded
from rocelab.faults.record import read_faults
from rocelab.lab.convergence import convergence_timeout_s
from rocelab.lab.inuse import in_use
from rocelab.lab.lab import Lab, RunningLab, as_it_runs
from rocelab.labfile.model import differing_keys
from rocelab.observe.timeline import FibTimeline, opened_namespaces
from rocelab.record import LabFiles
from rocelab.routing.frr.kind import FrrMemory

LabUse = Callable[[Lab, ProgressSink], AbstractContextManager[RunningLab]]
"""A way to have a planned lab up. The context yields the lab that runs."""


@contextmanager
def fresh(lab: Lab, progress: ProgressSink) -> Iterator[RunningLab]:
    """Bring the lab up for the context and take it down after it. Raises as `Lab.up` does."""
    with lab.brought_up(progress) as running, _in_drill(running):
        yield running


def kept(
    note: Callable[[str], None], frr: Path | None = None, frr_memory: FrrMemory | None = None
) -> LabUse:
    """A way to leave the lab up afterwards, and to use it if it is up already.

    `note` gets messages about what was found and done; `frr` is the folder of the requested FRR,
    and `frr_memory` how it is to use memory, None: any.
    The context raises InputError if the running lab is not the planned one, runs another FRR, is
    used by another drill, a job or a fault by hand, or has faults; otherwise as `fresh`.
    """

    @contextmanager
    def use(lab: Lab, progress: ProgressSink) -> Iterator[RunningLab]:
        was_up = lab.is_running
        if was_up:
            running = _running(lab)
            running.check_frr(frr)
            running.check_memory(frr_memory)
        else:
            running = lab.up(progress)
        try:
            with _in_drill(running):
                if was_up:
                    _repair(running, progress, note)
                yield running
        finally:
            undone(f"lab {lab.name} stays up")

    return use


def _in_drill(lab: RunningLab) -> AbstractContextManager[None]:
    return in_use(LabFiles(lab.name), "a drill")


def _running(planned: Lab) -> RunningLab:
    """The running lab. Raises InputError if it is not as planned."""
    running = RunningLab.open(planned.name)
    differing = differing_keys(as_it_runs(planned.fabric.spec), running.fabric.spec)
    if "scheme" not in differing and not running.has_own_scheme:
        differing = (*differing, "scheme")
    if differing:
        raise InputError(
            f"lab {planned.name} is up, but not as the drill wants it: {listed(differing, 'and')} "
            f"differ{'s' if len(differing) == 1 else ''}",
            hint=f"take it down with `rocelab down {planned.name}`; the drill then brings up its "
            "own",
        )
    return running


def _repair(lab: RunningLab, progress: ProgressSink, note: Callable[[str], None]) -> None:
    """Undo what killed commands left on the lab, and wait until every table is complete."""
    for fault in restore_recorded(lab, orphans_only=True):
        note(f"cleared {fault.kind} of {fault.subject}, left by a killed command")
    left = read_faults(LabFiles(lab.name))
    if left:
        numbers = listed([str(fault.number) for fault in left], "and")
        raise InputError(
            f"lab {lab.name} has fault{'s' * (len(left) > 1)} {numbers}: a drill needs a lab "
            f"without faults",
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
