"""Options of `rocelab traffic` and job files: the resulting jobs, and the errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocelab.base.errors import COMMAND_LINE, InputError, SpecError
from rocelab.cli.app import Settings
from rocelab.cli.main import build, command_line
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.dcqcn_profiles import PROFILES
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import load_jobs
from rocelab.jobs.keys import KEYS
from rocelab.jobs.options import job_from_file, job_from_options, jobs_from_file
from rocelab.jobs.patterns.base import Algorithm
from rocelab.jobs.placement import Placement
from rocelab.jobs.sport import SourcePort
from rocelab.jobs.transport import Ecn, Strategy

BASE: dict[str, str] = {"pattern": "allreduce", "ranks": "8", "size": "64MB"}


def test_options_and_a_file_make_the_same_job(tmp_path: Path) -> None:
    options = BASE | {"qps": "4", "strategy": "split", "warmup": "0", "dcqcn": "off"}
    file = tmp_path / "job.yaml"
    file.write_text(
        "pattern: allreduce\nranks: 8\nsize: 64MB\nwarmup_iterations: 0\n"
        "transport: {qps: 4, strategy: split, dcqcn: off}\n"
    )
    assert job_from_options(options) == job_from_file(file)
    assert job_from_options(options).transport.qps == 4


def test_a_placement_of_nics_is_a_list() -> None:
    job = job_from_options(BASE | {"ranks": "2", "placement": "srv1-1, srv2-1:2"})
    assert job.placement == ("srv1-1", "srv2-1:2")


@pytest.mark.parametrize(
    ("options", "option", "said"),
    [
        ({"size": "0B"}, "--size", "1B"),
        ({"size": "64"}, "--size", "a size such as"),
        ({"ranks": "many"}, "--ranks", "the text 'many'"),
        ({"pattern": "allredcue"}, "--pattern", "did you mean allreduce?"),
        ({"qps": "1000"}, "--qps", "256"),
        ({"warmup": "-1"}, "--warmup", "-1"),
        ({"dcqcn": "cubic"}, "--dcqcn", "sigcomm15"),
        ({"mtu": "1501"}, "--mtu", "an even number"),
        ({"duration": "5ms"}, "--duration", "expected size or duration"),
        ({"duration": "5ms", "size": ""}, "--duration", "means nothing for allreduce"),
        (
            {"pattern": "incast", "size": "", "duration": "5ms", "starts": "9ms"},
            "--starts",
            "9ms",
        ),
    ],
)
def test_a_bad_value_is_refused_at_its_option(
    options: dict[str, str], option: str, said: str
) -> None:
    with pytest.raises(SpecError) as refused:
        job_from_options({name: text for name, text in (BASE | options).items() if text})
    text = str(refused.value)
    assert f"{COMMAND_LINE}: {option}: " in text
    assert said in text


def test_all_bad_options_are_told_at_once() -> None:
    with pytest.raises(SpecError) as refused:
        job_from_options({"pattern": "allreduce", "ranks": "x", "size": "y", "qps": "z"})
    assert len(refused.value.problems) == 3


def test_a_bad_file_is_refused_at_its_line(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("pattern: allreduce\nranks: 8\nsize: 64MB\ntransport:\n  qps: 0\n")
    with pytest.raises(SpecError, match=r"job.yaml:5: transport.qps"):
        job_from_file(file)


def test_a_lab_takes_the_jobs_of_a_file_that_a_simulation_takes(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    ring = "{name: ring, collective: {pattern: allreduce, ranks: 4, size: 1MB}}"
    file.write_text(f"jobs:\n  - {ring}\n")
    assert jobs_from_file(file) == load_jobs(file)
    file.write_text("pattern: allreduce\nranks: 8\nsize: 64MB\n")
    assert jobs_from_file(file) == (job_from_file(file),)


def test_no_option_at_all_is_told_what_to_say() -> None:
    with pytest.raises(InputError, match="--pattern"):
        job_from_options({})


def test_every_option_sets_a_key_that_a_job_has() -> None:
    schema = JobSpec.model_json_schema()
    for option in KEYS.values():
        *block, key = option.key.split(".")
        properties = (
            schema["$defs"]["TransportSpec"]["properties"] if block else schema["properties"]
        )
        assert key in properties


def test_the_shell_completes_the_words_that_a_job_takes() -> None:
    assert set(KEYS["pattern"].words) == {member.value for member in Pattern}
    assert set(KEYS["algorithm"].words) == {member.value for member in Algorithm}
    assert set(KEYS["placement"].words) == {member.value for member in Placement}
    assert set(KEYS["strategy"].words) == {member.value for member in Strategy}
    assert set(KEYS["source-port"].words) == {member.value for member in SourcePort}
    assert set(KEYS["ecn"].words) == {member.value for member in Ecn}
    assert set(KEYS["dcqcn"].words) == {"off", *PROFILES}


def test_every_key_has_an_option_of_that_name() -> None:
    command = command_line()
    traffic = command.commands["traffic"]
    names = {name for parameter in traffic.params for name in parameter.opts}
    assert {f"--{name}" for name in KEYS} <= names


def test_help_shows_how_it_is_called() -> None:
    asked = ["traffic", "--help"]
    output = CliRunner().invoke(build(), asked, obj=Settings(), env={"COLUMNS": "120"}).output
    assert "--pattern allreduce --ranks 8 --size 64MB" in output
