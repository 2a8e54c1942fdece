"""Impairments of a running lab's cables: set, cleared and counted.

Attaches the wire program to exactly the ports that need it for the impairments of each direction of
a link. Clearing the last impairment removes everything: filters, clsact where `up` made none, pins,
processes. The caller of a change holds the lab's lock or is the only one. The state is in the
kernel, so any process can clear what another has left.

The kernel does loss, blackhole and corruption, exact to the packet. A process does delays, as
exactly as `rocelab.dataplane.impairments.delayline` says. Towards a server the hook is before the
port's queue: packets lost there were never queued.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from rocelab.base.errors import MachineError
from rocelab.dataplane.impairments import lineprocess, program
from rocelab.dataplane.impairments.delayline import Lateness
from rocelab.dataplane.impairments.impairment import Hook, Hooks, Impairment, ImpairmentKind
from rocelab.dataplane.impairments.maps import (
    ALL,
    IDLE,
    NEVER_ENDS,
    ImpairmentCounters,
    ImpairmentMaps,
    Rule,
    RulePart,
)
from rocelab.dataplane.impairments.program import IMPAIRMENTS
from rocelab.linux import namespaces, probes
from rocelab.linux.bracket import Bracket
from rocelab.planning.fabric import DirectedLink, Fabric
from rocelab.record import LabFiles, not_up

HELD_TIMEOUT_S = 0.5
"""How long to wait for the packets that a delay line holds; some may have been lost for lack of
room."""


class Impairments:
    """Impairs the cables of a lab that is up."""

    def __init__(self, fabric: Fabric, files: LabFiles) -> None:
        self._fabric = fabric
        self._files = files
        self._hooks = Hooks(fabric)

    def prepare(self, link: DirectedLink, kind: ImpairmentKind) -> None:
        """Do everything slow (compile, attach, start a delay line): packets pass as before.

        Raises InputError if the lab is not up, MachineError if this machine cannot.
        """
        hook = self._hooks.find(link)
        with self._alone():
            self._prepare(hook, kind)

    def impair(self, link: DirectedLink, impairment: Impairment) -> Bracket:
        """Set a direction's impairment of one kind, replacing one of that kind; return when the
        kernel took it.

        Takes well below a millisecond once prepared. Raises as `prepare` does.
        """
        return self.impair_all((link,), impairment)

    def impair_all(self, links: Sequence[DirectedLink], impairment: Impairment) -> Bracket:
        """`impair` of several directions, one right after the other: the bracket has nothing else
        in it."""
        hooks = [self._hooks.find(link) for link in links]
        kind = impairment.kind
        delay_ns = impairment.delay_ns if kind is ImpairmentKind.DELAY else None
        with self._alone():
            rules = {}
            for hook in hooks:
                rule = self._rule(hook)
                if rule is None or not rule.holds(kind):
                    rule = self._prepare(hook, kind)
                elif kind is ImpairmentKind.DELAY:
                    self._start_line(hook)
                rules[hook.slot] = rule.with_part(kind, _part(impairment), delay_ns=delay_ns)
            with self._maps() as maps:
                return Bracket.of(lambda: maps.set_rules(rules))

    def clear(self, link: DirectedLink, kind: ImpairmentKind) -> ImpairmentCounters | None:
        """End an impairment and remove what it alone needed; return its port's counters.

        Packets that a delay line holds leave at once, in order. Idempotent and from any state;
        returns None if there is nothing to clear. Raises InputError where the lab has no such link.
        """
        hook = self._hooks.find(link)
        if not self._files.root.exists():
            return None
        with self._alone():
            return self._clear(hook, kind)

    def clear_all(self, gone: Collection[str] = ()) -> None:
        """End every impairment of the lab, of which some nodes may be gone. Idempotent."""
        if not self._files.root.exists():
            return
        with self._alone():
            for slot, rule in self._rules().items():
                hook = self._hooks.at(slot)
                if hook.node in gone:
                    lineprocess.end(IMPAIRMENTS, self._files, hook.node)
                    with self._maps() as maps:
                        maps.remove_rule(slot)
                    continue
                for kind in ImpairmentKind:
                    if rule.holds(kind) or not rule.held:
                        self._clear(hook, kind)
            if not self._rules():
                program.remove_pins(IMPAIRMENTS, self._files)

    def active(self) -> dict[DirectedLink, tuple[Impairment, ...]]:
        """What is set, by directed link; none where one is prepared only."""
        return {
            self._hooks.at(slot).link: tuple(
                _impairment(ImpairmentKind(kind), part, rule.delay_ns)
                for kind, part in enumerate(rule.parts)
                if part.share
            )
            for slot, rule in sorted(self._rules().items())
        }

    def is_impaired(self, link: DirectedLink, kind: ImpairmentKind) -> bool:
        """Whether the kernel has an impairment of that kind, begun or not, ended or not. Raises
        InputError where the lab has no such link."""
        rule = self._rule(self._hooks.find(link))
        return rule is not None and bool(rule.parts[kind].share)

    def counters(self) -> dict[DirectedLink, ImpairmentCounters]:
        """What has been counted since each directed link was prepared."""
        counters = {}
        for slot in sorted(self._rules()):
            with self._maps() as maps:
                counters[self._hooks.at(slot).link] = maps.counters(slot)
        return counters

    def broken(self) -> tuple[str, ...]:
        """The switches whose delay line has ended or is stopped: what it delays is lost."""
        rules = self._rules()
        return tuple(
            node.name
            for node in self._fabric.switches
            if self._delays(node.name, rules)
            and not lineprocess.holds(IMPAIRMENTS, self._files, node.name)
        )

    def lateness(self) -> Lateness:
        """How late packets left all delay lines since the lab came up."""
        switches = [node.name for node in self._fabric.switches]
        return lineprocess.lateness(IMPAIRMENTS, self._files, switches)

    def remains(self, link: DirectedLink, kind: ImpairmentKind) -> tuple[str, ...]:
        """What the kernel still has of an impairment; an empty tuple proves it cleared.

        Leaves out what another kind on the same port needs. Raises InputError where the
        lab has no such link.
        """
        hook = self._hooks.find(link)
        if not self._files.root.exists():
            return ()
        remains = []
        rules = self._rules()
        rule = rules.get(hook.slot)
        if rule is not None and (rule.holds(kind) or not rule.held):
            remains.append(f"a rule for packets of {link}")
        if rule is None:
            netns = self._files.netns_of(hook.node)
            attached = namespaces.inside(
                netns,
                lambda: program.is_attached(IMPAIRMENTS, hook.index, at_egress=hook.at_egress),
            )
            remains += [f"the wire program on {hook.node}:{hook.interface}"] if attached else []
        if kind is ImpairmentKind.DELAY and not self._delays(hook.node, rules):
            if lineprocess.is_alive(IMPAIRMENTS, self._files, hook.node):
                remains.append(f"the process of {hook.node}'s delay line")
            if lineprocess.is_made(IMPAIRMENTS, self._files, hook.node):
                remains.append(f"the interfaces of {hook.node}'s delay line")
        if not rules and IMPAIRMENTS.pins(self._files).exists():
            remains.append("the wire program's pins")
        return tuple(remains)

    def _prepare(self, hook: Hook, kind: ImpairmentKind) -> Rule:
        lacking = probes.missing(program.NEEDS)
        if lacking:
            raise MachineError(f"cables cannot be impaired here: {lacking}", _HINT)
        try:
            program.make_pins(IMPAIRMENTS, self._files, self._hooks.most)
            with self._maps() as maps:
                rule = maps.rule(hook.slot)
                # The rule is written before what it lets others clear, and holds a kind once that
                # kind works.
                if rule is None:
                    maps.reset_counters(hook.slot)
                    rule = Rule(hook.index, hook.at_egress)
                    maps.set_rule(hook.slot, rule)
                if kind is ImpairmentKind.DELAY:
                    self._start_line(hook)
                cross = maps[IMPAIRMENTS.crossing]
                namespaces.inside(
                    self._files.netns_of(hook.node),
                    lambda: program.attach(
                        IMPAIRMENTS, cross, hook.slot, hook.index, at_egress=hook.at_egress
                    ),
                )
                if not rule.holds(kind):
                    rule = rule.with_part(kind, IDLE)
                    maps.set_rule(hook.slot, rule)
        except OSError as error:
            raise MachineError(f"cables cannot be impaired here: {error}", _HINT) from None
        return rule

    def _start_line(self, hook: Hook) -> None:
        place = self._fabric.switches.index(self._fabric.node(hook.node))
        mtu = max(link.mtu for link in self._fabric.links_of[hook.node])
        with self._maps() as maps:
            lineprocess.start(IMPAIRMENTS, self._files, hook.node, place, maps, mtu)

    def _clear(self, hook: Hook, kind: ImpairmentKind) -> ImpairmentCounters | None:
        rules = dict(self._rules())
        rule = rules.pop(hook.slot, None)
        counted = None
        if rule is not None:
            with self._maps() as maps:
                if kind is ImpairmentKind.DELAY:
                    rule = replace(rule, delay_ns=0)
                    maps.set_rule(hook.slot, rule)
                    if lineprocess.flush_cleared(IMPAIRMENTS, self._files, hook.node):
                        _wait_until_out(maps, hook)
                # The rule is removed last, so that the next command finishes the work of a killed
                # one.
                maps.set_rule(hook.slot, rule.with_part(kind, IDLE))
                if kind is ImpairmentKind.DELAY and lineprocess.is_alive(
                    IMPAIRMENTS, self._files, hook.node
                ):
                    # Packets from before the rule's removal are still in the line.
                    _wait_until_out(maps, hook)
                counted = maps.counters(hook.slot)
        if kind is ImpairmentKind.DELAY and not self._delays(hook.node, rules):
            lineprocess.stop(IMPAIRMENTS, self._files, hook.node)
        if rule is not None:
            with self._maps() as maps:
                rest = rule.without(kind)
                maps.set_rule(hook.slot, rest)
                if not rest.held:
                    namespaces.inside(
                        self._files.netns_of(hook.node),
                        lambda: program.detach(IMPAIRMENTS, hook.index, at_egress=hook.at_egress),
                    )
                    maps.remove_rule(hook.slot)
        if not self._rules():
            program.remove_pins(IMPAIRMENTS, self._files)
        return counted

    def _delays(self, node: str, rules: Mapping[int, Rule]) -> bool:
        return any(
            rule.holds(ImpairmentKind.DELAY) and self._hooks.at(slot).node == node
            for slot, rule in rules.items()
        )

    def _rules(self) -> Mapping[int, Rule]:
        if not IMPAIRMENTS.pins(self._files).exists():
            return {}
        with self._maps() as maps:
            return maps.rules()

    def _rule(self, hook: Hook) -> Rule | None:
        if not IMPAIRMENTS.pins(self._files).exists():
            return None
        with self._maps() as maps:
            return maps.rule(hook.slot)

    def _maps(self) -> ImpairmentMaps:
        return IMPAIRMENTS.maps(self._files)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Serialise changes: two processes may impair cables of a lab at once.

        Raises InputError where the lab is not up.
        """
        try:
            # Owned by root: another user who can open the locked file could block this process.
            folder = os.open(self._files.netns, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise not_up(self._fabric.name) from None
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


def _wait_until_out(maps: ImpairmentMaps, hook: Hook) -> None:
    """Wait until a delay line has sent all packets of a port, so that no packet that bypasses the
    line overtakes them."""
    deadline_s = time.monotonic() + HELD_TIMEOUT_S
    while time.monotonic() < deadline_s:
        counted = maps.counters(hook.slot)
        if counted.resumed >= counted.delayed:
            return
        # The kernel sends no event for a BPF program's counters.
        time.sleep(0.0002)


_HINT = "run `rocelab doctor` for what eBPF programs need"


def _part(impairment: Impairment) -> RulePart:
    share = max(1, round(impairment.share * ALL))
    end_ns = NEVER_ENDS if impairment.end_ns is None else impairment.end_ns
    return RulePart(share, impairment.start_ns, end_ns)


def _impairment(kind: ImpairmentKind, part: RulePart, delay_ns: int) -> Impairment:
    return Impairment(
        kind,
        part.share / ALL,
        delay_ns if kind is ImpairmentKind.DELAY else 0,
        part.start_ns,
        None if part.end_ns == NEVER_ENDS else part.end_ns,
    )
