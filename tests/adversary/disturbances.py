"""The disturbances of a drill while it runs, each a context around the running lab.

Within the context the machine, the injector or the clock misbehaves, as drawn from a seed;
afterwards it is as before.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rocelab.dataplane.impairments.maps import ImpairmentMaps
from rocelab.faults.base import Timed
from rocelab.faults.injector import Injector
from rocelab.faults.kinds.host_pause import HostPauseSpec
from rocelab.lab.lab import RunningLab
from rocelab.linux import netlink
from rocelab.linux.bracket import Bracket
from rocelab.routing import daemons

SECOND_NS = 10**9

Step = tuple[int, int, int]
"""Begin, end and error of a wrong clock, in ns of that clock."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The target of a disturbance. `steps` records what a disturbance of the clock did."""

    lab: RunningLab
    faults: tuple[Timed, ...]
    seed: int
    steps: list[Step] = field(default_factory=list)

    @property
    def gentle(self) -> bool:
        """Every other drill is disturbed so little that its run can be valid: a suite with only
        invalid runs would show nothing."""
        return self.seed % 2 == 0


@contextmanager
def none(scene: Scene) -> Iterator[None]:
    """The control: nothing is disturbed."""
    yield


_BURNER = """
import random, sys, time
draw = random.Random(int(sys.argv[1]))
while True:
    end = time.monotonic() + draw.uniform(0.1, 1.0)
    while time.monotonic() < end:
        pass
    time.sleep(draw.uniform(0.1, 1.0))
"""


@contextmanager
def load(scene: Scene) -> Iterator[None]:
    """Bursts of ordinary processes that compute: two per CPU, or one if gentle."""
    count = (1 if scene.gentle else 2) * len(os.sched_getaffinity(0))
    with ExitStack() as running:
        for number in range(count):
            running.enter_context(_helper(_BURNER, str(scene.seed + number)))
        yield


_THIEF = """
import os, random, sys, time
draw = random.Random(int(sys.argv[1]))
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
cpus = sorted(os.sched_getaffinity(0))
longest_s, every_s = map(float, sys.argv[2:])
while True:
    os.sched_setaffinity(0, {draw.choice(cpus)})
    end = time.monotonic() + draw.uniform(0.01, longest_s)
    while time.monotonic() < end:
        pass
    time.sleep(draw.expovariate(1 / every_s))
"""


@contextmanager
def steal(scene: Scene) -> Iterator[None]:
    """A CPU is gone for up to 200 ms about every second, as if a hypervisor took it; if gentle, for
    up to 30 ms, five times as often."""
    with _helper(_THIEF, str(scene.seed), *(("0.03", "0.2") if scene.gentle else ("0.2", "1"))):
        yield


@contextmanager
def _helper(program: str, *arguments: str) -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", program, *arguments]) as process:
        try:
            yield
        finally:
            process.kill()


_LOWEST: tuple[tuple[object, str], ...] = (
    (netlink, "send_batch"),
    (ImpairmentMaps, "set_rule"),
    (signal, "pidfd_send_signal"),
    (daemons, "vty_configure"),
    (daemons, "vty_command"),
)
"""The product's lowest-level calls that carry a fault to a kernel or a daemon."""


@contextmanager
def late(scene: Scene) -> Iterator[None]:
    """An injector's request to kernel or daemon is delayed by 50 to 900 ms, before or after its
    execution: the product has read its clock, and does not notice. Only the first call of each
    change, because some make dozens. If gentle, by up to 90 ms, which the product does not yet
    report as late.
    """
    draw = random.Random(scene.seed)
    # Not of a thread: the lowest calls are made on others, inside namespaces.
    armed = threading.Event()

    def held_up(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            if not armed.is_set():
                return call(*arguments, **named)
            armed.clear()
            delay_s = draw.uniform(0.05, 0.09 if scene.gentle else 0.9)
            if draw.random() < 0.5:
                time.sleep(delay_s)
                return call(*arguments, **named)
            answer = call(*arguments, **named)
            time.sleep(delay_s)
            return answer

        return called

    def armed_in(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            armed.set()
            try:
                return call(*arguments, **named)
            finally:
                armed.clear()

        return called

    with ExitStack() as patches:
        for owner, name in _LOWEST:
            patches.enter_context(patch.object(owner, name, held_up(getattr(owner, name))))
        for name in ("inject", "schedule", "restore"):
            patches.enter_context(patch.object(Injector, name, armed_in(getattr(Injector, name))))
        yield


@contextmanager
def nothing(scene: Scene) -> Iterator[None]:
    """Faults that are said to have been injected and do nothing."""
    with _idle(scene, scene.faults):
        yield


@contextmanager
def partly(scene: Scene) -> Iterator[None]:
    """Of several kinds of faults only those of the first do anything."""
    first = scene.faults[0].spec.kind
    with _idle(scene, [timed for timed in scene.faults if timed.spec.kind != first]):
        yield


@contextmanager
def _idle(scene: Scene, faults: Sequence[Timed]) -> Iterator[None]:
    kinds = {type(timed.spec.resolve(scene.lab.fabric)) for timed in faults}
    with ExitStack() as patches:
        for kind in kinds:
            for name in ("inject", "schedule"):
                if hasattr(kind, name):
                    patches.enter_context(patch.object(kind, name, lambda *_: Bracket.now()))
        yield


@contextmanager
def pause(scene: Scene) -> Iterator[None]:
    """The agents of one server, or of all, stand still for 30 to 400 ms about every second; if
    gentle, for 10 to 45 ms every other second.

    A server that the drill itself pauses is not disturbed, because continuing it would end the
    fault.
    """
    draw = random.Random(scene.seed)
    servers_paused = {
        timed.spec.server for timed in scene.faults if isinstance(timed.spec, HostPauseSpec)
    }
    servers = [node.name for node in scene.lab.fabric.servers if node.name not in servers_paused]

    shortest_s, longest_s, every_s = (0.01, 0.045, 2.0) if scene.gentle else (0.03, 0.4, 1.0)

    def act(over: threading.Event) -> None:
        while not over.wait(draw.expovariate(1 / every_s)):
            chosen = servers if draw.random() < 0.3 else [draw.choice(servers)]
            pids = [pid for server in chosen for pid in _agents(scene.lab, server)]
            try:
                _signal(pids, signal.SIGSTOP)
                over.wait(draw.uniform(shortest_s, longest_s))
            finally:
                _signal(pids, signal.SIGCONT)

    with _beside(act):
        yield


def _agents(lab: RunningLab, server: str) -> Sequence[int]:
    agents = []
    for pid in lab.node(server).processes():
        with suppress(OSError):
            if b"rocelab.agent.agent" in Path(f"/proc/{pid}/cmdline").read_bytes():
                agents.append(pid)
    return agents


def _signal(pids: Collection[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@contextmanager
def clock(scene: Scene) -> Iterator[None]:
    """The machine's clock is moved by 0.3 to 2 s, forth and back, and corrected from the monotonic
    one.

    It is the machine's, not the lab's: every other program sees it. Only on request.
    """
    draw = random.Random(scene.seed)
    right_ns = _offset_ns()

    def act(over: threading.Event) -> None:
        try:
            while not over.wait(draw.uniform(1.5, 3.0)):
                off_ns = int(draw.choice((-1, 1)) * draw.uniform(0.3, 2.0) * SECOND_NS)
                _set_offset(right_ns + off_ns)
                from_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
                over.wait(draw.uniform(0.5, 1.5))
                to_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
                _set_offset(right_ns)
                scene.steps.append((from_ns, to_ns, off_ns))
        finally:
            _set_offset(right_ns)

    try:
        with _beside(act):
            yield
    finally:
        _set_offset(right_ns)


def _offset_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_REALTIME) - time.monotonic_ns()


def _set_offset(offset_ns: int) -> None:
    time.clock_settime_ns(time.CLOCK_REALTIME, time.monotonic_ns() + offset_ns)


@contextmanager
def _beside(act: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `act` on a thread; its event is set at the end of the context."""
    over = threading.Event()
    thread = threading.Thread(target=act, args=(over,), name="adversary")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


DISTURBANCES: Mapping[str, Callable[[Scene], Any]] = {
    disturbance.__name__: disturbance
    for disturbance in (none, load, steal, late, nothing, partly, pause, clock)
}

OF_FAULTS = ("late", "nothing")
"""Disturbances that need a fault: for a drill without one they equal the control."""

OF_SEVERAL_KINDS = ("partly",)
"""Disturbances that need faults of several kinds."""

ASKED_FOR = ("clock",)
"""Disturbances that run only if they are named."""
