"""Jobs of which nothing moves: how long is too long, and what counts as moving."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab.agent.live import LiveCounters, packed
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplan import JobPlan
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import build_fabric
from rocelab.traffic import standstill
from rocelab.traffic.standstill import MARGIN_NS, Standstill, patience_ns

MS, SECOND_NS = 10**6, 10**9
PATIENCE_NS = 40 * SECOND_NS
PFC = {"xoff": "100KB", "xon_offset": "5KB", "memory": "400KB"}


def planned(queues: object = None, **transport: object) -> JobPlan:
    lab: dict[str, object] = {
        "name": "t-still",
        "fabric": {"kind": "clos", "racks": 2, "spines": 2, "servers_per_rack": 1},
        "dilation": 5000,
    }
    if queues is not None:
        lab["queues"] = queues
    job = {"pattern": "allreduce", "ranks": 2, "size": "1MB", "compute": "2ms"}
    spec = JobSpec.model_validate({**job, "transport": transport})
    (plan,) = plan_jobs(build_fabric(LabSpec.model_validate(lab)), [spec])
    return plan


@pytest.mark.parametrize(
    ("plan", "modelled_ns"),
    [
        (planned(ack_timeout="1ms", retries=7), 10 * MS),
        (planned(ack_timeout="4ms", retries=1), 10 * MS),
        (planned({"pfc": PFC}, ack_timeout="1ms", retries=7), 10 * MS),
        (planned({"pfc": {**PFC, "watchdog": {"detection": "100ms"}}}, retries=7), 110 * MS),
    ],
)
def test_jobs_have_the_time_of_retries_computing_and_a_watchdog(
    plan: JobPlan, modelled_ns: int
) -> None:
    assert patience_ns([plan]) == MARGIN_NS + 5000 * modelled_ns


def test_several_jobs_have_the_time_of_the_most_patient() -> None:
    patient, hasty = planned(retries=7), planned(retries=0)
    assert patience_ns([hasty, patient]) == patience_ns([patient, hasty]) == patience_ns([patient])


class Lab:
    """A folder of counters, and a clock."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.now_ns = folder, 100 * SECOND_NS
        monkeypatch.setattr(standstill, "monotonic_ns", lambda: self.now_ns)

    def write(self, server: str, *, acked: int = 0, received: int = 0) -> None:
        counters = LiveCounters(acked_bytes=acked, received=received)
        (self.folder / server).write_bytes(packed(counters))

    def after(self, seconds: float, still: Standstill) -> int:
        self.now_ns += int(seconds * SECOND_NS)
        return still.lasts_ns()


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab(tmp_path, monkeypatch)
    made.write("srv1-1")
    made.write("srv2-1")
    return made


def test_nothing_moves_once_no_server_s_counters_have_changed_for_too_long(lab: Lab) -> None:
    still = Standstill(lab.folder, PATIENCE_NS, lab.now_ns)
    assert lab.after(0, still) == 0
    assert lab.after(40, still) == 0
    assert lab.after(1, still) == 41 * SECOND_NS


@pytest.mark.parametrize("moved", [{"acked": 1}, {"received": 1}])
def test_an_acknowledgement_or_an_arrival_anywhere_is_a_move(
    lab: Lab, moved: dict[str, int]
) -> None:
    still = Standstill(lab.folder, PATIENCE_NS, lab.now_ns)
    lab.after(0, still)
    lab.write("srv2-1", **moved)
    assert lab.after(41, still) == 0
    assert lab.after(40, still) == 0
    assert lab.after(1, still) == 41 * SECOND_NS


def test_nothing_need_move_while_a_fault_is_to_last(lab: Lab) -> None:
    still = Standstill(lab.folder, PATIENCE_NS, lab.now_ns + 100 * SECOND_NS)
    assert lab.after(0, still) == 0
    assert lab.after(140, still) == 0
    assert lab.after(1, still) == 41 * SECOND_NS


def test_counters_are_not_read_more_often_than_once_a_second(lab: Lab) -> None:
    still = Standstill(lab.folder, 0, lab.now_ns)
    lab.after(0, still)
    assert lab.after(0.5, still) == 0
    assert lab.after(0.5, still) == SECOND_NS


def test_a_lab_without_counters_moves() -> None:
    assert Standstill(None, 0, 0).lasts_ns() == 0
