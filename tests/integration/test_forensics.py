"""Faults injected into a real lab while a job runs: the diagnosis of its document names them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench import pause_trials
from bench.forensics import congested_link, grey_link, healthy, host_pause, lab_of, slow_link
from bench.trial import Trial, names
from rocelab import Lab, RunningLab
from rocelab.base.documents import to_json
from rocelab.diagnose.diagnose import EXPLAINED, diagnose_report
from rocelab.planning.build import plan
from rocelab.results.diagnosis import Cause, Diagnosis, from_json
from tests.helpers.measured import measured
from tests.helpers.running import running, slowed
from tests.helpers.waiting import RUN_LIMIT_S

pytestmark = [pytest.mark.few_at_once, pytest.mark.long]

NAME = "t-forensics"
NAME_LOSSLESS = "t-forensics-pfc"
DILATION = 5000
"""Half of the benchmark's: its jobs take half the time, where the machine carries them."""


@pytest.fixture(scope="module")
def lab() -> Iterator[RunningLab]:
    with running(as_slow(lab_of("e-ecmp", NAME), DILATION)) as made:
        yield made


@pytest.fixture(scope="module")
def lossless() -> Iterator[RunningLab]:
    with running(
        as_slow(pause_trials.lab_of("static", NAME_LOSSLESS), pause_trials.DILATION)
    ) as made:
        yield made


def as_slow(lab: Lab, dilation: int) -> Lab:
    """The lab with a clock that suits this machine."""
    spec = lab.fabric.spec.model_copy(update={"dilation": slowed(dilation)})
    return Lab(plan(spec))


@pytest.fixture(scope="module")
def undisturbed(lab: RunningLab) -> list[Trial]:
    def trial(seed: int) -> Trial:
        return tried(lambda: healthy(lab, drawn(seed)))

    return [trial(seed) for seed in range(3)]


@pytest.fixture(scope="module")
def paused(lab: RunningLab) -> Trial:
    return tried(lambda: host_pause(lab, drawn(1), "contiguous"))


def tried(trial: Callable[[], Trial]) -> Trial:
    """A trial with a valid job."""
    return measured(trial, problems_of_trial)


def problems_of_trial(trial: Trial) -> list[str]:
    """The problems that the injected fault does not explain."""
    words = EXPLAINED.get(trial.injected)
    server = trial.expected[0] if trial.injected is Cause.HOST_PAUSE else ""
    machine = [
        problem
        for problem in trial.report.problems
        if words is None or not all(word in problem for word in (*words, server))
    ]
    return [*trial.problems, *machine]


def asked(trial: Trial) -> Diagnosis:
    return diagnose_report(trial.report)[0]


def drawn(seed: int) -> random.Random:
    return random.Random(seed)


def test_jobs_that_nothing_disturbs_are_diagnosed_as_such(undisturbed: list[Trial]) -> None:
    diagnoses = [asked(trial) for trial in undisturbed]
    assert [diagnosis.verdict.cause for diagnosis in diagnoses] == [Cause.NONE] * len(diagnoses), (
        diagnoses
    )


def test_a_server_whose_agent_was_stopped_is_named_with_the_time_it_cost(paused: Trial) -> None:
    diagnosis = asked(paused)
    assert names(diagnosis.verdict, paused), diagnosis
    assert diagnosis.verdict.excess.lab_ns > 80_000_000
    longest = max(paused.report.stalls, key=lambda stall: stall.length_ns)
    assert longest.server == paused.expected[0]
    assert longest.length_ns > 95_000_000
    fidelity = paused.report.fidelity
    assert fidelity.backlog_share is not None
    assert fidelity.backlog_share * fidelity.elapsed_ns > 50_000_000


def test_a_link_that_loses_a_few_packets_is_among_the_named_and_no_host_is(lab: RunningLab) -> None:
    trial = tried(lambda: grey_link(lab, drawn(2)))
    diagnosis = asked(trial)
    assert names(diagnosis.verdict, trial), diagnosis
    assert diagnosis.verdict.server is None
    assert trial.report.roce.retransmitted > 0
    assert sum(queue.dropped_packets for queue in trial.report.queues) == 0


def test_a_link_that_another_job_fills_is_congested_and_not_grey(lab: RunningLab) -> None:
    trial = tried(lambda: congested_link(lab, drawn(3)))
    diagnosis = asked(trial)
    assert names(diagnosis.verdict, trial), diagnosis
    assert "were not of this job" in diagnosis.verdict.evidence[1]


def test_a_link_at_a_fraction_of_its_rate_is_slow(lab: RunningLab) -> None:
    trial = tried(lambda: slow_link(lab, drawn(13)))
    diagnosis = asked(trial)
    assert names(diagnosis.verdict, trial), diagnosis
    assert trial.report.roce.retransmitted == 0


@pytest.mark.parametrize("cause", pause_trials.FAULTS)
def test_who_made_a_job_wait_with_pauses_is_named(lossless: RunningLab, cause: Cause) -> None:
    trial = tried(lambda: pause_trials.FAULTS[cause](lossless, drawn(1)))
    diagnosis, report = asked(trial), trial.report
    assert report.lossless is not None
    seen = (
        diagnosis.verdict,
        diagnosis.others,
        report.events,
        report.lossless.spans[:4],
        report.completion,
    )
    assert names(diagnosis.verdict, trial), "\n".join(map(str, seen))
    assert report.lossless.dropped == report.roce.retransmitted == 0


def test_a_job_on_a_lossless_lab_that_nothing_disturbs_is_diagnosed_as_such(
    lossless: RunningLab,
) -> None:
    diagnosis = asked(tried(lambda: pause_trials.healthy(lossless, drawn(1))))
    assert (diagnosis.verdict.cause, diagnosis.others) == (Cause.NONE, ()), diagnosis


def test_the_recorded_steps_are_those_of_the_schedule_and_within_their_iterations(
    undisturbed: list[Trial],
) -> None:
    report = undisturbed[-1].report
    steps = report.steps
    assert steps is not None
    assert len(steps.posted_ns) == report.job["iterations"] + report.job["warmup_iterations"]
    for began, ended, posted, arrived, acked in zip(
        steps.began_ns,
        steps.ended_ns,
        steps.posted_ns,
        steps.arrived_ns,
        steps.acked_ns,
        strict=True,
    ):
        assert min(began) <= min(posted)
        assert all(here < there for here, there in zip(posted, arrived, strict=True))
        assert all(here < there for here, there in zip(posted, acked, strict=True))
        assert max(max(arrived), max(acked)) == max(ended)


def test_the_command_reads_a_result_and_writes_verdict_and_picture(
    paused: Trial, tmp_path: Path
) -> None:
    document, picture = tmp_path / "result.json", tmp_path / "map.svg"
    document.write_text(to_json(paused.report))
    program = "import typer; from rocelab.cli.diagnose import diagnose; typer.run(diagnose)"
    done = subprocess.run(
        [sys.executable, "-c", program, str(document), "--json", "--picture", str(picture)],
        capture_output=True,
        text=True,
        timeout=RUN_LIMIT_S,
        check=True,
    )
    diagnosis = from_json(done.stdout)
    assert json.loads(done.stdout)["verdict"]["cause"] == "host-pause"
    assert names(diagnosis.verdict, paused)
    assert picture.read_text().lstrip().startswith("<?xml")
