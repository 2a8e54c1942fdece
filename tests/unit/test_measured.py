"""The outcome `not measured`, in suites that run in a pytest of their own."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import pytest

from tests.helpers import phases_sample, report_sample
from tests.helpers.measured import (
    ATTEMPTS,
    MOST_NOT_MEASURED,
    NotMeasuredError,
    measured,
    problems_of_command,
    problems_of_drill,
)

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
LATE = "not valid because packets of flow 1 left srv1-1 80.0 ms late"
DIFFER = "not valid because counters disagree on payload: posted 3, taken 2"
SUITE = f"""
import pytest
from tests.helpers.measured import measured

def run(problems=({LATE!r},)):
    return measured(lambda: problems, tuple)

@pytest.fixture(scope="module")
def shared():
    return run()
"""
TEST = """
def test_{name}({fixture}):
    {body}
"""
ALONE = "run()\n    raise AssertionError('a run that is not valid was compared')"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def suite(
    pytester: pytest.Pytester, *tests: tuple[str, str, str], how: tuple[str, ...] = ()
) -> pytest.RunResult:
    """The result of a suite of tests (name, fixture, body)."""
    pytester.makepyfile(SUITE + "".join(map(_test, tests)))
    plugins = ("-p", "tests.helpers.measured", "-p", "no:hypothesispytest")
    return pytester.runpytest_inprocess(*plugins, "-ra", *how)


def outcomes(run: pytest.RunResult) -> dict[str, int]:
    """The counts of the last line: pytester's own reader takes no name of two words."""
    counted = re.findall(r"(\d+) ([a-z ]+?)(?:,| in )", run.outlines[-1])
    return {name: int(count) for count, name in counted}


def _test(parts: tuple[str, str, str]) -> str:
    name, fixture, body = parts
    return TEST.format(name=name, fixture=fixture, body=body)


def alone(count: int) -> list[tuple[str, str, str]]:
    return [(f"alone_{number}", "", ALONE) for number in range(count)]


def on_workers(count: int) -> pytest.MarkDecorator:
    """Within one process, and on as many workers as the test needs: each starts an interpreter."""
    how = [(), ("-n", str(count))]
    return pytest.mark.parametrize("how", how, ids=["one-process", "xdist"])


@on_workers(1)
def test_a_test_without_a_valid_run_is_counted_apart_and_junit_has_the_products_reason(
    pytester: pytest.Pytester, how: tuple[str, ...]
) -> None:
    outcome = suite(
        pytester,
        ("valid", "", "assert run(()) == ()"),
        ("skips", "", "pytest.skip('not here')"),
        *alone(1),
        how=(*how, "--junitxml=out.xml"),
    )
    assert outcome.ret == pytest.ExitCode.OK
    assert outcomes(outcome) == {"passed": 1, "skipped": 1, "not measured": 1}
    outcome.stdout.fnmatch_lines(["*= not measured =*", f"*::test_alone_0: {LATE}"])
    assert "this run fails" not in outcome.stdout.str()
    cases = ElementTree.parse(pytester.path / "out.xml").iter("testcase")
    said = {case.get("name"): case for case in cases}
    mark = said["test_alone_0"].find("skipped")
    assert mark is not None
    assert mark.get("message") == f"not measured: {LATE}"
    (prop,) = said["test_alone_0"].iter("property")
    assert (prop.get("name"), prop.get("value")) == ("not_measured", LATE)
    assert list(said["test_skips"].iter("property")) == []


@on_workers(2)
def test_more_than_a_few_fail_the_run(pytester: pytest.Pytester, how: tuple[str, ...]) -> None:
    outcome = suite(pytester, *alone(MOST_NOT_MEASURED + 1), how=how)
    assert outcome.ret == pytest.ExitCode.TESTS_FAILED
    assert outcomes(outcome) == {"not measured": MOST_NOT_MEASURED + 1}
    outcome.stdout.fnmatch_lines([f"more than {MOST_NOT_MEASURED} measurements*this run fails*"])


@on_workers(1)
def test_a_few_do_not_and_tests_of_one_fixture_are_one(
    pytester: pytest.Pytester, how: tuple[str, ...]
) -> None:
    tests = [(f"shared_{number}", "shared", "pass") for number in range(MOST_NOT_MEASURED + 1)]
    tests += alone(MOST_NOT_MEASURED - 1)
    outcome = suite(pytester, *tests, how=how)
    assert outcome.ret == pytest.ExitCode.OK
    assert outcomes(outcome) == {"not measured": 2 * MOST_NOT_MEASURED}


def test_those_of_earlier_runs_count(pytester: pytest.Pytester) -> None:
    how = ("--not-measured", "file")
    assert suite(pytester, *alone(MOST_NOT_MEASURED), how=how).ret == pytest.ExitCode.OK
    outcome = suite(pytester, *alone(1), how=how)
    assert outcome.ret == pytest.ExitCode.TESTS_FAILED
    outcome.stdout.fnmatch_lines([f"more than {MOST_NOT_MEASURED} measurements*this run fails*"])
    assert suite(pytester, *alone(1)).ret == pytest.ExitCode.OK


def test_a_failure_beside_it_fails_as_ever(pytester: pytest.Pytester) -> None:
    outcome = suite(pytester, *alone(1), ("fails", "", "assert run(()) == 1"))
    assert outcome.ret == pytest.ExitCode.TESTS_FAILED
    assert outcomes(outcome) == {"failed": 1, "not measured": 1}


def test_the_first_valid_run_is_the_one_compared() -> None:
    runs = iter([(LATE,), (), (LATE,)])
    assert measured(lambda: next(runs), tuple) == ()
    assert next(runs) == (LATE,)


def test_runs_are_bounded_and_the_last_one_says_why() -> None:
    runs: list[tuple[str, ...]] = []

    def run() -> tuple[str, ...]:
        runs.append((f"{LATE} {len(runs)}",))
        return runs[-1]

    with pytest.raises(NotMeasuredError, match=f"{LATE} {ATTEMPTS - 1}$"):
        measured(run, tuple)
    assert len(runs) == ATTEMPTS


def test_what_load_does_not_explain_fails_at_once() -> None:
    runs = iter([(DIFFER,), ()])
    with pytest.raises(AssertionError, match="counters disagree"):
        measured(lambda: next(runs), tuple)
    runs = iter([(LATE, DIFFER), ()])
    assert measured(lambda: next(runs), tuple) == ()


@pytest.mark.parametrize(
    ("code", "problems"), [(3, (LATE,)), (0, ()), (1, ())], ids=["invalid", "passed", "failed"]
)
def test_of_a_command_only_the_exit_code_for_an_invalid_run_counts(
    code: int, problems: tuple[str, ...]
) -> None:
    outcome = CompletedProcess([], code, f"done\n  {LATE}\n", "")
    assert problems_of_command(outcome) == problems
    assert problems_of_command(CompletedProcess([], 3, "", "error: no FRR here\n")) == ()


def test_a_drill_says_why_it_has_no_valid_repeat() -> None:
    """Drills of each kind: with faults, and with jobs, for which one phase without a valid run is
    enough."""
    whole = phases_sample.result()
    assert problems_of_drill(whole) == ()
    invalid = [
        phases_sample.of_jobs(run.phase, phases_sample.idle(problems=(LATE,)))
        for run in whole.repeats[0]
    ]
    assert problems_of_drill(phases_sample.result(tuple(invalid))) == (LATE,)
    faults = report_sample.result()
    assert problems_of_drill(faults) == ()
    late = [
        replace(run.probes, problems=(LATE,)) for (run,) in faults.repeats if run.probes is not None
    ]
    assert problems_of_drill(report_sample.result(*late)) == (LATE,)
