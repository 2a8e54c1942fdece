"""The names of routing stacks that a lab file may have. Nothing of a stack is loaded for them: its
door is `rocelab.routing.stack.STACKS`."""

from __future__ import annotations

from rocelab.base.doors import registered

STACK_GROUP = "rocelab.routing"
DEFAULT_STACK = "frr"


def stack_names() -> list[str]:
    """The names that installed packages register, ours too."""
    return sorted(registered(STACK_GROUP))
