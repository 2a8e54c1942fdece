"""FRR's own parser accepts every kind of configuration that is rendered."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.fabrics.kinds.fat_tree import FatTreeSpec
from rocelab.labfile.catalog import LABS, find_lab, shipped_names
from rocelab.labfile.load import load_spec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric, Node
from rocelab.routing.frr.configuration import frr_configuration
from rocelab.routing.frr.installation import find_installation

pytestmark = [pytest.mark.side_by_side, pytest.mark.long]

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


def planned(name: str) -> Fabric:
    """The fabric of a catalog lab; one of thousands of switches with two zones, or switches of 16
    ports: its configurations differ from those of the whole one by numbers."""
    spec = load_spec(find_lab(name))
    match spec.fabric:
        case ClosSpec(zones=zones) if zones > 2:
            fewer: dict[str, int] = {"zones": 2}
        case FatTreeSpec(k=k) if k > 16:
            fewer = {"k": 16}
        case _:
            return plan(spec)
    return plan(spec.model_copy(update={"fabric": spec.fabric.model_copy(update=fewer)}))


def kind_of(daemon: str, text: str) -> tuple[str, ...]:
    """The different lines of a configuration but for numbers and addresses, in their order:
    configurations of one kind are equal to the parser."""
    return (daemon, *dict.fromkeys(re.sub(r"\d+(\.\d+)*", "0", text).splitlines()))


def test_every_kind_of_configuration_of_catalog_labs_passes_frr_s_parser(folder: Path) -> None:
    longest: dict[tuple[str, ...], str] = {}
    for name in shipped_names(LABS):
        fabric = planned(name)
        for node in chosen(fabric):
            for daemon, text in frr_configuration(fabric, node).items():
                kind = kind_of(daemon, text)
                longest[kind] = max(longest.get(kind, ""), text, key=len)
    assert {daemon for daemon, *_ in longest} == {"zebra", "bgpd", "bfdd"}
    for (daemon, *_), text in longest.items():
        file = folder / f"{daemon}.conf"
        file.write_text(text)
        assert complaints(daemon, file) == [], text


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
    texts = [line for line in lines if line.strip() and "MPLS" not in line]
    return texts or ([f"exit {process.returncode}"] if process.returncode else [])
