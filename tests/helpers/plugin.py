"""Plug-ins in a folder of their own, and programs that find them as if pip had installed them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import copytree

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "tests/data/plugins"

BEGIN = """
import sys
sys.path[:0] = [{folder!r}, {root!r}]
from rocelab.base import doors
_folders = doors._folders
doors._folders = lambda: [*_folders(), {folder!r}]
"""

COMMAND = """
from rocelab.cli.main import main
sys.argv = ["rocelab", *{arguments!r}]
main()
"""


def installed(folder: Path, package: str, points: Mapping[str, str]) -> Path:
    """A folder with the package of `tests/data/plugins`, and what it registers: a name's object by
    `group:name`."""
    copytree(PLUGINS / package, folder / package, ignore=lambda *_: ["__pycache__"])
    info = folder / f"{package}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    lines = []
    for point, target in points.items():
        group, name = point.split(":")
        lines.append(f"[rocelab.{group}]\n{name} = {target}\n")
    (info / "entry_points.txt").write_text("".join(lines))
    return folder


def ran(
    folder: Path, program: str, *, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A Python program in a process that finds the folder's plug-ins."""
    return subprocess.run(
        [sys.executable, "-c", BEGIN.format(folder=str(folder), root=str(ROOT)) + program],
        cwd=cwd or folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def commanded(
    folder: Path, *arguments: str, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A command of rocelab in such a process."""
    return ran(folder, COMMAND.format(arguments=arguments), cwd=cwd, **environment)
