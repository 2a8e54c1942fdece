"""Long runs that look for what only time shows. `make soak` runs them; `make test` has their short
siblings."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def root() -> None:
    """These tests make real labs: without root they fail, they are not skipped."""
    assert os.geteuid() == 0, "soak tests need root: run `make soak`"
