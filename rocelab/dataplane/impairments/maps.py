"""The maps of the wire program as Python values: the rule of each cable's direction, and counters.

Reads and writes the pinned maps; a new rule applies from the next packet on. The layouts are those
of rocelab/dataplane/bpf/impairments.bpf.c. Standard library only: the delay line reads rules too.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rocelab.linux import bpf

MAPS = ("rules", "counters")
KINDS = 4
NEVER_ENDS = 2**64 - 1
ALL = 1 << 32

_SLOT = struct.Struct("=I")
_HEAD = struct.Struct("=IIQQ")
_PART = struct.Struct("=QQQ")
_RULE_BYTES = _HEAD.size + KINDS * _PART.size
_COUNTERS = struct.Struct("=5Q")


@dataclass(frozen=True, slots=True)
class RulePart:
    """One kind of impairment in a rule: a share of packets (in units of 2^-32) during a time; share
    0: none."""

    share: int = 0
    start_ns: int = 0
    end_ns: int = NEVER_ENDS


IDLE = RulePart()


@dataclass(frozen=True, slots=True)
class Rule:
    """All impairments at a hook, by kind; bit k of `held`: kind k is prepared."""

    interface: int
    at_egress: bool
    held: int = 0
    delay_ns: int = 0
    parts: tuple[RulePart, ...] = (IDLE,) * KINDS

    def holds(self, kind: int) -> bool:
        """Whether `kind` is prepared."""
        return bool(self.held >> kind & 1)

    def with_part(self, kind: int, part: RulePart, *, delay_ns: int | None = None) -> Rule:
        """The rule with one kind set and held."""
        parts = (*self.parts[:kind], part, *self.parts[kind + 1 :])
        delay_ns = self.delay_ns if delay_ns is None else delay_ns
        return replace(self, held=self.held | 1 << kind, parts=parts, delay_ns=delay_ns)

    def without(self, kind: int) -> Rule:
        """The rule with one kind idle and not held."""
        rule = self.with_part(kind, IDLE)
        return replace(rule, held=rule.held & ~(1 << kind))


@dataclass(frozen=True, slots=True)
class ImpairmentCounters:
    """Packets of a direction since its port was prepared.

    seen reached the hook lost of these, dropped corrupted had a bit flipped delayed    handed to
    the delay line resumed came back from it; the rest is still held, or exceeded its limit
    """

    seen: int
    lost: int
    corrupted: int
    delayed: int
    resumed: int


def pack_rule(rule: Rule) -> bytes:
    """A rule as bytes of `struct rule`."""
    head = _HEAD.pack(rule.interface, rule.at_egress, rule.held, rule.delay_ns)
    parts = (_PART.pack(part.share, part.start_ns, part.end_ns) for part in rule.parts)
    return head + b"".join(parts)


def unpack_rule(data: bytes) -> Rule:
    """A rule from bytes of `struct rule`."""
    interface, at_egress, held, delay_ns = _HEAD.unpack_from(data)
    parts = tuple(RulePart(*numbers) for numbers in _PART.iter_unpack(data[_HEAD.size :]))
    return Rule(interface, bool(at_egress), held, delay_ns, parts)


def sum_counters(data: bytes) -> ImpairmentCounters:
    """The counters summed over all CPUs, from a value of the per-CPU map."""
    return ImpairmentCounters(*map(sum, zip(*_COUNTERS.iter_unpack(data), strict=True)))


def possible_cpus() -> int:
    """How many values a per-CPU map has for a key (Documentation/ABI: devices/system/cpu)."""
    last = Path("/sys/devices/system/cpu/possible").read_text().strip().split(",")[-1]
    return int(last.split("-")[-1]) + 1


class ImpairmentMaps(bpf.Pinned):
    """The pinned maps of a lab and some of its programs; a context manager that closes them."""

    def __init__(self, folder: Path, programs: tuple[str, ...] = ()) -> None:
        """Raises BpfError if they are not pinned in `folder`."""
        super().__init__(folder, (*MAPS, *programs))

    def rule(self, slot: int) -> Rule | None:
        """The rule of a slot; None if the port is not prepared."""
        data = bpf.element(self._pinned["rules"], _SLOT.pack(slot), _RULE_BYTES)
        return None if data is None else unpack_rule(data)

    def rules(self) -> Mapping[int, Rule]:
        """Every rule, by slot."""
        rules = {}
        for key in bpf.keys(self._pinned["rules"], _SLOT.size):
            (slot,) = _SLOT.unpack(key)
            rule = self.rule(slot)
            if rule is not None:
                rules[slot] = rule
        return rules

    def set_rule(self, slot: int, rule: Rule) -> None:
        """Set the rule that the program applies from the next packet on."""
        bpf.set_element(self._pinned["rules"], _SLOT.pack(slot), pack_rule(rule))

    def set_rules(self, rules: Mapping[int, Rule]) -> None:
        """`set_rule` of several slots, one right after the other."""
        packed = [(_SLOT.pack(slot), pack_rule(rule)) for slot, rule in rules.items()]
        for slot, rule in packed:
            bpf.set_element(self._pinned["rules"], slot, rule)

    def remove_rule(self, slot: int) -> None:
        """Remove the rule of a slot."""
        bpf.remove_element(self._pinned["rules"], _SLOT.pack(slot))

    def counters(self, slot: int) -> ImpairmentCounters:
        """The program's counters at a hook."""
        size = _COUNTERS.size * possible_cpus()
        data = bpf.element(self._pinned["counters"], _SLOT.pack(slot), size)
        assert data is not None
        return sum_counters(data)

    def reset_counters(self, slot: int) -> None:
        """Set all counters of a hook to 0."""
        zero = bytes(_COUNTERS.size * possible_cpus())
        bpf.set_element(self._pinned["counters"], _SLOT.pack(slot), zero)
