"""`rocelab drill run` and `rocelab fault` on real labs, each command in its own process."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
import yaml

from rocelab.faults.record import read_faults
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.teardown import take_down
from rocelab.record import LabFiles
from rocelab.results.drill import DrillResult, from_json
from tests.helpers.command import PROGRAM, Outcome, read, rocelab
from tests.helpers.measured import measured, probe_runs, problems_of_drill
from tests.helpers.waiting import RUN_LIMIT_S, wait_until

pytestmark = pytest.mark.side_by_side

LAB = """name: {name}
fabric: {{kind: clos, racks: 2, spines: 2, servers_per_rack: 1}}
"""
# What is lost is not zero: the expectation fails wherever the machine carries the run.
DRILL = """name: short
lab: {name}.yaml
traffic: {{flows: 8, rate_pps: 500, warmup: 400ms, duration: 1600ms, seed: 3}}
faults:
  - {{kind: carrier-down, at: 400ms, links: [rtsw1:ctsw1, rtsw1:ctsw2], lasts: 400ms}}
measure: {{sustained: 200ms}}
expect: {{affected_flows: ">= 1", lost_packets: 0}}
"""


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def carriers(lab: RunningLab, node: str) -> dict[str, bool]:
    """The carrier of each of a node's interfaces, from `ip`."""
    links = json.loads(lab.node(node).exec(["ip", "-json", "link", "show"]).stdout)
    return {link["ifname"]: "LOWER_UP" in link["flags"] for link in links if link["ifname"] != "lo"}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab in which tests inject and restore faults."""
    file = tmp_path_factory.mktemp("broken") / "lab.yaml"
    file.write_text(LAB.format(name="it-fault"))
    take_down("it-fault")
    lab = Lab.planned(file).up()
    yield lab
    take_down("it-fault")


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    """The file of a drill whose lab is taken down when the test ends."""
    (tmp_path / "it-keep.yaml").write_text(LAB.format(name="it-keep"))
    drill = tmp_path / "short.yaml"
    drill.write_text(DRILL.format(name="it-keep"))
    yield drill
    take_down("it-keep")


@pytest.mark.long
def test_a_kept_lab_serves_the_next_drill_and_only_one_of_the_same_spec(kept: Path) -> None:
    folder = kept.parent
    junit, page = folder / "ci" / "junit.xml", folder / "ci" / "summary.md"
    files = ("--junit", junit, "--markdown", page)
    failed_drill(kept, folder / "1", *files)
    record = LabFiles("it-keep").record.read_text()
    assert_failure(junit)
    assert page.read_text().startswith("### short: failed\n")
    # A command that was killed has left a fault.
    with start("fault", "inject", "it-keep", "carrier-down", "link=rtsw2:ctsw1", "lasts=10m") as it:
        lab = RunningLab.open("it-keep")
        wait_until(lambda: not carriers(lab, "rtsw2")["ctsw1"], "the fault")
        busy = rocelab("drill", "run", kept, "--keep", "--out", folder / "2")
        it.send_signal(signal.SIGKILL)
    second = failed_drill(kept, folder / "2", "--junit", junit)
    assert_failure(junit)
    assert "was up already" in second.stderr
    assert LabFiles("it-keep").record.read_text() == record
    assert busy.returncode == 2
    assert "lab it-keep is in use by a fault by hand, process" in busy.stderr, busy.stderr

    (folder / "it-keep.yaml").write_text(LAB.format(name="it-keep").replace("racks: 2", "racks: 3"))
    other = rocelab("drill", "run", kept, "--keep", "--out", folder / "3")
    assert other.returncode == 2
    assert "fabric.racks differs\n  hint: take it down with `rocelab down it-keep`" in other.stderr
    assert rocelab("down", "it-keep").returncode == 0


def failed_drill(drill: Path, folder: Path, *options: str | Path) -> Outcome:
    """A drill with a valid repeat, which fails, in a lab that is kept."""

    def once() -> Outcome:
        shutil.rmtree(folder, ignore_errors=True)
        run = ("drill", "run", drill, "--keep", "--retries=0", "--out", folder)
        return rocelab(*run, *options)

    outcome = measured(
        once, lambda _: problems_of_drill(from_json((folder / "result.json").read_text()))
    )
    assert outcome.returncode == 1
    return outcome


def assert_failure(junit: Path) -> None:
    case = Xml.parse(junit).find("testsuite[@name='short']/testcase[@name='lost_packets 0']")
    assert case is not None
    assert [child.tag for child in case] == ["failure"]


def test_an_interrupted_drill_that_keeps_its_lab_leaves_it_whole(kept: Path) -> None:
    junit = kept.parent / "junit.xml"
    options = ("--keep", "--out", kept.parent / "1", "--junit", junit)
    with start("drill", "run", kept, *options) as drill:
        wait_until(lambda: Path("/run/rocelab/it-keep/faults/1.json").exists(), "the drill's fault")
        drill.send_signal(signal.SIGINT)
    lab = RunningLab.open("it-keep")
    assert drill.returncode == 130
    assert read_faults(LabFiles("it-keep")) == ()
    assert all(carriers(lab, "rtsw1").values())
    error = Xml.parse(junit).getroot().find("testsuite/testcase/error")
    assert error is not None
    assert error.get("type") == "Interrupted"


@pytest.mark.long
def test_two_drills_at_once_break_each_its_own_lab(tmp_path: Path) -> None:
    """Both labs have switches of the same names, and each breaks another spine's link."""
    spines = {"it-left": "ctsw1", "it-right": "ctsw2"}
    running = {}
    for name, spine in spines.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}.yaml").write_text(LAB.format(name=name))
        drill = yaml.safe_load(DRILL.format(name=name))
        drill["faults"][0]["links"] = [f"rtsw1:{spine}"]
        (folder / "drill.yaml").write_text(yaml.safe_dump(drill))
        running[name] = start("drill", "run", folder / "drill.yaml", "--out", folder, "--retries=0")
    for name, process in running.items():
        with process:
            _, errors = process.communicate(timeout=RUN_LIMIT_S)
        assert (tmp_path / name / "result.json").exists(), errors
        result = from_json((tmp_path / name / "result.json").read_text())
        for repeat in probe_runs(result):
            changed = {change.node for change in repeat.fib}
            assert changed & set(spines.values()) == {spines[name]}
            # The two changes are one event where a busy machine made the first late.
            assert {record.event.subject for record in repeat.events} == {f"rtsw1:{spines[name]}"}
            assert sum(record.event.changes for record in repeat.events) == 2
    assert not any(Path(f"/run/rocelab/{name}").exists() for name in spines)


def test_a_fault_is_injected_listed_and_restored_by_three_commands(broken: RunningLab) -> None:
    done = rocelab("fault", "inject", "it-fault", "carrier-down", "link=rtsw1:ctsw1", "--json")
    injected = json.loads(done.stdout)
    assert (done.returncode, injected["subject"]) == (0, "rtsw1:ctsw1")
    assert carriers(broken, "rtsw1") == {"ctsw1": False, "ctsw2": True, "srv1-1": True}

    (listed,) = read("fault", "list", "it-fault")
    assert (listed["number"], listed["driver"]) == (injected["number"], "none")
    status = rocelab("status", "it-fault")
    assert status.returncode == 1
    assert f"fault {injected['number']} (carrier-down)" in status.stdout

    assert rocelab("fault", "restore", "it-fault", str(injected["number"])).returncode == 0
    assert all(carriers(broken, "rtsw1").values())
    assert rocelab("fault", "list", "it-fault").stdout == "no faults\n"


def test_a_fault_with_an_end_is_waited_for(broken: RunningLab) -> None:
    done = rocelab(
        "fault", "inject", "it-fault", "carrier-down", "link=rtsw1:ctsw2", "lasts=2s", "--json"
    )
    begin, end = json.loads(done.stdout)["changes"]
    assert (done.returncode, begin["change"], end["change"]) == (0, "begin", "end")
    assert end["t_unix_ns"] - begin["t_unix_ns"] >= 100_000_000
    assert all(carriers(broken, "rtsw1").values())


def test_flapping_runs_in_the_foreground_as_often_as_asked(broken: RunningLab) -> None:
    done = rocelab(
        *("fault", "inject", "it-fault", "flapping", "link=rtsw1:ctsw2"),
        *("count=3", "period=2s", "--json"),
    )
    assert done.returncode == 0
    assert [change["change"] for change in json.loads(done.stdout)["changes"]] == [
        "begin",
        "end",
    ] * 3
    assert all(carriers(broken, "rtsw1").values())


def test_the_guardian_mends_what_a_killed_command_broke(broken: RunningLab) -> None:
    line = ("fault", "inject", "it-fault", "carrier-down", "link=rtsw2:ctsw2", "lasts=10m")
    with start(*line) as driver:
        wait_until(lambda: not carriers(broken, "rtsw2")["ctsw2"], "the fault")
        (number,) = (fault.number for fault in read_faults(LabFiles("it-fault")))
        refused = rocelab("fault", "restore", "it-fault", str(number))
        driver.send_signal(signal.SIGKILL)
    assert refused.returncode == 2
    assert f"process {driver.pid}" in refused.stderr
    wait_until(lambda: carriers(broken, "rtsw2")["ctsw2"], "the restore")
    wait_until(lambda: not read_faults(LabFiles("it-fault")), "the proof")


def test_a_waiting_fault_ends_with_its_lab_and_leaves_a_new_one_of_that_name_alone(
    broken: RunningLab,
) -> None:
    line = ("fault", "inject", "it-fault", "carrier-down", "link=rtsw2:ctsw2", "lasts=10m")
    with start(*line) as driver:
        wait_until(lambda: not carriers(broken, "rtsw2")["ctsw2"], "the fault")
        take_down("it-fault")
        broken.start()
        kept = rocelab("fault", "inject", "it-fault", "carrier-down", "link=rtsw1:ctsw1")
        _, said = driver.communicate(timeout=RUN_LIMIT_S)
    assert (kept.returncode, driver.returncode) == (0, 1), said
    assert "lab it-fault went down during a fault" in said
    assert "Traceback" not in said and "guardian" not in said
    assert [fault.spec.kind for fault in read_faults(LabFiles("it-fault"))] == ["carrier-down"]
    assert not carriers(broken, "rtsw1")["ctsw1"]
    assert carriers(broken, "rtsw2")["ctsw2"]
    assert rocelab("fault", "restore", "it-fault", "1").returncode == 0


def test_a_fault_that_the_lab_can_not_have_leaves_nothing(broken: RunningLab) -> None:
    refused = rocelab("fault", "inject", "it-fault", "carrier-down", "link=rtsw1:ctsw9")
    assert (refused.returncode, "rtsw1 has no interface ctsw9" in refused.stderr) == (2, True)
    assert read_faults(LabFiles("it-fault")) == ()


def repeats_of(folder: Path) -> int:
    """The repeats that are in the folder's result so far."""
    file = folder / "result.json"
    return len(from_json(file.read_text()).repeats) if file.exists() else 0


def assert_all_repeats(result: DrillResult) -> None:
    """Three valid repeats, or as many invalid ones as the machine was allowed."""
    assert result.ended_early is None
    assert len(result.valid_repeats) == 3 or len(result.repeats) == 3 + 20


@pytest.mark.long
def test_an_interrupted_drill_leaves_its_repeats_and_goes_on_from_them(kept: Path) -> None:
    folder, junit = kept.parent / "resumed", kept.parent / "junit.xml"
    options = ("--keep", "--retries", "20", "--out", folder, "--junit", junit)
    with start("drill", "run", kept, "--repeat", "3", *options) as drill:
        wait_until(lambda: repeats_of(folder) > 0, "the first repeat")
        drill.send_signal(signal.SIGINT)
        errors = drill.communicate(timeout=RUN_LIMIT_S)[1]
    assert drill.returncode == 130
    assert f"go on with --resume {folder}" in errors
    early = from_json((folder / "result.json").read_text())
    assert early.outcome in ("ended early", "failed")
    assert early.ended_early is not None
    assert early.ended_early.why == "interrupted"
    assert "ended early, with " in (folder / "report.html").read_text()
    assert Xml.parse(junit).find("testsuite[@name='short ended early']/testcase/error") is not None

    resumed = rocelab("drill", "run", kept, "--keep", "--retries", "20", "--resume", folder)
    assert resumed.returncode in (0, 1), resumed.stderr
    result = from_json((folder / "result.json").read_text())
    assert result.repeats[: len(early.repeats)] == early.repeats
    assert_all_repeats(result)
    assert result.environment == early.environment

    again = rocelab("drill", "run", kept, "--retries", "20", "--resume", folder)
    assert again.returncode == resumed.returncode, "it would refuse to bring up a lab that is up"
    assert from_json((folder / "result.json").read_text()) == result

    other = kept.with_name("other.yaml")
    other.write_text(kept.read_text().replace("flows: 8", "flows: 7"))
    refused = rocelab("drill", "run", other, "--keep", "--resume", folder)
    assert refused.returncode == 2
    assert "the drill is another now: " in refused.stderr
    assert "traffic.flows" in refused.stderr
    assert rocelab("drill", "run", kept, "--resume", kept.parent / "none").returncode == 2


@pytest.mark.long
def test_a_killed_drill_leaves_the_repeats_that_had_ended(kept: Path) -> None:
    folder = kept.parent / "killed"
    options = ("--keep", "--retries=20", "--repeat=3", "--out", folder)
    with start("drill", "run", kept, *options) as drill:
        wait_until(lambda: repeats_of(folder) > 0, "the first repeat")
        drill.kill()
    early = from_json((folder / "result.json").read_text())
    assert early.ended_early is not None
    assert early.ended_early.why == "it had not ended when this was written"
    assert (
        rocelab("drill", "run", kept, "--keep", "--retries=20", "--resume", folder).returncode < 2
    )
    assert len(from_json((folder / "result.json").read_text()).valid_repeats) == 3
