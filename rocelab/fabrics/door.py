"""The door of fabrics: the kinds that are registered, ours and those of installed packages.

An entry point of the group `rocelab.fabrics` has the name of a kind and its model:

    clos = "rocelab.fabrics.kinds.clos:ClosSpec"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from rocelab.base.doors import Door
from rocelab.base.errors import PluginError
from rocelab.base.kinds import kind_model
from rocelab.fabrics.base import FabricKind
from rocelab.fabrics.layout import Layout
from rocelab.fabrics.roles import SHIPPED, TOP_TIER, Role
from rocelab.fabrics.rules import broken_rule

_ROLE_NAME = re.compile(r"[a-z]{2,10}")


def _kind(name: str, value: object) -> type[FabricKind]:
    kind = kind_model(name, value, FabricKind)  # type: ignore[type-abstract]
    roles = getattr(kind, "roles", ())
    tiers = sorted(role.tier for role in roles)
    if not kind.is_regular:
        tiers = sorted(set(tiers))
    if not tiers or tiers != list(range(1, tiers[-1] + 1)) or tiers[-1] > TOP_TIER:
        raise ValueError(f"{kind.__name__}.roles needs a role for tier 1 and those above, up to 3")
    for role in roles:
        known = next((other for other in SHIPPED if other.name == role.name), role)
        if known.tier != role.tier:
            raise ValueError(f"{role} is a role of tier {known.tier}, not {role.tier}")
        if _ROLE_NAME.fullmatch(role.name) is None:
            raise ValueError(f"the name of a role is 2 to 10 lower-case letters, not {role.name!r}")
    return kind


KINDS: Door[type[FabricKind]] = Door("rocelab.fabrics", "kind of fabric", _kind)


@cache
def roles() -> Mapping[str, Role]:
    """Every role of nodes by its name, ours first."""
    named = {role.name: role for role in SHIPPED}
    for kind in KINDS.all().values():
        for role in kind.roles:
            named.setdefault(role.name, role)
    return named


def layout_of(fabric: FabricKind) -> Layout:
    """The layout of a fabric. Raises PluginError if a plug-in's breaks a rule of layouts."""
    layout = fabric.layout()
    origin = KINDS.origin(fabric.kind)
    if origin is not None:
        problem = broken_rule(layout, fabric.roles)
        if problem is not None:
            raise PluginError(
                f"kind of fabric {fabric.kind} of {origin} made an invalid layout: {problem}",
                "fix or uninstall that package",
            )
    return layout
