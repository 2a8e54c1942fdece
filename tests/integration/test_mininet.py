"""A lab as a Mininet network: the example of docs/runtime.md, unchanged, and `rocelab cli`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.ups import measure_mininet
from rocelab.lab.teardown import take_down
from tests.helpers.command import rocelab, rocelab_process
from tests.helpers.waiting import RUN_LIMIT_S
from tests.integration.test_ownership import belongings

pytestmark = pytest.mark.side_by_side

NAME = "it-mininet"
SPEC = f"name: {NAME}\nfabric: {{kind: clos, racks: 2, spines: 2, servers_per_rack: 1}}\n"
DOCS = Path(__file__).resolve().parents[2] / "docs/runtime.md"
TYPED = """nodes
links
rtsw1 vtysh -c "show bgp summary"
srv1-1 ip -color=never route get srv2-1
srv1-1 echo it is $(hostname), by /etc/hosts $(getent hosts $(hostname))
exit
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    file = tmp_path / "lab.yaml"
    file.write_text(SPEC)
    return file


def assert_a_command_line_of_the_lab(output: str) -> None:
    """Mininet's answer is its log."""
    assert "ctsw1 ctsw2 rtsw1 rtsw2 srv1-1 srv2-1" in output
    assert "rtsw1<->srv1-1 (OK OK)" in output
    assert "Total number of neighbors 2" in output
    assert " dev rtsw1 src " in output
    assert re.search(r"it is srv1-1, by /etc/hosts [\d.]+ +srv1-1\n", output)


def test_the_five_lines_of_the_docs_are_a_lab_in_mininet(spec: Path) -> None:
    block = next(
        part.partition("```")[0]
        for part in DOCS.read_text().split("```python\n")
        if part.startswith("from rocelab.mininet import")
    )
    script = spec.with_name("mine.py")
    script.write_text(block.replace('"zone-small"', repr(str(spec))))
    try:
        done = subprocess.run(
            [sys.executable, script],
            input=TYPED,
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_LIMIT_S,
        )
        assert done.returncode == 0, done.stderr
        assert belongings(NAME) == []
    finally:
        take_down(NAME)
    assert_a_command_line_of_the_lab(done.stderr)


def test_the_command_line_opens_on_a_lab_of_any_runtime_and_leaves_it_up(spec: Path) -> None:
    try:
        assert rocelab("up", spec).returncode == 0
        before = belongings(NAME)
        done = rocelab_process("cli", NAME, stdin=TYPED)
        assert done.returncode == 0, done.stderr
        assert belongings(NAME) == before
        assert rocelab("status", NAME).returncode == 0
    finally:
        take_down(NAME)
    assert_a_command_line_of_the_lab(done.stderr)


def test_the_benchmark_starts_every_daemon_in_plain_mininet(spec: Path) -> None:
    up = measure_mininet(str(spec), with_daemons=True)
    assert list(up.stages_s) == ["wiring", "daemons", "convergence"]
    assert up.daemons_pss_bytes > 8 * 2**20  # of 4 switches, two daemons each
