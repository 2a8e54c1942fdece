"""What each node of a topology that others drew is: server, leaf, spine, core, or left out.

The author says it: by an option, a group, a name such as `leaf3`, as `containerlab generate` names
tiers. Else it follows from the cables, where it does for certain: switches with servers are leaves,
and the others count from them. What is not certain is asked for, never guessed. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from rocelab.base.errors import InputError
from rocelab.base.wording import listed, name_hint, shown
from rocelab.fabrics.door import roles
from rocelab.importing.topology import DrawnNode, ImportedTopology
from rocelab.planning.shape import DrawnGraph, Pair

NONE = "none"
"""The role of a node that is left out of the lab file."""
TIER_NAMES = ("server", "leaf", "spine", "core")
_WORDS = {
    **{name: role.tier for name, role in roles().items()},
    **{"host": 0, "client": 0, "superspine": 3, "super-spine": 3},
}
_PLURALS = {f"{word}s": tier for word, tier in _WORDS.items()} | {"leaves": 1}
_IN_A_NAME = re.compile(r"(?<![a-z])(super-?spine|leaf|spine|rtsw|ctsw|atsw|tor|core)(?![a-z])")
_GENERATED = re.compile(r"(.*?)(\d+)-\d+")
_GENERATED_GROUP = re.compile(r"(.+)-(\d+)")
_SHOWN = 8
_HINT = (
    "say what they are: --role NODE=leaf, or =server, =spine, =core, or =none to leave it out; "
    "NODE may be a pattern such as 'l*'"
)


def group_tier(group: str) -> int | None:
    """The tier that the name of a group says, None if it says none."""
    return {**_PLURALS, **_WORDS}.get(group.lower())


def drawn_of(
    imported: ImportedTopology, options: Sequence[str] = ()
) -> tuple[DrawnGraph, tuple[str, ...]]:
    """The graph with the tier of every node, and what is left out of it. `options` say what nodes
    are: `NODE=ROLE`.

    Raises InputError for an option that fits nothing, and with every node that is not certain.
    """
    said = roles_of_options(imported.nodes, options)
    left_out = {name for name, role in said.items() if role == NONE}
    cables = [pair for pair in imported.cables if not left_out & set(pair)]
    notes = [f"{name} (--role)" for name in left_out]
    wired = {end for pair in cables for end in pair}
    tier: dict[str, int | None] = {}
    doubts: list[str] = []
    for name, node in imported.nodes.items():
        if name in left_out:
            continue
        known = _WORDS[said[name]] if name in said else node.tier
        if known is None and node.is_switch is None:
            doubts.append(f"{name} {node.doubt}")
        elif known and node.is_switch is False and name not in said:
            doubts.append(f"{name} is in a group of tier {TIER_NAMES[known]} and no router")
        elif name in wired:
            tier[name] = 0 if known is None and not node.is_switch else known
        elif known == 0 or (known is None and not node.is_switch):
            notes.append(f"{name} (no cable)")
        else:
            doubts.append(f"{name} has no cable")
    _ask(doubts)
    return DrawnGraph(_complete(imported.nodes, tier, cables), cables), tuple(notes)


def roles_of_options(nodes: Iterable[str], options: Sequence[str]) -> dict[str, str]:
    """The role of each node that an option names; a later option goes before an earlier one."""
    said: dict[str, str] = {}
    names = list(nodes)
    for option in options:
        pattern, _, role = option.rpartition("=")
        if not pattern or role not in {*_WORDS, NONE}:
            raise InputError(
                f"--role {option} is not NODE=ROLE",
                f"a role is {listed((*TIER_NAMES, NONE))}",
            )
        matching = [name for name in names if name == pattern or fnmatchcase(name, pattern)]
        if not matching:
            raise InputError(
                f"--role {option}: no node {shown(pattern)}", name_hint(pattern, names)
            )
        said |= dict.fromkeys(matching, role)
    return said


def _ask(doubts: Sequence[str]) -> None:
    if doubts:
        more = [f"and {len(doubts) - _SHOWN} more"] if len(doubts) > _SHOWN else []
        raise InputError(f"not certain: {'; '.join([*doubts[:_SHOWN], *more])}", _HINT)


def _complete(
    nodes: Mapping[str, DrawnNode], tier: Mapping[str, int | None], cables: Sequence[Pair]
) -> dict[str, int]:
    """The tier of every node: those that are known, and what follows for the others."""
    open_ = [name for name, number in tier.items() if number is None]
    known = {name: number for name, number in tier.items() if number is not None}
    for tiers in (_generated(nodes, open_), _named(open_)):
        if open_ and tiers.keys() >= set(open_):
            known |= tiers
            open_ = []
    if open_:
        known |= _counted(known, open_, cables)
    return {name: known[name] for name in tier if name in known}


def _generated(nodes: Mapping[str, DrawnNode], names: Iterable[str]) -> dict[str, int]:
    """The tiers of nodes named as `containerlab generate` does: node2-1 in group tier-2."""
    tiers, prefixes = {}, set()
    for name in names:
        of_name = _GENERATED.fullmatch(name)
        of_group = _GENERATED_GROUP.fullmatch(nodes[name].group)
        if of_name and of_group and of_name[2] == of_group[2] and int(of_name[2]) in (1, 2, 3):
            tiers[name] = int(of_name[2])
            prefixes.add((of_name[1], of_group[1]))
    return tiers if len(prefixes) == 1 else {}


def _named(names: Iterable[str]) -> dict[str, int]:
    """The tiers of nodes whose names say one: leaf3, dc1-spine2."""
    words = {name: {*_IN_A_NAME.findall(name.lower())} for name in names}
    return {name: _WORDS[next(iter(terms))] for name, terms in words.items() if len(terms) == 1}


def _counted(
    known: Mapping[str, int], names: Sequence[str], cables: Sequence[Pair]
) -> dict[str, int]:
    """The tiers of switches by their distance from servers. Raises InputError where it could be
    otherwise."""
    near: dict[str, set[str]] = {}
    for one, other in cables:
        near.setdefault(one, set()).add(other)
        near.setdefault(other, set()).add(one)
    tier = dict(known)
    for name in names:
        if any(known.get(far) == 0 for far in near[name]):
            tier[name] = 1
    if 1 not in tier.values():
        _ask([f"which of {_excerpt(names)} are leaves: no server is wired to any"])
    number = 1
    while frontier := [name for name, of in tier.items() if of == number]:
        number += 1
        further = {far for name in frontier for far in near[name] if far not in tier}
        tier |= dict.fromkeys(further, min(number, 3))
    above = [name for name in names if tier.get(name) == 3]
    _ask(list(_ambiguous(tier, above, near)))
    return {name: tier[name] for name in names if name in tier}


def _ambiguous(
    tier: Mapping[str, int], above: Sequence[str], near: Mapping[str, set[str]]
) -> Iterator[str]:
    """The switches above spines that might as well be leaves without servers: those that do not
    join zones that are apart without them."""
    lower = {name for name, number in tier.items() if number in (1, 2)}
    part: dict[str, str] = {}
    for start in sorted(lower):
        frontier = {start} - part.keys()
        while frontier:
            part |= dict.fromkeys(frontier, start)
            frontier = {far for name in frontier for far in near[name] & lower} - part.keys()
    alone = [name for name in above if len({part[far] for far in near[name] if far in part}) < 2]
    if alone:
        names = _excerpt(alone)
        yield f"whether {names} are leaves without servers or aggregators above the spines"


def _excerpt(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return listed([*names[:_SHOWN], *([f"{more} more"] if more > 0 else [])], "and")
