"""A scheme of another package in a real lab: a hash of fields that it chooses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.plugin import commanded, installed
from tests.unit.routes.test_plugin_schemes import POINTS

LAB = "t-chosen"
FILE = f"""
name: {LAB}
fabric: {{kind: clos, racks: 2, spines: 4, servers_per_rack: 1}}
scheme: {{kind: chosen-fields, fields: qp}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with the package and the file of the lab, which is up."""
    folder = installed(tmp_path, "lab_hashing", POINTS)
    (folder / "lab.yaml").write_text(FILE)
    try:
        up = commanded(folder, "up", "lab.yaml")
        assert up.returncode == 0, up.stderr
        yield folder
    finally:
        commanded(folder, "down", LAB)


def hops(folder: Path, *options: str) -> tuple[str, ...]:
    """The path of a flow, which packets take that are sent."""
    asked = ("path", LAB, "--src", "srv1-1", "--dst", "srv2-1", "--probe", "--json", *options)
    process = commanded(folder, *asked)
    assert process.returncode == 0, process.stderr
    return tuple(json.loads(process.stdout)["hops"])


@pytest.mark.side_by_side
def test_packets_take_the_paths_of_a_hash_of_the_fields_that_it_names(folder: Path) -> None:
    of_qps = {qp: hops(folder, "--sport", "50000", "--qp", str(qp)) for qp in range(17, 25)}
    assert len(set(of_qps.values())) > 1, "the QP decides"
    assert {hops(folder, "--sport", str(port), "--qp", "17") for port in range(5000, 5008)} == {
        of_qps[17]
    }, "the port does not"
    refused = commanded(folder, "scheme", LAB, "modulo")
    assert refused.returncode == 2
    assert "scheme modulo has no program for a lab" in refused.stderr
    assert "chosen-fields" in commanded(folder, "scheme", LAB).stdout
