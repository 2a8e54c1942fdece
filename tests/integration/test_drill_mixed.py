"""A phase of probes with its own scheme and seeds, and a phase of jobs with health checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.drills.labuse import kept
from rocelab.drills.run import run_drill
from rocelab.lab.lab import RunningLab
from rocelab.results.drill import DrillResult
from tests.helpers.measured import measured, problems_of_drill

pytestmark = [pytest.mark.few_at_once, pytest.mark.long]

LINK = "rtsw1:ctsw1"
LAB = """name: it-mixed
fabric: {kind: clos, racks: 2, spines: 2, servers_per_rack: 2}
dilation: 2000
"""
DRILL = f"""name: mixed
lab: lab.yaml
phases:
  - name: cable
    scheme: {{kind: e-ecmp}}
    seed: shared
    traffic: {{flows: 8, rate_pps: 500, warmup: 300ms, duration: 2500ms}}
    measure: {{stages: true, sustained: 300ms}}
    faults:
      - {{kind: carrier-down, at: 500ms, link: "{LINK}", lasts: 800ms}}
    expect: {{restored: true, affected_flows: ">= 1"}}
  - name: iterations
    jobs: [{{pattern: allreduce, ranks: 4, size: 256KB, iterations: 100}}]
    measure: {{stages: true}}
    health: {{interval: 200ms}}
    faults:
      - {{kind: carrier-down, at: 300ms, link: "{LINK}", lasts: 2s}}
    expect: {{completed: true}}
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DrillResult, Path]]:
    """The drill on a lab that stays up, its result and its folder."""
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "lab.yaml").write_text(LAB)
    (folder / "mixed.yaml").write_text(DRILL)

    def once() -> DrillResult:
        return run_drill(
            folder / "mixed.yaml",
            retries=0,
            out=folder / "out",
            overwrite=True,
            use=kept(lambda _: None),
        )

    try:
        yield measured(once, problems_of_drill), folder
    finally:
        RunningLab.open("it-mixed").down()


def test_probes_run_under_the_scheme_and_the_seeds_of_their_phase(
    ran: tuple[DrillResult, Path],
) -> None:
    probes = ran[0].repeats[0][0].probes
    assert probes is not None
    (hashing,) = probes.hashing
    # Programs choose the links: tables and seeds alone predict nothing.
    assert (hashing.hashing, hashing.own, hashing.misplaced_packets) == ("shared", True, None)
    assert probes.overall.affected_flows >= 1
    lab = RunningLab.open("it-mixed")
    assert lab.steering.read_scheme().kind == "ecmp"


def test_jobs_are_traced_and_watched_while_a_cable_is_out(ran: tuple[DrillResult, Path]) -> None:
    jobs = ran[0].repeats[0][1].jobs
    assert jobs is not None
    begun, ended = jobs.stages
    assert begun.event == f"carrier-down of {LINK}"
    assert {"rtsw1", "ctsw1", "rtsw2"} <= {switch.node for switch in begun.switches}
    assert ended.event == f"carrier-down of {LINK} ends"
    assert jobs.health is not None
    down = next(sli for sli in jobs.health.slis if sli.sli == "links_down")
    assert down.breached_samples >= 1
    assert ran[0].phases[1].figures[0].truths["completed"] == 1


def test_the_page_has_a_section_for_each_phase(ran: tuple[DrillResult, Path]) -> None:
    page = (ran[1] / "out" / "report.html").read_text()
    cable, iterations = (
        page.index(f">{phase}</h2>") for phase in ("Phase cable", "Phase iterations")
    )
    assert cable < iterations
    of_jobs = page[iterations:]
    assert "Where the time went" in of_jobs
    assert ">Health</h2>" in of_jobs
