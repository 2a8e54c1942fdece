"""The results of a benchmark: a document, and a page of it."""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).parent


def write(name: str, document: object, page: str) -> None:
    """Write both beside the benchmarks."""
    FOLDER.joinpath(f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    FOLDER.joinpath(f"{name}.md").write_text(page)
