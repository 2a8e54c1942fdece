"""The walk of docs/adopt.md, typed as it stands there: from a topology to a report."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from rocelab.lab.engine import ContainerEngine
from rocelab.record import recorded_labs
from rocelab.results.drill import from_json
from tests.containerlab.labs import containerlab, idle_image, write_leaf_spine
from tests.containerlab.test_adopt import CONVERGES_WITHIN_S, is_converged
from tests.helpers.waiting import wait_until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adopt.md"


def typed() -> list[str]:
    """The commands of the page's first two blocks: the second is of a lab that is adopted, before
    the last command of the first. Its leaf1 is our Leaf_1."""
    blocks = re.findall(r"^```\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    walk, tour = (
        [line.partition("#")[0].strip() for line in block.splitlines()] for block in blocks[:2]
    )
    return [*walk[:-1], *(line.replace("leaf1", "Leaf_1") for line in tour), walk[-1]]


def test_the_page_is_walked(engine: ContainerEngine, image: str, tmp_path: Path) -> None:
    commands = typed()
    assert [command.split()[1] for command in commands] == [
        *("deploy", "adopt", "drill", "status", "reach", "fault", "fault"),
        "release",
    ]
    topology = write_leaf_spine(tmp_path, image, idle_image(engine, image), "mine")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    try:
        for command in commands:
            done = subprocess.run(
                command.split(), cwd=tmp_path, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])
            if command.startswith("containerlab"):
                # A person would look at their routers meanwhile.
                wait_until(lambda: is_converged(topology), "routes", limit_s=CONVERGES_WITHIN_S)
    finally:
        containerlab("destroy", "--topo", str(topology), "--cleanup")
    (folder,) = (tmp_path / "results").iterdir()
    result = from_json((folder / "result.json").read_text())
    assert result.passed and result.environment.runtime == "adopted"
    assert (folder / "report.html").stat().st_size > 10_000
    assert "mine" not in recorded_labs()
