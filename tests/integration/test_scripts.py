"""The short scripts in `scripts/` and `traffic/`, run as their docstrings show."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab import Lab, RunningLab
from rocelab.dataplane.queues.reading import read_queue_counters
from rocelab.jobs.placement import find_nic
from rocelab.routes.path import walk
from tests.helpers.running import running
from tests.integration.conftest import MakeLab

pytestmark = [pytest.mark.side_by_side, pytest.mark.long]

ROOT = Path(__file__).parents[2]
SCRIPTS = {path.stem: path for name in ("scripts", "traffic") for path in ROOT.glob(f"{name}/*.py")}
NAME = "t-scripts"


def printed(script: str, *arguments: str | Path) -> list[str]:
    command = [sys.executable, SCRIPTS[script], *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("lab") / "lab.yaml"
    file.write_text(f"name: {NAME}\nfabric: {{racks: 3, spines: 2, links_per_pair: 2}}\n")
    return file


@pytest.fixture(scope="module")
def lab(file: Path) -> Iterator[RunningLab]:
    with running(Lab.planned(file)) as made:
        yield made


def test_the_links_found_are_those_of_the_running_kernels_tables(
    lab: RunningLab, file: Path
) -> None:
    fabric = lab.fabric
    ends = find_nic(fabric, "srv1-1"), find_nic(fabric, "srv3-1")
    taken = walk(fabric, lab.read_fibs(), *ends, 50000)
    lines = printed("find_link", file, "srv1-1", "srv3-1", "50000")
    assert [line.split()[0] for line in lines] == list(taken.nodes)
    assert [line.split()[2] for line in lines[:-1]] == [hop.link.name for hop in taken.hops]


def test_one_seed_leaves_half_of_the_links_unused() -> None:
    seeded, shared = printed("polarization", "zone-small")
    assert seeded.startswith("a seed per switch") and seeded.endswith("32 of 32 links used")
    assert shared.startswith("one seed for all") and shared.endswith("16 of 32 links used")


def test_a_pulled_cable_changes_tables_at_both_of_its_ends(lab: RunningLab) -> None:
    lines = printed("flap_link", NAME, "rtsw1:ctsw2")
    assert [line for line in lines if line.endswith(":")] == [
        "rtsw1:ctsw2 down:",
        "rtsw1:ctsw2 up:",
    ]
    assert {line.split()[0] for line in lines if line.startswith(" ")} >= {"rtsw1", "ctsw2"}
    assert lab.node("rtsw1").exec(["ip", "link", "show", "up", "ctsw2"]).stdout


def test_a_drained_switch_forwards_nothing_and_nothing_is_lost(lab: RunningLab) -> None:
    lines = printed("drain_under_traffic", NAME, "ctsw2")
    rates = [int(line.split()[1].replace(",", "")) for line in lines[:3]]
    assert [line.split()[0] for line in lines[:3]] == ["before:", "drained:", "restored:"]
    # BGP's own packets go on.
    assert rates[1] < 100 < 1000 < min(rates[0], rates[2])
    assert re.fullmatch(r"lost: 0 of [\d,]+ packets, in 0 of 24 flows", lines[3])


def counted(lab: str, *flows: tuple[str, str, str, str]) -> dict[str, dict[str, int]]:
    """What `count_marks` prints of flows to srv3-1 (source, source port, codepoint, packets):
    packets by codepoint, of each source port."""
    # As long as a busy machine may take: it ends once all packets have come.
    packets = sum(int(number) for *_, number in flows)
    command = [sys.executable, str(SCRIPTS["count_marks"]), lab, "srv3-1", "300", str(packets)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as counting:
        assert counting.stdout is not None
        assert counting.stdout.readline() == "counting\n"
        for source, sport, ecn, number in flows:
            printed("send_flow", lab, source, "srv3-1", sport, ecn, number)
        lines = counting.stdout.read().splitlines()
    assert counting.returncode == 0
    counts = {}
    for line in lines:
        port, codepoints = line.split()[2].rstrip(":"), line.rpartition(": ")[2].split(", ")
        counts[port] = {codepoint.split()[1]: int(codepoint.split()[0]) for codepoint in codepoints}
    return counts


def test_a_flow_arrives_from_its_port_with_its_codepoint(lab: RunningLab) -> None:
    counts = counted(NAME, ("srv1-1", "50000", "ect0", "100"), ("srv2-1", "50001", "ce", "40"))
    assert counts == {
        "50000": {"not-ect": 0, "ect1": 0, "ect0": 100, "ce": 0},
        "50001": {"not-ect": 0, "ect1": 0, "ect0": 0, "ce": 40},
    }


def test_what_a_full_queue_marks_is_counted_at_the_receiver(make_lab: MakeLab) -> None:
    marking = "{ecn: {kmin: 2KB, kmax: 4KB, pmax: 1}}"
    made = make_lab(
        "t-marks",
        f"fabric: {{racks: 3, spines: 1}}\nlinks: {{server_rate: 10G}}\nqueues: {marking}\n"
        # The ports carry 10 packets a second: Scapy fills their queues on a busy machine too.
        "dilation: 100000",
    )
    made.start()
    flows = [("srv1-1", "50000", "ect0", "60"), ("srv2-1", "50001", "not-ect", "60")]
    counts = counted("t-marks", *flows)
    # Uplinks of so low a rate mark too, and a mark that is set is not counted again.
    queues = [q for port in read_queue_counters(made.fabric).values() for q in port.values()]
    assert counts["50000"]["ce"] == sum(queue.marked for queue in queues) > 0
    assert counts["50000"]["ce"] + counts["50000"]["ect0"] == 60
    assert counts["50001"] == {"not-ect": 60, "ect1": 0, "ect0": 0, "ce": 0}
