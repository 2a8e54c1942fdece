"""Users' suites, run as users run them: labs come and go, faults end, failures leave evidence."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rocelab.lab.teardown import take_down
from rocelab.record import recorded_labs
from tests.helpers.waiting import RUN_LIMIT_S, wait_until
from tests.integration.test_ownership import belongings

pytestmark = pytest.mark.few_at_once

LAB = """name: {name}
fabric: {{kind: clos, racks: 2, spines: 2, servers_per_rack: 1}}
"""
HEAD = """import pytest
pytestmark = pytest.mark.lab("{lab}.yaml")
"""
TROUBLED = """
def test_convergence_takes_no_time(traffic, fault, measure):
    with measure(traffic(flows=8), accept_invalid=True) as run:
        with fault("carrier-down", link="rtsw1:ctsw1"):
            run.hold("700ms")
    assert run.full_convergence <= "1us"

def test_something_is_left(lab):
    lab.node("rtsw1").exec(["ip", "link", "set", "ctsw1", "mtu", "1500"])
    lab.node("srv1-1").exec(["tc", "qdisc", "del", "dev", "rtsw1", "clsact"])

def test_the_next_one_finds_a_fresh_lab(lab):
    assert "mtu 9000" in lab.node("rtsw1").exec(["ip", "link", "show", "ctsw1"]).stdout

def test_a_failure_among_broken_things_shows_them_broken(lab, fault):
    with fault("carrier-down", link="rtsw1:ctsw2"):
        assert ",UP" in lab.node("rtsw1").exec(["ip", "link", "show", "ctsw2"]).stdout

def test_a_mistake_is_told_at_the_tests_line(fault):
    fault("carrier-down", lnk="rtsw1:ctsw1")

def test_a_fault_that_takes_no_packet_gives_no_time(traffic, measure, fault):
    with measure(traffic(pairs=[("srv1-1", "srv2-1")]), accept_invalid=True) as run:
        run.carry_out("mtu-mismatch", link="rtsw1:ctsw1", mtu=8000, lasts="100ms")
    assert run.affected_flows == 0
    assert run.full_convergence <= "1s"
"""
FLAPPING = """
def test_flaps_are_seen(lab, traffic, measure):
    with measure(traffic(flows=8), sustained="200ms", accept_invalid=True) as run:
        run.carry_out("flapping", link="rtsw1:ctsw1", period="600ms", count=2)
    # Of a run that need not be valid: an end that comes late may belong to what began before it.
    assert "begin" in {each.event.change for each in run.repeat.events}
    assert lab.name.startswith("it-twins-p")
    print(f"LAB {lab.name}")
"""
WAITING = """
import time

def test_waits(lab):
    print(f"UP {lab.name}", flush=True)
    time.sleep(600)
"""


ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
} | {"PYTHONUNBUFFERED": "1"}
"""Without the variables for the workers of these tests' own pytest."""


@dataclass(frozen=True)
class Ran:
    """A suite's exit code and output."""

    code: int
    output: str
    folder: Path


def run_suite(folder: Path, *options: str) -> Ran:
    done = subprocess.run(
        command(folder, *options),
        capture_output=True,
        text=True,
        cwd=folder,
        env=ENVIRONMENT,
        timeout=RUN_LIMIT_S,
    )
    return Ran(done.returncode, done.stdout + done.stderr, folder)


def command(folder: Path, *options: str) -> list[str]:
    # The plugin of Hypothesis takes three times as long to start as pytest itself.
    plugins = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    fixed = ["--rootdir", str(folder), "--rocelab-require", "-rA"]
    return [sys.executable, "-m", "pytest", *plugins, *fixed, *options, str(folder)]


def write_suite(folder: Path, lab: str, **files: str) -> Path:
    for name in left_of(lab):
        take_down(name)
    (folder / f"{lab}.yaml").write_text(LAB.format(name=lab))
    for name, tests in files.items():
        (folder / f"test_{name}.py").write_text(HEAD.format(lab=lab) + tests)
    return folder


def left_of(lab: str) -> list[str]:
    return [name for name in recorded_labs() if name.startswith(f"{lab}-p")]


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A suite whose tests fail, leave things behind and make mistakes."""
    folder = write_suite(tmp_path_factory.mktemp("troubled"), "it-troubled", troubled=TROUBLED)
    return run_suite(folder, "--junit-xml=junit.xml")


def outcomes(ran: Ran) -> dict[str, str]:
    """Each test's outcome in the summary: PASSED, FAILED, ERROR."""
    matches = re.findall(r"^(PASSED|FAILED|ERROR) \S+::test_(\w+)\[", ran.output, re.MULTILINE)
    return {name: outcome for outcome, name in sorted(matches, reverse=True)}


def test_each_test_ends_as_it_should(troubled: Ran) -> None:
    assert outcomes(troubled) == {
        "convergence_takes_no_time": "FAILED",
        "something_is_left": "ERROR",
        "the_next_one_finds_a_fresh_lab": "PASSED",
        "a_failure_among_broken_things_shows_them_broken": "FAILED",
        "a_mistake_is_told_at_the_tests_line": "FAILED",
        "a_fault_that_takes_no_packet_gives_no_time": "FAILED",
    }, troubled.output


def test_a_failed_assertion_shows_the_time_that_was_measured(troubled: Ran) -> None:
    assert re.search(r"assert \d+\.\d{3} ms <= '1us'", troubled.output)


def test_a_time_that_was_not_measured_says_why(troubled: Ran) -> None:
    assert "full_convergence was not measured: no flow lost a packet" in troubled.output


def test_what_a_test_left_is_named(troubled: Ran) -> None:
    assert "rtsw1: ctsw1's MTU is 1500, and was 9000" in troubled.output
    assert "srv1-1: rtsw1's queues changed: no longer " in troubled.output
    assert "no longer qdisc clsact" in troubled.output


def test_a_mistake_is_shown_with_its_line_and_no_traceback_of_ours(troubled: Ran) -> None:
    line = (HEAD + TROUBLED).splitlines().index('    fault("carrier-down", lnk="rtsw1:ctsw1")') + 1
    assert f"test_troubled.py:{line}: fault.lnk: unknown key" in troubled.output
    assert "did you mean link?" in troubled.output
    assert "rocelab/testkit/kit.py" not in troubled.output


def test_failures_and_unclean_tests_have_evidence_and_others_have_not(troubled: Ran) -> None:
    folders = {path.name.split("test_")[-1] for path in evidence(troubled).values()}
    assert folders == {
        f"{name}-it-troubled" for name, outcome in outcomes(troubled).items() if outcome != "PASSED"
    }
    for path in evidence(troubled).values():
        assert str(path) in troubled.output
    on_disk = {path.name for path in (troubled.folder / "results/evidence").iterdir()}
    assert on_disk == {path.name for path in evidence(troubled).values()}


def evidence(ran: Ran) -> dict[str, Path]:
    """Folder of evidence by test, from junit.xml."""
    cases = ElementTree.parse(ran.folder / "junit.xml").iter("testcase")
    return {
        case.get("name", "").partition("[")[0]: Path(entry.get("value", ""))
        for case in cases
        for entry in case.iter("property")
        if entry.get("name") == "rocelab_evidence"
    }


def test_the_evidence_of_a_measurement_holds_its_figures(troubled: Ran) -> None:
    folder = evidence(troubled)["test_convergence_takes_no_time"]
    measured = json.loads((folder / "run-1.json").read_text())
    assert measured["overall"]["full_convergence_ns"] > 1000
    assert (folder / "rtsw1").is_dir()
    assert (folder / "ctsw1").is_dir()
    assert not (folder / "rtsw2").exists()


def test_evidence_is_of_the_moment_of_the_failure(troubled: Ran) -> None:
    folder = evidence(troubled)["test_a_failure_among_broken_things_shows_them_broken"]
    links = {row["ifname"]: row for row in json.loads((folder / "rtsw1/links.json").read_text())}
    assert "UP" not in links["ctsw2"]["flags"]
    assert "UP" in links["ctsw1"]["flags"]


def test_nothing_is_left_of_a_troubled_suite(troubled: Ran) -> None:
    assert troubled.code == 1
    assert left_of("it-troubled") == []
    assert belongings("it-troubled") == []


@pytest.mark.long
@pytest.mark.side_by_side
def test_two_workers_with_the_same_lab_run_side_by_side(tmp_path: Path) -> None:
    write_suite(tmp_path, "it-twins", one=FLAPPING, two=FLAPPING)
    ran = run_suite(tmp_path, "-n", "2", "--dist", "loadfile")
    assert ran.code == 0, ran.output
    assert len(set(re.findall(r"LAB (it-twins-p\d+)", ran.output))) == 2
    assert not (tmp_path / "results").exists(), "evidence of tests that passed"
    assert belongings("it-twins") == []


@pytest.mark.long
@pytest.mark.side_by_side
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_suite_takes_its_lab_down(number: signal.Signals, tmp_path: Path) -> None:
    assert stopped_by(number, write_suite(tmp_path, "it-ctrlc", waiting=WAITING))
    assert left_of("it-ctrlc") == []
    assert belongings("it-ctrlc") == []


@pytest.mark.long
@pytest.mark.side_by_side
def test_what_a_killed_suite_left_is_said_by_the_next_one(tmp_path: Path) -> None:
    left = stopped_by(signal.SIGKILL, write_suite(tmp_path, "it-killed", waiting=WAITING))
    passing = "def test_it(lab): pass"
    (tmp_path / "test_waiting.py").write_text(HEAD.format(lab="it-killed") + passing)
    try:
        assert left_of("it-killed") == [left]
        ran = run_suite(tmp_path)
        assert f"left the lab {left}: take it down with `rocelab down {left}`" in ran.output
        assert ran.code == 0
        assert left_of("it-killed") == [left]
    finally:
        take_down(left)
    assert belongings("it-killed") == []


def stopped_by(number: signal.Signals, suite: Path) -> str:
    """The name of the lab of a suite that a signal ended during a test."""
    with subprocess.Popen(
        command(suite, "-s"), stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=suite
    ) as process:
        assert process.stdout is not None
        up = next(line for line in process.stdout if "UP " in line)
        # One that comes just before the system call is handled after it, ten minutes later.
        wchan = Path(f"/proc/{process.pid}/wchan")
        wait_until(lambda: wchan.read_text().endswith("nanosleep"), "the test sleeps")
        process.send_signal(number)
        process.communicate(timeout=RUN_LIMIT_S)
    ended = -signal.SIGKILL if number is signal.SIGKILL else pytest.ExitCode.INTERRUPTED
    assert process.returncode == ended
    return up.split()[-1]
