"""The job that the page runs, and who else has the lab for itself.

A job is that of `rocelab traffic`, with the same exclusion of drills, jobs and faults by hand, in a
process of its own (`rocelab.live.job`). It ends with the server, also if that is killed, and
no trace of it remains.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import IO, Any

from rocelab.base.errors import ExpectationError, InputError, MachineError, RocelabError
from rocelab.base.interruption import undone
from rocelab.base.quantities import in_unit
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplan import JobPlan, plan_jobs
from rocelab.lab.inuse import in_use, user_of
from rocelab.linux.background import last_line, launch
from rocelab.linux.bracket import realtime_ns
from rocelab.live.events import JobEvent, UseEvent
from rocelab.live.feed import Feed
from rocelab.record import LabFiles
from rocelab.results.job import JobReport, from_json

Document = Mapping[str, object]
NO_JOB: Document = {"state": None}
_ERRORS: Mapping[int, type[RocelabError]] = {2: InputError, 3: MachineError}


class LiveTraffic:
    """The jobs of a lab's page, one at a time; leaving the context ends it."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._lab = feed.lab
        self._starting = threading.Lock()
        self._run: _Run | None = None
        self._closing = False

    def __enter__(self) -> LiveTraffic:
        self.look()
        return self

    def __exit__(self, *_: object) -> None:
        with self._starting:
            self._closing = True
        if self._run is not None and not self._run.is_over:
            self._run.stop()
            undone("the job was stopped")

    def look(self) -> None:
        """Publish who else has the lab for itself by now."""
        user, before = user_of(LabFiles(self._lab.name)), self._feed.state.use
        if user is not None and self._run is not None and user.pid == self._run.pid:
            user = None
        what, pid = (None, None) if user is None else (user.what, user.pid)
        if pid != (before and before.pid):
            self._feed.publish(UseEvent(realtime_ns(), what, pid))

    def start(self, job: JobSpec) -> None:
        """Run a job; returns once its ranks send.

        Raises as `rocelab.runs.jobs.run_job`, and InputError while a job of the page runs.
        """
        (plan,) = plan_jobs(self._lab.fabric, [job])
        with self._starting:
            if self._closing or not (self._run is None or self._run.is_over):
                raise InputError(
                    "a job of this page is under way", hint="stop it, or wait for its end"
                )
            # Another's lab is told before a process starts for it beside what is measured.
            with in_use(LabFiles(self._lab.name), "a job of the page"):
                pass
            self._run = _Run(self._feed, plan)
        self._run.started.result()

    def stop(self) -> None:
        """End the job that runs, as Ctrl-C does; returns when no trace of it remains. Raises
        InputError if there is none."""
        if self._run is None or self._run.is_over:
            raise InputError("no job of this page is under way")
        self._run.stop()

    def document(self) -> Document:
        """The newest job of the page: how far it is, and its figures once it has ended."""
        return NO_JOB if self._run is None else self._run.document()

    def result(self) -> str:
        """The result of the newest job, as `rocelab traffic --json` writes it. Raises InputError if
        there is none."""
        if self._run is None or self._run.text is None:
            raise InputError("no job of this page has a result")
        return self._run.text


class _Run:
    """A job's process and what it has said."""

    def __init__(self, feed: Feed, plan: JobPlan) -> None:
        self.plan = plan
        self.started: Future[None] = Future()
        self.text: str | None = None
        self._feed = feed
        self._progress: Document | None = None
        self._report: JobReport | None = None
        self._error: Document | None = None
        self._is_stopped = False
        self.is_over = False
        reading, writing = os.pipe()
        self._errors = os.fdopen(os.memfd_create("job-stderr"), "w+b")
        try:
            self._process = launch(
                "rocelab.live.job",
                *(feed.lab.name, plan.job.model_dump_json(exclude_none=True), str(writing)),
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

    def document(self) -> Document:
        return {
            "job": self.plan.job.model_dump(mode="json", exclude_defaults=True),
            "state": self._outcome if self.is_over else "running",
            "progress": self._progress,
            **(figures(self._report) if self._report else {"headlines": [], "warnings": []}),
            **(self._error or {}),
        }

    @property
    def _outcome(self) -> str:
        if self._report is None:
            return "stopped" if self._is_stopped and self._error is None else "failed"
        if self._report.errors:
            return "failed"
        return "valid" if self._report.valid else "invalid"

    def _follow(self, lines: IO[str]) -> None:
        with lines, self._errors:
            for line in lines:
                self._take(json.loads(line))
            code = self._process.wait()
            if self._report is None and self._error is None and not self._is_stopped:
                self._errors.seek(0)
                said = last_line(self._errors.read().decode(errors="replace"))
                self._fail(MachineError(said or f"the job's process ended with code {code}"))
        self.is_over = True
        if not self.started.done():
            self.started.set_exception(InputError("the job was stopped before it began"))
        elif self.started.exception() is None:
            self._publish(realtime_ns(), self._outcome)

    def _take(self, message: Mapping[str, Any]) -> None:
        if "progress" in message:
            self._progress = message["progress"]
            if not self.started.done():
                self._publish(message["t_ns"], None)
                self.started.set_result(None)
        elif "report" in message:
            self.text = message["report"]
            self._report = from_json(self.text)
        else:
            made = _ERRORS.get(message["exit_code"], ExpectationError)
            self._fail(made(message["error"], message["hint"]))

    def _fail(self, error: RocelabError) -> None:
        self._error = {"error": error.message, "hint": error.hint}
        if not self.started.done():
            self.started.set_exception(error)

    def _publish(self, t_ns: int, outcome: str | None) -> None:
        job = self.plan.job
        self._feed.publish(JobEvent(t_ns, job.pattern.value, job.ranks, outcome))


def figures(report: JobReport) -> dict[str, object]:
    """What the page shows of a result: headlines as text, of the modelled network, and why it is
    invalid."""
    return {
        "headlines": [
            {
                "title": headline.title,
                **{
                    key: in_unit(getattr(headline.modelled, key), headline.unit)
                    for key in ("median", "minimum", "maximum")
                },
                "n": headline.modelled.n,
            }
            for headline in report.headlines
        ],
        "problems": report.problems,
        "errors": report.errors,
        "warnings": report.warnings,
    }
