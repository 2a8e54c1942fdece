"""The rounds of a controller: collect, decide, program, wait for the next reason.

Programs the switches of a fabric as the scheme asks and logs every round. A round reads the present
state and changes what differs. It depends on no earlier round, so that a controller that is killed
and started again ends at the same entries.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence

from rocelab.base.errors import RocelabError
from rocelab.base.plugin_errors import plugin_error
from rocelab.dataplane.controller.collector import Collector, Reason
from rocelab.dataplane.controller.lab import ControlledLab, OneRound, Report
from rocelab.dataplane.controller.rounds import Round, RoundLog, Utilisation
from rocelab.dataplane.steering import resilient
from rocelab.labfile.schemes.resilient import ResilientScheme
from rocelab.labfile.schemes.te import TeEngine, TeScheme
from rocelab.linux import netlink
from rocelab.linux.fib import KernelRoute, read_objects
from rocelab.linux.fibtable import Fib
from rocelab.planning.fabric import DirectedLink, Fabric
from rocelab.routes.demand import Demand
from rocelab.routes.entries import wanted_entries
from rocelab.routes.network import FibNetwork, FlowPlacement

SETTLED_S = 1.0
"""Routes that have not changed for this long are taken for BGP's last word."""

MS_PER_S = 1000.0


def run_rounds(
    collector: Collector,
    one_round: OneRound,
    period_s: float,
    log: RoundLog,
    ready: Callable[[], None],
) -> None:
    """Run rounds until the process ends; call `ready` after the first.

    Periods are counted from the first round, so that reactions in between do not shift them. A
    failure, such as a message that the kernel refuses, is logged and tried again in the next round.
    """
    reasons = {Reason.START}
    next_s = time.monotonic() + period_s
    while True:
        report = Report(time.clock_gettime(time.CLOCK_REALTIME))
        try:
            one_round(report)
        except (OSError, RocelabError) as error:
            report.problems.append(str(error))
        except Exception as error:
            # A bug in rocelab or in a plug-in: paths stay as they are, and the log says so.
            traceback.print_exc()
            named = plugin_error(error)
            report.problems.append(named.message if named else f"{type(error).__name__}: {error}")
        log.write(_finished(report, reasons))
        if Reason.START in reasons:
            ready()
        reasons = collector.wait(next_s)
        if Reason.PERIOD in reasons:
            next_s = max(next_s + period_s, time.monotonic())


def _finished(report: Report, reasons: set[Reason]) -> Round:
    counts = {"changed": 0, "removed": 0, "total": 0, **report.fields}
    return Round(
        started_unix_s=report.started_unix_s,
        finished_unix_s=time.clock_gettime(time.CLOCK_REALTIME),
        reasons=tuple(sorted(reasons)),
        collect_ms=round(MS_PER_S * report.seconds.get("collect", 0), 3),
        engine_ms=round(MS_PER_S * report.seconds.get("engine", 0), 3),
        program_ms=round(MS_PER_S * report.seconds.get("program", 0), 3),
        problems=tuple(report.problems),
        **counts,  # type: ignore[arg-type]
    )


class TeRounds:
    """Rounds of scheme `te`: each flow published by running traffic gets its path."""

    def __init__(self, lab: ControlledLab) -> None:
        assert isinstance(lab.scheme, TeScheme)
        self._lab = lab
        self._engine = lab.scheme.engine
        self._known: tuple[Mapping[str, Fib], Sequence[Demand]] | None = None
        self._placed: tuple[FlowPlacement, float | None] | None = None

    def __call__(self, report: Report) -> None:
        fibs, demands = self._lab.collect(report)
        with report.part("engine"):
            placed, bound = self._place(fibs, demands)
            wanted = wanted_entries(placed)
        report.fields |= {
            "demands": len(placed.paths),
            "lost": len(placed.lost),
            "overloaded": len(placed.overloaded),
            "max_utilisation": placed.max_utilisation,
            "lp_bound": bound,
            "tiers": tier_use(self._lab.fabric, placed.utilisation),
        }
        self._lab.program(wanted, report)

    def _place(
        self, fibs: Mapping[str, Fib], demands: Sequence[Demand]
    ) -> tuple[FlowPlacement, float | None]:
        """The placement, computed again only when the network or the demands have changed."""
        if self._placed is None or self._known != (fibs, demands):
            self._placed = place(FibNetwork(self._lab.fabric, fibs), demands, self._engine)
            self._known = (fibs, demands)
        return self._placed


def place(
    network: FibNetwork, demands: Sequence[Demand], engine: TeEngine
) -> tuple[FlowPlacement, float | None]:
    """What an engine makes of the demands, and the optimum where it knows it."""
    # numpy and the solver take a second to load: only the process that places flows pays.
    from rocelab.routes.placing import place_cspf, place_lp

    if engine is TeEngine.CSPF:
        return place_cspf(network, demands), None
    return place_lp(network, demands)


def tier_use(fabric: Fabric, utilisation: Mapping[DirectedLink, float]) -> dict[str, Utilisation]:
    """Utilisation by tier and direction, as in `rtsw-ctsw up`; idle links count."""
    utilisations: dict[str, list[float]] = {}
    for link in fabric.trunks:
        for direction in (link.up, link.down):
            name = f"{direction.tier} {direction.direction}"
            utilisations.setdefault(name, []).append(utilisation.get(direction, 0.0))
    return {
        name: Utilisation(len(used), round(max(used), 6), round(sum(used) / len(used), 6))
        for name, used in utilisations.items()
    }


class ResilientRounds:
    """Rounds of scheme `resilient`: groups over BGP's routes in every switch."""

    def __init__(self, lab: ControlledLab) -> None:
        assert isinstance(lab.scheme, ResilientScheme)
        self._collector = lab.collector
        self._buckets = lab.scheme.buckets
        self._bgp: dict[str, tuple[tuple[KernelRoute, ...], float]] = {}

    def __call__(self, report: Report) -> None:
        with report.part("collect"):
            routes = self._collector.routes()
        planned: dict[str, list[bytes]] = {}
        states = []
        with report.part("engine"):
            for name in routes:
                present = resilient.own_state(
                    routes[name], *read_objects(self._collector.channel(name))
                )
                wanted = resilient.wanted_state(
                    routes[name],
                    present,
                    self._buckets,
                    settled=self._unchanged_s(name, routes[name]) >= SETTLED_S,
                )
                states.append(wanted)
                if messages := resilient.messages(present, wanted):
                    planned[name] = messages
        with report.part("program"):
            for name, messages in planned.items():
                try:
                    netlink.send_batch(self._collector.channel(name), messages)
                except OSError as error:
                    report.problems.append(f"{name}: {error}")
                self._collector.forget(name)
        groups, grouped = resilient.group_sizes(states)
        report.fields |= {
            "changed": sum(len(messages) for messages in planned.values()),
            "total": groups + grouped,
        }

    def _unchanged_s(self, switch: str, routes: Iterable[KernelRoute]) -> float:
        """How long a switch's own routes have not changed."""
        now = time.monotonic()
        bgp = tuple(route for route in routes if not resilient.is_own(route))
        if switch not in self._bgp or self._bgp[switch][0] != bgp:
            self._bgp[switch] = bgp, now
        return now - self._bgp[switch][1]
