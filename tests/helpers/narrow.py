"""Holds what a report prints on a narrow terminal against what it prints with room for all."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console

RULE = "─"


def printed(show: Callable[[Console], None], width: int) -> str:
    """What `show` prints where a line has `width` characters."""
    out = io.StringIO()
    show(Console(file=out, width=width, highlight=False))
    return out.getvalue()


def words(text: str) -> set[str]:
    """What stands between spaces: a name or a figure, where it is whole."""
    return {word for word in text.split() if set(word) != {RULE}}


def broken(show: Callable[[Console], None], width: int) -> set[str]:
    """Names and figures that a terminal of `width` characters does not show whole."""
    return words(printed(show, 1000)) - words(printed(show, width))


def too_long(show: Callable[[Console], None], width: int) -> list[str]:
    """Lines of tables that do not fit a terminal of `width` characters."""
    return [line for line in printed(show, width).splitlines() if len(line) > width]
