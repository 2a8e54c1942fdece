"""Checks against published files of other projects that this repository does not have.

`ROCELAB_PUBLISHED=FOLDER python -m pytest tests/published`; tests/data/README.md lists the files.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def published() -> Path:
    """The folder with the files; without it these tests fail rather than skip."""
    folder = os.environ.get("ROCELAB_PUBLISHED")
    if not folder or not Path(folder).is_dir():
        pytest.fail(
            "set ROCELAB_PUBLISHED to the folder with the files that tests/data/README.md names"
        )
    return Path(folder)
