"""Patterns that installed packages add: sends of labs and simulations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.plugin import PluginEnvironment

POINTS = {"jobs.patterns:halo": "lab_halo:Halo"}
PLANNED = """
import json
from rocelab.jobs import merged_sends
from rocelab.jobs.collectives import Pattern, schedule
from rocelab.jobs.job import JobSpec
from rocelab.jobs.performance import busbw_factor
made = schedule(Pattern("halo"), 4, 1000)
merged = merged_sends.sends_of(Pattern.HALO, 4, 1000)
job = JobSpec.model_validate({"pattern": "halo", "ranks": 4, "size": "1MB"})
print(json.dumps([
    [(send.source, send.destination, send.size_bytes, len(send.after)) for send in made.sends],
    [merged.source.tolist(), merged.destination.tolist(), merged.size_bytes.tolist()],
    [merged.rounds, merged.parts.tolist()],
    busbw_factor(Pattern.HALO, 4), job.model_dump(mode="json")["pattern"], list(Pattern),
]))
"""
JOBS = "jobs:\n  - {name: halos, collective: {pattern: halo, ranks: 4, size: 1MB}}\n"
JOB = ("--pattern", "halo", "--ranks", "4", "--size", "1MB", "--json")


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> PluginEnvironment:
    return PluginEnvironment.with_package(tmp_path_factory.mktemp("halo"), "lab_halo", POINTS)


@pytest.fixture
def there(tmp_path: Path) -> PluginEnvironment:
    return PluginEnvironment.with_package(tmp_path, "lab_halo", POINTS)


def test_its_sends_are_those_of_labs_and_merged_those_of_large_simulations(
    unchanged: PluginEnvironment,
) -> None:
    done = unchanged.run(PLANNED)
    assert not done.returncode, done.stderr
    sends, columns, counts, factor, name, patterns = json.loads(done.stdout)
    ways = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)]
    assert [(source, destination) for source, destination, *_ in sends] == ways * 2
    assert [after for *_, after in sends] == [0] * 6 + [1, 2, 2, 2, 2, 1]
    assert columns == [[a for a, _ in ways], [b for _, b in ways], [2000] * 6]
    assert counts == [2, [2] * 6]
    assert (factor, name, patterns[-1]) == (4.0, "halo", "halo")
    assert patterns[0] == "allreduce"


def test_files_and_options_name_it_and_a_key_that_means_nothing_for_it_is_refused(
    unchanged: PluginEnvironment,
) -> None:
    (unchanged.folder / "jobs.yaml").write_text(JOBS)
    (unchanged.folder / "wrong.yaml").write_text(JOBS.replace("size:", "root: 1, size:"))
    by_file, by_options, predicted, wrong = unchanged.in_turn(
        ("simulate", "tiny", "--job", "jobs.yaml", "--json"),
        ("simulate", "tiny", *JOB),
        ("predict", "tiny", *JOB),
        ("simulate", "tiny", "--job", "wrong.yaml"),
        NUMBA_DISABLE_JIT="1",
    )
    assert by_file.returncode == by_options.returncode == 0, by_file.stderr + by_options.stderr
    times = [
        json.loads(process.stdout)["jobs"][0]["iterations_ns"] for process in (by_file, by_options)
    ]
    assert times[0] == times[1]
    assert json.loads(predicted.stdout)["flows"] == 6, predicted.stderr
    assert wrong.returncode == 2
    assert "root means nothing for halo" in wrong.stderr


def test_sends_that_no_lab_can_send_are_refused(there: PluginEnvironment) -> None:
    module = there.site / "lab_halo/__init__.py"
    module.write_text(module.read_text().replace("destination, call.size_bytes", "destination, 0"))
    wrong = there.rocelab("predict", "tiny", *JOB)
    assert wrong.returncode == 2
    assert "pattern halo of lab-halo 1.2 plans Send(id=0, source=0, destination=1" in wrong.stderr


def test_one_that_is_broken_is_named(there: PluginEnvironment) -> None:
    module = there.site / "lab_halo/__init__.py"
    module.write_text(module.read_text().replace("class Halo", "class Halos"))
    broken = there.rocelab("predict", "tiny", *JOB)
    assert broken.returncode == 2
    assert "pattern halo of lab-halo 1.2 cannot be used: AttributeError" in broken.stderr
