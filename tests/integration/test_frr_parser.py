"""FRR's own parser accepts every configuration that is rendered."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from rocelab.plan.fabric import Fabric, Node
from rocelab.render.frr import frr_configuration
from rocelab.runtime.installation import find_installation
from rocelab.runtime.lab import Lab
from rocelab.spec.catalog import catalog_names

pytestmark = pytest.mark.side_by_side

CRASH_FOLDER = Path("/var/tmp/frr")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that FRR's user can read."""
    with tempfile.TemporaryDirectory(prefix="rocelab-parser-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def chosen(fabric: Fabric) -> Iterable[Node]:
    """The first and the last switch of each role."""
    first = {node.role: node for node in reversed(fabric.switches)}
    last = {node.role: node for node in fabric.switches}
    return [*first.values(), *last.values()]


@pytest.mark.parametrize("name", catalog_names())
def test_every_configuration_of_a_catalog_lab_passes_frr_s_parser(name: str, folder: Path) -> None:
    fabric = Lab.planned(name).fabric
    for node in chosen(fabric):
        for daemon, text in frr_configuration(fabric, node).items():
            file = folder / f"{daemon}.conf"
            file.write_text(text)
            assert complaints(daemon, file) == []


def test_the_parser_s_complaints_are_seen(folder: Path) -> None:
    file = folder / "bgpd.conf"
    file.write_text("router bgp 65000\n neighbor nonsense\n")
    assert complaints("bgpd", file) != []


def complaints(daemon: str, file: Path) -> list[str]:
    installation = find_installation()
    program = installation.program(daemon)
    if daemon == "zebra" and installation.has_mgmtd:
        # Since FRR 10 interfaces are mgmtd's, and zebra alone does not know their commands.
        program = installation.vtysh
    with subprocess.Popen(
        [program, "-C", "-f", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        output, _ = process.communicate()
    # A daemon that only checks its configuration leaves the folder for its crash log.
    shutil.rmtree(CRASH_FOLDER / f"{daemon}.{process.pid}", ignore_errors=True)
    lines = output.splitlines()
    found = [line for line in lines if line.strip() and "MPLS" not in line]
    return found or ([f"exit {process.returncode}"] if process.returncode else [])
