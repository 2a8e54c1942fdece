"""The Python of README and docs/: every block, what it needs to run, and how it is run.

A block that is in none of the tables here, or in that of `tests/unit/test_page_python.py`, fails a
test.
"""

from __future__ import annotations

import io
import runpy
import subprocess
import sys
from contextlib import chdir, redirect_stdout
from pathlib import Path

from rocelab.base.interpreter import module_environment
from tests.helpers.limits import LIMIT_S
from tests.machines.typed import python_blocks

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))),
)

BLOCKS = {
    f"{page} {number}": block.text
    for page in PAGES
    for number, block in enumerate(python_blocks(page, (ROOT / page).read_text()), start=1)
}
"""The blocks by page and place in it."""

LAB = "zone-small"
"""The lab that pages name."""

ON_A_LAB = (
    *("docs/health.md 1", "docs/path.md 1", "docs/programs.md 1", "docs/queues.md 1"),
    *("docs/remote.md 1", "docs/traffic.md 1", "docs/traffic.md 3"),
)
"""They find the lab up, and leave it so."""

WITH_A_LAB_OF_THEIR_OWN = ("README.md 1", "docs/api.md 1", "docs/runtime.md 1")
"""They bring the lab up and take it down."""

TEST_FILES = {"README.md 2": "test_cable.py", "docs/pytest.md 1": "test_cable.py"}
"""They are these files of examples/, which `tests/integration/test_examples.py` runs by pytest."""


def run_here(name: str, folder: Path) -> str:
    """What a block prints that is run in this process, as a program in a folder: to start one
    takes a second of CPU time. Raises what it raises."""
    file = folder / "typed.py"
    file.write_text(BLOCKS[name])
    with redirect_stdout(io.StringIO()) as out, chdir(folder):
        runpy.run_path(str(file), run_name="__main__")
    return out.getvalue()


def run_block(
    name: str, folder: Path, *, lab: str = LAB, typed: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a block as a program in a folder, on a lab of this name; `typed` is its input."""
    file = folder / "typed.py"
    file.write_text(BLOCKS[name].replace(LAB, lab))
    return subprocess.run(
        [sys.executable, file.name],
        cwd=folder,
        env=module_environment(),
        input=typed,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
