"""How FRR uses memory: values of `--frr-memory`.

A separate module, so that the command line parses its arguments without loading the stack.
"""

from __future__ import annotations

from enum import StrEnum


class FrrMemory(StrEnum):
    """How FRR's daemons use memory (`rocelab.routing.frr.memory`)."""

    LEAN = "lean"
    PLAIN = "plain"
