"""Workloads that installed packages add: kinds of simulated jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.plugin import PluginEnvironment

POINTS = {"jobs.workloads:pulse": "lab_pulse:PulseSpec"}
JOBS = """
jobs:
  - name: beats
    iterations: 3
    pulse: {ranks: 4, size: 1MB, compute: 2ms}
"""
AS_JSON = """
import json, pickle
from pathlib import Path
from rocelab.jobs.job_spec import SimulatedJob, load_jobs
(job,) = load_jobs(Path("jobs.yaml"))
assert SimulatedJob.model_validate_json(job.model_dump_json()) == job
assert pickle.loads(pickle.dumps(job)) == job
print(job.kind, job.ranks)
"""


LINE = ("simulate", "tiny", "--json", "--job")


@pytest.fixture
def there(tmp_path: Path) -> PluginEnvironment:
    there = PluginEnvironment.with_package(tmp_path, "lab_pulse", POINTS)
    (there.folder / "jobs.yaml").write_text(JOBS)
    return there


def simulate(there: PluginEnvironment) -> tuple[int, str, str]:
    done = there.rocelab(*LINE, "jobs.yaml", NUMBA_DISABLE_JIT="1")
    return done.returncode, done.stdout, done.stderr


def test_a_job_file_has_a_block_for_it_whose_keys_are_checked_as_ours(
    there: PluginEnvironment,
) -> None:
    (there.folder / "few.yaml").write_text(JOBS.replace("ranks: 4", "ranks: 1"))
    (there.folder / "unknown.yaml").write_text(JOBS.replace("pulse:", "pulze:"))
    files = ("jobs.yaml", "few.yaml", "unknown.yaml")
    lines = ((*LINE, file) for file in files)
    done, few, unknown = there.in_turn(*lines, NUMBA_DISABLE_JIT="1")
    assert done.returncode == 0, done.stderr
    times_ns = json.loads(done.stdout)["jobs"][0]["iterations_ns"]
    assert len(times_ns) == 3
    assert all(2e6 < time_ns < 4e6 for time_ns in times_ns)
    assert there.run(AS_JSON).stdout == "pulse 4\n"
    assert few.returncode == unknown.returncode == 2
    assert "few.yaml:5: jobs[0].pulse.ranks" in few.stderr
    assert "did you mean pulse?" in unknown.stderr


def test_a_workload_says_itself_whether_it_may_send_nothing(there: PluginEnvironment) -> None:
    module = there.site / "lab_pulse/__init__.py"
    text = module.read_text().replace("sends=sends", "sends=None")
    module.write_text(text)
    code, _, problem = simulate(there)
    assert (code, "sends no byte from one rank to another" in problem) == (2, True)
    module.write_text(text.replace("    peers = 1", "    peers = 1\n    may_send_nothing = True"))
    code, said, problem = simulate(there)
    assert code == 0, problem
    assert json.loads(said)["jobs"][0]["iterations_ns"] == [2_000_000.0] * 3
