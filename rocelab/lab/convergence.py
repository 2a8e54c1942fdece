"""Waiting until every switch's kernel FIB holds every expected prefix at full ECMP width.

It follows the kernel's own route events (`rocelab.linux.fibwatch`), never by polling or sleeping.
When time runs out, the error names what is missing, as BGP reports it: sessions, prefixes, nodes,
and the last line that each daemon concerned has logged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Protocol

from rocelab.base.errors import ExpectationError, MachineError
from rocelab.base.progress import Progress, ProgressSink
from rocelab.base.quantities import whole_share
from rocelab.labfile.base import MS
from rocelab.linux.fibwatch import FibAction, FibEvent, FibWatch
from rocelab.planning.fabric import Fabric, RouteBasis
from rocelab.planning.routes import expected_routes, expected_width
from rocelab.routing import daemons
from rocelab.routing.answers import UnreadableAnswerError
from rocelab.routing.files import DaemonFiles
from rocelab.routing.stack import RoutingStack

EVENT_WAIT_S = 0.25
BFD_POLL_S = 0.02
SHOWN = 8


CPU_PRESSURE = Path("/proc/pressure/cpu")
"""How long processes that could run waited for a CPU (Documentation/accounting/psi.rst)."""
MOST_STALLED = 0.5
"""Of a wait: if processes waited for a CPU longer, the machine may be why the lab is not whole."""


class NotConvergedError(ExpectationError):
    """Routing did not converge. `nodes`: the switches concerned, where most is missing first.
    `is_too_slow`: because of the machine, or nobody can tell; the exit code says so."""

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        *,
        nodes: Sequence[str],
        is_too_slow: bool = False,
    ) -> None:
        super().__init__(message, hint)
        self.nodes = tuple(nodes)
        if is_too_slow:
            self.exit_code = MachineError.exit_code


class Deadline:
    """The end of a wait for routing, which begins when this is made."""

    def __init__(self, timeout_s: float) -> None:
        self._begun_s, self._timeout_s = monotonic(), timeout_s
        self._stalled_s = _stalled_s()

    @property
    def is_over(self) -> bool:
        return monotonic() > self._begun_s + self._timeout_s

    def error(self, message: str, hint: str, *, nodes: Sequence[str]) -> NotConvergedError:
        """The error at the end of the wait, which says whether the machine was too busy."""
        stalled = (_stalled_s() - self._stalled_s) / (monotonic() - self._begun_s)
        if stalled <= MOST_STALLED:
            return NotConvergedError(message, hint, nodes=nodes)
        return NotConvergedError(
            f"{message}\nfor {whole_share(min(stalled, 1))} of that time processes waited "
            "for a CPU: this machine was too busy to tell whether the lab converges",
            f"stop other programs or take a smaller lab; then {hint}",
            nodes=nodes,
            is_too_slow=True,
        )


def _stalled_s() -> float:
    """Seconds since boot in which a process waited for a CPU; 0 where the kernel does not count."""
    try:
        first = CPU_PRESSURE.read_text().partition("\n")[0]
    except OSError:
        return 0.0
    return int(first.rpartition("total=")[2]) / 1e6


class SwitchHandle(Protocol):
    """The part of a switch that the wait uses."""

    @property
    def daemon_files(self) -> DaemonFiles: ...

    @property
    def stack(self) -> RoutingStack: ...

    def daemons(self) -> dict[str, int]: ...


def convergence_timeout_s(fabric: Fabric) -> float:
    """The time limit for a fabric: a minute, and more where there are thousands of sessions, or
    where others set its timers: FRR by itself tries a lost session again after 120 s."""
    least_s = 60.0 if fabric.basis is RouteBasis.PLANNED else 180.0
    return least_s + 0.1 * len(fabric.trunks)


class ConvergenceWait:
    """The routes that are still missing from the FIBs of a fabric."""

    def __init__(self, fabric: Fabric, node_of: Callable[[str], SwitchHandle]) -> None:
        self._fabric = fabric
        self._node_of = node_of
        self._missing: dict[str, dict[str, int]] = {
            node: {prefix: expected_width(fabric, links) for prefix, links in routes.items()}
            for node, routes in expected_routes(fabric).items()
        }
        self._expected = {node: dict(widths) for node, widths in self._missing.items()}
        self._total = sum(len(widths) for widths in self._missing.values())
        self._left = self._total

    def run(self, watch: FibWatch, timeout_s: float, progress: ProgressSink) -> bool:
        """Return when nothing is missing after all changes until now: whether something was. Raises
        NotConvergedError when `timeout_s` is over."""
        deadline = Deadline(timeout_s)
        was_missing = is_checked = False
        while self._left or not is_checked:
            for event in watch.events(EVENT_WAIT_S if self._left else 0):
                self._take(event)
                was_missing |= self._left > 0
            is_checked = True
            if watch.overflowed:
                lost = sorted(watch.overflowed)
                raise NotConvergedError(
                    f"route events of {', '.join(lost)} were lost: "
                    "the machine is too slow for this fabric",
                    nodes=lost,
                    is_too_slow=True,
                )
            progress(Progress("convergence", self._total - self._left, self._total))
            if self._left and deadline.is_over:
                raise deadline.error(
                    self.report(timeout_s), "see `rocelab doctor`", nodes=list(self._incomplete())
                )
        return was_missing

    def _take(self, event: FibEvent) -> None:
        expected = self._expected[event.node].get(event.prefix)
        if expected is None:
            return
        missing = self._missing[event.node]
        if event.action is FibAction.SET and event.width >= expected:
            if missing.pop(event.prefix, None) is not None:
                self._left -= 1
        elif event.prefix not in missing:
            missing[event.prefix] = expected
            self._left += 1

    def report(self, timeout_s: float) -> str:
        """What is missing and where, with the last log line of each node's daemons."""
        nodes = self._incomplete()
        lines = [
            f"routing did not converge in {timeout_s:.0f} s: {self._left} of {self._total} "
            f"routes are missing or too narrow on {len(nodes)} switches"
        ]
        for node, prefixes in list(nodes.items())[:SHOWN]:
            handle = self._node_of(node)
            some = ", ".join(f"{prefix} x{width}" for prefix, width in list(prefixes.items())[:3])
            lines.append(f"  {node}: {len(prefixes)} prefixes, such as {some}")
            down = down_sessions(handle.stack, handle.daemon_files)
            if down:
                lines.append(f"    sessions not established: {', '.join(down[:SHOWN])}")
            alive = handle.daemons()
            for daemon in dict.fromkeys((handle.stack.speaker, handle.stack.kernel_daemon)):
                dead = "" if daemon in alive else ", which does not run,"
                line = daemons.last_log_line(daemon, handle.daemon_files)
                lines.append(f"    {daemon}{dead} last logged: {line}")
        return "\n".join(lines)

    def _incomplete(self) -> dict[str, dict[str, int]]:
        """What is missing, by switch, where most is missing first."""
        nodes = {node: prefixes for node, prefixes in self._missing.items() if prefixes}
        return dict(sorted(nodes.items(), key=lambda item: -len(item[1])))


def down_sessions(stack: RoutingStack, files: DaemonFiles) -> list[str]:
    """Neighbours of a switch whose BGP session is not established, with their state."""
    try:
        peers = stack.peers(files)
        mute = stack.unheard(files)
    except UnreadableAnswerError as error:
        return [str(error)]
    except OSError as error:
        return [f"{stack.speaker} does not answer ({error})"]
    why = dict.fromkeys(mute, ", no router advertisement of it")
    return [
        f"{name} ({peer.state}{why.get(name, '')})"
        for name, peer in peers.items()
        if not peer.established
    ]


def wait_for_bfd(
    fabric: Fabric, node_of: Callable[[str], SwitchHandle], timeout_s: float, progress: ProgressSink
) -> None:
    """Return when every BFD session is up at its own pace, where the fabric has BFD.

    Routes are complete earlier: a BFD session begins with packets a second apart (RFC 5880 section
    6.8.3), and until it is up a silent failure would wait for the hold timer. Stacks
    tell nobody of it, so this asks them repeatedly. Raises NotConvergedError when `timeout_s` is
    over.
    """
    bfd = fabric.spec.routing.bfd
    if bfd is None:
        return
    deadline = Deadline(timeout_s)
    switches = [node.name for node in fabric.switches]
    for done, name in enumerate(switches):
        progress(Progress("bfd", done, len(switches)))
        links = (link for link in fabric.links_of[name] if link.is_between_switches)
        wanted = sum(1 for _ in links)
        while missing := wanted - _bfd_ready(node_of(name), bfd.interval // MS, bfd.multiplier):
            if deadline.is_over:
                raise deadline.error(
                    f"{missing} BFD sessions of {name} are not up after {timeout_s:.0f} s",
                    "ask its daemons with `rocelab vtysh`",
                    nodes=[name],
                )
            sleep(BFD_POLL_S)


def _bfd_ready(switch: SwitchHandle, interval_ms: int, multiplier: int) -> int:
    try:
        return switch.stack.bfd_ready(switch.daemon_files, interval_ms, multiplier)
    except OSError:
        return 0
