"""Lossless classes with all else of the kit: several of them at once, DCQCN, every scheme, faults.

Each run must pause, lose nothing for lack of room, account for every packet, and leave no gate
closed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from subprocess import DEVNULL, Popen
from time import monotonic_ns
from typing import Any

import pytest
from pydantic import TypeAdapter

from rocelab.dataplane.pfc.journal import JournalAction, JournalEntry
from rocelab.faults.base import Timed
from rocelab.faults.fault_spec import SINGLE_FAULT, FaultSpec
from rocelab.faults.schedule import expand
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.lab.lab import RunningLab
from rocelab.labfile.schemes.ecmp import EcmpScheme
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.linux.namespaces import inside
from rocelab.results.job import JobReport
from rocelab.results.lossless import Lossless
from rocelab.runs.jobs import run_jobs
from rocelab.traffic.session import TrafficSession
from tests.helpers.long import mostly_long
from tests.helpers.lossless import LOSSLESS, SENDER, Rig, in_queue
from tests.helpers.measured import measured
from tests.helpers.waiting import wait_until, wait_until_whole

pytestmark = pytest.mark.few_at_once

NAME = "t-classes"
LAB = f"""
name: {NAME}
fabric: {{kind: clos, racks: 2, spines: 2, servers_per_rack: 2}}
links: {{rate: 100G, server_rate: 100G}}
dilation: 2500
queues:
  ecn: {{kmin: 40KB, kmax: 400KB}}
  pfc: {{classes: [1, 3, 4], xoff: 100KB, xon_offset: 5KB, memory: 1MB}}
"""
DSCP_OF = {1: 8, LOSSLESS: 26, 4: 34}
S = 10**9
FAULT: TypeAdapter[FaultSpec] = TypeAdapter(FaultSpec)
SCHEMES = ("ecmp", "e-ecmp", "path-pinning", "flowlet", "spray", "resilient", "te")
REORDERING = ("spray", "flowlet")
FAULT_FROM_NS, FAULT_TO_NS = 1 * S, 3 * S
KEEPING: dict[str, dict[str, str | int]] = {
    "rate-degrade": {"link": "rtsw2:ctsw1", "rate": "25%"},
    "host-pause": {"server": "srv2-1"},
    "daemon-hang": {"switch": "ctsw1"},
}
"""Faults that lose and reorder nothing."""

LOSING: dict[str, dict[str, str | int]] = {
    "carrier-down": {"link": "rtsw2:ctsw1"},
    "nic-port-down": {"server": "srv2-1"},
    "power-loss": {"switch": "ctsw1"},
    "daemon-crash": {"switch": "ctsw1"},
    "drain": {"switch": "ctsw1"},
    "abrupt-removal": {"switch": "ctsw1"},
    "session-reset": {"switch": "ctsw1"},
    "route-leak": {"switch": "rtsw2"},
    "bad-prefix": {"switch": "rtsw2", "of": "rtsw1"},
    "grey-loss": {"link": "rtsw2:ctsw1", "loss": "5%"},
    "corruption": {"link": "rtsw2:ctsw1", "share": "5%"},
    "blackhole": {"link": "rtsw2:ctsw1"},
    "delay": {"link": "rtsw2:ctsw1", "delay": "200us"},
    "flapping": {"link": "rtsw2:ctsw1", "period": "400ms", "count": 5},
    "campaign": {"count": 5, "every": "400ms", "each_lasts": "400ms"},
}
WITHOUT_LASTS = ("session-reset", "flapping", "campaign")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig.of(LAB, tmp_path_factory.mktemp("classes")) as rig:
        yield rig


@pytest.fixture
def rig(made: Rig) -> Iterator[Rig]:
    with made.resting():
        yield made


def job(
    traffic_class: int = LOSSLESS,
    size: str = "3MB",
    pattern: Pattern = Pattern.ALLTOALL,
    **transport: object,
) -> JobSpec:
    """Of all servers, in a class."""
    chosen = {"dcqcn": "off", "ecn": "not-ect", "dscp": DSCP_OF[traffic_class], **transport}
    whole = {"pattern": pattern, "ranks": 4, "size": size, "transport": chosen}
    # To all others at once, no port would fill.
    rounds = {"in_flight": 1} if pattern is Pattern.ALLTOALL else {}
    return JobSpec.model_validate({**whole, **rounds, "iterations": 1, "warmup_iterations": 0})


def ran(rig: Rig, *jobs: JobSpec, faults: Sequence[Timed] = ()) -> tuple[JobReport, ...]:
    return measured(
        lambda: run_jobs(rig.lab, jobs, faults=faults).reports,
        lambda reports: [problem for report in reports for problem in report.problems],
    )


def paused_without_loss(report: JobReport) -> Lossless:
    """What lossless classes did in a run, if they paused and kept all packets."""
    lossless = report.lossless
    assert lossless is not None
    assert lossless.transitions > 0
    assert lossless.dropped == 0
    assert lossless.unbalanced == ()
    return lossless


def resent(reports: Sequence[JobReport]) -> int:
    return sum(report.roce.retransmitted for report in reports)


@pytest.mark.parametrize("classes", mostly_long([(3, 4), (1, 3, 4)], [(1, 3, 4)]))
def test_classes_pause_each_by_itself_and_lose_nothing(rig: Rig, classes: tuple[int, ...]) -> None:
    reports = ran(rig, *map(job, classes))
    lossless = paused_without_loss(reports[0])
    assert {port.traffic_class for port in lossless.ports if port.transitions} == set(classes)
    assert resent(reports) == 0


def test_a_class_that_is_paused_for_ever_does_not_stop_another(rig: Rig) -> None:
    with rig.storm():
        (report,) = ran(rig, job(4))
        assert rig.is_gated(rig.gate)
        wait_until(lambda: rig.passes(1), "a packet of another class passes")
    lossless = paused_without_loss(report)
    by_class = {port.traffic_class: port for port in lossless.ports if port.transitions}
    assert by_class[4].pauses_sent + by_class[4].pauses_received > 0
    assert resent([report]) == 0


def test_a_foreign_pause_frame_counts_from_its_arrival_and_expires_by_its_quanta(rig: Rig) -> None:
    """Of two classes in one frame, for 0.13 and 0.26 s of the lab's clock."""
    quanta, place = {LOSSLESS: 10_000, 4: 20_000}, rig.plan.by_slot[rig.gate]
    delay_ns = rig.plan.by_slot[place.peer].delay_ns
    known, heard = len(rig.reader.entries()), rig.counters()[place, 4].pauses_received
    sent_ns = monotonic_ns()
    rig.send_foreign_pause(quanta)
    wait_until(lambda: rig.counters()[place, 4].pauses_received > heard, "the frame has arrived")
    arrived_ns = monotonic_ns()

    def expired() -> list[JournalEntry]:
        return [entry for entry in rig.reader.entries(known) if entry.what is JournalAction.EXPIRED]

    wait_until(lambda: len(expired()) == len(quanta), "both pauses end")
    stopped = [entry for entry in rig.reader.entries(known) if entry.what is JournalAction.STOPPED]
    assert {entry.slot for entry in (*stopped, *expired())} == {rig.gate}
    assert [entry.traffic_class for entry in expired()] == list(quanta)
    due_ns = {entry.traffic_class: entry.t_ns - entry.value for entry in stopped}
    assert set(due_ns) == set(quanta)
    for entry in expired():
        due = due_ns[entry.traffic_class]
        assert sent_ns <= due - delay_ns <= arrived_ns
        assert entry.t_ns >= due + int(quanta[entry.traffic_class] * place.quantum_ns)


def test_dcqcn_marks_and_pauses_in_one_run(rig: Rig) -> None:
    (report,) = ran(rig, job(size="8MB", ecn="ect0", dcqcn="sigcomm15"))
    paused_without_loss(report)
    assert report.roce.ce > 0
    assert report.roce.cnps_received > 0
    assert resent([report]) == 0


@contextmanager
def scheme_of(lab: RunningLab, kind: str) -> Iterator[None]:
    scheme: SchemeSpec = TypeAdapter(SchemeSpec).validate_python(kind)
    lab.steering.set_scheme(scheme)
    try:
        yield
    finally:
        lab.steering.set_scheme(EcmpScheme())


@pytest.mark.parametrize("kind", mostly_long(SCHEMES, ("ecmp", "e-ecmp", "spray")))
def test_pauses_work_with_every_scheme(rig: Rig, kind: str) -> None:
    """An incast: its last port is the same, whatever paths packets take."""
    spec = job(size="1MB", pattern=Pattern.INCAST, out_of_order=kind in REORDERING)
    with scheme_of(rig.lab, kind):
        (report,) = ran(rig, spec)
    paused_without_loss(report)
    assert resent([report]) == 0


@pytest.mark.parametrize("kind", mostly_long([*KEEPING, *LOSING], ("power-loss",)))
def test_a_fault_during_pauses_costs_no_accounting_and_leaves_no_gate(rig: Rig, kind: str) -> None:
    """An incast: whatever path or sender fails, two senders are left, and their port pauses."""
    keys: dict[str, Any] = {"kind": kind, "at": f"{FAULT_FROM_NS}ns", **(KEEPING | LOSING)[kind]}
    if kind not in WITHOUT_LASTS:
        keys["lasts"] = f"{FAULT_TO_NS - FAULT_FROM_NS}ns"
    faults = expand(rig.lab.fabric, [FAULT.validate_python(keys)])
    (report,) = ran(rig, job(size="6MB", pattern=Pattern.INCAST, qps=2), faults=faults)
    lossless = paused_without_loss(report)
    assert any(FAULT_FROM_NS < span.begin_ns < FAULT_TO_NS for span in lossless.spans)
    if kind in KEEPING:
        assert resent([report]) == 0
    wait_until_whole(rig.lab)


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "rate-degrade", "link": "rtsw1:srv1-1", "rate": "25%", "towards": "srv1-1"},
        {"kind": "daemon-crash", "switch": "rtsw1"},
        {"kind": "drain", "switch": "ctsw1"},
    ],
    ids=itemgetter("kind"),
)
def test_an_open_pause_outlasts_a_fault_that_leaves_its_link(
    rig: Rig, fault: dict[str, object]
) -> None:
    held = SINGLE_FAULT.validate_python(fault).resolve(rig.lab.fabric)
    with rig.storm():
        held.prepare(rig.lab)
        held.inject(rig.lab)
        try:
            assert rig.is_gated(rig.gate)
        finally:
            held.restore(rig.lab)
        wait_until(lambda: not held.remains(rig.lab), "the fault is undone")
        assert rig.is_gated(rig.gate)
    wait_until_whole(rig.lab)


def test_what_a_switch_sends_itself_is_accounted_for_where_its_cable_is_cut(rig: Rig) -> None:
    """Packets of which no port of the switch holds the memory."""
    cable, lab = rig.lab.fabric.link_by_name["rtsw2:ctsw1"], rig.lab
    slot = rig.plan.slots["rtsw2", cable.port("rtsw2").interface]
    place = rig.plan.by_slot[slot], LOSSLESS
    before = rig.counters()[place].purged_packets
    ping = ["ping", "-q", "-l", "99", "-c", "99", "-s", "4000", "-Q", str(LOSSLESS << 5)]
    ping.append(cable.port("ctsw1").ip)

    def many_wait() -> bool:
        sent.append(inside(lab.node("rtsw2").netns, lambda: Popen(ping, stdout=DEVNULL)))
        return in_queue(rig.counters()[place]) > 20

    sent: list[Popen[bytes]] = []
    try:
        wait_until(many_wait, "packets are in the queue")
        lab.node("ctsw1").lower_ports([cable])
        wait_until(lambda: not in_queue(rig.counters()[place]), "all are counted")
        assert rig.counters()[place].purged_packets > before
    finally:
        for process in sent:
            process.kill()
            process.wait()
        lab.node("ctsw1").raise_ports([cable])
    wait_until_whole(lab)


def kill_an_agent(rig: Rig) -> None:
    """That has sent into an open pause."""
    lab = rig.lab
    plans = plan_jobs(lab.fabric, [job(size="64MB")])
    with TrafficSession(lab.fabric, lambda name: lab.node(name).netns, (), plans) as session:
        session.start()
        stopped = rig.plan.by_slot[rig.gate], LOSSLESS
        wait_until(
            lambda: any(
                counter.is_paused and place != stopped for place, counter in rig.counters().items()
            ),
            "the pause spreads",
        )
        for pid in lab.node(SENDER).processes():
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not lab.node(SENDER).processes(), "the agent's end")


def test_an_open_pause_ends_as_ever_where_an_agent_that_sent_into_it_is_killed(rig: Rig) -> None:
    with rig.storm():
        kill_an_agent(rig)
