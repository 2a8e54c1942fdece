"""The routing stacks that a lab file can name (`rocelab.routing`). Nothing of them is loaded for
the names."""

from __future__ import annotations

from rocelab.base.doors import Door

STACKS: Door[object] = Door("rocelab.routing", "routing stack", lambda _, stack: stack)
DEFAULT_STACK = "frr"
