"""Drills run the jobs of a file of several kinds, in one network or in several."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab.base.errors import InputError, SpecError
from rocelab.drills.plan import JobPhase, PlannedDrill, planned_drill
from rocelab.drills.show import fault_rows

HEAD = "name: mixed\nlab: two-networks\nphases:\n"
SAVE = "{name: save, network: frontend, checkpoint: {ranks: 2, size: 1MB, storage: ['sto*']}}"
RING = "{pattern: allreduce, ranks: 4, size: 1MB}"
JOBS = f"""jobs:
  - {{name: train, collective: {RING}}}
  - {SAVE}
  - {{name: flows, network: frontend, flows: {{file: flows.txt}}}}
"""
FLOWS = "2\n0 1 3 100 1000 0.0\n1 0 3 100 2000 0.00001\n"


def planned(tmp_path: Path, *phases: str) -> PlannedDrill:
    drill = tmp_path / "drills" / "mixed.yaml"
    drill.parent.mkdir(exist_ok=True)
    drill.write_text(HEAD + "".join(f"  - {phase}\n" for phase in phases))
    return planned_drill(drill)


def jobs_of(drill: PlannedDrill) -> list[tuple[str, str | None]]:
    (phase,) = drill.phases
    assert isinstance(phase, JobPhase)
    return [(job.job.title, job.fabric.network_name) for job in phase.jobs]


def test_a_phase_has_jobs_of_both_networks_and_breaks_a_link_of_either(tmp_path: Path) -> None:
    fault = "{kind: carrier-down, at: 10ms, link: 'fsw1:fsw2'}"
    drill = planned(tmp_path, f"{{name: p, jobs: [{RING}, {SAVE}], faults: [{fault}]}}")
    assert jobs_of(drill) == [("allreduce", "backend"), ("checkpoint save", "frontend")]
    assert [row.subject for row in fault_rows(drill.phases[0])] == ["fsw1:fsw2"]


def test_a_file_of_jobs_gives_all_of_its_jobs_and_the_files_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "drills").mkdir()
    (tmp_path / "drills" / "several.yaml").write_text(JOBS)
    (tmp_path / "drills" / "flows.txt").write_text(FLOWS)
    drill = planned(tmp_path, "{name: p, jobs: [./several.yaml]}")
    assert jobs_of(drill) == [
        ("allreduce", "backend"),
        ("checkpoint save", "frontend"),
        ("flows flows", "frontend"),
    ]


def test_a_scheme_of_jobs_in_two_networks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="seed and scheme are of one network"):
        planned(tmp_path, f"{{name: p, scheme: e-ecmp, jobs: [{RING}, {SAVE}]}}")


def test_a_wrong_key_of_a_block_has_its_place(tmp_path: Path) -> None:
    wrong = SAVE.replace("size", "sizes")
    with pytest.raises(SpecError, match=r"mixed.yaml:4: phases\[0\].jobs\[0\].*sizes"):
        planned(tmp_path, f"{{name: p, jobs: [{wrong}]}}")
