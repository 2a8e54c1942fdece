"""Long runs for problems that only time shows. `make soak` runs them; `make test` has their short
forms."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def root() -> None:
    """These tests make real labs: without root they fail rather than skip."""
    assert os.geteuid() == 0, "soak tests need root: run `make soak`"
