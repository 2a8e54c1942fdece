"""The job of the page: what its process says, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocelab.base.documents import to_json
from rocelab.base.errors import ExpectationError, InputError, MachineError
from rocelab.drills.drill_spec import TrafficSpec
from rocelab.jobs.job import JobSpec
from rocelab.lab.inuse import Use, User
from rocelab.lab.lab import Lab
from rocelab.live import traffic as module
from rocelab.live.events import Event, JobEvent, UseEvent
from rocelab.live.state import LabState
from rocelab.live.ticks import TickReader
from rocelab.live.traffic import LiveTraffic
from rocelab.record import LabFiles
from rocelab.results.job import SCHEMA_VERSION
from rocelab.results.probereport import ProbeReport
from rocelab.results.probes import Disturbance
from tests.helpers import phases_sample, report_sample

JOB = JobSpec(pattern="allreduce", ranks=4, size="1MB", transport={"qps": 2})  # type: ignore[arg-type]
BEGINS = '{"progress": {"stage": "iterations", "done": 1, "total": 6}, "t_ns": 7}'
WAITS = "sys.stdin.read()"
PROBES = TrafficSpec(flows=8)
BROKEN = Disturbance("carrier-down", "rtsw1:ctsw1", 10**9, 2 * 10**9)


class Feed:
    def __init__(self) -> None:
        self.lab = Lab.planned("tiny").unstarted()
        self.state = LabState(self.lab.fabric, read_only=False)
        self.published: list[Event] = []
        self.ticks = TickReader(LabFiles(self.lab.name))

    def publish(self, event: Event) -> None:
        self.published.append(event)
        self.state.apply(event)

    @property
    def outcomes(self) -> list[str | None]:
        return [event.outcome for event in self.published if isinstance(event, JobEvent)]


class Process:
    """Stands for the job's process: runs `script`, which has `say(line)`."""

    script = ""
    user = ""

    @contextmanager
    def in_use(self, files: LabFiles, what: str, use: Use) -> Iterator[None]:
        if self.user:
            raise InputError(f"lab {files.lab} is in use by {self.user}")
        yield

    def launch(
        self, _: str, *arguments: str, pass_fds: tuple[int, ...], **streams: int
    ) -> subprocess.Popen[bytes]:
        head = (
            f"import os, sys\nWRITING = {arguments[-1]}\n"
            "def say(line): os.write(WRITING, line.encode() + b'\\n')\n"
        )
        return subprocess.Popen(
            [sys.executable, "-c", head + self.script],
            stdin=streams["stdin"],
            stderr=streams["errors"],
            pass_fds=pass_fds,
        )


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    process = Process()
    monkeypatch.setattr(module, "launch", process.launch)
    monkeypatch.setattr(module, "in_use", process.in_use)
    return process


@pytest.fixture
def traffic(feed: Feed, process: Process) -> Iterator[LiveTraffic]:
    with LiveTraffic(feed) as traffic:  # type: ignore[arg-type]
        yield traffic


def test_a_job_that_is_stopped_is_over_and_another_one_can_begin(
    traffic: LiveTraffic, process: Process, feed: Feed
) -> None:
    process.script = f"say('''{BEGINS}'''); {WAITS}"
    assert traffic.document() == {"state": None}
    traffic.start(JOB)
    assert traffic.document()["state"] == "running"
    with pytest.raises(InputError, match="traffic of this page is under way"):
        traffic.start(JOB)
    traffic.stop()
    assert traffic.document()["state"] == "stopped"
    with pytest.raises(InputError, match="no traffic of this page is under way"):
        traffic.stop()
    traffic.start(JOB)
    assert feed.outcomes == [None, "stopped", None]


def test_the_end_of_the_server_stops_a_job(process: Process, feed: Feed) -> None:
    process.script = f"say('''{BEGINS}'''); {WAITS}"
    with LiveTraffic(feed) as traffic:  # type: ignore[arg-type]
        traffic.start(JOB)
    assert traffic.document()["state"] == "stopped"
    with pytest.raises(InputError):
        traffic.start(JOB)


@pytest.mark.parametrize(
    ("code", "made"), [(1, ExpectationError), (2, InputError), (3, MachineError)]
)
def test_what_the_product_refuses_is_the_answer(
    traffic: LiveTraffic, process: Process, feed: Feed, code: int, made: type[Exception]
) -> None:
    process.script = f"""say('{{"error": "in use", "hint": "wait", "exit_code": {code}}}')"""
    with pytest.raises(made, match="in use"):
        traffic.start(JOB)
    assert feed.outcomes == []


def test_while_another_has_the_lab_nothing_runs_and_the_last_job_is_still_there(
    traffic: LiveTraffic, process: Process, feed: Feed
) -> None:
    process.script = f"say('''{BEGINS}'''); {WAITS}"
    traffic.start(JOB)
    traffic.stop()
    process.user = "drill drain, process 7"
    with pytest.raises(InputError, match="in use by drill drain"):
        traffic.start(JOB)
    assert traffic.document()["state"] == "stopped"
    assert feed.outcomes == [None, "stopped"]


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, "valid"),
        ({"problems": ("late",)}, "invalid"),
        ({"errors": ("lost",)}, "failed"),
        ({"disturbed": (BROKEN,)}, "disturbed"),
        ({"disturbed": (BROKEN,), "problems": ("late",)}, "invalid"),
    ],
)
def test_a_job_that_ends_is_what_its_result_is(
    traffic: LiveTraffic, process: Process, feed: Feed, changes: dict[str, Any], outcome: str
) -> None:
    (phase,) = (repeat for repeat in phases_sample.result().repeats[0] if repeat.phase == "idle")
    assert phase.jobs is not None
    (report,) = phase.jobs.reports
    whole: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "problems": (), "errors": ()}
    text = to_json(replace(report, **whole | changes))
    process.script = (
        f"say({BEGINS!r}); say({json.dumps({'report': text, 'impact': {'outages': []}})!r})"
    )
    traffic.start(JOB)
    assert traffic._run is not None
    traffic._run._thread.join()
    assert traffic.document()["state"] == outcome
    assert feed.outcomes == [None, outcome]
    assert traffic.result() == text


def test_who_else_has_the_lab_is_told_once_and_not_that_the_page_s_own_job_has_it(
    traffic: LiveTraffic, process: Process, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.script = f"say({BEGINS!r}); {WAITS}"
    traffic.start(JOB)
    assert traffic._run is not None
    drill = User("a drill", 7)
    for user in (User("a job", traffic._run.pid), drill, drill, None, None):
        monkeypatch.setattr(module, "user_of", lambda _, user=user: user)
        traffic.refresh()
    users = [(event.user, event.pid) for event in feed.published if isinstance(event, UseEvent)]
    assert users == [("a drill", 7), (None, None)]


def test_a_process_that_ends_without_a_result_has_failed_with_its_last_words(
    traffic: LiveTraffic, process: Process, feed: Feed
) -> None:
    process.script = f"say('''{BEGINS}'''); sys.exit('no memory is left')"
    traffic.start(JOB)
    assert traffic._run is not None
    traffic._run._thread.join()
    document = traffic.document()
    assert (document["state"], document["error"]) == ("failed", "no memory is left")
    assert feed.outcomes == [None, "failed"]
    with pytest.raises(InputError, match="has a result"):
        traffic.result()


def test_a_job_that_does_not_fit_is_refused_before_anything_runs(
    traffic: LiveTraffic, process: Process, tmp_path: Path
) -> None:
    process.script = f"open({str(tmp_path / 'ran')!r}, 'w')"
    with pytest.raises(InputError, match="NIC"):
        traffic.start(JOB.model_copy(update={"ranks": 400}))
    assert not (tmp_path / "ran").exists()


def test_probes_that_are_stopped_are_measured_and_say_what_disturbed_them(
    traffic: LiveTraffic, process: Process, feed: Feed, tmp_path: Path
) -> None:
    document = report_sample.result(report_sample.repeat(0))
    report = ProbeReport(
        schema_version=1,
        probes={},
        lab=document.lab,
        environment=document.environment,
        zero_unix_ns=10**18,
        disturbed=(BROKEN,),
        run=report_sample.repeat(0),
    )
    said = tmp_path / "said"
    said.write_text(
        json.dumps({"report": to_json(report), "impact": {"zero_ns": 10**18, "outages": []}})
    )
    process.script = f"""say({BEGINS!r}); sys.stdin.readline()
with open({str(said)!r}) as file, os.fdopen(WRITING, "w") as lines:
    print(file.read(), file=lines)"""
    traffic.probe(PROBES)
    assert traffic.document()["state"] == "running"
    traffic.stop()
    summary = traffic.document()
    assert (summary["kind"], summary["ranks"], summary["state"]) == ("probes", 8, "disturbed")
    assert summary["disturbed"] == (BROKEN.text,)
    assert traffic.impact()["zero_ns"] == 10**18
    assert feed.outcomes == [None, "disturbed"]


def test_before_traffic_has_been_measured_it_has_no_impact(
    traffic: LiveTraffic, process: Process
) -> None:
    with pytest.raises(InputError, match="has been measured"):
        traffic.impact()
