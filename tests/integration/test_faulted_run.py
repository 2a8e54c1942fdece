"""Flows of a running lab during faults: what a run counts, judges and restores."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocelab.drills.probes import wait_until
from rocelab.faults.base import Timed
from rocelab.faults.fault_spec import SINGLE_FAULT
from rocelab.faults.record import read_faults
from rocelab.jobs.flow import permutation
from rocelab.lab.lab import Lab, RunningLab
from rocelab.linux.fib import read_fib
from rocelab.linux.namespaces import inside
from rocelab.observe.timeline import FibTimeline, opened_namespaces
from rocelab.record import LabFiles
from rocelab.results.convergence import MeasurementMethod
from rocelab.results.probes import ProbeRun
from rocelab.runs.probes import FaultedRun, ProbeSettings
from tests.helpers import waiting
from tests.helpers.running import running
from tests.helpers.waiting import LIMIT_S

pytestmark = pytest.mark.side_by_side

NAME = "t-faulted"
LAB = f"name: {NAME}\nfabric: {{kind: clos, racks: 2, spines: 2, servers_per_rack: 1}}\n"
MS = 10**6
SETTINGS = ProbeSettings(
    MeasurementMethod(50 * MS, 100 * MS), warmup_ns=400 * MS, event_window_ns=5000 * MS
)
RATE_PPS = 200
DOWN = SINGLE_FAULT.validate_python({"kind": "carrier-down", "link": "rtsw1:ctsw1"})


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    file = tmp_path_factory.mktemp("lab") / f"{NAME}.yaml"
    file.write_text(LAB)
    with running(Lab.planned(file)) as made:
        yield made


@contextmanager
def faulted(
    lab: RunningLab, faults: Sequence[Timed] = (), settings: ProbeSettings = SETTINGS
) -> Iterator[FaultedRun]:
    flows = permutation(lab.fabric, 8, RATE_PPS, 64, seed=1)
    with (
        opened_namespaces(lab, lab.fabric.switches) as netns_of,
        FibTimeline(lab, netns_of) as fib,
    ):
        fib.wait_until_whole(LIMIT_S)
        with FaultedRun(lab, flows, settings, fib, faults) as run:
            yield run
        fib.wait_until_whole(LIMIT_S)


def has_carrier(lab: RunningLab) -> bool:
    (link,) = json.loads(
        lab.node("rtsw1").exec(["ip", "-json", "link", "show", "dev", "ctsw1"]).stdout
    )
    return "LOWER_UP" in link["flags"]


def live_hops(lab: RunningLab) -> int:
    """By how many spines rtsw2's kernel reaches the rack of the dead link."""
    route = read_fib(lab.node("rtsw2").netns).lookup(lab.fabric.nics("srv1-1")[0].ip)
    return 0 if route is None else sum(hop.carrier for hop in route.next_hops)


def assert_mended(lab: RunningLab) -> None:
    assert has_carrier(lab)
    assert read_faults(LabFiles(NAME)) == ()


def counted(repeat: ProbeRun) -> int:
    return sum(record.measurement.sent for record in repeat.flows)


def test_packets_count_from_time_0_and_a_fault_that_has_not_ended_is_mended(
    lab: RunningLab,
) -> None:
    with faulted(lab, [Timed(DOWN, 300 * MS, None)]) as run:
        assert run.zero_ns - run.start_ns == SETTINGS.warmup_ns
        run.carry_out(wait_until)
        assert not has_carrier(lab)
        waiting.wait_until(lambda: live_hops(lab) == 1, "the other rack has left the spine")
        # Longer than a flow must be good again to count as restored.
        wait_until(time.clock_gettime_ns(time.CLOCK_REALTIME) + 500 * MS)
        repeat = run.finish(problems=["asked for"])
        end_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        assert_mended(lab)

    assert [record.event.change for record in repeat.events] == ["begin"]
    event_ns = run.injector.changes[0].t_ns
    for record in repeat.flows:
        # Bins begin with the counted time, and the warm-up's packets are in none.
        assert record.rate.start_ns <= run.zero_ns - event_ns
        assert run.zero_ns - event_ns - record.rate.start_ns < 50 * MS
        assert sum(record.rate.sent) == record.measurement.sent
        assert record.measurement.sent <= (end_ns - run.zero_ns) * RATE_PPS / 10**9 + 1
    lost = [record for record in repeat.flows if record.measurement.lost]
    assert 0 < len(lost) < len(repeat.flows)
    assert repeat.overall.restored
    assert {"rtsw1", "ctsw1", "rtsw2"} <= {change.node for change in repeat.fib}
    assert repeat.problems[0] == "asked for"
    assert repeat.fidelity is not None
    assert repeat.fidelity.stall_ns is not None
    assert repeat.fidelity.agents_cpu_s > 0
    assert repeat.stages == ()
    assert repeat.health is None


def test_a_fault_that_began_late_makes_the_run_invalid(lab: RunningLab) -> None:
    def late(instant_ns: int) -> None:
        wait_until(instant_ns + 150 * MS)

    # So long that a begin that is later still is not of one event with the end.
    with faulted(lab, [Timed(DOWN, 0, 2000 * MS)]) as run:
        run.carry_out(late)
        repeat = run.finish()
    problems = [problem for problem in repeat.problems if "of rtsw1:ctsw1 began" in problem]
    assert len(problems) == 1
    assert not repeat.valid
    assert [record.event.change for record in repeat.events] == ["begin", "end"]


def test_a_port_with_a_reverse_path_filter_makes_the_run_invalid(lab: RunningLab) -> None:
    filters = Path("/proc/sys/net/ipv4/conf/rtsw1/rp_filter")
    with faulted(lab, [Timed(DOWN, 0, 300 * MS)]) as run:
        inside(lab.node("ctsw1").netns, lambda: filters.write_text("1"))
        run.carry_out(wait_until)
        repeat = run.finish()
        inside(lab.node("ctsw1").netns, lambda: filters.write_text("0"))
    assert not repeat.valid
    assert (
        "not valid because ipv4/conf/*/rp_filter is 1 (planned: 0) at ctsw1:rtsw1"
        in repeat.problems
    )


def test_an_error_in_the_middle_mends_the_lab_and_ends_the_traffic(lab: RunningLab) -> None:
    with pytest.raises(ZeroDivisionError), faulted(lab, [Timed(DOWN, 0, None)]) as run:
        run.carry_out(wait_until)
        assert not has_carrier(lab)
        raise ZeroDivisionError
    assert_mended(lab)
    # Another run has the servers for itself.
    with faulted(lab) as run:
        wait_until(run.zero_ns + 300 * MS)
        assert run.finish().events == ()
