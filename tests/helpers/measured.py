"""Tests that measure times, on a machine that may be too busy.

    report = measured(lambda: run_job(lab, job(pattern="allreduce", size="4MB")))
    assert own_jct_ratio(report) < 1.06

The product judges each run: a run with `problems` is invalid. `measured` repeats such a run, up to
`ATTEMPTS` runs in all, and returns the first valid one. If none is valid the test ends as `not
measured`, with the product's reasons, separate from passed, failed and skipped: in the summary, in
the counts, and in the JUnit file (a skipped case whose message begins with "not measured" and which
has the property `not_measured`), with and without xdist. It works in fixtures too: each test that
needs the fixture is then not measured. More than `MOST_NOT_MEASURED` such tests fail a run of
pytest, or one of several with the same file `--not-measured`, as `make test` is; tests of one
fixture count once.

Problems that load does not explain (`DEFECTS`) fail the test at the first run with no other
problems.

Assertions are never weakened: no `passed or not valid`. For runs without an attribute `problems`,
pass a function that reads them:

    drill = measured(lambda: run_drill(file, retries=0), problems_of_drill)
    outcome = measured(lambda: rocelab("traffic", NAME, *JOB), problems_of_command)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from operator import attrgetter
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from rocelab.base.errors import MachineError
from rocelab.runs.attempts import RETRIES, measure_valid

if TYPE_CHECKING:  # every process that collects tests imports this module
    from rocelab.results.drill import DrillResult
    from rocelab.results.job import JobReport
    from rocelab.results.probes import ProbeRun

ATTEMPTS = 1 + RETRIES
MOST_NOT_MEASURED = 5
"""The most tests that a passing run may have not measured."""

DEFECTS = (
    "counters disagree on",
    "bytes posted",
    "bytes were posted",
    "took other links than predicted",
    "there was nothing that",
    "so it did not trace",
    "was not acknowledged after",
    "because the accounting of",
    "not accounted for",
    "the PFC process",
)
"""Words of problems that a busy machine does not cause by itself."""

CATEGORY = "not measured"
PROPERTY = "not_measured"
INVALID = "not valid because "

_Run = TypeVar("_Run")


class NotMeasuredError(Exception):
    """No run was valid. `origin` is the first test that tried it: tests of a fixture share it."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        # pytest sets it to "file::test (phase)".
        self.origin = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


def measured(
    run: Callable[[], _Run],
    problems_of: Callable[[_Run], Sequence[str]] = attrgetter("problems"),
    attempts: int = ATTEMPTS,
) -> _Run:
    """The first valid of up to `attempts` runs. `problems_of` returns the reasons why a run is not
    valid.

    Raises NotMeasuredError with the last run's problems if none is valid, and AssertionError if all
    problems of a run are defects.
    """
    # A tuple each, since a run that raises is not judged but passed on.
    runs = measure_valid(
        1, attempts - 1, lambda _: _judged(run(), problems_of), lambda judged: not judged[1]
    )
    last, problems = runs[-1]
    if problems:
        raise NotMeasuredError(problems)
    return last


def _judged(
    run: _Run, problems_of: Callable[[_Run], Sequence[str]]
) -> tuple[_Run, tuple[str, ...]]:
    problems = tuple(problems_of(run))
    defects = [problem for problem in problems if any(words in problem for words in DEFECTS)]
    assert not problems or len(defects) < len(problems), f"not the machine's fault: {defects}"
    return run, problems


def own_jct_ratio(report: JobReport) -> float:
    """The least that the time of an iteration over its bound can be of the network alone: while
    packets waited for a server it was perhaps the machine's."""
    assert report.fidelity.backlog_share is not None
    machines_share = report.fidelity.backlog_share + report.fidelity.lost_share
    return report.headline("jct_ratio").modelled.median * (1 - machines_share)


def probe_runs(result: DrillResult) -> list[ProbeRun]:
    """The run of each repeat of a drill with one phase of probes."""
    runs = [run.probes for (run,) in result.repeats]
    return [run for run in runs if run is not None]


def problems_of_drill(result: DrillResult) -> tuple[str, ...]:
    """Why a drill has no valid repeat; empty if it has one."""
    if all(phase.valid_runs for phase in result.phases):
        return ()
    runs = (run for phase in result.phases for run in result.runs_of(phase.name))
    return tuple(dict.fromkeys(problem for run in runs for problem in run.problems))


def problems_of_command(outcome: CompletedProcess[str]) -> tuple[str, ...]:
    """Why a command's run is not valid, from its output; empty if it ended for another reason."""
    if outcome.returncode != MachineError.exit_code:
        return ()
    lines = (outcome.stdout + outcome.stderr).splitlines()
    return tuple(line.strip() for line in lines if INVALID in line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a test or fixture without a valid run: for pytest a kind of skipped."""
    report = yield
    if call.excinfo is not None and isinstance(error := call.excinfo.value, NotMeasuredError):
        path, line, _ = item.location
        report.outcome = "skipped"
        report.longrepr = (path, (line or 0) + 1, f"{CATEGORY}: {error}")
        # JUnit reads the properties when the test is torn down; xdist passes attributes on.
        item.user_properties.append((PROPERTY, str(error)))
        vars(report)["not_measured"] = error.origin
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> Any:
    """Count and show it on the terminal as neither passed nor skipped."""
    if _origin(report) is None:
        return None
    return CATEGORY, "N", (CATEGORY.upper(), {"yellow": True})


def pytest_addoption(parser: pytest.Parser) -> None:
    meaning = "tests not measured, a line each: those of earlier runs count, this run's are added"
    parser.addoption("--not-measured", metavar="FILE", type=Path, help=meaning)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Count(config.getoption("--not-measured")), "not-measured")


class _Count:
    """Counts tests not measured in the process that reports outcomes: not in xdist's workers."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._earlier = file.read_text().splitlines() if file and file.exists() else []
        self._origins: set[str] = set()

    @property
    def _too_many(self) -> bool:
        return len(self._earlier) + len(self._origins) > MOST_NOT_MEASURED

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if (origin := _origin(report)) is not None:
            self._origins.add(origin)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._too_many and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self._file is not None:
            whole = [*self._earlier, *sorted(self._origins)]
            self._file.write_text("".join(f"{origin}\n" for origin in whole))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        reports = terminalreporter.stats.get(CATEGORY, [])
        if not reports:
            return
        terminalreporter.section(CATEGORY)
        for report in reports:
            _, _, reason = report.longrepr
            terminalreporter.line(f"{report.nodeid}: {reason.removeprefix(f'{CATEGORY}: ')}")
        if self._too_many:
            terminalreporter.line(
                f"more than {MOST_NOT_MEASURED} measurements were not valid: this run fails; "
                "run it on a machine with less to do",
                red=True,
            )


def _origin(report: pytest.TestReport) -> str | None:
    return getattr(report, "not_measured", None)
