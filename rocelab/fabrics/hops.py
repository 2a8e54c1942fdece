"""How many switches a path of a fabric without tiers has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Switch = TypeVar("Switch", str, int)

_DETOUR = 2
"""Switches that a path around a failed link has in addition."""


def most_switches(switches: Iterable[Switch], trunks: Iterable[tuple[Switch, Switch]]) -> int:
    """The switches on the longest path to expect, at most all of them.

    A shortest path has at most twice the links of the longest shortest path from any one switch.
    """
    near: dict[Switch, list[Switch]] = {switch: [] for switch in switches}
    for one, other in trunks:
        near[one].append(other)
        near[other].append(one)
    passed: set[Switch] = set()
    farthest = 0
    for switch in near:
        if switch in passed:
            continue
        passed.add(switch)
        links, frontier = -1, [switch]
        while frontier:
            links += 1
            beyond = dict.fromkeys(far for one in frontier for far in near[one])
            frontier = [far for far in beyond if far not in passed]
            passed.update(frontier)
        farthest = max(farthest, links)
    return min(len(near), 2 * farthest + 1 + _DETOUR)
