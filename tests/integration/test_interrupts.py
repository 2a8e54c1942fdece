"""Every command ended by a signal: one line says what was undone, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocelab.base.documents import to_json
from rocelab.faults.record import read_faults
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.teardown import take_down
from rocelab.linux.namespaces import processes_in
from rocelab.observe.evidence.bundle import Collection
from rocelab.record import LabFiles
from tests.helpers.command import PROGRAM
from tests.helpers.job_cases import planned, report
from tests.helpers.long import mostly_long
from tests.helpers.waiting import RUN_LIMIT_S, wait_until
from tests.integration.test_ownership import belongings

pytestmark = pytest.mark.side_by_side

ROOT = Path(__file__).resolve().parents[2]
FABRIC = "fabric: {kind: clos, racks: 2, spines: 2, servers_per_rack: 1}\ndilation: 4000\n"
DRILL = """name: short
lab: it-sig.yaml
traffic: {flows: 8, rate_pps: 500, warmup: 400ms, duration: 1600ms, seed: 3}
faults:
  - {kind: carrier-down, at: 400ms, links: [rtsw1:ctsw1], lasts: 400ms}
measure: {sustained: 200ms}
expect: {affected_flows: ">= 1"}
"""
SWEEP = """lab: it-sig.yaml
job: {pattern: allreduce, ranks: 2, size: 1MB}
over:
  lab.dilation: [1, 2, 3, 4]
"""
FLOW = ("--src", "srv1-1", "--dst", "srv2-1", "--sport", "50000")
LONG = ("--pattern", "allreduce", "--ranks", "2", "--size", "4MB", "--iterations", "1000")


def begin(*command: str | Path, group: int = 0, deaf: bool = False) -> subprocess.Popen[str]:
    """A command in its own process group; with `deaf` it ignores SIGINT, like a background job of a
    script."""
    return subprocess.Popen(
        [*map(str, command)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=group,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if deaf else None,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """The exit code and the lines of stderr, once the process and its whole group are gone."""
    with process:
        _, errors = process.communicate(timeout=RUN_LIMIT_S)
    wait_until(lambda: not group_of(process.pid), "its process group is gone")
    assert "Traceback" not in errors
    return process.returncode, errors.splitlines()


def group_of(leader: int) -> list[str]:
    """The commands of a process group that have not ended."""
    texts = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, _, group, *_ = (process / "stat").read_text().rpartition(") ")[2].split()
            if int(group) == leader and state != "Z":
                texts.append((process / "cmdline").read_text())
        except OSError:
            continue
    return texts


def signalled(stages: str, number: int, *arguments: str | Path) -> tuple[int, list[str]]:
    """The outcome of a `rocelab` that gets the signal at the stages."""
    program = (sys.executable, "-m", "tests.helpers.signalled")
    return ended(begin(*program, stages, str(number), *arguments))


@pytest.fixture
def spec(tmp_path: Path) -> Iterator[Path]:
    """The file of a lab; nothing of the lab is left when the test ends."""
    file = tmp_path / "it-sig.yaml"
    file.write_text(f"name: it-sig\n{FABRIC}")
    yield file
    take_down("it-sig")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab that is up; each test must leave it unchanged."""
    file = tmp_path_factory.mktemp("lab") / "lab.yaml"
    file.write_text(f"name: it-sig-up\n{FABRIC}")
    take_down("it-sig-up")
    yield Lab.planned(file).up()
    take_down("it-sig-up")


@pytest.fixture
def whole(lab: RunningLab) -> Iterator[RunningLab]:
    """The lab; its state at the end of the test must equal that at the start."""

    def state() -> object:
        inodes = [lab.node(node.name).netns.stat().st_ino for node in lab.fabric.nodes]
        return sorted(processes_in(inodes)), read_faults(LabFiles(lab.name))

    before = state()
    scheme = lab.steering.read_scheme()
    yield lab
    wait_until(lambda: state() == before, "the lab is as it was")
    assert lab.steering.read_scheme() == scheme
    with lab.locked():
        pass


@pytest.mark.parametrize(
    "stage", mostly_long(("nodes", "links", "daemons", "convergence"), ("daemons", "convergence"))
)
def test_up_is_taken_back_from_every_stage(spec: Path, stage: str) -> None:
    code, said = signalled(stage, signal.SIGINT, "up", spec)
    assert (code, said) == (130, ["interrupted: lab it-sig was taken down"])
    assert belongings("it-sig") == []


def test_further_signals_wait_for_the_end_of_the_clean_up(spec: Path) -> None:
    stages = "convergence,processes,interfaces"
    code, said = signalled(stages, signal.SIGTERM, "up", spec)
    assert code == 143
    assert said == ["lab it-sig is taken down first", "terminated: lab it-sig was taken down"]
    assert belongings("it-sig") == []


def test_a_signal_to_down_waits_until_the_lab_is_down(spec: Path) -> None:
    Lab.planned(spec).up()
    code, said = signalled("processes", signal.SIGINT, "down", spec)
    assert code == 130
    assert said[-1] == "interrupted: lab it-sig was taken down"
    assert belongings("it-sig") == []


def test_a_drill_undoes_its_fault_and_takes_its_lab_down(spec: Path) -> None:
    drill = spec.with_name("drill.yaml")
    drill.write_text(DRILL)
    out = spec.parent / "out"
    stages = "short: probes,processes"
    code, said = signalled(stages, signal.SIGINT, "drill", "run", drill, "--out", out)
    assert code == 130, said
    assert said[-1].startswith("interrupted: ")
    assert "the traffic was stopped" in said[-1]
    assert said[-1].endswith("lab it-sig was taken down")
    assert belongings("it-sig") == []
    assert not out.exists()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_compare_takes_its_lab_down(spec: Path, number: int) -> None:
    arguments = ("compare", spec, "--schemes", "ecmp", "--qps", "1", "--out", spec.parent / "out")
    code, said = signalled("ecmp", number, *arguments)
    assert code == 128 + number
    assert said[-1].endswith("lab it-sig was taken down")
    assert belongings("it-sig") == []


@pytest.mark.long
def test_compare_gives_a_running_lab_its_scheme_back(whole: RunningLab) -> None:
    code, said = signalled("e-ecmp", signal.SIGINT, "compare", whole.name, "--schemes", "e-ecmp")
    assert code == 130
    assert said[-1].startswith("interrupted: ")
    assert f"lab {whole.name} runs ecmp" in said[-1]


def test_traffic_is_stopped(whole: RunningLab) -> None:
    code, said = signalled("iterations", signal.SIGINT, "traffic", whole.name, *LONG)
    assert (code, said[-1]) == (130, "interrupted: the traffic was stopped")


@pytest.mark.long
def test_traffic_that_hears_no_ctrl_c_ends_on_sigterm(whole: RunningLab) -> None:
    command = begin(*PROGRAM, "traffic", whole.name, *LONG, deaf=True)
    counters = Path("/run/rocelab", whole.name, "endpoints")
    wait_until(lambda: len(list(counters.glob("*"))) == 2, "both agents")
    os.killpg(command.pid, signal.SIGINT)
    os.killpg(command.pid, signal.SIGTERM)
    code, said = ended(command)
    assert code == 143
    assert said[-1].startswith("terminated: ")


def test_a_fault_that_lasts_is_undone(whole: RunningLab) -> None:
    fault = ("carrier-down", "link=rtsw1:ctsw1", "lasts=10m")
    code, said = signalled("carrier-down", signal.SIGINT, "fault", "inject", whole.name, *fault)
    assert (code, said) == (130, ["interrupted: carrier-down of rtsw1:ctsw1 was undone"])


def test_health_says_what_it_saw_until_then(whole: RunningLab) -> None:
    command = begin(*PROGRAM, "health", whole.name, "--json", "--interval", "100ms")
    assert command.stdout is not None
    assert "sample" in json.loads(command.stdout.readline())
    os.killpg(command.pid, signal.SIGINT)
    with command:
        out, errors = command.communicate(timeout=RUN_LIMIT_S)
    assert "report" in json.loads(out.splitlines()[-1])
    assert (command.returncode, errors) == (
        130,
        f"interrupted: lab {whole.name} has nothing to clean up\n",
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_capture_is_whole(whole: RunningLab, tmp_path: Path, number: int) -> None:
    file = tmp_path / "x.pcapng"
    command = begin(*PROGRAM, "capture", whole.name, "rtsw1:ctsw1", "-o", file)
    assert command.stderr is not None
    assert "capturing" in command.stderr.readline()
    os.killpg(command.pid, number)
    code, said = ended(command)
    assert code == 128 + number
    assert said[-1].endswith(f"{file} is whole")
    assert file.stat().st_size > 0


@pytest.mark.long
def test_evidence_that_is_not_whole_is_removed(whole: RunningLab, tmp_path: Path) -> None:
    folder = tmp_path / "evidence"
    command = begin(*PROGRAM, "evidence", whole.name, "--out", folder, "--capture", "600")
    wait_until(lambda: any(folder.rglob("packets.pcap")), "a capture")
    os.killpg(command.pid, signal.SIGINT)
    code, said = ended(command)
    assert (code, said[-1]) == (130, f"interrupted: {folder} was incomplete and was removed")
    assert not folder.exists()


@pytest.mark.long
def test_nothing_writes_to_evidence_whose_captures_have_ended(
    whole: RunningLab, tmp_path: Path
) -> None:
    names = [node.name for node in whole.fabric.nodes]
    inodes = [whole.node(name).netns.stat().st_ino for name in names]
    before = sorted(processes_in(inodes))
    folder = tmp_path / "evidence"
    begun = Collection(whole, names, folder, capture_s=600, why="a test", breach_ns=None)
    assert len(processes_in(inodes)) >= len(before) + len(names)
    begun.end_captures()
    assert sorted(processes_in(inodes)) == before


JOB = ("--pattern", "allreduce", "--ranks", "8", "--size", "1MB")


@pytest.mark.long
@pytest.mark.parametrize(
    ("stage", "command"),
    [
        ("simulating", ("simulate", "zone-small", *JOB)),
        ("paths", ("predict", "zone-small", *JOB)),
        ("simulating", ("whatif", "zone-small", "drain ctsw1 for 1s", *JOB)),
        ("states", ("longrun", "zone-small", "--rates", "hpn", *JOB)),
        ("rocelab.routes.path:walk", ("path", "zone-small", *FLOW)),
        ("rocelab.lab.doctor:diagnose", ("doctor",)),
        ("rocelab.lab.adoption.adopt:find_containers", ("adopt", "other")),
    ],
)
def test_what_changes_nothing_ends_at_once(stage: str, command: tuple[str, ...]) -> None:
    code, said = signalled(stage, signal.SIGINT, *command)
    assert (code, said) == (130, ["interrupted: nothing to clean up"])


@pytest.mark.long
def test_a_simulation_leaves_its_result_with_its_page_or_neither(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    command = ("simulate", "zone-small", *JOB, "--out", folder)
    code, said = signalled("rocelab.report.renderers.page:html", signal.SIGINT, *command)
    assert (code, said[-1]) == (130, "interrupted: nothing to clean up")
    assert not folder.exists()
    code, _ = signalled("rocelab.base.documents:to_json", signal.SIGINT, *command)
    assert code == 130
    assert {file.name for file in folder.iterdir()} == {"result.json", "report.html"}


def test_looking_at_a_lab_ends_at_once(whole: RunningLab) -> None:
    for stage, command in (
        ("pairs", ("reach", whole.name)),
        ("rocelab.traffic.traceroute:probe_path", ("path", whole.name, *FLOW, "--probe")),
    ):
        code, said = signalled(stage, signal.SIGINT, *command)
        assert (code, said) == (130, ["interrupted: nothing to clean up"])


@pytest.mark.long
def test_a_diagnosis_leaves_no_half_of_a_picture(tmp_path: Path) -> None:
    result, picture = tmp_path / "result.json", tmp_path / "map.svg"
    result.write_text(to_json(report(planned())))
    for stage in (
        "rocelab.diagnose.diagnose:diagnose_report",
        "rocelab.diagnose.page:lateness_map",
    ):
        code, said = signalled(stage, signal.SIGTERM, "diagnose", result, "--picture", picture)
        assert (code, said) == (143, ["terminated: nothing to clean up"])
        assert not picture.exists()


def test_a_render_that_is_not_whole_says_so_and_is_replaced(tmp_path: Path) -> None:
    command = ("render", "zone-small", "--out", tmp_path / "conf")
    code, said = signalled("render 3", signal.SIGINT, *command)
    advice = f"{tmp_path / 'conf'} is not whole: `render --force` writes it again"
    assert (code, said) == (130, [f"interrupted: {advice}"])
    assert len(list((tmp_path / "conf").glob("*/zebra.conf"))) == 3
    assert ended(begin(*PROGRAM, *command, "--force")) == (0, [])
    assert len(list((tmp_path / "conf").glob("*/zebra.conf"))) == 8


@contextmanager
def workers_of(kind: str) -> Iterator[tuple[str, str]]:
    """The option that names two workers: processes, or those of a Dask cluster."""
    if kind == "processes":
        yield "--workers", "2"
        return
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        yield "--cluster", cluster.scheduler_address.removeprefix("tcp://")


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "number"), [("processes", signal.SIGTERM), ("cluster", signal.SIGINT)]
)
def test_a_sweep_leaves_its_workers_and_goes_on_later(
    spec: Path, kind: str, number: signal.Signals
) -> None:
    sweep = spec.with_name("sweep.yaml")
    sweep.write_text(SWEEP)
    with workers_of(kind) as workers:
        stopped_and_resumed(number, ("sweep", sweep, "--out", spec.parent / "cells", *workers))


def stopped_and_resumed(number: signal.Signals, arguments: Sequence[str | Path]) -> None:
    """After the first of four cells, with two under way: SIGTERM drops them, a first SIGINT lets
    them end."""
    journal = Path(arguments[3]) / "cells.jsonl"
    code, said = signalled("cells 1", number, *arguments)
    if number is signal.SIGTERM:
        assert code == 143
        assert said[-1].startswith("terminated: running cells were dropped")
    else:
        assert (code, len(journal.read_text().splitlines())) == (130, 2)
        assert said[-1] == "2 cells are left; the same command continues from here"
    kept = journal.read_text().splitlines()
    code, said = ended(begin(*PROGRAM, *arguments))
    assert code == 0, said
    cells = journal.read_text().splitlines()
    assert len(cells) == 4
    assert cells[: len(kept)] == kept
