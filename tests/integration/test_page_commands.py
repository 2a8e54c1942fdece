"""Runs the commands of the documentation that need no lab, as they are typed.

Each runs in a folder with only the files that its page names. `test_page_labs.py` and
`make test-machines` run the commands that need a lab.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.helpers.command import rocelab
from tests.helpers.nccl_sample import nccl_output
from tests.machines.typed import commands

pytestmark = [pytest.mark.side_by_side, pytest.mark.long]

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))),
)

WITHOUT_A_LAB = (
    *("labs", "plan", "render", "graph", "schema", "path", "predict", "simulate", "whatif"),
    *("longrun", "sweep", "reference", "drill list", "drill show", "drill diff", "fault kinds"),
)

NOT_RUN = {
    "simulate meta-32k --job llama3-16k --event 'fail z1-rtsw40:z1-ctsw3 at 2s for 10s'": (
        "a minute"
    ),
    "simulate llama3-24k --job llama3-16k": "half a minute",
    "simulate llama3-24k --job llama3-16k --out results/llama3": "half a minute",
    "simulate hpn-pod --pattern alltoall --ranks 512 --size 1GB --scheme spray --json": (
        "half a minute"
    ),
    "simulate llama3-24k --job recorded.yaml": "needs traces that somebody recorded",
    "whatif meta-32k --job llama3-16k 'drain z1-ctsw7 for 2h'": "a minute",
    "whatif meta-32k 'drain z1-ctsw7 for 2h' --job llama3-16k": "a minute",
    "longrun meta-32k --timeline events.yaml --work 2d --job llama3-16k": "a minute",
    "sweep examples/uplinks.yaml": "20 s; test_sweep.py runs smaller ones",
    "sweep examples/uplinks.yaml --workers 4": "the same",
    "sweep examples/uplinks.yaml --cluster 10.0.0.7:8786": "needs a cluster",
    "drill diff results/before results/after": "needs two results; test_drill_command.py has them",
    "drill diff results/frr-8 results/frr-10 --out results/frr-8-to-10": "the same",
}
"""Commands without a lab that are not run, and why."""

FILES = {
    "flows.csv": "source,destination,sport\nsrv1-1,srv3-1,50000\nsrv2-1,srv4-1,50001\n",
    "all_reduce.txt": nccl_output(),
}
"""The input files of commands."""


def needs_no_lab(command: str) -> bool:
    """Whether a command is one of those, with its usage line in the reference."""
    return f"{command} ".startswith(tuple(f"rocelab {words} " for words in WITHOUT_A_LAB))


def typed_without_a_lab() -> list[str]:
    """Every such command of the pages once, without the usage lines of the reference."""
    names = set()
    for page in PAGES:
        for command in commands(page, (ROOT / page).read_text()):
            if needs_no_lab(command.text) and "[OPTIONS]" not in command.text:
                names.add(shlex.join(shlex.split(command.text)[1:]))
    return sorted(names)


@pytest.mark.parametrize("line", [line for line in typed_without_a_lab() if line not in NOT_RUN])
def test_a_command_of_the_pages_runs(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)

    outcome = rocelab(*shlex.split(line))

    assert outcome.returncode == 0, outcome.stderr


def test_what_is_not_run_is_on_a_page() -> None:
    assert sorted(NOT_RUN.keys() - set(typed_without_a_lab())) == []
