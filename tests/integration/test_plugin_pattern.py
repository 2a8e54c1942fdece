"""A pattern of another package as a job on a real lab."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.plugin import PluginEnvironment
from tests.unit.jobs.test_plugin_patterns import POINTS

LAB = "t-halo"
FILE = f"name: {LAB}\nfabric: {{kind: clos, racks: 2, spines: 1, servers_per_rack: 1}}\n"


@pytest.mark.long
@pytest.mark.few_at_once
def test_a_lab_carries_its_sends(tmp_path: Path) -> None:
    there = PluginEnvironment.with_package(tmp_path, "lab_halo", POINTS)
    (tmp_path / "lab.yaml").write_text(FILE)
    (tmp_path / "halo.yaml").write_text("pattern: halo\nranks: 2\nsize: 256KB\niterations: 2\n")
    try:
        up = there.rocelab("up", "lab.yaml")
        assert up.returncode == 0, up.stderr
        done = there.rocelab("traffic", LAB, "--job", "halo.yaml", "--json")
        report = json.loads(done.stdout)
    finally:
        there.rocelab("down", LAB)
    assert report["job"]["pattern"] == "halo"
    # Two ways, two steps, an iteration before those that count.
    assert report["transport"]["posted_bytes"] == 256_000 * 2 * 2 * 3
    assert report["transport"]["delivered_bytes"] == report["transport"]["posted_bytes"]
