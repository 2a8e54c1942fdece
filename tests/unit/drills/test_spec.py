"""Drill files: the shipped one, errors and their places, and the judgement of expectations."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.data import shipped
from rocelab.base.errors import InputError, SpecError
from rocelab.drills.drill_spec import DrillSpec, load_drill
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.faults.selectors import LinkSelector
from rocelab.labfile.model import LabSpec, SeedPlan
from rocelab.planning.build import build_fabric
from rocelab.results.expectation_spec import ExpectSpec
from rocelab.results.expectations import judge, parse_expectation
from rocelab.results.kpi import KpiValue, Quantity
from rocelab.results.kpis import KPIS, format_kpi

CATALOG = shipped("scripts")
MS = 10**6
BASE = """name: flap
lab: zone-small
faults:
  - {kind: carrier-down, at: 2s, link: "rtsw1:ctsw2", lasts: 1s}
"""


def refused(tmp_path: Path, text: str) -> list[str]:
    """The problems of a drill file, without the file's name."""
    path = tmp_path / "drill.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        load_drill(path)
    return [str(problem).partition("drill.yaml:")[2] for problem in caught.value.problems]


def test_the_link_flap_that_ships_loads_and_expects_what_a_carrier_flap_should_meet() -> None:
    drill = load_drill(CATALOG / "link-flap.yaml")
    assert drill.name == "link-flap"
    (phase,) = drill.phases
    assert phase.name == "link-flap"
    assert phase.probes is not None
    assert phase.probes.flows // 2 == phase.crossing
    assert phase.probes.rate_pps == 1000
    assert phase.compare_hashing == (SeedPlan.PER_NODE, SeedPlan.SHARED)
    assert [(fault.at, fault.lasts) for fault in phase.faults] == [
        (1_000 * MS, 1_000 * MS),
        (3_500 * MS, 2_000 * MS),
    ]
    stated = {expectation.kpi: expectation for expectation in phase.expect.expectations()}
    assert stated["full_convergence"].limit == 1_000 * MS
    assert stated["restored"].met_by(True)
    assert "reordered_packets" not in stated


def test_three_keys_are_a_whole_drill(tmp_path: Path) -> None:
    path = tmp_path / "drill.yaml"
    path.write_text(BASE)
    (phase,) = load_drill(path).phases
    assert phase.probes is not None
    assert phase.probes.flows == 20
    assert phase.measure.method.sampling_interval_ns == 10 * MS
    assert phase.expect.expectations() == ()


def test_a_dumped_drill_reads_back_its_expectations() -> None:
    (phase,) = load_drill(CATALOG / "link-flap.yaml").phases
    again = ExpectSpec.model_validate(phase.model_dump(mode="json", exclude_none=True)["expect"])
    assert again == phase.expect


def test_every_kpi_can_be_expected_and_nothing_else() -> None:
    assert list(ExpectSpec.model_fields) == list(KPIS)


def test_an_unknown_kpi_is_an_error_at_its_line_that_names_the_known_ones(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path, BASE + "expect:\n  convergance: '<= 1s'\n")
    assert problem.startswith("6: expect.convergance: unknown key")
    assert "full_convergence" in problem


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("full_convergence: '<= 1'", 'expected "<= 1s" or "< 300ms"'),
        ("full_convergence: 5", 'expected "<= 1s" or "< 300ms"'),
        ("lost_packets: '<= 1ms'", 'expected 0 or "<= 500"'),
        ("lost_packets: 1.5", 'expected 0 or "<= 500"'),
        ("lost_packets: -1", 'expected 0 or "<= 500"'),
        ("lost_packets: true", 'expected 0 or "<= 500"'),
        ("restored: 1", "expected true or false"),
        ("uplink_jfi: '~ 0.9'", 'expected ">= 0.9"'),
    ],
)
def test_an_expectation_of_the_wrong_unit_is_an_error_at_its_line(
    tmp_path: Path, line: str, expected: str
) -> None:
    (problem,) = refused(tmp_path, BASE + f"expect:\n  {line}\n")
    assert problem.startswith(f"6: expect.{line.partition(':')[0]}: ")
    assert expected in problem


@pytest.mark.parametrize(
    ("change", "place", "expected"),
    [
        (("carrier-down", "meteor"), "4: faults[0].kind", "carrier-down"),
        (('"rtsw1:ctsw2"', "rtsw1"), "4: faults[0].link", "NODE:INTERFACE"),
        (('"rtsw1:ctsw2"', "{node: rtsw1}"), "4: faults[0].link", "interface or uplink"),
        (("at: 2s", "at: 2"), "4: faults[0].at", "a duration"),
        (("lasts: 1s", "lasts: 4s"), "3: faults", "measure.sustained"),
        (("at: 2s, ", ""), "3: faults", "a fault of a drill needs a time"),
        (("at: 2s", "at: 5s"), "3: faults", "end of the traffic"),
        (("name: flap", "name: a/b"), "1: name", "lower-case"),
    ],
)
def test_a_wrong_fault_is_an_error_with_its_place(
    tmp_path: Path, change: tuple[str, str], place: str, expected: str
) -> None:
    problems = refused(tmp_path, BASE.replace(*change))
    assert problems[0].startswith(place)
    assert expected in problems[0]


def test_a_drill_without_a_fault_or_with_a_seed_plan_twice_is_refused(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path, "name: flap\nlab: l\nfaults: []\n")
    assert problem.startswith("3: faults: a phase of probes needs a fault")
    (problem,) = refused(tmp_path, BASE + "compare_hashing: [shared, shared]\n")
    assert problem.startswith("5: compare_hashing: a seed plan is listed twice")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("expect: {busbw: '>= 1'}", "5: expect: busbw is a figure of jobs, and the phase sends"),
        ("links_down: [a]", "5: links_down: links_down is of jobs, and the phase lists none"),
    ],
)
def test_what_is_of_jobs_does_not_go_with_probes(tmp_path: Path, line: str, problem: str) -> None:
    (message,) = refused(tmp_path, f"{BASE}{line}\n")
    assert message.startswith(problem)


def test_a_phase_sends_probes_or_runs_jobs(tmp_path: Path) -> None:
    job = "jobs: [{pattern: incast, ranks: 4, size: 1MB}]\n"
    (message,) = refused(tmp_path, BASE + job + "traffic: {flows: 4}\n")
    assert message.startswith("6: traffic: traffic is of probes, and the phase runs jobs")
    (message,) = refused(tmp_path, BASE + job + "expect: {lost_packets: 0}\n")
    assert message.startswith("6: expect: lost_packets is a figure of probes")
    path = tmp_path / "drill.yaml"
    path.write_text(BASE + job + "measure: {stages: true}\nhealth: {}\nscheme: {kind: e-ecmp}\n")
    (phase,) = load_drill(path).phases
    assert phase.probes is None
    assert phase.measure.stages
    assert phase.health is not None
    assert phase.faults


def test_a_drill_is_phases_of_either_kind(tmp_path: Path) -> None:
    """A phase by itself, or listed with others: the same phase."""
    path = tmp_path / "drill.yaml"
    path.write_text(BASE + "scheme: {kind: e-ecmp}\nseed: shared\n")
    (alone,) = load_drill(path).phases
    keys = BASE.partition("lab: zone-small\n")[2].replace("\n", "\n    ")
    path.write_text(
        "name: flap\nlab: zone-small\nphases:\n  - name: flap\n    scheme: {kind: e-ecmp}\n"
        f"    seed: shared\n    {keys.rstrip()}\n"
        "  - name: jobs\n    jobs: [{pattern: incast, ranks: 4, size: 1MB}]\n"
    )
    listed, jobs = load_drill(path).phases
    assert listed.model_copy(update={"traffic": listed.probes}) == alone
    assert jobs.probes is None


def test_a_sampling_interval_that_holds_too_few_packets_is_refused(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path, BASE + "traffic: {rate_pps: 100}\n")
    assert problem.startswith("5: traffic: a sampling interval of 10 ms holds fewer than 5 packets")
    assert "50 ms" in problem


def test_a_link_is_found_by_either_end_or_by_the_number_of_an_uplink() -> None:
    fabric = build_fabric(LabSpec(name="zone", fabric=ClosSpec(racks=2, spines=3)))
    for text in ("rtsw1:ctsw2", "ctsw2:rtsw1"):
        assert LinkSelector.model_validate(text).find(fabric).name == "rtsw1:ctsw2"
    by_number = LinkSelector.model_validate({"node": "rtsw1", "uplink": 2})
    assert by_number.find(fabric).name == "rtsw1:ctsw2"


@pytest.mark.parametrize(
    ("selector", "message", "hint"),
    [
        ("rtsw9:ctsw2", "no node rtsw9", "ctsw1, ctsw2, ctsw3, rtsw1"),
        ("rtsw1:ctsw9", "no interface ctsw9", "ctsw1, ctsw2, ctsw3"),
        ({"node": "rtsw1", "uplink": 4}, "no uplink 4", "it has 3"),
    ],
)
def test_a_link_that_is_not_there_is_an_input_error_that_says_what_is(
    selector: object, message: str, hint: str
) -> None:
    fabric = build_fabric(LabSpec(name="zone", fabric=ClosSpec(racks=2, spines=3)))
    with pytest.raises(InputError, match=message) as caught:
        LinkSelector.model_validate(selector).find(fabric)
    assert hint in (caught.value.hint or "")


def test_the_json_schema_names_every_kpi_for_editors() -> None:
    properties = DrillSpec.model_json_schema()["$defs"]["ExpectSpec"]["properties"]
    assert set(properties) == set(KPIS)
    assert properties["full_convergence"]["type"] == "string"
    assert "RFC 6412" in properties["full_convergence"]["description"]


def test_comparisons_mean_what_they_say() -> None:
    at_most = parse_expectation("full_convergence", "<= 1s")
    assert at_most.met_by(1_000 * MS)
    assert not at_most.met_by(1_000 * MS + 1)
    assert not parse_expectation("lost_packets", "< 5").met_by(5)
    assert parse_expectation("lost_packets", "== 5").met_by(5)
    assert parse_expectation("uplink_jfi", "> 0.9").met_by(0.91)
    assert not parse_expectation("restored", True).met_by(False)


@pytest.mark.parametrize("kpi", KPIS)
def test_a_figure_that_was_not_measured_meets_nothing(kpi: str) -> None:
    written = {
        Quantity.TRUTH: False,
        Quantity.DURATION: ">= 0s",
        Quantity.COUNT: ">= 0",
        Quantity.RATIO: ">= 0",
        Quantity.SIZE: ">= 0B",
        Quantity.BANDWIDTH: ">= 0",
        Quantity.FINDING: "none",
    }
    expectation = parse_expectation(kpi, written[KPIS[kpi].quantity])
    missing: list[list[dict[str, KpiValue]]] = [[{kpi: None}], [{}], [], [{kpi: 0}, {kpi: None}]]
    for repeats in missing:
        (verdict,) = judge([expectation], repeats)
        assert not verdict.passed
        assert verdict.observed is None
        assert format_kpi(kpi, verdict.observed) == "not measured"


def test_the_verdict_is_that_of_the_repeat_that_did_worst() -> None:
    at_most, at_least, exactly = (
        parse_expectation("lost_packets", text) for text in ("<= 10", ">= 3", "== 5")
    )
    repeats = [{"lost_packets": 5}, {"lost_packets": 11}, {"lost_packets": 4}]
    verdicts = judge([at_most, at_least, exactly], repeats)
    assert [verdict.observed for verdict in verdicts] == [11, 4, 11]
    assert [verdict.passed for verdict in verdicts] == [False, True, False]


@given(
    st.sampled_from(["<=", "<", ">=", ">", "=="]),
    st.integers(0, 100),
    st.lists(st.integers(0, 100), min_size=1),
)
def test_a_verdict_passes_exactly_when_every_repeat_meets_the_expectation(
    comparison: str, limit: int, values: list[int]
) -> None:
    expectation = parse_expectation("lost_packets", f"{comparison} {limit}")
    (verdict,) = judge([expectation], [{"lost_packets": value} for value in values])
    assert verdict.passed == all(expectation.met_by(value) for value in values)


def test_the_shipped_file_explains_every_key_it_sets() -> None:
    text = (CATALOG / "link-flap.yaml").read_text()
    measure = yaml.safe_load(text)["measure"]
    for key in measure:
        (line,) = [line for line in text.splitlines() if line.strip().startswith(f"{key}:")]
        assert "#" in line


def test_a_time_that_is_not_above_its_resolution_is_said_to_be_below_it() -> None:
    assert format_kpi("full_convergence", 900_000, 1_200_000) == "< 1.2 ms"
    assert format_kpi("full_convergence", 0, 1_200_000) == "< 1.2 ms"
    assert format_kpi("full_convergence", 1_300_000, 1_200_000) == "1.3 ms"
    assert format_kpi("lost_packets", 0, 1_200_000) == "0"
