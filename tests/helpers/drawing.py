"""Pages without drawings: figures are made, but not rendered, which takes most of a page's time.

Tests draw nothing unless they look at a drawing: with the fixture `drawn`, or in a fixture that
several tests share with `with_drawings`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from rocelab.report import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RENDER = plots.svg


def _frame(figure: Figure, name: str) -> str:
    return f'<svg id="{name}"></svg>'


@contextmanager
def with_drawings(*, rendered: bool = True) -> Iterator[None]:
    """Pages have their drawings, or an empty one for each plot."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "svg", _RENDER if rendered else _frame)
        yield


@pytest.fixture(scope="session", autouse=True)
def undrawn() -> Iterator[None]:
    """Pages have an empty drawing for each plot."""
    with with_drawings(rendered=False):
        yield


@pytest.fixture
def drawn() -> Iterator[None]:
    """Pages have their drawings."""
    with with_drawings():
        yield
