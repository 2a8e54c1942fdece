"""runc for machines that refuse CAP_SYS_RESOURCE even to root: containers start without it.

A privileged container asks for every capability. The process's description (`config.json` of a
bundle, or the file of `exec --process`) is rewritten without this one and without limits, which
need it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REFUSED = "CAP_SYS_RESOURCE"


def rewrite(path: Path, key: str | None = None) -> None:
    """Remove the capability and the limits from a process of the OCI runtime specification: the
    whole document, or its `key`."""
    document: dict[str, Any] = json.loads(path.read_bytes())
    process = document if key is None else document.get(key)
    if process:
        for kind, names in (process.get("capabilities") or {}).items():
            process["capabilities"][kind] = [name for name in names or () if name != REFUSED]
        process.pop("rlimits", None)
        path.write_text(json.dumps(document))


def value_of(option: str, words: Sequence[str]) -> str | None:
    """The value of an option, written with or without an equals sign."""
    for place, word in enumerate(words):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option:
            return words[place + 1]
    return None


if __name__ == "__main__":
    words = sys.argv[1:]
    if bundle := value_of("--bundle", words):
        rewrite(Path(bundle, "config.json"), "process")
    if process := value_of("--process", words):
        rewrite(Path(process))
    os.execvp("runc", ["runc", *words])
