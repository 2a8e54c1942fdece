"""Waiting until a lab of the user's own routing is whole, and what it has then.

Nobody planned its routes. It is whole when no route of its switches has changed for a while, every
configured session is up, and every server reaches every other by the kernels' tables; and where its
file says what to expect, when it has that. What its kernels have then is what a whole lab has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Protocol

from rocelab.base.progress import Progress, ProgressSink
from rocelab.base.wording import counted
from rocelab.lab.convergence import SHOWN, Deadline, NotConvergedError, SwitchHandle
from rocelab.labfile.configuration import ExpectSpec
from rocelab.labfile.observed import ObservedSpec
from rocelab.linux import fib, namespaces, netlink
from rocelab.linux.fib import read_fib
from rocelab.linux.fibwatch import FibWatch
from rocelab.planning.configured import files_of
from rocelab.planning.fabric import Fabric, Node
from rocelab.planning.sessions import carries_session
from rocelab.routes.reach import least_next_hops, unreached

STILL_S = 3.0
"""How long no route may change at least: BGP acts on a change within a second."""
OSPF_STILL_S = 7.0
"""The same with OSPF, which says no more often than every 5 s what its neighbours are (RFC 2328
appendix B, MinLSInterval), and then computes routes within a second or two."""
LSP_INTERVAL_S = 30
"""The same interval of IS-IS, FRR's default of lsp-gen-interval."""
EVENT_WAIT_S = 0.25
CHECK_S = 1.0


class OwnSwitch(SwitchHandle, Protocol):
    """The part of a switch that this wait uses."""

    @property
    def netns(self) -> Path: ...


class StillnessWait:
    """Waits for a lab whose routes nobody planned."""

    def __init__(
        self,
        fabric: Fabric,
        node_of: Callable[[str], OwnSwitch],
        daemons_of: Callable[[Node], tuple[str, ...]],
    ) -> None:
        self._fabric = fabric
        self._node_of = node_of
        self._daemons_of = daemons_of

    @property
    def still_s(self) -> float:
        """How long no route may have changed, and all sessions been up."""
        still_s, files = STILL_S, files_of(self._fabric.spec)
        for node in self._fabric.switches:
            daemons, file = self._daemons_of(node), files.get(node.name)
            if "ospfd" in daemons or "ospf6d" in daemons:
                still_s = max(still_s, OSPF_STILL_S)
            if "isisd" in daemons:
                interval_s = file.lsp_interval_s if file is not None else None
                still_s = max(still_s, STILL_S + (interval_s or LSP_INTERVAL_S))
        return still_s

    def run(self, watch: FibWatch, timeout_s: float, progress: ProgressSink) -> ObservedSpec:
        """What the lab has when it is whole. Raises NotConvergedError with what is missing when
        `timeout_s` is over."""
        deadline = Deadline(timeout_s)
        changed_s = checked_s = time.monotonic()
        incomplete_s = changed_s - self.still_s
        wanted_s = self.still_s
        problems: tuple[str, ...] = ()
        while True:
            events = watch.events(EVENT_WAIT_S)
            now_s = time.monotonic()
            if watch.overflowed:
                lost = sorted(watch.overflowed)
                raise NotConvergedError(
                    f"route events of {', '.join(lost)} were lost: "
                    "the machine is too slow for this fabric",
                    nodes=lost,
                    is_too_slow=True,
                )
            if events:
                changed_s = now_s
            still_s = now_s - changed_s
            progress(Progress("stillness", min(round(still_s), round(wanted_s)), round(wanted_s)))
            if still_s >= STILL_S and now_s - checked_s >= CHECK_S:
                problems, checked_s = tuple(self.problems()), time.monotonic()
                # What a link-state protocol has found just now changes routes later.
                incomplete_s = checked_s if problems and wanted_s > STILL_S else incomplete_s
                is_still = min(still_s, checked_s - incomplete_s) >= wanted_s
                if is_still and not problems and not watch.events(0):
                    return self._observed(still_s)
            if deadline.is_over:
                problems = problems or tuple(self.problems())
                raise self._not_whole(deadline, timeout_s, problems)

    def problems(self) -> Iterator[str]:
        """What a lab that is still lacks to be whole."""
        for node in self._fabric.switches:
            yield from self._down(node)
        expect = self._fabric.spec.routing.expect or ExpectSpec()
        fib_of = cache(lambda name: read_fib(self._node_of(name).netns))
        if expect.reach:
            lost = list(unreached(self._fabric, fib_of))
            if lost:
                some = ", ".join(f"{source} to {target}" for source, target in lost[:SHOWN])
                yield f"{counted(len(lost), 'pair')} of NICs without a way: {some}"
        for node in self._fabric.switches:
            wanted = expect.next_hops.get(node.name, expect.next_hops.get(node.role.name))
            least = None if wanted is None else least_next_hops(self._fabric, fib_of, node.name)
            if wanted is not None and least is not None and least < wanted:
                yield (
                    f"{node.name} has a route to servers with {counted(least, 'next hop')}, and "
                    f"routing.expect wants {wanted}"
                )

    def _down(self, node: Node) -> Iterator[str]:
        """The sessions and adjacencies of a switch that are not up."""
        switch, daemons = self._node_of(node.name), self._daemons_of(node)
        try:
            yield from switch.stack.missing_sessions(
                self._fabric, node, daemons, switch.daemon_files
            )
        except OSError as error:
            yield f"{node.name}: a daemon does not answer ({error})"

    def _observed(self, still_s: float) -> ObservedSpec:
        fabric = self._fabric
        daemons = {node.name: self._daemons_of(node) for node in fabric.switches}
        peers = {name: self._peers(name) for name, running in daemons.items() if "bgpd" in running}
        neighbours = {(name, peer) for name, of_node in peers.items() for peer in of_node}
        return ObservedSpec(
            basis="observed" if fabric.spec.routing.expect is None else "declared",
            still_s=round(still_s, 1),
            sessions=tuple(
                link.name for link in fabric.trunks if carries_session(link.a, link.b, neighbours)
            ),
            peers=peers,
            daemons=daemons,
            routes={node.name: self._routes(node) for node in fabric.switches},
        )

    def _peers(self, name: str) -> tuple[str, ...]:
        switch = self._node_of(name)
        peers = switch.stack.peers(switch.daemon_files)
        return tuple(peer for peer, session in peers.items() if session.established)

    def _routes(self, node: Node) -> dict[str, tuple[str, ...]]:
        """The routes of a switch that lead to other nodes."""
        ports = (link.port(node.name) for link in self._fabric.links_of[node.name])
        names = {port.index: port.interface for port in ports}

        def read() -> dict[str, tuple[str, ...]]:
            with netlink.open_socket(receive_buffer_bytes=4 << 20) as channel:
                return fib.routed(fib.read_routes(channel), names)

        return namespaces.inside(self._node_of(node.name).netns, read)

    def _not_whole(
        self, deadline: Deadline, timeout_s: float, problems: tuple[str, ...]
    ) -> NotConvergedError:
        names = [node.name for node in self._fabric.switches]
        concerned = [name for name in names if any(name in text for text in problems)]
        lines = [f"  {text}" for text in problems[:SHOWN]]
        if len(problems) > SHOWN:
            lines.append(f"  and {len(problems) - SHOWN:,} more")
        what = "\n".join(lines) or "  routes still change"
        return deadline.error(
            f"the lab's own routing is not whole after {timeout_s:.0f} s:\n{what}",
            "look at its daemons with `rocelab up --keep` and `rocelab vtysh`",
            nodes=concerned or names,
        )
