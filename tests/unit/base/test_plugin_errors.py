"""An exception of a plug-in is one line that names package, object, exception and place."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.helpers.plugin import PluginEnvironment

POINTS = {
    "fabrics:broken-hall": "lab_raising.hall:RaisingKind",
    "faults:broken-route": "lab_raising.route:RaisingSpec",
    "kpis:broken_loss": "lab_raising.loss:KPI",
    "schemes:broken-hash": "lab_raising.hash:RaisingScheme",
    "jobs.patterns:broken-halo": "lab_raising.halo:RaisingPattern",
    "jobs.workloads:broken_job": "lab_raising.job:RaisingWorkload",
    "congestion:broken-rate": "lab_raising.rate:RaisingControl",
}
FILES = {
    "hall.yaml": "name: hall\nfabric: {kind: broken-hall}\n",
    "hash.yaml": "name: s\nfabric: {kind: clos, racks: 2, spines: 2}\nscheme: broken-hash\n",
    "drill.yaml": "name: d\nlab: tiny\n"
    "faults: [{kind: broken-route, switch: rtsw1, where: plan, at: 1s, lasts: 1s}]\n",
    "job.yaml": "jobs: [{name: j, broken_job: {}}]\n",
    "rate.yaml": "jobs: [{name: j, collective: {pattern: pairs, ranks: 2, size: 1MB, "
    "transport: {congestion: broken-rate}}}]\n",
}
HALO = ("--pattern", "broken-halo", "--ranks", "4", "--size", "1MB")
PAIRS = ("--pattern", "pairs", "--ranks", "2", "--size", "1MB")
LAYOUT = "return [Layout((), (), ())][1]"
HALL = ("kind of fabric broken-hall", "IndexError: list index out of range", LAYOUT)
HASH = ("scheme broken-hash", "KeyError: ", "return treatments[is_leaf]")
SENDS = ("pattern broken-halo", "AttributeError: 'Call' object has no", "call.nothing")
CASES = [
    (("plan", "hall.yaml"), *HALL),
    (("predict", "hall.yaml", *PAIRS), *HALL),
    (
        ("drill", "show", "drill.yaml"),
        *("kind of fault broken-route", "LookupError: no plan", 'LookupError(f"no {where}")'),
    ),
    (("predict", "hash.yaml", *PAIRS), *HASH),
    (("simulate", "hash.yaml", *PAIRS), *HASH),
    (("predict", "tiny", *HALO), *SENDS),
    (("simulate", "tiny", *HALO), *SENDS),
    (
        ("simulate", "tiny", "--job", "job.yaml"),
        *("workload broken_job", "RuntimeError: two lines", "raise RuntimeError"),
    ),
    (
        ("simulate", "tiny", "--job", "rate.yaml", "--engine", "packets"),
        *("congestion control broken-rate", "ValueError: no rule", 'ValueError("no rule")'),
    ),
]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> PluginEnvironment:
    folder = tmp_path_factory.mktemp("environment")
    environment = PluginEnvironment.with_package(folder, "lab_raising", POINTS)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return environment


@pytest.fixture(scope="module")
def ended(there: PluginEnvironment) -> dict[tuple[str, ...], subprocess.CompletedProcess[str]]:
    """Each case's outcome, by its words."""
    lines = [words for words, *_ in CASES]
    return dict(zip(lines, there.in_turn(*lines, NUMBA_DISABLE_JIT="1"), strict=True))


@pytest.mark.parametrize(("words", "what", "why", "code"), CASES)
def test_it_is_one_line_in_a_command(
    there: PluginEnvironment,
    ended: dict[tuple[str, ...], subprocess.CompletedProcess[str]],
    words: tuple[str, ...],
    what: str,
    why: str,
    code: str,
) -> None:
    done = ended[words]
    assert done.returncode == 2, done.stderr
    first, hint, *rest = done.stderr.splitlines()
    assert f": {what} of lab-raising 1.2 failed: {why}" in first
    (place,) = [
        f"{file}:{line}"
        for file in (there.site / "lab_raising").glob("*.py")
        for line, text in enumerate(file.read_text().splitlines(), 1)
        if code in text
    ]
    assert first.endswith(f" ({place})")
    assert "`rocelab --debug COMMAND` shows the whole traceback" in hint
    assert not rest


def test_debug_shows_the_whole_traceback(there: PluginEnvironment) -> None:
    done = there.rocelab("--debug", "plan", "hall.yaml")
    assert done.returncode == 2
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("IndexError: list index out of range\n")
    assert "defect of rocelab" not in done.stderr


def test_an_error_that_a_plug_in_raises_for_the_user_is_a_message(tmp_path: Path) -> None:
    there = PluginEnvironment.with_package(tmp_path, "lab_raising", POINTS)
    (tmp_path / "hall.yaml").write_text(FILES["hall.yaml"])
    module = there.site / "lab_raising/hall.py"
    raised = 'from rocelab import InputError; raise InputError("one row")'
    module.write_text(module.read_text().replace(LAYOUT, raised))
    done = there.rocelab("plan", "hall.yaml")
    assert (done.returncode, done.stderr) == (2, "rocelab plan: one row\n")


def test_junit_and_markdown_of_a_drill_name_it(there: PluginEnvironment, tmp_path: Path) -> None:
    xml, text = tmp_path / "drill.xml", tmp_path / "drill.md"
    done = there.rocelab("drill", "run", "drill.yaml", "--junit", str(xml), "--markdown", str(text))
    assert done.returncode == 2, done.stderr
    named = "kind of fault broken-route of lab-raising 1.2 failed: LookupError: no plan"
    assert named in xml.read_text()
    assert 'type="PluginError"' in xml.read_text()
    assert named in text.read_text()


@pytest.mark.long
def test_compiled_code_of_a_congestion_control_is_named_too(there: PluginEnvironment) -> None:
    job = there.folder / "compiled.yaml"
    kind = "{kind: broken-rate, compiled: true}"
    job.write_text(FILES["rate.yaml"].replace("congestion: broken-rate", f"congestion: {kind}"))
    options = ("--job", job.name, "--engine", "packets")
    done = there.rocelab("simulate", "tiny", *options, NUMBA_CACHE_DIR=str(there.folder / "cache"))
    assert done.returncode == 2, done.stderr
    assert (
        "congestion control broken-rate of lab-raising 1.2 failed: ValueError: no rate"
        in done.stderr
    )
    assert "lab_raising/sender.py:" in done.stderr
