"""The traffic that the page sends, a job or probes, and who else has the lab for itself.

It is sent as `rocelab traffic --allow-faults` does, with the same exclusion of drills and other
traffic, by a process of its own (`rocelab.live.job`). It ends with the server, also if that is
killed, and no trace of it remains.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import IO, Any, Literal

from rocelab.base.errors import ExpectationError, InputError, MachineError, RocelabError
from rocelab.base.interruption import undone
from rocelab.base.quantities import in_unit
from rocelab.drills.drill_spec import TrafficSpec
from rocelab.drills.plan import probe_flows
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.lab.inuse import Use, in_use, user_of
from rocelab.labfile.base import SpecModel
from rocelab.linux.background import last_line, launch
from rocelab.linux.bracket import realtime_ns
from rocelab.live.events import JobEvent, UseEvent
from rocelab.live.feed import Feed
from rocelab.record import LabFiles
from rocelab.results.job import JobReport, from_json
from rocelab.results.probes import Disturbance

Document = Mapping[str, object]
NO_TRAFFIC: Document = {"state": None}


@dataclass(frozen=True, slots=True)
class TrafficOutcome:
    """What the page shows of a result."""

    state: str
    """`valid`, `disturbed`, `invalid` or `failed`."""
    headlines: tuple[Document, ...] = ()
    """Figures as text."""
    problems: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    disturbed: tuple[str, ...] = ()
    """The faults meanwhile, as text."""


NO_OUTCOME = TrafficOutcome("")
_ERRORS: Mapping[int, type[RocelabError]] = {2: InputError, 3: MachineError}


class LiveTraffic:
    """The traffic of a page, one job or run of probes at a time; leaving the context ends it."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._lab = feed.lab
        self._starting = threading.Lock()
        self._run: _Run | None = None
        self._closing = False

    def __enter__(self) -> LiveTraffic:
        self.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        with self._starting:
            self._closing = True
        if self._run is not None and not self._run.is_over:
            self._run.stop()
            undone("the traffic of the page was stopped")

    def refresh(self) -> None:
        """Publish who else has the lab for itself by now."""
        user, before = user_of(LabFiles(self._lab.name)), self._feed.state.use
        if user is not None and self._run is not None and user.pid == self._run.pid:
            user = None
        what, pid = (None, None) if user is None else (user.what, user.pid)
        if pid != (before and before.pid):
            self._feed.publish(UseEvent(realtime_ns(), what, pid))

    def start(self, job: JobSpec) -> None:
        """Run a job; returns once its ranks send.

        Raises as `rocelab.runs.jobs.run_job`, and InputError while traffic of the page runs.
        """
        plan_jobs(self._lab.fabric, [job])
        self._start(_Asked("job", job, job.pattern.value, job.ranks))

    def probe(self, probes: TrafficSpec) -> None:
        """Send probes; returns once they are sent.

        Raises as `rocelab.drills.openprobes.run_open_probes`, and InputError while traffic of the
        page runs.
        """
        probe_flows(self._lab.fabric, probes)
        self._start(_Asked("probes", probes, "probes", probes.flows))

    def _start(self, asked: _Asked) -> None:
        with self._starting:
            if self._closing or not (self._run is None or self._run.is_over):
                raise InputError(
                    "traffic of this page is under way", hint="stop it, or wait for its end"
                )
            # Another's lab is told before a process starts for it beside what is measured.
            with in_use(LabFiles(self._lab.name), "traffic of the page", Use.UNDER_FAULTS):
                pass
            self._run = _Run(self._feed, asked)
        self._run.started.result()

    def stop(self) -> None:
        """End what is sent: a job as Ctrl-C does, probes so that they are measured. Returns when no
        trace of it remains. Raises InputError if there is none."""
        if self._run is None or self._run.is_over:
            raise InputError("no traffic of this page is under way")
        self._run.finish()

    def document(self) -> Document:
        """The newest traffic of the page: how far it is, and its figures once it has ended."""
        return NO_TRAFFIC if self._run is None else self._run.document()

    def impact(self) -> Document:
        """What the newest traffic felt of faults (`rocelab.live.impact`). Raises InputError if
        there is nothing."""
        if self._run is None or self._run.impact is None:
            raise InputError("no traffic of this page has been measured")
        return self._run.impact

    def result(self) -> str:
        """The result of the newest traffic: of a job as `rocelab traffic --json` writes it. Raises
        InputError if there is none."""
        if self._run is None or self._run.text is None:
            raise InputError("no traffic of this page has a result")
        return self._run.text


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is to be sent: its kind as `rocelab.live.job` takes it, and its name in events."""

    kind: Literal["job", "probes"]
    spec: SpecModel
    pattern: str
    ranks: int


class _Run:
    """The process that sends, and what it has said."""

    def __init__(self, feed: Feed, asked: _Asked) -> None:
        self.asked = asked
        self.started: Future[None] = Future()
        self.text: str | None = None
        self.impact: Document | None = None
        self._feed = feed
        self._progress: Document | None = None
        self._outcome: TrafficOutcome | None = None
        self._error: Document | None = None
        self._is_stopped = False
        self.is_over = False
        reading, writing = os.pipe()
        self._errors = os.fdopen(os.memfd_create("job-stderr"), "w+b")
        try:
            self._process = launch(
                "rocelab.live.job",
                *(feed.lab.name, asked.kind, asked.spec.model_dump_json(exclude_none=True)),
                str(writing),
                stdin=subprocess.PIPE,
                errors=self._errors,
                pass_fds=(writing,),
            )
        except BaseException:
            os.close(reading)
            self._errors.close()
            raise
        finally:
            os.close(writing)
        self._thread = threading.Thread(
            target=self._follow, args=(os.fdopen(reading),), name="job", daemon=True
        )
        self._thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """Interrupt the process, and return when it has ended."""
        self._is_stopped = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._thread.join()

    def finish(self) -> None:
        """End what is sent, and return when the process has ended."""
        if self.asked.kind == "job":
            self.stop()
            return
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has just ended
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        self._thread.join()

    def document(self) -> Document:
        return {
            "kind": self.asked.kind,
            "job": self.asked.spec.model_dump(mode="json", exclude_defaults=True),
            "ranks": self.asked.ranks,
            **asdict(self._outcome or NO_OUTCOME),
            "state": self._state if self.is_over else "running",
            "progress": self._progress,
            "outages": [] if self.impact is None else self.impact["outages"],
            **(self._error or {}),
        }

    @property
    def _state(self) -> str:
        if self._outcome is None:
            return "stopped" if self._is_stopped and self._error is None else "failed"
        return self._outcome.state

    def _follow(self, lines: IO[str]) -> None:
        with lines, self._errors:
            for line in lines:
                self._take(json.loads(line))
            code = self._process.wait()
            if self._outcome is None and self._error is None and not self._is_stopped:
                self._errors.seek(0)
                said = last_line(self._errors.read().decode(errors="replace"))
                self._fail(MachineError(said or f"the process that sends ended with code {code}"))
        self.is_over = True
        if not self.started.done():
            self.started.set_exception(InputError("the traffic was stopped before it began"))
        elif self.started.exception() is None:
            self._publish(realtime_ns(), self._state)

    def _take(self, message: Mapping[str, Any]) -> None:
        if "progress" in message:
            self._progress = message["progress"]
            if not self.started.done():
                self._publish(message["t_ns"], None)
                self.started.set_result(None)
        elif "report" in message:
            steps = self._feed.ticks.kept()
            self.text = message["report"]
            self.impact = {**message["impact"], "steps": steps.document() if steps else None}
            self._outcome = outcome_of(self.asked.kind, self.text)
        else:
            made = _ERRORS.get(message["exit_code"], ExpectationError)
            self._fail(made(message["error"], message["hint"]))

    def _fail(self, error: RocelabError) -> None:
        self._error = {"error": error.message, "hint": error.hint}
        if not self.started.done():
            self.started.set_exception(error)

    def _publish(self, t_ns: int, outcome: str | None) -> None:
        self._feed.publish(JobEvent(t_ns, self.asked.pattern, self.asked.ranks, outcome))


def outcome_of(kind: str, text: str) -> TrafficOutcome:
    """What the page shows of a result as text."""
    if kind == "job":
        return _job_outcome(from_json(text))
    report = json.loads(text)
    problems = tuple(report["run"]["problems"])
    disturbed = tuple(Disturbance(**fault).text for fault in report["disturbed"])
    state = "invalid" if problems else "disturbed" if disturbed else "valid"
    return TrafficOutcome(state, problems=problems, disturbed=disturbed)


def _job_outcome(report: JobReport) -> TrafficOutcome:
    """Headlines are of the modelled network."""
    state = "invalid" if report.problems else "disturbed" if report.disturbed else "valid"
    return TrafficOutcome(
        state="failed" if report.errors else state,
        headlines=tuple(
            {
                "title": headline.title,
                **{
                    key: in_unit(getattr(headline.modelled, key), headline.unit)
                    for key in ("median", "minimum", "maximum")
                },
                "n": headline.modelled.n,
            }
            for headline in report.headlines
        ),
        problems=report.problems,
        errors=report.errors,
        warnings=report.warnings,
        disturbed=tuple(fault.text for fault in report.disturbed),
    )
