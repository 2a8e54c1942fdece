"""A real lab of a kind of fabric that another package adds, which then goes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.record import LabFiles
from tests.helpers.plugin import PluginEnvironment

LAB = "t-pods"
FILE = f"""\
name: {LAB}
fabric: {{kind: super-spine, pods: 2, leaves: 2, per_plane: 2}}
links: {{delay: 1us}}
"""
POINTS = {"fabrics:super-spine": "lab_fabrics:SuperSpineSpec"}


@pytest.fixture
def there(tmp_path: Path) -> Iterator[PluginEnvironment]:
    """An environment with the package, in which the lab is up."""
    environment = PluginEnvironment.with_package(tmp_path / "environment", "lab_fabrics", POINTS)
    file = tmp_path / "lab.yaml"
    file.write_text(FILE)
    try:
        up = environment.rocelab("up", str(file))
        assert up.returncode == 0, up.stderr
        yield environment
    finally:
        environment.rocelab("down", LAB)


@pytest.mark.long
@pytest.mark.side_by_side
def test_a_lab_of_a_kind_of_a_package_carries_a_job_and_goes_without_the_package(
    there: PluginEnvironment,
) -> None:
    ping = there.rocelab("ping", LAB, "p1-srv1-1", "p2-srv2-1", "-c", "2")
    assert ping.returncode == 0, ping.stdout
    said, job, fault = there.in_turn(
        ("status", LAB, "--json"),
        ("traffic", LAB, "--pattern", "alltoall", "--ranks", "4", "--size", "64KB", "--json"),
        ("fault", "inject", LAB, "blackhole", "link=spine#1:superspine#1"),
    )
    status = json.loads(said.stdout)
    assert status["converged"] is True
    assert {node["role"] for node in status["nodes"]} == {"superspine", "spine", "leaf", "server"}
    document = json.loads(job.stdout)
    assert job.returncode in (0, 3), job.stderr  # 3: other work had the machine
    assert {tier["tier"] for tier in document["tiers"]} == {"leaf-spine", "spine-superspine"}
    assert fault.returncode == 0, fault.stderr

    there.uninstall("lab_fabrics")
    without = there.rocelab("status", LAB)
    assert without.returncode == 2
    assert "there is no kind of fabric 'super-spine'" in " ".join(without.stderr.split())
    assert f"rocelab down {LAB}" in without.stderr
    down = there.rocelab("down", LAB)
    assert (down.returncode, down.stderr) == (0, "")
    assert not LabFiles(LAB).root.exists()
