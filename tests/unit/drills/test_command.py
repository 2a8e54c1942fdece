"""`rocelab drill` and `rocelab fault` without a lab: lists, pictures, and errors."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rocelab.base import quantities
from rocelab.base.errors import InputError
from rocelab.drills.listing import row_of
from rocelab.drills.plan import JobPhase, ProbePhase, ProgramPhase, planned_drill
from rocelab.drills.show import FaultRow, Span, fault_rows
from rocelab.drills.view import bar, picture, scale, view_document
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.faults.asked import asked_fault, ends_by_itself, kinds
from rocelab.faults.door import KINDS
from rocelab.faults.fault_spec import SINGLE_FAULT
from rocelab.faults.kinds.blackhole import BlackholeSpec
from rocelab.faults.kinds.carrier_down import CarrierDownSpec
from rocelab.faults.kinds.pause_storm import PauseStormSpec
from rocelab.labfile.catalog import DRILLS, find, shipped_names
from rocelab.labfile.model import LabSpec, differing_keys
from rocelab.planning import build as building
from rocelab.report.renderers.terminal import print_blocks, print_document
from rocelab.results.drill import DrillResult
from rocelab.results.environment import environment_with
from rocelab.results.kpi import Kpi, Quantity
from rocelab.results.kpis import KPIS
from rocelab.results.probes import ProbeRun
from tests.helpers import phases_sample, report_sample
from tests.unit.conftest import CommandLine

ROOT = Path(__file__).parents[3]
MS, SECOND = 10**6, 10**9
DRILL = """name: mine
title: Mine
lab: tiny
traffic: {flows: 4, duration: 10s, warmup: 500ms}
faults:
  - {kind: flapping, at: 1s, link: rtsw1:ctsw1, period: 1s, duty: 50%, count: 3}
  - {kind: session-reset, at: 5s, switch: rtsw1}
  - {kind: power-loss, at: 6s, switch: ctsw1}
compare_hashing: [per-node, shared]
expect: {full_convergence: "<= 1s"}
"""


def probes_result() -> DrillResult:
    return report_sample.result(report_sample.repeat(1, problems=("a sender lagged 40 ms",)))


def jobs_result() -> DrillResult:
    return phases_sample.result(phases_sample.repeat(problems=("a NIC stood idle",)))


Rocelab = Callable[..., tuple[int, str, str]]


@pytest.fixture
def rocelab(rocelab: CommandLine) -> Rocelab:
    """`rocelab("drill", "list")` gives exit code, output and errors."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        outcome = rocelab(*arguments)
        return outcome.code, outcome.out, outcome.err

    return call


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(DRILL)
    return path


def test_every_shipped_drill_is_listed_without_planning_a_lab(
    rocelab: Rocelab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(building, "build_fabric")
    code, out, _ = rocelab("drill", "list")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert set(shipped_names(DRILLS)) <= set(rows)
    assert rows["link-flap"].split()[1:3] == ["zone-small", "probes"]
    assert rows["allreduce"].split()[2] == "jobs"


def test_a_list_for_programs_says_how_long_the_traffic_lasts(rocelab: Rocelab) -> None:
    rows = {row["name"]: row for row in json.loads(rocelab("drill", "list", "--json")[1])}
    # Two seconds under two seed plans, one of warm-up, 7.5 counted.
    assert rows["link-flap"]["seconds"] == 10.5
    assert rows["allreduce"]["seconds"] is None


def test_every_shipped_drill_can_be_shown() -> None:
    for name in shipped_names(DRILLS):
        view = planned_drill(find(name, DRILLS))
        sends = {JobPhase: "jobs", ProbePhase: "probes", ProgramPhase: "programs"}
        kinds = dict.fromkeys(sends[type(phase)] for phase in view.phases)
        assert " and ".join(kinds) == row_of(view.spec).kind
        console = Console(file=io.StringIO(), width=120)
        print_document(view_document(view, console.width), console)
        page = console.file.getvalue()  # type: ignore[attr-defined]
        faults = [fault for phase in view.phases for fault in fault_rows(phase)]
        assert all(fault.kind in page for fault in faults)


def test_a_drill_is_shown_with_its_lab_its_timeline_and_its_expectations_in_words(
    rocelab: Rocelab, mine: Path
) -> None:
    code, out, _ = rocelab("drill", "show", mine)
    assert code == 0
    assert "mine: Mine" in out
    assert "lab       tiny: 6 switches, 12 links, 4 servers" in out
    (flaps,) = (line for line in out.splitlines() if "carrier-down" in line)
    bars = flaps.split()[2].replace("\N{MIDDLE DOT}", " ").split()
    assert [set(bar) for bar in bars] == [{"\N{FULL BLOCK}"}] * 3
    (boot,) = (line for line in out.splitlines() if "power-loss" in line)
    assert boot.rstrip().endswith("\N{FULL BLOCK}")
    assert "Full convergence" in out
    assert "RFC 6412 section 3.6.1" in out


def test_a_drill_shown_to_programs_has_every_time_that_a_fault_is_there(
    rocelab: Rocelab, mine: Path
) -> None:
    document = json.loads(rocelab("drill", "show", mine, "--json")[1])
    (phase,) = document["phases"]
    spans = {fault["kind"]: fault["spans"] for fault in phase["faults"]}
    assert spans["carrier-down"][2] == {"begins_s": 3.0, "ends_s": 3.5}
    assert spans["session-reset"] == [{"begins_s": 5.0, "ends_s": 5.0}]
    assert spans["power-loss"] == [{"begins_s": 6.0, "ends_s": None}]
    assert document["size"]["name"] == "tiny"
    assert document["drill"]["phases"][0]["faults"][0]["period"] == "1s"


def test_the_phases_of_a_drill_of_jobs_are_shown_with_what_is_unlike_the_lab(
    rocelab: Rocelab,
) -> None:
    out = rocelab("drill", "show", "finding-polarization")[1]
    assert "phase 1, default-seeds (hash seeds 0)" in out
    assert "alltoall, 8 ranks, 4MB" in out


def test_a_fault_that_does_not_fit_its_lab_is_refused_before_it_is_run(
    rocelab: Rocelab, mine: Path
) -> None:
    mine.write_text(DRILL.replace("rtsw1:ctsw1", "rtsw1:ctsw9"))
    code, _, errors = rocelab("drill", "show", mine)
    assert code == 2
    assert "rtsw1 has no interface ctsw9" in errors


@given(st.data())
def test_a_bar_fills_exactly_the_columns_in_which_the_fault_is_there(data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 80))
    span_ns = data.draw(st.integers(width, 100 * SECOND))
    begins = data.draw(st.integers(0, span_ns - 1))
    ends = data.draw(st.integers(begins + 1, span_ns))
    drawn = bar([Span(begins, ends)], span_ns, width, plain=True)
    assert len(drawn) == width
    for column, cell in enumerate(drawn):
        overlaps = begins * width < (column + 1) * span_ns and ends * width > column * span_ns
        assert (cell == "#") is overlaps


def test_an_instant_and_a_fault_without_an_end_are_seen() -> None:
    assert bar([Span(5, 5)], 10, 10, plain=True) == ".....#...."
    assert bar([Span(5, None)], 10, 10, plain=True) == ".....#####"
    assert bar([Span(0, 1), Span(9, 10)], 10, 10, plain=True) == "#........#"


@given(st.integers(MS, 600 * SECOND), st.integers(20, 64))
def test_the_scale_is_as_wide_as_the_bars_and_begins_at_0(span_ns: int, width: int) -> None:
    text = scale(span_ns, width)
    assert len(text) == width
    assert text.startswith("0 ")
    assert text.endswith(f" {quantities.duration(span_ns)}")


def test_where_the_terminal_has_no_blocks_the_picture_is_ascii() -> None:
    row = FaultRow("delay", "rtsw1:ctsw1", ("rtsw1",), (Span(0, 5),))
    console = Console(file=io.StringIO(), width=100)
    print_blocks([picture([row], 10, plain=True, width=20)], console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "##########.........." in text


def test_a_drill_that_does_not_exist_leaves_a_file_for_ci(rocelab: Rocelab, tmp_path: Path) -> None:
    path, page = tmp_path / "junit.xml", tmp_path / "ci" / "summary.md"
    files = ("--junit", path, "--markdown", page)
    code, _, errors = rocelab("drill", "run", "link-flop", *files)
    assert code == 2
    assert "did you mean link-flap?" in errors
    case = Xml.parse(path).getroot().find("testsuite[@name='link-flop']/testcase/error")
    assert case is not None
    assert case.get("type") == "InputError"
    assert page.read_text().startswith("### link-flop: the input is wrong\n")


def test_the_keys_in_which_two_labs_differ_are_named() -> None:
    mine = LabSpec(name="a", fabric=ClosSpec(racks=2, spines=2))
    other = mine.model_copy(update={"dilation": 7.0, "fabric": ClosSpec(racks=3, spines=2)})
    assert differing_keys(mine, mine) == ()
    assert differing_keys(mine, other) == ("dilation", "fabric.racks")


def test_a_fault_of_a_command_line_is_that_of_a_drill_file() -> None:
    asked = asked_fault("blackhole", ["link=rtsw1:ctsw2", "towards=rtsw1", "lasts=5s"])
    assert asked == SINGLE_FAULT.validate_python(
        {"kind": "blackhole", "link": "rtsw1:ctsw2", "towards": "rtsw1", "lasts": "5s"}
    )
    assert isinstance(asked, BlackholeSpec)


@pytest.mark.parametrize(
    "links", ["rtsw1:ctsw1,rtsw1:ctsw2", "[rtsw1:ctsw1, rtsw1:ctsw2]", "rtsw1:ctsw1, rtsw1:ctsw2"]
)
def test_lists_are_written_with_commas_or_as_in_a_file(links: str) -> None:
    asked = asked_fault("carrier-down", [f"links={links}"])
    assert isinstance(asked, CarrierDownSpec)
    assert [link.interface for link in asked.links] == ["ctsw1", "ctsw2"]


@pytest.mark.parametrize(("classes", "numbers"), [("2", (2,)), ("2,4", (2, 4)), ("[2, 4]", (2, 4))])
def test_numbers_in_a_list_are_numbers(classes: str, numbers: tuple[int, ...]) -> None:
    asked = asked_fault("pause-storm", ["server=srv1-1", f"classes={classes}"])
    assert isinstance(asked, PauseStormSpec)
    assert asked.classes == numbers


def test_a_link_may_be_named_by_its_place_as_in_a_file() -> None:
    asked = asked_fault("carrier-down", ["link={node: rtsw1, uplink: 2}"])
    assert isinstance(asked, CarrierDownSpec)
    assert asked.link is not None
    assert asked.link.uplink == 2


REFUSED = {
    "blackhole": """\
command line: expected one of link, links and between""",
    "blackhole link=rtsw1": """\
command line: link: expected NODE:INTERFACE such as rtsw1:ctsw2, got 'rtsw1'""",
    "blackhole link=rtsw1:ctsw1 at=1s": """\
command line: a fault on a running lab begins at once
  hint: remove at""",
    "blackhole rtsw1:ctsw1": """\
command line: expected KEY=VALUE, got 'rtsw1:ctsw1'
  hint: the keys allowed here: link, links, between, towards, lasts""",
    "blackhole link=rtsw1:ctsw1 toward=rtsw1 lasts=5s lasts=6s": """\
command line: unknown key 'toward'
  hint: did you mean towards?
command line: lasts is given twice
  hint: lists are written with commas: links=A,B""",
    "drain switch=ctsw1 link=rtsw1:ctsw1": """\
command line: unknown key 'link'
  hint: the keys allowed here: switch, lasts""",
    "drain switch=": """\
command line: switch: expected text of 1 to 64 characters, got nothing
  hint: give it a value, or remove the key""",
    "grey-loss link=rtsw1:ctsw1 loss=0.5": """\
command line: loss: expected a share such as 5% or 200ppm, got '0.5'
  hint: a share is a number and %, or ppm (parts per million)""",
    "mtu-mismatch link=rtsw1:ctsw1 mtu=01500": """\
command line: mtu: 01500 starts with a zero, which some YAML readers take for octal
  hint: write 1500, or quote it if it is text""",
    "carrier-down links=[rtsw1:ctsw1": """\
command line: links: not YAML: expected ',' or ']' while parsing a flow sequence
  hint: close the list or block that opens on line 1""",
    "flapping link=rtsw1:ctsw1 lasts=3s": """\
command line: flapping lasts count x period
  hint: remove lasts, or set count""",
    "daemon-crash switch=rtsw1 daemon=bgp": """\
command line: daemon: expected babeld, bfdd, bgpd, bird, eigrpd, fabricd, isisd, \
ldpd, mgmtd, ospf6d, ospfd, pathd, pbrd, pimd, ripd, ripngd, staticd, vrrpd or zebra, got 'bgp'
  hint: did you mean bgpd?""",
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_wrong_fault_gives_its_recorded_message(line: str) -> None:
    kind, *pairs = line.split()
    with pytest.raises(InputError) as caught:
        asked_fault(kind, pairs)
    assert str(caught.value) == REFUSED[line]


def test_an_unknown_kind_of_fault_is_answered_with_the_one_that_was_meant(rocelab: Rocelab) -> None:
    code, _, errors = rocelab("fault", "inject", "tiny", "black-hole", "link=rtsw1:ctsw1")
    assert code == 2
    assert errors.startswith(
        "rocelab fault inject: there is no kind of fault 'black-hole'\n  hint: did you mean "
    )
    assert "blackhole" in errors


@pytest.mark.parametrize(
    ("line", "itself"),
    [
        ("carrier-down link=rtsw1:ctsw1", False),
        ("carrier-down link=rtsw1:ctsw1 lasts=1s", True),
        ("flapping link=rtsw1:ctsw1", True),
        ("campaign", True),
        ("session-reset switch=rtsw1", True),
    ],
)
def test_which_faults_end_by_themselves(line: str, itself: bool) -> None:
    kind, *pairs = line.split()
    assert ends_by_itself(asked_fault(kind, pairs)) is itself


def test_every_kind_is_explained_with_its_keys_and_defaults(rocelab: Rocelab) -> None:
    words = set(KINDS.names)
    document = {row["name"]: row for row in json.loads(rocelab("fault", "kinds", "--json")[1])}
    assert set(document) == words
    assert all(kind["meaning"].endswith(".") for kind in document.values())
    assert {key["name"]: key["default"] for key in document["grey-loss"]["keys"]} == {
        "link": None,
        "links": None,
        "between": None,
        "towards": None,
        "loss": "1%",
        "lasts": None,
    }
    out = rocelab("fault", "kinds")[1]
    assert "grey-loss\n    Some packets vanish" in out
    assert "[loss=SHARE (1%)] [lasts=TIME]" in out


def test_the_documentation_has_a_row_for_every_kind() -> None:
    page = (ROOT / "docs" / "faults.md").read_text()
    assert [kind.name for kind in kinds() if f"| `{kind.name}` |" not in page] == []


@pytest.mark.usefixtures("rights_of_root")
@pytest.mark.parametrize(
    "arguments",
    [
        ("fault", "restore", "tiny"),
        ("fault", "restore", "tiny", "1", "--all"),
        ("fault", "list", "no-such-lab"),
        ("fault", "inject", "t-not-up", "drain", "switch=ctsw1"),
        ("drill", "show", "no-such-drill"),
        ("drill", "link-flap"),
    ],
)
def test_wrong_input_ends_with_2_and_no_traceback(
    rocelab: Rocelab, arguments: tuple[str, ...]
) -> None:
    code, _, errors = rocelab(*arguments)
    assert code == 2
    assert errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("measured", "advice"),
    [(probes_result, "lower traffic.flows or traffic.rate_pps"), (jobs_result, "raise --dilation")],
    ids=["probes", "jobs"],
)
def test_a_drill_without_a_valid_repeat_exits_with_3_and_says_what_to_lower(
    rocelab: Rocelab,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    measured: Callable[[], DrillResult],
    advice: str,
) -> None:
    monkeypatch.setattr("rocelab.drills.run.run_drill", lambda *_, **__: measured())
    junit = tmp_path / "junit.xml"

    code, out, errors = rocelab("drill", "run", "storm", "--out", tmp_path, "--junit", junit)

    assert code == 3
    assert out.rstrip().endswith(": not measured")
    assert f"  hint: {advice}" in errors
    assert "--retries" in errors
    assert Xml.parse(junit).find("testsuite/testcase/error") is not None


def test_the_hint_where_faults_are_listed_names_the_lab(rocelab: Rocelab) -> None:
    assert "`rocelab fault list tiny` has them" in rocelab("fault", "restore", "tiny")[2]


def test_without_root_a_drill_says_so_before_it_makes_a_folder(
    rocelab: Rocelab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    code, _, errors = rocelab("drill", "run", "link-flap", "--out", tmp_path / "results")

    assert code == 3
    assert "rocelab drill run: a lab needs root\n  hint: run it with sudo: " in errors
    assert list(tmp_path.iterdir()) == []


def test_a_result_has_the_command_line_as_it_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/bin/rocelab", "drill", "run", "my drill.yaml"])
    assert environment_with("8.4").command == "rocelab drill run 'my drill.yaml'"
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pytest", "tests"])
    assert environment_with("8.4").command is None


def test_where_a_kpi_raises_junit_and_markdown_have_the_error(
    rocelab: Rocelab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = report_sample.result()

    def raises(_: ProbeRun) -> float:
        return 1 / 0

    broken = Kpi("broken", Quantity.COUNT, "Broken", "what raises", of_probes=raises)
    monkeypatch.setitem(KPIS, "broken", broken)
    monkeypatch.setattr("rocelab.drills.run.run_drill", lambda *_, **__: result)
    xml, text = tmp_path / "junit.xml", tmp_path / "summary.md"
    options = ("--out", tmp_path / "out", "--junit", xml, "--markdown", text)
    code, _, errors = rocelab("drill", "run", "link-flap", *options)
    assert code not in (0, 1)
    assert "division by zero" in errors
    case = Xml.parse(xml).find("testsuite/testcase/error")
    assert case is not None
    assert "division by zero" in str(case.get("message"))
    assert "division by zero" in text.read_text()
