"""How a command of a page is run, if not exactly as typed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Run:
    """How a command is run.

    `lines` replace it, `()` keeps it; `before` and `after` must exit with 0. `shows` are regular
    expressions that its output must match; `block` is the start of the page's block with its
    output. `typed` is typed on its terminal, Ctrl-C once its output matches `until`.
    """

    lines: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    code: int = 0
    shows: tuple[str, ...] = ()
    block: str = ""
    typed: str = ""
    until: str = ""
    shortened: str = ""


@dataclass(frozen=True, slots=True)
class NotRun:
    """Why a command is not run."""

    reason: str


OUT = "results/pages"
UP = ("rocelab up zone-small",)
DOWN = ("rocelab down zone-small",)
SPEC = "name: mine\nfabric: {kind: clos, racks: 2, spines: 2}\n"


def write(name: str, text: str) -> str:
    """A line that writes a file."""
    escaped = text.replace("\n", "\\n")
    return f"printf '%b' '{escaped}' >{name}"


OWN_LAB = write("mine.yaml", SPEC)
