"""Compares a report's output on a narrow terminal with its output on a wide one."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console

RULE = "─"


def printed(show: Callable[[Console], None], width: int) -> str:
    """The output of `show` on a terminal with lines of `width` characters."""
    out = io.StringIO()
    show(Console(file=out, width=width, highlight=False, force_terminal=True, color_system=None))
    return out.getvalue()


def words(text: str) -> set[str]:
    """The words between spaces: complete names and figures."""
    return {word for word in text.split() if set(word) != {RULE}}


def broken(show: Callable[[Console], None], width: int) -> set[str]:
    """Names and figures that a terminal of `width` characters does not show whole."""
    return words(printed(show, 1000)) - words(printed(show, width))


def too_long(show: Callable[[Console], None], width: int) -> list[str]:
    """Lines of tables that do not fit a terminal of `width` characters."""
    return [line for line in printed(show, width).splitlines() if len(line) > width]
