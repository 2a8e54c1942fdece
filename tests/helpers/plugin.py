"""A Python environment of its own with rocelab, into which the packages of `tests/data/plugins` are
put as pip would."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
from collections.abc import Mapping, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Self

import rocelab

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "tests/data/plugins"
VERSION = "1.2"
COMMAND = "from rocelab.cli.main import main; main()"
IN_TURN = """
import json, sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from rocelab.cli.main import main

ended = []
for line in json.loads(sys.argv[1]):
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as errors:
        try:
            main(line)
        except SystemExit as end:
            ended.append((end.code, out.getvalue(), errors.getvalue()))
print(json.dumps(ended))
"""

FAULTS = {
    "faults:duct-cut": "lab_faults:DuctCutSpec",
    "faults:duct-fire": "lab_faults:DuctCutSpec",
    "kpis:flows": "lab_faults:KPIS",
    "kpis:again": "lab_faults:AGAIN",
}
"""What `lab_faults` registers: a kind of fault and a KPI, and two that are wrong."""


class PluginEnvironment:
    """An environment in `folder`, which sees this one's packages and rocelab."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.folder = folder
        self.python = folder / "bin" / "python"
        (self.site,) = folder.glob("lib/python*/site-packages")
        home = Path(rocelab.__file__).parents[1]
        root = Path(str(distribution("rocelab").locate_file("")))
        (self.site / "beneath.pth").write_text(f"{home}\n{root}\n")
        (info,) = root.glob("rocelab-*.dist-info")
        shutil.copytree(info, self.site / info.name)

    @classmethod
    def with_package(cls, folder: Path, package: str, points: Mapping[str, str]) -> Self:
        """An environment in `folder` with that package."""
        environment = cls(folder)
        environment.install(package, points)
        return environment

    def install(self, package: str, points: Mapping[str, str]) -> Path:
        """Put a package there that registers `points`: a name's object by `group:name`. Returns its
        folder."""
        there = self.site / package
        shutil.copytree(PLUGINS / package, there, ignore=shutil.ignore_patterns("__pycache__"))
        info = self._info(package)
        info.mkdir()
        name = package.replace("_", "-")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSION}\n")
        groups: dict[str, list[str]] = {}
        for point, target in points.items():
            group, name = point.split(":")
            groups.setdefault(group, []).append(f"{name} = {target}\n")
        (info / "entry_points.txt").write_text(
            "".join(f"[rocelab.{group}]\n{''.join(lines)}" for group, lines in groups.items())
        )
        return there

    def uninstall(self, package: str) -> None:
        """Remove it again."""
        shutil.rmtree(self._info(package))
        shutil.rmtree(self.site / package)

    def _info(self, package: str) -> Path:
        return self.site / f"{package}-{VERSION}.dist-info"

    def rocelab(
        self, *words: str, cwd: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """`rocelab WORDS` there, by default in its folder."""
        return self.run(COMMAND, *words, cwd=cwd, **variables)

    def in_turn(
        self, *lines: Sequence[str], cwd: Path | None = None, **variables: str
    ) -> list[subprocess.CompletedProcess[str]]:
        """`rocelab LINE` for each line there, in one process: to start takes a command's most
        time."""
        done = self.run(IN_TURN, json.dumps(lines), cwd=cwd, **variables)
        assert done.returncode == 0, done.stderr
        return [
            subprocess.CompletedProcess(list(line), *outcome)
            for line, outcome in zip(lines, json.loads(done.stdout), strict=True)
        ]

    def run(
        self, program: str, *words: str, cwd: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """A Python program there, by default in its folder."""
        return subprocess.run(
            [self.python, "-P", "-c", program, *words],
            cwd=cwd or self.folder,
            env={**os.environ, "COLUMNS": "200", **variables},
            capture_output=True,
            text=True,
            check=False,
        )
