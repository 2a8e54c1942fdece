"""The look of every table on a terminal.

In: a title and column names. Out: a rich table to fill.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.table import Table


def plain_table(title: str, columns: Iterable[str], *, left: int = 1) -> Table:
    """A plain table whose first `left` columns are text and the others figures."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left else "right")
    return table
