"""Runs programs on a lab to their end, watches their connections, and reports both."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import CLOCK_REALTIME, clock_gettime_ns, monotonic

from rocelab.base.interruption import undone
from rocelab.base.quantities import duration, share
from rocelab.base.wording import counted
from rocelab.lab.lab import RunningLab
from rocelab.linux.clockwatch import ClockWatch
from rocelab.linux.closing import Holding
from rocelab.planning.fabric import Fabric
from rocelab.programs.connections import INTERVAL_S, STALL_NS, ConnectionWatch
from rocelab.programs.links import link_uses, read_counts, udp_uses
from rocelab.programs.ranks import RankedProgram
from rocelab.programs.running import GRACE_S, Ended, OutputLine, ProgramRun
from rocelab.record import LabFiles
from rocelab.results.programs import SCHEMA_VERSION, ProgramReport, RankEnd

BUSY_SHARE = 0.95


def run_programs(
    lab: RunningLab,
    programs: Sequence[RankedProgram],
    *,
    folder: Path,
    on_line: Callable[[OutputLine], object],
) -> ProgramReport:
    """Run the programs until all have ended, or one has failed: then the others are ended too, as
    torchrun and mpirun do.

    Raises MachineError if they cannot be started. What `on_line` raises ends them all.
    """
    with ProgramSession(lab, programs, folder=folder, on_line=on_line) as session:
        session.run_until(lambda: False)
        return session.report(session.began_ns)


class ProgramSession(Holding):
    """Programs and the watch of their connections, within a context: after it nothing of them
    runs, and an interrupt is reported."""

    def __init__(
        self,
        lab: RunningLab,
        programs: Sequence[RankedProgram],
        *,
        folder: Path,
        on_line: Callable[[OutputLine], object],
    ) -> None:
        self._lab, self._programs = lab, programs
        self._folder, self._on_line = folder, on_line
        self._ends: dict[int, Ended] = {}
        self._stopped: Collection[int] = ()
        self.began_ns = 0

    def _enter(self, stack: ExitStack) -> None:
        lab = self._lab
        # Of all servers: a program such as mpirun starts others elsewhere.
        netns = [lab.node(server.name).netns for server in lab.fabric.servers]
        names = address_names(lab.fabric)
        self._clock = stack.enter_context(ClockWatch())
        networks = {
            address: network.network_name
            for network in lab.fabric.networks
            for address in address_names(network)
        }
        self._watch = stack.enter_context(ConnectionWatch(netns, names, network_of=networks))
        self._counts = read_counts(lab)
        self._run = stack.enter_context(ProgramRun(lab, self._programs, self._folder))
        stack.push(self._interrupted)
        self._busy_s, self.began_ns = busy_seconds(), clock_gettime_ns(CLOCK_REALTIME)

    def _interrupted(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            undone(f"{counted(len(self._run.running), 'program')} ended")
            self._on_line = _while_it_works(self._on_line)
            self._end(signal.SIGINT)

    @property
    def is_over(self) -> bool:
        """Whether every program has ended."""
        return not self._run.running

    @property
    def clock_was_set(self) -> bool:
        """Whether this machine's clock was set since the start."""
        return self._clock.was_set

    def run_until(self, condition: Callable[[], object]) -> None:
        """Pass on what programs write, and sample, until `condition` holds or all have ended. When
        one fails the others are ended."""
        if self._has_failed_before(condition):
            self._stop()
        if self.is_over:
            self._watch.sample()
            while not self._run.is_silent:
                self._take(self._run.events(INTERVAL_S))

    def stop(self) -> None:
        """End the programs that still run, which is no failure of theirs."""
        self._watch.sample()
        self._stop()
        self.run_until(lambda: False)

    def report(self, zero_ns: int) -> ProgramReport:
        """What they did; its times count from `zero_ns`, CLOCK_REALTIME."""
        lab, ended_ns = self._lab, clock_gettime_ns(CLOCK_REALTIME)
        lasted_ns = ended_ns - self.began_ns
        cpu_s = busy_seconds() - self._busy_s
        cpu_share = min(1.0, cpu_s * 1e9 / lasted_ns / (os.cpu_count() or 1))
        connections, counts = self._watch.connections(zero_ns), read_counts(lab)
        return ProgramReport(
            schema_version=SCHEMA_VERSION,
            lab=lab.name,
            dilation=lab.fabric.spec.dilation,
            command=self._programs[0].argv,
            ranks=tuple(self._rank_end(program, ended_ns) for program in self._programs),
            began_ns=self.began_ns - zero_ns,
            lasted_ns=lasted_ns,
            connections=connections,
            delivered=self._watch.delivered(zero_ns),
            stall_bin_ns=STALL_NS,
            longest_interval_ns=self._watch.longest_interval_ns,
            cpu_share=cpu_share,
            warnings=tuple(self._warnings(cpu_share, self._watch.lost_events)),
            links=link_uses(lab.fabric, self._counts, counts, connections, lasted_ns),
            udp=udp_uses(self._counts, counts),
        )

    def _stop(self) -> None:
        self._stopped = set(self._run.running)
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        """Signal the programs that still run. Those that run on after GRACE_S are killed."""
        for step in (number, signal.SIGKILL):
            self._run.send(step)
            deadline = _Deadline(monotonic() + GRACE_S)
            while self._has_failed_before(deadline):
                pass

    def _has_failed_before(self, condition: Callable[[], object]) -> bool:
        """Pass on what programs write, and sample, until one has failed, `condition` holds, or all
        have ended. Returns whether one has failed."""
        while not self.is_over and not condition():
            left_s = self._watch.due_in_s
            if left_s <= 0:
                self._watch.sample()
            elif self._take(self._run.events(left_s)):
                return True
        return False

    def _take(self, events: Iterable[OutputLine | Ended]) -> bool:
        """Pass events on. Returns whether a program has failed by itself."""
        failed = False
        for event in events:
            if isinstance(event, OutputLine):
                self._on_line(event)
            else:
                self._ends[event.rank] = event
                failed = failed or event.code != 0
        return failed

    def _rank_end(self, program: RankedProgram, ended_ns: int) -> RankEnd:
        end = self._ends.get(program.rank)
        lasted_ns = (end.at_ns if end else ended_ns) - self.began_ns
        if end is None or program.rank in self._stopped:
            return RankEnd(program.rank, program.name, None, lasted_ns)
        return RankEnd(program.rank, program.name, end.code, lasted_ns, end.failed)

    def _warnings(self, cpu_share: float, lost_events: bool) -> Iterator[str]:
        if cpu_share > BUSY_SHARE:
            yield (
                f"this machine's CPUs were busy for {share(cpu_share)} of the time: the programs "
                "and the lab waited for them, and times are the machine's as much as the network's"
            )
        if not LabFiles(self._lab.name).record.exists():
            yield f"lab {self._lab.name} was taken down meanwhile, and what ran in it killed"
        if self.clock_was_set:
            yield "this machine's clock was set meanwhile: times here may be wrong"
        longest_ns = self._watch.longest_interval_ns
        if longest_ns > STALL_NS and self._watch.has_seen_some:
            yield (
                f"connections were read up to {duration(longest_ns)} apart: stalls may have been "
                f"shorter by this than they seem, and those that took less than "
                f"{duration(longest_ns + STALL_NS)} may be missed"
            )
        if lost_events:
            yield "more connections ended than could be read: bytes of some may be missing"
        if (dilation := self._lab.fabric.spec.dilation) > 1:
            yield (
                f"links have 1/{dilation:g} of the modelled network's rate, and programs compute "
                "and TCP waits at this machine's speed: no time or rate here times the dilation "
                "is one of the modelled network"
            )


@dataclass(frozen=True, slots=True)
class _Deadline:
    """Whether an instant of `monotonic` is over."""

    at_s: float

    def __call__(self) -> bool:
        return monotonic() > self.at_s


def _while_it_works(on_line: Callable[[OutputLine], object]) -> Callable[[OutputLine], None]:
    """The same until it raises OSError: Ctrl-C ends what reads a pipeline's output, too."""
    works = True

    def show(line: OutputLine) -> None:
        nonlocal works
        if works:
            try:
                on_line(line)
            except OSError:
                works = False

    return show


def address_names(fabric: Fabric) -> dict[str, str]:
    """The server and NIC of each address that a program may use: `srv1-1:2`."""
    names = {}
    for network in fabric.networks:
        for server in network.servers:
            for nic in network.nics(server.name):
                port = nic.links[0].a
                for address in filter(None, (nic.ip, port.address, port.other_address)):
                    names[address.partition("/")[0]] = f"{server.name}:{nic.number}"
    return names


def busy_seconds() -> float:
    """The time that this machine's CPUs have worked (proc_stat(5))."""
    user, nice, system, _, _, *interrupts = map(
        int, Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]
    )
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
