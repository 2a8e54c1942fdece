"""A kind of fault and a KPI of another package: wherever ours are known, these are."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.helpers.plugin import FAULTS, PluginEnvironment

DRILL = """\
name: digging
lab: tiny
faults: [{kind: duct-cut, link: "rtsw1:ctsw1", at: 1s, lasts: 1s}]
expect: {flows_sent: "> 0"}
"""
PROGRAM = """
import json
import sys
from pathlib import Path
from rocelab.base.errors import InputError
from rocelab.cli.fault import _complete_kind
from rocelab.drills.drill_spec import DrillSpec, load_drill
from rocelab.faults.asked import asked_fault
from rocelab.results.environment import environment_with
from rocelab.testkit.written import as_fault

def refusal(function, *arguments):
    try:
        function(*arguments)
    except InputError as error:
        return str(error)

spec = asked_fault("duct-cut", ["link=rtsw1:ctsw1", "depth=3"])
schema = DrillSpec.model_json_schema()["$defs"]
print(json.dumps({
    "depth": spec.depth,
    "alike": as_fault("duct-cut", {"link": "rtsw1:ctsw1", "depth": 3}) == spec,
    "schema": "DuctCutSpec" in schema,
    "meaning": schema["ExpectSpec"]["properties"]["flows_sent"]["description"],
    "tool": environment_with("10").tool_text,
    "completion": _complete_kind("duct"),
    "refused": refusal(asked_fault, "duct-fire", ["link=rtsw1:ctsw1"]),
    "wrong": refusal(load_drill, Path(sys.argv[1])),
}))
"""

REPORTS = """
import sys
from pathlib import Path
from rich.console import Console
from rocelab.base.documents import to_json
from rocelab.report.difference import difference_document
from rocelab.report.junit import junit_file, junit_of
from rocelab.report.renderers.terminal import print_document
from rocelab.report.drill import drill_document, summary_document
from rocelab.report.gate import gate_document
from rocelab.report.renderers.markdown import markdown_of
from rocelab.report.renderers.page import html
from rocelab.results.difference import difference
from rocelab.results.drill import read_drill_result
from rocelab.report import plots
from rocelab.results.gate import gate
from tests.helpers import report_sample

plots.svg = lambda figure, name: f'<svg id="{name}"></svg>'  # most of a page's time
if sys.argv[1] == "write":
    spec = report_sample.expecting({"flows_sent": "> 100"})
    result = report_sample.result(report_sample.repeat(1), spec=spec)
    Path("result.json").write_text(to_json(result))
path = Path("result.json")
result = read_drill_result(path)
print_document(drill_document(result), Console(width=200))
print(junit_file(junit_of(result, 1)).decode())
print_document(difference_document(difference(path, path)), Console(width=200))
print("MARKDOWN", markdown_of(summary_document(result)))
print("GATE")
print_document(gate_document(gate(difference(path, path))), Console(width=200))
print("PAGE", html(drill_document(result)))
"""


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> PluginEnvironment:
    environment = PluginEnvironment(tmp_path_factory.mktemp("environment"))
    environment.install("lab_faults", FAULTS)
    return environment


@pytest.fixture(scope="module")
def commands(there: PluginEnvironment) -> dict[str, subprocess.CompletedProcess[str]]:
    """What commands say of it, by their first word."""
    (there.folder / "digging.yaml").write_text(DRILL)
    lines = (("fault", "kinds", "--json"), ("drill", "show", "digging.yaml"), ("doctor", "--json"))
    return {line[0]: done for line, done in zip(lines, there.in_turn(*lines), strict=True)}


def test_the_command_line_knows_it(
    commands: dict[str, subprocess.CompletedProcess[str]],
) -> None:
    document = json.loads(commands["fault"].stdout)
    kinds = {kind["name"]: kind for kind in document}
    assert kinds["duct-cut"]["meaning"].startswith("Somebody digs")
    keys = {key["name"]: key for key in kinds["duct-cut"]["keys"]}
    assert list(keys) == ["link", "links", "between", "depth", "lasts"]
    assert keys["depth"]["default"] == "2"
    drawn = next(key["value"] for key in kinds["campaign"]["keys"] if key["name"] == "kinds")
    assert "duct-cut" in drawn
    assert "duct-fire" not in kinds


def test_a_drill_knows_it(commands: dict[str, subprocess.CompletedProcess[str]]) -> None:
    outcome = commands["drill"]
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert "duct-cut" in outcome.stdout
    assert "flows sent" in outcome.stdout


def test_python_the_schema_and_completion_know_it(there: PluginEnvironment, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(DRILL.replace("lasts", "last"))
    run = there.run(PROGRAM, str(tmp_path / "wrong.yaml"))
    assert run.stderr == ""
    answers = json.loads(run.stdout)
    assert answers["refused"].startswith("kind of fault duct-fire of lab-faults 1.2 cannot be used")
    assert "faults[0].last: unknown key" in answers["wrong"]
    assert "did you mean lasts?" in answers["wrong"]
    assert answers["tool"].endswith(" with lab-faults 1.2")
    assert {key: answers[key] for key in ("depth", "alike", "schema", "meaning", "completion")} == {
        "depth": 3,
        "alike": True,
        "schema": True,
        "meaning": "flows sent",
        "completion": ["duct-cut"],
    }


def test_doctor_says_what_a_package_adds_and_why_the_rest_is_refused(
    commands: dict[str, subprocess.CompletedProcess[str]],
) -> None:
    checks = json.loads(commands["doctor"].stdout)["checks"]
    (check,) = [check for check in checks if check["name"] == "lab-faults 1.2"]
    assert check["found"] == "kind of fault duct-cut, KPI flows"
    assert not check["ok"]
    assert not check["needed"]
    assert check["remedy"].split("; ") == [
        "duct-fire of lab-faults 1.2 (rocelab.faults): TypeError: expected its key "
        'kind to be Literal["duct-fire"]',
        "again of lab-faults 1.2 (rocelab.kpis): ValueError: there is a KPI lost_packets already",
        "fix or uninstall that package",
    ]


def test_figures_of_a_package_are_reported_compared_and_shown_without_it(tmp_path: Path) -> None:
    environment = PluginEnvironment(tmp_path / "environment")
    environment.install("lab_faults", FAULTS)
    with_it = environment.run(REPORTS, "write", cwd=tmp_path)
    assert with_it.stderr == ""
    assert re.search("Flows +24 ", with_it.stdout)
    assert 'name="flows_sent &gt; 100"' in with_it.stdout
    assert re.search("Flows +same ", with_it.stdout)
    document, page = with_it.stdout.split("PAGE")
    assert re.search(r"<td[^>]*>\s*Flows", page)
    assert "flows_sent" in page
    markdown, gated = document.split("MARKDOWN")[1].split("GATE")
    assert "| Flows | 24 |" in markdown
    assert "Flows" in gated
    environment.uninstall("lab_faults")
    without = environment.run(REPORTS, "read", cwd=tmp_path)
    assert without.stderr == ""
    assert re.search("flows_sent +> 100 +24 .unit unknown. ", without.stdout)
    assert 'name="flows_sent &gt; 100"' in without.stdout
