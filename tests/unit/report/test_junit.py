"""JUnit XML of drills: its structure, the place of failures, and its agreement with the exit
code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.errors import InputError, MachineError
from rocelab.base.outputs import output_file
from rocelab.report.junit import junit_file, junit_of, junit_of_error
from rocelab.results.drill import DrillResult, EndedEarly, summarise
from rocelab.results.expectations import parse_expectation
from tests.helpers import phases_sample, report_sample

ALLOWED = {
    "testsuites": ({"name", "tests", "failures", "errors", "time"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"},
        {"properties", "testcase"},
    ),
    "properties": (set(), {"property"}),
    "property": ({"name", "value"}, set()),
    "testcase": ({"classname", "name", "time"}, {"failure", "error", "skipped"}),
    "failure": ({"type", "message"}, set()),
    "error": ({"type", "message"}, set()),
    "skipped": ({"type", "message"}, set()),
}
"""Attributes and children of each element, as in the schema of Jenkins' xUnit plugin (junit-10.xsd)
and in pytest's output."""

REQUIRED = {
    "testsuite": {"name", "tests", "failures", "errors"},
    "testcase": {"classname", "name", "time"},
    "property": {"name", "value"},
}


_IDLE, _SHARED = phases_sample.repeat()
SLOW = (phases_sample.of_jobs("idle", phases_sample.idle(busbw=0.5)), _SHARED)
"""A repeat whose first phase has too little busbw."""


def written(document: Xml.Element, folder: Path) -> Xml.Element:
    """The document as a CI server reads it."""
    with output_file(folder / "junit.xml", overwrite=True) as file:
        file.write(junit_file(document))
    return Xml.parse(folder / "junit.xml").getroot()


def check(root: Xml.Element) -> None:
    """Raises AssertionError if the document does not fit the common schema."""
    assert root.tag == "testsuites"
    for element in root.iter():
        attributes, children = ALLOWED[element.tag]
        assert set(element.keys()) <= attributes
        assert set(element.keys()) >= REQUIRED.get(element.tag, set())
        assert {child.tag for child in element} <= children
    for suite in root:
        assert suite.get("tests") == str(len(suite.findall("testcase")))
        for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert suite.get(count) == str(len(suite.findall(f"testcase/{tag}")))
        names = [case.get("name") for case in suite.findall("testcase")]
        assert len(set(names)) == len(names)
        assert all(len(case) <= 1 for case in suite.findall("testcase"))
    for count in ("tests", "failures", "errors"):
        assert root.get(count) == str(sum(int(suite.get(count, "")) for suite in root))


def outcomes(suite: Xml.Element) -> dict[str, str]:
    """The outcome of each case, by name."""
    return {
        case.get("name", ""): case[0].tag if len(case) else "passed"
        for case in suite.findall("testcase")
    }


def is_red(root: Xml.Element) -> bool:
    return root.get("failures") != "0" or root.get("errors") != "0"


def properties(suite: Xml.Element) -> dict[str, str]:
    return {entry.get("name", ""): entry.get("value", "") for entry in suite.iter("property")}


def expecting(result: DrillResult, **observed: bool) -> DrillResult:
    """The result with verdicts of these KPIs passed or not, and the others left."""
    (phase,) = result.phases
    verdicts = [
        replace(verdict, passed=observed.get(verdict.kpi, verdict.passed))
        for verdict in phase.verdicts
    ]
    judged = replace(phase, verdicts=tuple(verdicts))
    return replace(result, phases=(judged,), passed=judged.passed)


def test_a_drill_is_a_suite_with_a_case_per_repeat_and_per_expectation(tmp_path: Path) -> None:
    root = written(junit_of(report_sample.result(), 12.3456), tmp_path)
    check(root)
    (suite,) = root
    assert (suite.get("name"), suite.get("time")) == ("link-flap", "12.346")
    assert suite.get("timestamp") == "2025-01-01T00:00:00"
    cases = outcomes(suite)
    assert list(cases)[:3] == [f"repeat {number} is a measurement" for number in (1, 2, 3)]
    assert cases["full_convergence <= 1s"] == "passed"
    assert len(cases) == 3 + 5


def test_a_failed_expectation_says_what_was_expected_and_observed(tmp_path: Path) -> None:
    root = written(junit_of(report_sample.result(), 1), tmp_path)
    failure = root.find(".//testcase[@name='lost_packets <= 50']/failure")
    assert failure is not None
    losses = [run.probes.overall.lost for (run,) in report_sample.result().repeats]
    assert [lost > 50 for lost in losses] == [True] * 3
    assert failure.get("message") == (
        f"Packets lost: expected <= 50, observed {max(losses)}; not met in repeats 1, 2 and 3 of 3"
    )
    assert is_red(root)


def test_a_failed_expectation_names_the_repeats_that_missed_it_and_what_each_saw(
    tmp_path: Path,
) -> None:
    repeats = [report_sample.repeat(seed) for seed in (1, 2)]
    fewest, most = (repeat.overall.lost for repeat in repeats)
    assert fewest < most
    spec = report_sample.expecting(report_sample.DRILL["expect"] | {"lost_packets": f"<= {fewest}"})
    invalid = report_sample.repeat(3, ("the clock jumped",))
    result = report_sample.result(repeats[0], invalid, repeats[1], spec=spec)
    root = written(junit_of(result, 1), tmp_path)
    failure = root.find(f".//testcase[@name='lost_packets <= {fewest}']/failure")
    assert failure is not None
    assert (failure.get("message") or "").endswith("; not met in repeat 3 of 3")
    assert (failure.text or "").splitlines()[1] == f"repeat 3: {most}"


def test_a_diagnosis_is_a_property_and_what_was_found_is_in_its_failure(tmp_path: Path) -> None:
    whole = phases_sample.result((phases_sample.diagnosed(_IDLE, "incast a towards b"), _SHARED))
    expected = [parse_expectation("diagnosis", "none")]
    phases = (summarise("idle", whole.repeats, expected), *whole.phases[1:])
    root = written(junit_of(replace(whole, phases=phases), 1), tmp_path)
    check(root)
    failure = root.find(".//testcase[@name='diagnosis none']/failure")
    assert failure is not None
    assert failure.get("message") == "Diagnosis: expected none, observed incast a towards b"
    assert properties(root[0])["repeat1.diagnosis"] == "incast a towards b"


def test_a_drill_that_ran_once_does_not_count_its_repeat(tmp_path: Path) -> None:
    root = written(junit_of(report_sample.result(report_sample.repeat(1)), 1), tmp_path)
    failure = root.find(".//failure")
    assert failure is not None
    assert "repeat" not in (failure.text or "")


def test_a_phase_names_the_repeats_that_missed_what_is_expected_of_it(tmp_path: Path) -> None:
    result = phases_sample.result(phases_sample.repeat(), SLOW)
    idle, _ = written(junit_of(result, 1), tmp_path)
    failure = idle.find(".//testcase[@name='busbw >= 10']/failure")
    assert failure is not None
    assert (failure.get("message") or "").endswith("; not met in repeat 2 of 2")


def test_the_spread_of_every_figure_and_what_each_repeat_measured_are_properties(
    tmp_path: Path,
) -> None:
    result = report_sample.result()
    (suite,) = written(junit_of(result, 1), tmp_path)
    values = properties(suite)
    spread = result.phases[0].figures[0].spread["full_convergence"]
    assert values["full_convergence.unit"] == "ns"
    assert float(values["full_convergence.median"]) == spread.median
    assert (values["full_convergence.n"], values["repeat2.restored"]) == ("3", "true")
    assert int(values["repeat1.lost_packets"]) == result.repeats[0][0].probes.overall.lost


@pytest.mark.parametrize("result", [report_sample.result(), phases_sample.result()])
def test_every_suite_names_the_software_that_ran(result: DrillResult, tmp_path: Path) -> None:
    environment = replace(result.environment, frr_version="10.3")
    root = written(junit_of(replace(result, environment=environment), 1), tmp_path)
    for suite in root:
        values = properties(suite)
        assert values["frr_version"] == "10.3"
        assert values["kernel"] == environment.kernel
        assert values["tool_version"] == environment.tool_version


def test_a_repeat_that_was_no_measurement_beside_others_is_skipped(tmp_path: Path) -> None:
    repeats = report_sample.repeat(1), report_sample.repeat(2, ("the clock jumped",))
    root = written(junit_of(report_sample.result(*repeats), 1), tmp_path)
    check(root)
    assert outcomes(root[0])["repeat 2 is a measurement"] == "skipped"
    skipped = root.find(".//skipped")
    assert skipped is not None
    assert skipped.get("message") == "the clock jumped"


def test_without_any_measurement_every_case_is_an_error(tmp_path: Path) -> None:
    result = report_sample.result(report_sample.repeat(1, ("the clock jumped",)))
    root = written(junit_of(result, 1), tmp_path)
    check(root)
    assert set(outcomes(root[0]).values()) == {"error"}
    assert "repeat1.lost_packets" in properties(root[0])


def test_a_drill_of_jobs_is_a_suite_per_phase(tmp_path: Path) -> None:
    root = written(junit_of(phases_sample.result(), 20), tmp_path)
    check(root)
    assert [suite.get("name") for suite in root] == ["two-to-one.idle", "two-to-one.shared"]
    assert root.get("time") == "20.000"
    assert properties(root[0])["busbw.unit"] == "GB/s"
    assert outcomes(root[0])["busbw >= 10"] == "passed"


def test_a_phase_that_was_no_measurement_fails_alone(tmp_path: Path) -> None:
    result = phases_sample.result(phases_sample.repeat(problems=("the clock jumped",)))
    idle, shared = written(junit_of(result, 1), tmp_path)
    assert set(outcomes(idle).values()) == {"error"}
    assert outcomes(shared)["repeat 1 is a measurement"] == "passed"


@given(
    st.lists(st.sampled_from([(), ("the clock jumped",)]), min_size=1, max_size=4),
    st.booleans(),
)
def test_the_file_is_red_exactly_where_the_drill_failed(
    problems: Sequence[tuple[str, ...]], met: bool
) -> None:
    made = report_sample.result(*(report_sample.repeat(1, problem) for problem in problems))
    result = expecting(made, lost_packets=met) if () in problems else made
    root = junit_of(result, 1)
    check(root)
    assert is_red(root) is not result.passed


def test_a_drill_that_could_not_run_is_an_error_with_its_hint(tmp_path: Path) -> None:
    error = MachineError("no \x1b[31mFRR\0 here", hint="run setup")
    root = written(junit_of_error("link-flap", error, 0.5), tmp_path)
    check(root)
    element = root.find("testsuite/testcase/error")
    assert element is not None
    assert element.get("type") == "MachineError"
    assert (
        element.get("message")
        == "no \N{REPLACEMENT CHARACTER}[31mFRR\N{REPLACEMENT CHARACTER} here"
    )
    assert (element.text or "").endswith("run setup")


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "junit.xml"
    file = output_file(path, overwrite=True, make=True)
    path.write_text("old")
    file.write(junit_file(junit_of_error("a", KeyboardInterrupt(), 0)))
    check(Xml.parse(path).getroot())
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_can_not_be_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        output_file(tmp_path, overwrite=True, make=True)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        output_file(tmp_path / "file" / "junit.xml", overwrite=True, make=True)


def test_an_expectation_fails_where_one_repeat_missed_it_and_another_did_not_measure_it(
    tmp_path: Path,
) -> None:
    measured, unmeasured = report_sample.repeat(1), report_sample.repeat(2)
    unmeasured = replace(unmeasured, overall=replace(unmeasured.overall, full_convergence_ns=None))
    spec = report_sample.expecting({"full_convergence": "<= 1us"})
    root = written(junit_of(report_sample.result(measured, unmeasured, spec=spec), 1), tmp_path)
    check(root)
    failure = root.find(".//testcase[@name='full_convergence <= 1us']/failure")
    assert failure is not None
    assert failure.get("message", "").startswith("Full convergence: expected <= 1us, observed ")
    assert "not met in repeats 1 and 2 of 2" in failure.get("message", "")


def test_a_repeat_has_the_time_that_it_took(tmp_path: Path) -> None:
    result = report_sample.result(report_sample.repeat(1))
    ((run,),) = result.repeats
    root = written(junit_of(replace(result, repeats=((replace(run, seconds=2.5),),)), 9), tmp_path)
    check(root)
    cases = {case.get("name"): case.get("time") for case in root.iter("testcase")}
    assert cases["repeat 1 is a measurement"] == "2.500"
    assert root.get("time") == "9.000"


@pytest.mark.parametrize(("failed", "tag"), [(True, "failure"), (False, "error")])
def test_a_drill_that_ended_early_has_its_repeats_and_a_case_that_says_why(
    failed: bool, tag: str, tmp_path: Path
) -> None:
    result = replace(
        report_sample.result(report_sample.repeat(1)),
        passed=False,
        wanted_repeats=5,
        ended_early=EndedEarly("a switch has no routes", failed),
    )
    root = written(junit_of(result, 9), tmp_path)
    check(root)
    repeats, end = root
    assert outcomes(repeats)["repeat 1 is a measurement"] == "passed"
    assert outcomes(end) == {"all repeats ran": tag}
    element = end.find(f"testcase/{tag}")
    assert element is not None
    assert element.text == "ended early, with 1 of 5 valid repeats: a switch has no routes"
