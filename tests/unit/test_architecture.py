"""The page about the architecture: its layers are the contract's, its lists of files complete."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from rocelab.fabrics.fabric_spec import FabricSpec
from rocelab.faults.door import KINDS
from rocelab.labfile.schemes.scheme_spec import SCHEMES

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "rocelab").rglob("*.py"))


def names_of(models: Iterable[type[BaseModel]]) -> str:
    """A pattern of the kinds that a spec chooses among, but for the default: the first one."""
    _, *others = models
    kinds = [kind for other in others for kind in get_args(other.model_fields["kind"].annotation)]
    return rf'"({"|".join(kinds)})"|\b({"|".join(other.__name__ for other in others)})\b'


ADDITIONS = {
    "a fault": (
        # Words such as `drain` are of other subjects too.
        rf'"({"|".join(name for name in KINDS.names if "-" in name)})"',
        {
            "faults/fibre.py",  # a carrier that is down at one end
            "results/diagnosis.py",  # causes have the names of the faults that show them
            *("testkit/lab.py", "testkit/measurement.py", "testkit/plugin.py"),  # examples
        },
    ),
    "a load-balancing scheme": (
        names_of(SCHEMES.values()),
        {
            "cli/main.py",  # the command `te`
            "sim/usable.py",  # `spray` stands for every path there
        },
    ),
    "a fabric kind": (
        names_of(get_args(get_args(FabricSpec)[0])),
        {
            *("sim/events/rates.py", "sim/events/event_spec.py"),  # whose failure rates: also HPN's
            *("importing/labs.py", "labfile/model.py"),  # imports are graphs, which have no policy
            "labfile/splitting.py",  # a graph of several networks
            "cli/remote.py",  # the command `graph`
            "labfile/schema.py",  # the short forms of a graph's links and `cables`
            *("cli/main.py", "cli/remote.py", "cli/unprivileged.py"),  # the command `graph`
        },
    ),
    "a routing stack": (
        r'"bird"|RTPROT_BIRD|import BIRD\b',
        {
            "dataplane/steering/resilient.py",  # the number of its routes in the kernel
            "lab/adoption/survey.py",  # daemons that are recognised in others' labs
        },
    ),
    "a runtime": (
        r'"(mininet|docker|containerlab)"',
        {
            *("mininet.py", "lab/teardown.py"),  # of one runtime alone
            # The engine, the tool and the format of that name.
            *("lab/engine.py", "lab/adoption/containers.py", "cli/planning.py"),
            "render/clabernetes.py",
        },
    ),
}
"""What knows a scheme, kind or runtime by its name, and need not know another one."""


def test_the_page_has_the_layers_of_the_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = settings["tool"]["importlinter"]["contracts"][0]
    assert contract["containers"] == ["rocelab"]
    layers = [re.split(r"\s*[|:]\s*", layer) for layer in contract["layers"]]
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page.split("## Packages")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert [re.findall(r"`(\w+)`", row) for row in rows] == layers


@pytest.mark.parametrize(
    "page", [ROOT / "docs/architecture.md", *sorted((ROOT / "docs/dev").glob("*.md"))]
)
def test_every_file_it_names_is_there(page: Path) -> None:
    named = set(re.findall(r"`((?:[\w-]+/)+[\w.-]*)`", page.read_text()))
    named -= {"rocelab/_data"}  # in a wheel
    roots = (ROOT, ROOT / "rocelab")
    assert named
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []


@pytest.mark.parametrize("what", ADDITIONS)
def test_whoever_adds_one_is_told_every_module_that_knows_one_by_name(what: str) -> None:
    pattern, others = ADDITIONS[what]
    page = (ROOT / "docs" / "architecture.md").read_text()
    (files,) = re.findall(rf"^\| {what} \| (.*) \|$", page, re.M)
    named = tuple(re.findall(r"`([\w/.]+)`", files))
    modules = {path.relative_to(ROOT / "rocelab").as_posix(): path for path in MODULES}
    known = {name for name, path in modules.items() if re.search(pattern, path.read_text())}
    assert {name for name in known if not name.startswith(named)} == others


def test_unit_tests_have_a_folder_for_each_package() -> None:
    packages = {path.parent.name for path in (ROOT / "rocelab").glob("*/__init__.py")}
    folders = {path.parent.name for path in (ROOT / "tests" / "unit").glob("*/__init__.py")}
    assert folders == packages | {"bench"}
