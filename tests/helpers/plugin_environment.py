"""A Python environment of its own with rocelab, into which packages are put as pip would."""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from importlib.metadata import distribution
from pathlib import Path

import rocelab

FAULTS = '''
from typing import Literal

from rocelab.faults.base import LinkFaultSpec, Target
from rocelab.faults.kinds.carrier_down import CarrierDown
from rocelab.results.kpi import Kpi, Quantity


class DuctCutSpec(LinkFaultSpec):
    """Somebody digs where a duct lies: its links lose their carrier."""

    drawn = Target.LINK
    kind: Literal["duct-cut"]
    depth: int = 2

    def resolve(self, fabric):
        return CarrierDown(self.find(fabric, None), kind=self.kind)


KPIS = (
    Kpi("flows_sent", Quantity.COUNT, "Flows", "flows sent", of_probes=lambda run: len(run.flows)),
)
AGAIN = Kpi("lost_packets", Quantity.COUNT, "Lost", "packets lost", of_probes=lambda run: 0)
'''
POINTS = """\
[rocelab.faults]
duct-cut = lab_faults:DuctCutSpec
duct-fire = lab_faults:DuctCutSpec

[rocelab.kpis]
flows = lab_faults:KPIS
again = lab_faults:AGAIN
"""


class PluginEnvironment:
    """An environment in `folder`, which sees this one's packages and rocelab."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.python = folder / "bin" / "python"
        (self.site,) = folder.glob("lib/python*/site-packages")
        home = Path(rocelab.__file__).parents[1]
        root = Path(str(distribution("rocelab").locate_file("")))
        (self.site / "beneath.pth").write_text(f"{home}\n{root}\n")
        (info,) = root.glob("rocelab-*.dist-info")
        shutil.copytree(info, self.site / info.name)

    def install(self) -> None:
        """Put the package `lab-faults` there: a kind of fault and a KPI, and two that are wrong."""
        info = self.site / "lab_faults-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-faults\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(POINTS)
        (self.site / "lab_faults.py").write_text(FAULTS)

    def uninstall(self) -> None:
        shutil.rmtree(self.site / "lab_faults-1.2.dist-info")
        (self.site / "lab_faults.py").unlink()

    def rocelab(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """`rocelab WORDS` there."""
        return self.run("from rocelab.cli.main import main; main()", *words, cwd=cwd)

    def run(
        self, program: str, *words: str, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A Python program there."""
        return subprocess.run(
            [self.python, "-P", "-c", program, *words],
            cwd=cwd,
            env={**os.environ, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )
