"""Every table that a command prints, at 60 and 80 columns: names and figures whole, lines that fit.

A command runs once, with a wide stdout; each of its tables is then printed at each width.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from rich.console import Console
from rich.table import Table as RichTable

from rocelab.cli import adopt, lifecycle, te
from rocelab.cli import fault as fault_command
from rocelab.cli import host as remote
from rocelab.cli.health import print_report as print_health
from rocelab.cli.reach import print_reachability
from rocelab.dataplane.controller.rounds import Round, Utilisation
from rocelab.fabrics.roles import Role
from rocelab.faults.running import ListedFault
from rocelab.lab import doctor
from rocelab.lab.status import KnownLab, LabStatus, NodeStatus, Presence
from rocelab.linux import bpf
from rocelab.observe.health.health_spec import DEFINITIONS
from rocelab.planning.build import build_fabric
from rocelab.remote.runs import ListedRun
from rocelab.report.console import seconds_table, show_blocks, show_document
from rocelab.report.document import Table
from rocelab.report.job import job_document
from rocelab.report.programs import program_document
from rocelab.report.renderers.terminal import rich_table
from rocelab.results.flowtimes import StepTimes
from rocelab.results.health import HealthReport, SliReport
from rocelab.results.job import WorkloadFigures
from rocelab.results.programs import ProgramReport, RankEnd, Stall, TcpConnection
from rocelab.runs.jobreport import job_reports
from rocelab.traffic.reachability import Reachability
from tests.helpers import job_sample
from tests.helpers.adopted_sample import leaf_spine
from tests.helpers.narrow import broken, too_long
from tests.helpers.nccl_sample import nccl_output

ROOT = Path(__file__).parents[3]
NARROW = (80, 60)
LONG = "a-lab-whose-name-is-long"
"""The name of a lab may have 24 characters."""

Run = Callable[..., Any]


def printed_by(*line: str) -> Callable[[Run, Path], None]:
    def case(rocelab: Run, folder: Path) -> None:
        outcome = rocelab(*(text.format(folder=folder) for text in line))
        assert outcome.code in (0, 1, 3), outcome.err

    return case


def called(show: Callable[[], None]) -> Callable[[Run, Path], None]:
    return lambda rocelab, folder: show()


def show_doctor(rocelab: Run, folder: Path) -> None:
    """A machine on which everything is missing."""
    missing = [replace(check, ok=False) for check in doctor.diagnose().checks]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "rocelab.lab.doctor.diagnose",
            lambda: doctor.MachineDiagnosis(tuple(missing)),
        )
        assert rocelab("doctor").code == 3


def show_labs() -> None:
    up = KnownLab(LONG, Presence.RUNNING, 522, 0.0, "0.1.0", "containerlab")
    left = KnownLab(LONG[::-1], Presence.LEFT_BEHIND, None, None, None, None, None)
    lifecycle._print_labs([up, left])


def show_status() -> None:
    daemons = {"mgmtd": None, "zebra": 123, "bgpd": None, "bfdd": None}
    node = partial(NodeStatus, daemons=daemons, pss_bytes=52_345_678)
    switches = [
        node(f"z2-{role.name}{number}", role, sessions_established=17, sessions_expected=252,
             routes_complete=1234, routes_expected=13579)
        for number, role in enumerate((Role.RTSW, Role.CTSW, Role.ATSW), 251)
    ]  # fmt: skip
    lifecycle._print_status(LabStatus(LONG, tuple(switches)))


def show_runs() -> None:
    command = "rocelab drill run link-flap --repeat 10 --out results/link-flap-10"
    run = ListedRun("20261122T191039Z-4194303", command, "somebody@laptop", 0.0, 137, alive=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rocelab.cli.host._machine", lambda host: nullcontext((None, None)))
        patch.setattr("rocelab.cli.host.list_runs", lambda *there: [run])
        remote.show_runs("vm", json=False)


def show_job() -> None:
    job = job_sample.result(job_sample.allreduce())
    traffic, counts = job_sample.traffic(job), job_sample.counts(job)
    (report,) = job_reports(job_sample.record(traffic, counts))
    show_document(job_document(report))


def show_workload() -> None:
    job = job_sample.result(job_sample.allreduce())
    traffic, counts = job_sample.traffic(job), job_sample.counts(job)
    (report,) = job_reports(job_sample.record(traffic, counts))
    steps = (StepTimes("gradients of layer 12", 1234567.8, 98765432.1),)
    show_document(job_document(replace(report, workload=WorkloadFigures(steps))))


def show_controller() -> None:
    tiers = {"rtsw-ctsw down": Utilisation(4536, 0.987, 0.123)}
    reasons = ("a link went down", "demands changed")
    rounds = [
        Round(0.0, 1.0, reasons, 1234.5, 12345.6, 1234.5, 12345, 1234, 99999, 10240, 17, 1, 0.987,
              0.912, tiers)
    ]  # fmt: skip
    te._print_rounds(rounds)
    te._print_tiers(rounds[-1])


def show_health() -> None:
    where = "z2-rtsw251:z2-ctsw18-2 to z2-ctsw18"
    slis = [
        SliReport(sli.value, "packets", 0.5, 1_234_567.0, where, 1, 123, 1, ())
        for sli in DEFINITIONS
    ]
    print_health(HealthReport(LONG, 0, 10**12, 10**9, 999, tuple(slis), (), 1.0))


def show_reachability() -> None:
    nics = tuple(f"z2-srv251-{server}:{nic}" for server in (1, 2) for nic in (1, 2))
    failed = tuple((a, b) for a in nics[:2] for b in nics[2:])
    print_reachability(
        LONG, Reachability(nics=nics, pairs=8, all_pairs=8, failed=failed, took_s=1.0)
    )


def show_programs() -> None:
    """A run in which one program failed."""
    source, destination = "z2-srv251-1:1", "z2-srv252-16:8"
    stalls = (Stall(10**9, 2 * 10**9),)
    connection = TcpConnection(
        source, 45_932, destination, 29_500, 0, 10**11, 10**12, 10**9, 123_456, 21, stalls
    )
    ranks = (
        RankEnd(0, "z2-srv251-1/0", None, 10**11),
        RankEnd(1, "z2-srv251-1/1", 127, 10**6, "there is no program nosuch"),
    )
    report = ProgramReport(
        1, LONG, 5000.0, ("nosuch",), ranks, 0, 10**11, (connection,), (), 10**8, 10**8, 0.5, ()
    )
    show_document(program_document(report))


def show_faults(rocelab: Run, folder: Path) -> None:
    subject = "z2-rtsw251:z2-ctsw18, z2-rtsw251:z2-ctsw18-2"
    drivers: tuple[Literal["none", "alive", "orphaned"], ...] = ("none", "alive", "orphaned")
    faults = [
        ListedFault(number, "session-reset", subject, 0.0, driver, 4_194_303)
        for number, driver in enumerate(drivers, 1)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fault_command, "running_lab", lambda text: None)
        patch.setattr("rocelab.faults.running.faults_of", lambda lab: faults)
        assert rocelab("fault", "list", LONG).code == 0


def show_sweep(rocelab: Run, folder: Path) -> None:
    file = folder / "sweep.yaml"
    job = "{pattern: allreduce, ranks: 4, size: 1MB}"
    over = "  lab.fabric.spines: [2, 4]\n  job.transport.qps: [1, 2]\n"
    file.write_text(f"lab: zone-small\njob: {job}\nover:\n{over}")
    outcome = rocelab("sweep", file, "--out", folder / "out", "--workers", "1")
    assert outcome.code == 0, outcome.err


def show_served(rocelab: Run, folder: Path) -> None:
    file = folder / "serving.yaml"
    requests = "{prompt: 9000, output: 100, rate: 40, first: 20}"
    file.write_text(
        "jobs: [{name: chat, serving: {model: llama3-8b, gpu: h100, prefill: 2, decode: 2, "
        f"requests: {requests}, ttft: 90ms}}}}]"
    )
    assert rocelab("simulate", "rail-small", "--job", str(file)).code == 0


def show_requests(rocelab: Run, folder: Path) -> None:
    file = folder / "trace.csv"
    rows = "".join(f"{number / 7},{10**7 + number},98765\n" for number in range(99))
    file.write_text(f"timestamp_s,isl,osl\n{rows}")
    assert rocelab("requests", str(file)).code == 0


def show_models(rocelab: Run, folder: Path) -> None:
    file = folder / "learning.yaml"
    model = "{layers: 2, hidden: 1024, heads: 16, ffn: 4096, vocab: 32000, sequence: 1024}"
    jobs = "  - name: {name}\n    training: {{model: {model}, data: 4, gpu: h100}}\n"
    names = (LONG, LONG[::-1])
    file.write_text("jobs:\n" + "".join(jobs.format(name=name, model=model) for name in names))
    outcome = rocelab("simulate", "zones-small", "--job", file)
    assert outcome.code == 0, outcome.err


def show_reference(rocelab: Run, folder: Path) -> None:
    file = folder / "nccl.txt"
    file.write_text(nccl_output())
    line = ("reference", "rail-small", file, "--pattern", "allreduce", "--ranks", "8")
    outcome = rocelab(*line)
    assert outcome.code == 0, outcome.err


JOB = ("--pattern", "allreduce", "--ranks", "8", "--size", "16MB")
FLOW = ("--src", "z1-srv1-1", "--dst", "z2-srv4-1")
EVENT = "fail z1-rtsw1:z1-ctsw1 at 1us for 1s"
CASES: dict[str, tuple[Callable[[Run, Path], None], str]] = {
    "labs": (printed_by("labs"), "rocelab.cli.catalog"),
    "plan of zones": (printed_by("plan", "zones-small"), "rocelab.cli.planning"),
    "plan of hpn": (printed_by("plan", "hpn-small"), "rocelab.cli.planning"),
    "plan of a profile": (printed_by("plan", "profile"), "rocelab.cli.carving"),
    "plan of tenants": (printed_by("plan", "evpn-vxlan"), "rocelab.cli.tenants"),
    "doctor": (show_doctor, "rocelab.cli.doctor"),
    "list": (called(show_labs), "rocelab.cli.lifecycle"),
    "status": (called(show_status), "rocelab.cli.lifecycle"),
    "adopt": (
        called(lambda: adopt._print_fabric(build_fabric(leaf_spine()))),
        "rocelab.cli.adopt",
    ),
    "up": (
        called(lambda: show_blocks(seconds_table({"routes of all switches": 1234.5}))),
        "rocelab.report.console",
    ),
    "path": (
        printed_by("path", "zones-small", *FLOW, "--sport", "4791"),
        "rocelab.cli.path",
    ),
    "runs": (called(show_runs), "rocelab.cli.host"),
    "te": (called(show_controller), "rocelab.cli.te"),
    "reach": (called(show_reachability), "rocelab.cli.reach"),
    "run": (called(show_programs), "rocelab.report.programs"),
    "fault list": (show_faults, "rocelab.cli.fault"),
    "health": (called(show_health), "rocelab.cli.health"),
    "drill list": (printed_by("drill", "list"), "rocelab.cli.drill"),
    "predict": (printed_by("predict", "zones-small", *JOB), "rocelab.report.prediction"),
    "simulate": (
        printed_by("simulate", "zones-small", *JOB, "--event", EVENT),
        "rocelab.report.simulation.document",
    ),
    "simulate sizes": (
        printed_by(
            *("simulate", "rail-small", "--pattern", "allreduce", "--ranks", "8"),
            *("--sizes", "1MB:2MB"),
        ),
        "rocelab.report.simulation.busbw",
    ),
    "whatif": (
        printed_by("whatif", "zones-small", "drain z1-ctsw1 for 2h", *JOB),
        "rocelab.report.simulation.whatif",
    ),
    "simulate models": (show_models, "rocelab.report.simulation.models"),
    "simulate requests": (show_served, "rocelab.report.served"),
    "requests": (show_requests, "rocelab.report.requests"),
    "traffic": (
        called(show_job),
        "rocelab.report.job",
    ),
    "traffic of a workload": (called(show_workload), "rocelab.report.jobs.workload"),
    "sweep": (show_sweep, "rocelab.sim.sweep.report"),
    "reference": (show_reference, "rocelab.cli.trace"),
}
"""How a table comes to be, and the module that makes it."""

ELSEWHERE = {
    "rocelab.cli.scheme": "a switch's name and counters, of a running lab only",
    "rocelab.report.compare.document": "test_compare.py",
    "rocelab.report.difference": "test_drill_diff.py",
    "rocelab.drills.view": "test_tables.py",
    "rocelab.live.recorded": "only pages show it",
    "rocelab.report.drill": "test_tables.py",
    "rocelab.report.figures": "test_tables.py",
    "rocelab.report.gate": "test_gate.py",
    "rocelab.report.flowtimes": "test_flows.py",
    "rocelab.report.jobs.sections": "test_tables.py",
    "rocelab.report.jobs.tables": "test_tables.py",
    "rocelab.report.jobs.tcp": "test_tcp.py",
    "rocelab.report.machine": "only pages show it",
    "rocelab.report.probes.sections": "test_tables.py",
    "rocelab.report.repeats": "test_tables.py",
    "rocelab.report.stages": "test_tables.py",
    "rocelab.diagnose.document": "test_forensics.py",
}
"""Modules whose tables have the same test elsewhere."""


@pytest.fixture
def tables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rights_of_root: None
) -> list[tuple[str, Table]]:
    """Every table that is made, with the module that made it."""
    made: list[tuple[str, Table]] = []
    build = Table.__init__

    def built(table: Table, *arguments: Any, **keywords: Any) -> None:
        build(table, *arguments, **keywords)
        made.append((sys._getframe(1).f_globals["__name__"], table))

    monkeypatch.setattr(Table, "__init__", built)
    monkeypatch.setattr("rocelab.report.console._PIPE_WIDTH", 1000)
    # Its programs are compiled for root only.
    monkeypatch.setattr(bpf, "CACHE", tmp_path / "bpf")
    return made


def printing(grid: RichTable) -> Callable[[Console], None]:
    return lambda console: console.print(grid)


@pytest.mark.parametrize("name", CASES)
def test_a_table_keeps_names_and_figures_whole(
    name: str, rocelab: Run, tables: list[tuple[str, Table]], tmp_path: Path
) -> None:
    show, module = CASES[name]
    show(rocelab, tmp_path)
    assert module in {maker for maker, _ in tables}
    for _, table in list(tables):
        grid = rich_table(table)
        for width in NARROW:
            assert broken(printing(grid), width) == set()
            assert too_long(printing(grid), width) == []


def test_every_module_that_makes_tables_is_held_to_it() -> None:
    assert set(modules_with_tables()) == {module for _, module in CASES.values()} | set(ELSEWHERE)


def modules_with_tables() -> Iterator[str]:
    """Modules of commands and reports that make tables."""
    for file in sorted((ROOT / "rocelab").rglob("*.py")):
        text = file.read_text()
        if not re.search(r"\bTable\b", text):
            continue  # reading the syntax of all modules takes a second
        nodes = ast.walk(ast.parse(text))
        names = {
            node.func.id
            for node in nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        if "Table" in names and "report.document" in text:
            yield ".".join(file.relative_to(ROOT).with_suffix("").parts)
