"""Which values of a parametrized test `make test` takes, and which are left to `make test-long`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def mostly_long(values: Iterable[Any], core: Collection[Any]) -> list[Any]:
    """The values, of which all but those of `core` are `long`."""
    long = pytest.mark.long
    return [value if value in core else pytest.param(value, marks=long) for value in values]
