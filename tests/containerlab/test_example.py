"""containerlab's own example frr01, as it is but for its images.

`ROCELAB_PUBLISHED=FOLDER make test-containerlab` runs it: tests/data/README.md lists the files.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from rocelab.faults.fault_spec import SINGLE_FAULT
from rocelab.faults.running import inject_and_leave, release, restore_ownerless
from rocelab.lab.adoption.adopt import adopt
from rocelab.lab.engine import ContainerEngine
from rocelab.lab.lab import RunningLab
from rocelab.lab.status import read_status
from rocelab.record import recorded_labs
from rocelab.traffic.reachability import probe_reachability
from tests.containerlab.labs import deployed, idle_image
from tests.containerlab.test_adopt import CONVERGES_WITHIN_S, assert_same, is_converged, state_of
from tests.helpers.waiting import wait_until

ROUTERS = ("router1", "router2", "router3")


def copied(folder: Path, image: str, host_image: str) -> Path:
    """The example with these images; its topology file."""
    published = os.environ.get("ROCELAB_PUBLISHED")
    if published is None:
        pytest.skip(
            "set ROCELAB_PUBLISHED to the folder with the files that tests/data/README.md names"
        )
    shutil.copytree(Path(published, "clab", "frr01"), folder)
    topology = folder / "frr01.clab.yml"
    text = re.sub(r"image: \S*frr:\S*", f"image: {image}", topology.read_text())
    topology.write_text(re.sub(r"image: \S*multitool:\S*", f"image: {host_image}", text))
    return topology


def test_the_example_is_adopted_broken_and_given_back(
    engine: ContainerEngine, image: str, tmp_path: Path
) -> None:
    topology = copied(tmp_path / "frr01", image, idle_image(engine, image))
    with deployed(topology):
        # A machine with Docker forwards, and so do its containers, which begin with what the
        # machine's own namespace has. The engine of these tests has another one.
        for router in ROUTERS:
            engine.run("exec", f"clab-frr01-{router}", "sysctl", "-qw", "net.ipv4.ip_forward=1")
        wait_until(lambda: is_converged(topology), "routes", limit_s=CONVERGES_WITHIN_S)
        before = state_of(engine, "frr01")
        lab = RunningLab.open(adopt(str(topology)).name)
        assert {node.name for node in lab.fabric.switches} == {*ROUTERS}
        assert {node.name for node in lab.fabric.servers} == {"PC1", "PC2", "PC3"}
        assert read_status(lab).converged
        reachability = probe_reachability(lab.fabric, lambda node: lab.node(node).netns)
        assert reachability.pairs == 6 and not reachability.failed
        flap = {"kind": "carrier-down", "link": "router1:eth1"}
        inject_and_leave(lab, SINGLE_FAULT.validate_python(flap))
        assert not read_status(lab).converged
        restore_ownerless(lab)
        # With its default of next-hop objects FRR 8.4 never puts a link back into a group.
        assert_same(engine, "frr01", before, besides=("routes",))
        release("frr01")
        assert "frr01" not in recorded_labs()
