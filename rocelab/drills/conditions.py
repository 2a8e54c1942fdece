"""The conditions under which a phase runs: another scheme, other hash seeds, links that are down.

Within the context a running lab has the conditions of a `PlannedPhase` and its routes have settled;
afterwards it is as its own spec says, with every route complete again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from rocelab.base.interruption import shielded, undone
from rocelab.base.progress import Progress, ProgressSink
from rocelab.dataplane.steering.scheme import Steering
from rocelab.drills.hashing import seeds_of
from rocelab.drills.plan import PlannedPhase
from rocelab.lab.convergence import convergence_timeout_s
from rocelab.lab.lab import RunningLab
from rocelab.linux.fibwatch import FibWatch
from rocelab.observe.timeline import FibTimeline
from rocelab.record import LabFiles

QUIET_S = 1.0
"""Routes have settled when none has changed for this long: several times as long as BGP takes to
announce a lost link to all switches of a lab."""


@contextmanager
def conditions(
    lab: RunningLab, phase: PlannedPhase, netns_of: Mapping[str, int], progress: ProgressSink
) -> Iterator[None]:
    """The lab under the phase's conditions; `netns_of` has the namespaces of its switches. Raises
    as `Steering.set_scheme` does, and ExpectationError if routes are not complete again after the
    phase."""
    spec = phase.spec
    with ExitStack() as stack:
        if spec.links_down:
            stack.enter_context(_links_down(lab, spec.links_down, netns_of, progress))
        if spec.seed is not None:
            stack.enter_context(seeds_of(phase.fabric, lab.fabric, netns_of))
        # A steered switch uses the seed in the scheme's program: setting the scheme sets new seeds.
        if spec.scheme is not None or spec.seed is not None:
            stack.enter_context(_scheme(lab, phase, progress))
        yield


@contextmanager
def _scheme(lab: RunningLab, phase: PlannedPhase, progress: ProgressSink) -> Iterator[None]:
    steering = lab.network(phase.fabric.network_name).steering
    before = steering.read_scheme()
    with shielded(f"lab {lab.name}: restoring its scheme") as shield:
        try:
            with shield.lifted():
                with lab.locked():
                    during = Steering(phase.fabric, LabFiles.of(phase.fabric))
                    during.set_scheme(phase.spec.scheme or before, progress)
                yield
        finally:
            with lab.locked():
                steering.set_scheme(before, progress)


@contextmanager
def _links_down(
    lab: RunningLab, names: tuple[str, ...], switches: Mapping[str, int], progress: ProgressSink
) -> Iterator[None]:
    with FibTimeline(lab, switches) as timeline:
        with shielded("restoring the carrier of links") as shield:
            try:
                with shield.lifted():
                    with FibWatch(switches) as watch:
                        for name in names:
                            lab.link(name).down()
                        _await_quiet(watch, progress)
                    yield
            finally:
                for name in names:
                    lab.link(name).up()
                undone("restored the carrier of links")
        timeline.wait_until_whole(convergence_timeout_s(lab.fabric))


def _await_quiet(watch: FibWatch, progress: ProgressSink) -> None:
    changed_s = time.monotonic()
    while time.monotonic() - changed_s < QUIET_S:
        progress(Progress("routes settle", 0, 1))
        for _ in watch.events(QUIET_S / 4):
            changed_s = time.monotonic()
