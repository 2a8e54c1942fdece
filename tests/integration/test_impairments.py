"""The effect of impaired cables on a real lab's packets, and that no trace of it remains."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from rocelab.agent.agent import clock_offset_ns
from rocelab.base.errors import InputError
from rocelab.dataplane.impairments import lineprocess
from rocelab.dataplane.impairments.impairment import Impairment, ImpairmentKind
from rocelab.dataplane.impairments.maps import ImpairmentCounters
from rocelab.dataplane.impairments.program import IMPAIRMENTS
from rocelab.dataplane.queues.reading import read_queue_counters
from rocelab.jobs.flow import ProbeStream
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.status import read_status
from rocelab.labfile.model import LabSpec
from rocelab.linux import namespaces, pidfile
from rocelab.observe.processes import ProcessWatch
from rocelab.planning.build import plan
from rocelab.planning.fabric import DirectedLink
from rocelab.routing.frr import vty
from rocelab.traffic.result import FlowTransmission, TrafficResult
from rocelab.traffic.session import TrafficSession
from tests.helpers.directed import towards
from tests.helpers.impaired import blackhole, delay
from tests.helpers.measured import measured
from tests.helpers.running import running
from tests.helpers.waiting import wait_until
from tests.integration.conftest import MakeLab

MS = 10**6
CABLE = "srv1-1:rtsw1"
SESSION = "rtsw1:ctsw1"
SWITCHES = ("rtsw1", "rtsw2", "ctsw1", "ctsw2")
FABRIC = "fabric: {racks: 2, spines: 2, servers_per_rack: 1}"
PLAIN = f'{FABRIC}\nqueues: {{engine: "off"}}\nrouting: {{bfd: {{interval: 50ms, multiplier: 3}}}}'

State = dict[str, object]

SHAPE = {"racks": 2, "spines": 2, "servers_per_rack": 1}
to = partial(towards, plan(LabSpec.model_validate({"name": "t-impaired", "fabric": SHAPE})))
"""What comes to a node over a link, of either lab."""


def made(folder: Path, name: str, body: str) -> Iterator[RunningLab]:
    file = folder / f"{name}.yaml"
    file.write_text(f"name: {name}\n{body}\n")
    with running(Lab.planned(file)) as lab:
        yield lab


@pytest.fixture(scope="module")
def steered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """Port queues at egress, steering at ingress."""
    yield from made(tmp_path_factory.mktemp("lab"), "t-impaired", f"{FABRIC}\nscheme: e-ecmp")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab without port programs, with BFD."""
    yield from made(tmp_path_factory.mktemp("lab"), "t-impaired-plain", PLAIN)


@pytest.fixture(autouse=True)
def unchanged(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test leaves its lab as it found it."""
    name = next(fixture for fixture in ("steered", "plain") if fixture in request.fixturenames)
    lab: RunningLab = request.getfixturevalue(name)
    before = state_of(lab)
    yield
    assert state_of(lab) == before
    assert lab.impairments.active() == {}


def state_of(lab: RunningLab) -> State:
    """The kernel's state of the switches and the bpffs, from iproute2 and the file system."""

    def shown(node: str, *command: str) -> list[dict[str, object]]:
        return list(json.loads(lab.node(node).exec(["tc", "-j", *command]).stdout or "[]"))

    state: State = {}
    folder = lab.runtime.files.bpf
    state["bpf"] = sorted(str(path) for path in folder.rglob("*")) if folder.exists() else None
    for node in SWITCHES:
        netns = lab.node(node).netns
        state[f"{node} qdiscs"] = [
            {key: qdisc.get(key) for key in ("kind", "handle", "dev", "parent")}
            for qdisc in shown(node, "qdisc", "show")
        ]
        state[f"{node} processes"] = sorted(namespaces.processes_in([netns.stat().st_ino]))
        state[f"{node} interfaces"] = lab.node(node).exec(["ip", "-br", "link"]).stdout
        for link in lab.fabric.links_of[node]:
            name = link.port(node).interface
            for side in ("ingress", "egress"):
                state[f"{node}:{name} {side}"] = shown(node, "filter", "show", "dev", name, side)
    return state


def run(
    lab: RunningLab, seconds: float, rate_pps: int = 1000, during: Callable[[], None] = lambda: None
) -> TrafficResult:
    """A flow from server to server in each direction; `during` is called once they run."""
    flows = [
        ProbeStream(number, source, 1, destination, 1, 50000 + number, 17 + number, rate_pps, 256)
        for number, (source, destination) in enumerate((("srv1-1", "srv2-1"), ("srv2-1", "srv1-1")))
    ]
    with TrafficSession(lab.fabric, lambda name: lab.node(name).netns, flows) as session:
        session.start()
        began_s = time.monotonic()
        during()
        time.sleep(max(0.0, began_s + seconds - time.monotonic()))
        return session.stop()


def problems_of_traffic(made: tuple[TrafficResult, object]) -> tuple[str, ...]:
    return made[0].problems


def lost(flow: FlowTransmission) -> list[int]:
    """Sequence numbers that were sent and never came."""
    return sorted(set(flow.sent_seq.tolist()) - set(flow.received_seq.tolist()))


def carrier(lab: RunningLab, link: str) -> list[str]:
    """`UP` or `DOWN` for each end, from its kernel."""
    carrier = []
    planned = lab.fabric.link_by_name[link]
    for port in (planned.a, planned.b):
        text = lab.node(port.node).exec(["ip", "-j", "link", "show", port.interface]).stdout
        carrier.append(json.loads(text)[0]["operstate"])
    return carrier


@pytest.mark.few_at_once
def test_a_blackhole_loses_its_direction_alone_and_the_carrier_stays(steered: RunningLab) -> None:
    impairments = steered.impairments

    def impaired() -> tuple[TrafficResult, ImpairmentCounters | None]:
        impairments.impair(to(CABLE, "rtsw1"), Impairment(ImpairmentKind.BLACKHOLE))
        result = run(steered, 0.3)
        assert carrier(steered, CABLE) == ["UP", "UP"]
        return result, impairments.clear(to(CABLE, "rtsw1"), ImpairmentKind.BLACKHOLE)

    result, counted = measured(impaired, problems_of_traffic)
    there, back = result.flows
    assert len(there.sent_seq) > 100 and len(there.received_seq) == 0
    assert len(back.sent_seq) > 100 and lost(back) == []
    assert counted is not None
    assert counted.lost == counted.seen >= len(there.sent_seq)


@pytest.mark.few_at_once
def test_grey_loss_is_within_binomial_bounds_and_counted_to_the_packet(steered: RunningLab) -> None:
    impairments, share = steered.impairments, 0.1

    def impaired() -> tuple[TrafficResult, ImpairmentCounters | None]:
        impairments.impair(to(CABLE, "srv1-1"), Impairment(ImpairmentKind.LOSS, share))
        result = run(steered, 1, rate_pps=3000)
        return result, impairments.clear(to(CABLE, "srv1-1"), ImpairmentKind.LOSS)

    result, counted = measured(impaired, problems_of_traffic)
    there, back = result.flows
    assert lost(there) == []
    assert counted is not None
    assert (counted.seen, counted.lost) == (len(back.sent_seq), len(lost(back)))
    deviation = math.sqrt(counted.seen * share * (1 - share))
    assert abs(counted.lost - counted.seen * share) < 5 * deviation


@pytest.mark.few_at_once
def test_every_corrupted_packet_fails_the_receivers_icrc(steered: RunningLab) -> None:
    impairments = steered.impairments

    def impaired() -> tuple[TrafficResult, Mapping[DirectedLink, ImpairmentCounters]]:
        impairments.impair(to(CABLE, "rtsw1"), Impairment(ImpairmentKind.CORRUPTION, 0.2))
        impairments.impair(to(CABLE, "srv1-1"), Impairment(ImpairmentKind.CORRUPTION, 0.3))
        result = run(steered, 0.5)
        counted = impairments.counters()
        impairments.clear_all()
        return result, counted

    result, counted = measured(impaired, problems_of_traffic)
    there, back = result.flows
    errors = {agent.server: agent.icrc_errors for agent in result.agents}
    assert errors["srv2-1"] == counted[to(CABLE, "rtsw1")].corrupted == len(lost(there)) > 0
    assert errors["srv1-1"] == counted[to(CABLE, "srv1-1")].corrupted == len(lost(back)) > 0


def test_a_window_of_t_ms_loses_what_was_sent_in_t_ms(steered: RunningLab) -> None:
    impairments, rate_pps = steered.impairments, 2000
    windows: list[tuple[int, int]] = []
    late: list[str] = []

    def three_windows() -> None:
        windows.clear()
        late.clear()
        for length_ms in (5, 50, 500):
            start_ns = time.monotonic_ns() + 100 * MS
            end_ns = start_ns + length_ms * MS
            windows.append((start_ns, end_ns))
            impairments.impair(
                to(CABLE, "rtsw1"),
                Impairment(ImpairmentKind.BLACKHOLE, start_ns=start_ns, end_ns=end_ns),
            )
            if time.monotonic_ns() > start_ns:
                late.append("not valid because a blackhole was set after it should have begun")
            time.sleep(max(0.0, (end_ns - time.monotonic_ns()) / 1e9) + 0.01)

    def impaired() -> tuple[TrafficResult, ImpairmentCounters | None]:
        impairments.prepare(to(CABLE, "rtsw1"), ImpairmentKind.BLACKHOLE)
        result = run(steered, 1, rate_pps, three_windows)
        return result, impairments.clear(to(CABLE, "rtsw1"), ImpairmentKind.BLACKHOLE)

    result, counted = measured(impaired, lambda made: (*made[0].problems, *late))
    there = result.flows[0]
    missing = lost(there)
    assert counted is not None and counted.lost == len(missing)
    # Sequence n is packet n offered; all were taken.
    assert len(there.refused_seq) == 0
    sent_ns = there.sent_ns - clock_offset_ns()
    for start_ns, end_ns in windows:
        inside = np.flatnonzero((sent_ns >= start_ns) & (sent_ns < end_ns))
        gone = [number for number in missing if inside[0] - 2 <= number <= inside[-1] + 2]
        assert gone == list(range(gone[0], gone[-1] + 1))
        assert abs(len(gone) - len(inside)) <= 1
        on_time = (end_ns - start_ns) * rate_pps / 1e9
        assert abs(len(gone) - on_time) <= 1 + there.lag_max_ns * rate_pps / 1e9
        missing = [number for number in missing if number not in gone]
    assert missing == []


def test_delays_of_both_directions_add_to_one_way_times_and_keep_the_order(
    steered: RunningLab,
) -> None:
    impairments = steered.impairments
    plain = measured(lambda: run(steered, 0.3))
    before = [np.median(flow.receive_ns - flow.send_ns) for flow in plain.flows]
    delays_ns = (20 * MS, 35 * MS)
    for node, delay_ns in zip(("rtsw1", "srv1-1"), delays_ns, strict=True):
        impairments.impair(to(CABLE, node), Impairment(ImpairmentKind.DELAY, delay_ns=delay_ns))
    # Another kind comes and goes on the same port.
    impairments.impair(to(CABLE, "rtsw1"), Impairment(ImpairmentKind.LOSS, 0.5, start_ns=2**62))
    impairments.clear(to(CABLE, "rtsw1"), ImpairmentKind.LOSS)
    try:
        result = measured(lambda: run(steered, 0.7, rate_pps=2000))
        counted = impairments.counters()
    finally:
        impairments.clear_all()
    for flow, base_ns, delay_ns in zip(result.flows, before, delays_ns, strict=True):
        assert lost(flow) == []
        assert (np.diff(flow.received_seq) > 0).all()
        late_ns = flow.receive_ns - flow.send_ns - base_ns - delay_ns
        assert abs(np.median(late_ns)) < MS
    assert all(counters.delayed == counters.resumed > 1000 for counters in counted.values())


def test_packets_that_are_held_leave_in_order_when_a_delay_is_cleared(steered: RunningLab) -> None:
    impairments = steered.impairments

    def clear_one_then_the_other() -> None:
        wait_until(
            lambda: impairments.counters()[to(CABLE, "rtsw1")].delayed > 100, "packets are held"
        )
        counted = impairments.clear(to(CABLE, "rtsw1"), ImpairmentKind.DELAY)
        assert counted is not None and counted.delayed == counted.resumed > 50
        time.sleep(0.1)
        impairments.clear(to(SESSION, "rtsw1"), ImpairmentKind.DELAY)

    def impaired() -> TrafficResult:
        impairments.impair(to(CABLE, "rtsw1"), Impairment(ImpairmentKind.DELAY, delay_ns=300 * MS))
        impairments.impair(to(SESSION, "rtsw1"), Impairment(ImpairmentKind.DELAY, delay_ns=1 * MS))
        return run(steered, 0.5, during=clear_one_then_the_other)

    there, back = measured(impaired).flows
    assert lost(there) == lost(back) == []
    assert (np.diff(there.received_seq) > 0).all()


@pytest.mark.few_at_once
def test_queues_and_steering_go_on_beside_it(steered: RunningLab) -> None:
    impairments = steered.impairments
    for link, node in ((CABLE, "rtsw1"), (CABLE, "srv1-1"), (SESSION, "rtsw1")):
        impairments.prepare(to(link, node), ImpairmentKind.LOSS)
    place = ("rtsw1", "srv1-1")
    for side in ("ingress", "egress"):
        filters = state_of(steered)[f"rtsw1:srv1-1 {side}"]
        assert isinstance(filters, list)
        assert [qdisc["pref"] for qdisc in filters if "options" in qdisc] == [
            IMPAIRMENTS.priority,
            10,
        ]

    def counts() -> tuple[int, int]:
        """Packets that the port's queues passed, and that the switch steered."""
        queues = read_queue_counters(steered.fabric)[place].values()
        return sum(queue.packets for queue in queues), steered.steering.counters()["rtsw1"].steered

    def passed() -> tuple[TrafficResult, list[int]]:
        before = counts()
        result = run(steered, 0.3)
        return result, [now - then for now, then in zip(counts(), before, strict=True)]

    try:
        result, counted = measured(passed, problems_of_traffic)
    finally:
        impairments.clear_all()
    there, back = result.flows
    assert counted == [len(back.sent_seq), len(there.sent_seq) + len(back.sent_seq)]
    assert lost(there) == lost(back) == []


def bfd_states(lab: RunningLab) -> list[str]:
    answer = vty.vty_command(lab.node("rtsw1").daemon_files, "bfdd", "show bfd peers json")
    return sorted(peer["status"] for peer in json.loads(answer))


@pytest.mark.side_by_side
def test_a_cable_fault_takes_bfd_with_it_and_is_proven_undone(plain: RunningLab) -> None:
    link = plain.fabric.link_by_name[SESSION]
    fault = blackhole((link,), "rtsw1")
    wait_until(lambda: bfd_states(plain) == ["up", "up"], "BFD came up")
    fault.prepare(plain)
    assert fault.remains(plain)
    fault.inject(plain)
    wait_until(lambda: bfd_states(plain) == ["down", "up"], "BFD saw the blackhole")
    assert carrier(plain, SESSION) == ["UP", "UP"]
    fault.restore(plain)
    assert fault.remains(plain) == ()
    fault.restore(plain)
    wait_until(lambda: bfd_states(plain) == ["up", "up"], "BFD came back")


@pytest.mark.side_by_side
def test_bgp_goes_on_over_a_delay_where_the_kernel_left_checksums_to_the_port(
    plain: RunningLab,
) -> None:
    link = plain.fabric.link_by_name[SESSION]
    fault = delay((link,), 50 * MS)

    def updates() -> int:
        answer = vty.vty_json(
            plain.node("rtsw1").daemon_files, "bgpd", "show bgp neighbors json", dict
        )
        return int(answer[link.b.ip]["messageStats"]["updatesRecv"])

    fault.prepare(plain)
    fault.inject(plain)
    before, began_s = updates(), time.monotonic()
    vty.vty_command(plain.node("rtsw1").daemon_files, "bgpd", "clear bgp * soft in")
    wait_until(lambda: updates() > before, "a route refresh was answered")
    assert time.monotonic() - began_s > 0.1
    fault.restore(plain)
    assert fault.remains(plain) == ()


@pytest.mark.side_by_side
def test_whatever_a_killed_process_left_is_cleared_by_another(steered: RunningLab) -> None:
    impairments, before, chance = steered.impairments, state_of(steered), random.Random(5)
    for _ in range(7):
        child = os.fork()
        if not child:
            try:
                while True:
                    impairments.impair(to(CABLE, "srv1-1"), Impairment(ImpairmentKind.LOSS, 0.5))
                    impairments.impair(
                        to(CABLE, "rtsw1"), Impairment(ImpairmentKind.DELAY, delay_ns=MS)
                    )
                    impairments.clear_all()
            finally:
                os._exit(1)
        time.sleep(chance.uniform(0, 0.3))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        impairments.clear(to(CABLE, "srv1-1"), ImpairmentKind.LOSS)
        impairments.clear(to(CABLE, "rtsw1"), ImpairmentKind.DELAY)
        assert impairments.remains(to(CABLE, "srv1-1"), ImpairmentKind.LOSS) == ()
        # A delay line that was starting ends by itself.
        wait_until(
            lambda: impairments.remains(to(CABLE, "rtsw1"), ImpairmentKind.DELAY) == (),
            "the line is gone",
        )
        wait_until(lambda: state_of(steered) == before, "the lab is as before")


@pytest.mark.few_at_once
def test_a_dead_delay_line_is_started_again(steered: RunningLab) -> None:
    impairments, files = steered.impairments, steered.runtime.files
    impairments.impair(to(CABLE, "rtsw1"), Impairment(ImpairmentKind.DELAY, delay_ns=MS))
    pid = pidfile.holder(lineprocess.pid_file(IMPAIRMENTS, files, "rtsw1"))
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not lineprocess.is_alive(IMPAIRMENTS, files, "rtsw1"), "the process ended")
    impairments.impair(to(CABLE, "rtsw1"), Impairment(ImpairmentKind.DELAY, delay_ns=2 * MS))
    try:
        there, _ = measured(lambda: run(steered, 0.2)).flows
    finally:
        impairments.clear_all()
    assert lost(there) == []


@pytest.mark.parametrize("moment", ["goes on", "is stopped", "is cleared"])
def test_a_run_whose_delayed_packets_stood_still_is_not_valid(
    steered: RunningLab, moment: str
) -> None:
    impairments, files = steered.impairments, steered.runtime.files
    watch = ProcessWatch(steered)
    impairments.impair(to(CABLE, "rtsw1"), Impairment(ImpairmentKind.DELAY, delay_ns=MS))
    try:
        line = pidfile.holder(lineprocess.pid_file(IMPAIRMENTS, files, "rtsw1"))
        assert line is not None
        os.kill(line, signal.SIGSTOP)
        run(steered, 0.3)  # six times the limit
        if moment == "goes on":
            os.kill(line, signal.SIGCONT)
            wait_until(lambda: impairments.lateness().packets > 100, "packets leave")
        if moment == "is cleared":
            counted = impairments.clear(to(CABLE, "rtsw1"), ImpairmentKind.DELAY)
            assert counted is not None and counted.delayed == counted.resumed > 100
        broken = read_status(steered).broken_cables
        (problem,) = watch.figures().problems
    finally:
        impairments.clear_all()
    if moment == "is stopped":
        assert broken == ("rtsw1",)
        assert "the process that delays packets at rtsw1 for a fault had ended or was" in problem
    else:
        assert broken == ()
        assert "packets that a fault delays left 50 ms late or later" in problem


def test_a_lab_that_is_down_has_no_cables(steered: RunningLab, make_lab: MakeLab) -> None:
    other = make_lab("t-down", "fabric: {racks: 2, spines: 2}")
    link = other.fabric.sessions[0]
    with pytest.raises(InputError, match="lab t-down is not up"):
        other.impairments.impair(link.down, Impairment(ImpairmentKind.BLACKHOLE))
    assert other.impairments.clear(link.down, ImpairmentKind.BLACKHOLE) is None
    assert other.impairments.remains(link.down, ImpairmentKind.BLACKHOLE) == ()
