"""The cells of a page's tables, without what only their look needs."""

from __future__ import annotations

import re

_LOOK = re.compile(r' data-title="[^"]*"| class="long"')


def plain_cells(page: str) -> str:
    """The page, its cells without the titles and the class that they have for narrow screens."""
    return _LOOK.sub("", page)
