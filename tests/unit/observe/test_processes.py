"""What a run says of the processes that its packets depended on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from rocelab.dataplane.controller.rounds import Round, RoundLog
from rocelab.dataplane.impairments.delayline import Lateness
from rocelab.dataplane.steering.controller import ControllerFiles
from rocelab.faults.kinds.daemon_crash import DaemonCrash, DaemonCrashSpec
from rocelab.faults.record import write_fault
from rocelab.labfile.schemes.ecmp import EcmpScheme
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.labfile.schemes.spray import SprayScheme
from rocelab.labfile.schemes.te import TeScheme
from rocelab.observe import processes
from rocelab.observe.processes import NO_CONTROLLER, ProcessWatch
from rocelab.planning.build import build_fabric
from tests.helpers.report_sample import lab as lab_spec

BEGAN_S, ENDED_S = 1000.0, 1010.0


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessWatch:
    """A run of ten seconds under scheme te, whose controller lives."""
    times = iter((BEGAN_S, ENDED_S))
    monkeypatch.setattr(processes, "_now_unix_s", lambda: next(times))
    monkeypatch.setattr(processes, "lacks_controller", lambda files: False)
    scheme: SchemeSpec = TeScheme(kind="te")
    monkeypatch.setattr(processes, "read_scheme", lambda files: scheme)
    monkeypatch.setattr(processes, "idle_daemons", lambda lab, switch: ())
    files = SimpleNamespace(root=tmp_path, dataplane=tmp_path, faults=tmp_path / "faults")
    ControllerFiles(files).make()  # type: ignore[arg-type]
    lab = SimpleNamespace(
        fabric=build_fabric(lab_spec()),
        runtime=SimpleNamespace(files=files),
        impairments=SimpleNamespace(broken=tuple, lateness=lambda: Lateness(very_late=3)),
    )
    return ProcessWatch(lab)  # type: ignore[arg-type]


def made_rounds(folder: Path, finished_s: list[float], took_s: float = 0.01) -> None:
    log = RoundLog(ControllerFiles(SimpleNamespace(dataplane=folder)).rounds)  # type: ignore[arg-type]
    for end_s in finished_s:
        log.write(Round(end_s - took_s, end_s, ("period",), 0, 0, 0, 0, 0, 0))


def test_a_run_whose_controller_made_every_round_is_valid(
    watch: ProcessWatch, tmp_path: Path
) -> None:
    made_rounds(tmp_path, [BEGAN_S - 100, *(BEGAN_S + step for step in range(10))])
    assert watch.figures().problems == ()


@pytest.mark.parametrize("missing", [{1, 2}, {4, 5}, {8, 9}])
def test_a_run_whose_controller_stood_still_is_not_valid(
    missing: set[int], watch: ProcessWatch, tmp_path: Path
) -> None:
    steps = [step for step in range(1, 10) if step not in missing]
    made_rounds(tmp_path, [BEGAN_S - 0.5, *(BEGAN_S + step for step in steps)])
    (problem,) = watch.figures().problems
    assert "the controller of the scheme finished no round for 3.0 s (its period is 1 s)" in problem


def test_a_controller_whose_rounds_take_long_did_not_stand_still(
    watch: ProcessWatch, tmp_path: Path
) -> None:
    made_rounds(tmp_path, [BEGAN_S + step for step in (2.5, 5.0, 7.5)], took_s=1.5)
    assert watch.figures().problems == ()


def test_a_scheme_without_a_controller_needs_none(
    watch: ProcessWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_scheme", EcmpScheme())
    monkeypatch.setattr(processes, "read_scheme", lambda files: EcmpScheme())
    assert watch.figures().problems == ()


def test_a_controller_that_is_gone_makes_a_run_invalid(
    watch: ProcessWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "lacks_controller", lambda files: True)
    assert watch.figures().problems == (NO_CONTROLLER,)


def test_a_run_during_which_the_scheme_was_changed_is_not_valid(
    watch: ProcessWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "read_scheme", lambda files: SprayScheme(kind="spray"))
    (problem,) = watch.figures().problems
    assert "the lab's scheme was changed from te to spray during the run" in problem


@pytest.mark.parametrize(
    ("delays", "said"),
    [
        ({"broken": lambda: ("rtsw1",)}, "at rtsw1 for a fault had ended or was stopped"),
        ({"lateness": lambda: Lateness(very_late=5)}, "because 2 packets that a fault delays"),
    ],
)
def test_a_fault_whose_packets_were_held_too_long_makes_a_run_invalid(
    delays: dict[str, object], said: str, watch: ProcessWatch, tmp_path: Path
) -> None:
    made_rounds(tmp_path, [BEGAN_S + step for step in range(10)])
    vars(watch._lab.impairments).update(delays)
    (problem,) = watch.figures().problems
    assert said in problem


def test_daemons_that_do_not_run_make_a_run_invalid_unless_a_fault_broke_their_switch(
    watch: ProcessWatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_rounds(tmp_path, [BEGAN_S + step for step in range(10)])
    idle = {"rtsw1": "bgpd of rtsw1 does not run", "rtsw2": "a signal has stopped bfdd of rtsw2"}
    monkeypatch.setattr(
        processes,
        "idle_daemons",
        lambda lab, switch: (idle[switch],) if switch in idle else (),
    )
    crash = DaemonCrashSpec(kind="daemon-crash", switch="rtsw1")
    files = SimpleNamespace(faults=tmp_path / "faults")
    write_fault(files, crash, DaemonCrash("rtsw1", "bgpd"), driver=None)  # type: ignore[arg-type]
    assert watch.figures().problems == ("not valid because a signal has stopped bfdd of rtsw2",)
