"""Every kind of fault on a real lab: its effect is seen, and an injection without effect is
detected."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from rocelab.faults import policy
from rocelab.faults.asked import kinds
from rocelab.faults.base import Fault
from rocelab.faults.fault_spec import SINGLE_FAULT
from rocelab.faults.injector import InjectedChange, Injector, RunningFault
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.status import read_status
from rocelab.linux import namespaces
from rocelab.linux.bracket import Bracket
from tests.helpers.running import running
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.side_by_side

LAB = """
name: t-effects
fabric: {kind: clos, racks: 3, spines: 2, servers_per_rack: 1}
dilation: 5000
routing: {keepalive: 1s, hold: 5s}
queues: {pfc: {}}
"""
SAMPLES: dict[str, dict[str, object]] = {
    "carrier-down": {"link": "rtsw1:ctsw1"},
    "carrier-down at one end": {"kind": "carrier-down", "link": "rtsw1:ctsw1", "side": "rtsw1"},
    "blackhole": {"link": "rtsw1:ctsw1"},
    "grey-loss": {"link": "rtsw1:ctsw1", "towards": "ctsw1"},
    "corruption": {"link": "rtsw1:ctsw1"},
    "delay": {"link": "rtsw1:ctsw1"},
    "rate-degrade": {"link": "rtsw1:ctsw1"},
    "mtu-mismatch": {"link": "rtsw1:ctsw1"},
    "nic-port-down": {"server": "srv1-1"},
    "slow-receiver": {"server": "srv1-1"},
    "pause-storm": {"server": "srv1-1"},
    "pause-deaf": {"link": "rtsw1:ctsw1"},
    "host-pause": {"server": "srv2-1"},
    "power-loss": {"switch": "ctsw2"},
    "daemon-crash": {"switch": "ctsw2"},
    "daemon-hang": {"switch": "ctsw2"},
    "drain": {"switch": "ctsw2"},
    "abrupt-removal": {"switch": "ctsw2"},
    "session-reset": {"switch": "ctsw2"},
    "session-reset of one, soft": {
        "kind": "session-reset",
        "switch": "ctsw2",
        "peer": "rtsw1",
        "mode": "soft",
    },
    "route-leak": {"switch": "rtsw2"},
    "route-leak without filters": {"kind": "route-leak", "switch": "rtsw2", "filtered": False},
    "bad-prefix": {"switch": "rtsw2", "of": "rtsw1"},
}
SEVERAL = ("flapping", "campaign")
"""Kinds that consist of other faults."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    file = tmp_path_factory.mktemp("effects") / "lab.yaml"
    file.write_text(LAB)
    with running(Lab.planned(file)) as lab:
        yield lab


@pytest.fixture
def lab(made: RunningLab) -> Iterator[RunningLab]:
    """The lab with complete sessions and routes, and a process in the server that is paused."""
    wait_until(lambda: read_status(made).converged)
    server = made.node("srv2-1").netns
    process = namespaces.inside(server, lambda: subprocess.Popen(["sleep", "infinity"]))
    yield made
    process.kill()
    process.wait()


class Idle(Injector):
    """An injector that reports an injection but does nothing."""

    def inject(self, held: RunningFault) -> None:
        now = Bracket.now()
        self.changes.append(InjectedChange(held.fault, True, now.before_ns, 0))


def prepared(injector: Injector, name: str) -> RunningFault:
    return injector.prepare(SINGLE_FAULT.validate_python({"kind": name} | SAMPLES[name]))


def is_seen(fault: Fault, lab: RunningLab, before: frozenset[str]) -> bool:
    return not before & fault.intact(lab)


def test_there_is_a_sample_of_every_kind() -> None:
    assert {kind.name for kind in kinds()} <= {*SAMPLES, *SEVERAL}


@pytest.mark.parametrize("name", SAMPLES)
def test_an_injector_that_does_nothing_is_found_out(lab: RunningLab, name: str) -> None:
    with Idle(lab) as injector:
        held = prepared(injector, name)
        injector.inject(held)
        injector.check_effect(held)
        (problem,) = injector.unseen
    assert "had no visible effect: " in problem
    assert held.fault.kind in problem


@pytest.mark.parametrize("name", SAMPLES)
def test_what_a_fault_does_is_seen(lab: RunningLab, name: str) -> None:
    with Injector(lab) as injector:
        held = prepared(injector, name)
        before = held.fault.intact(lab)
        injector.inject(held)
        wait_until(lambda: is_seen(held.fault, lab, before), f"{name} is seen")
        injector.check_effect(held)
        assert injector.unseen == []
        assert held.recorded.spec.instant or held.fault.remains(lab)


@pytest.mark.parametrize("name", ["route-leak", "route-leak without filters", "bad-prefix"])
def test_a_leak_is_undone_once_its_switch_announces_no_more_than_its_own_prefixes(
    lab: RunningLab, name: str
) -> None:
    count = len(lab.fabric.prefixes_of["rtsw2"])
    with Injector(lab) as injector:
        held = prepared(injector, name)
        before = held.fault.intact(lab)
        injector.inject(held)
        wait_until(lambda: is_seen(held.fault, lab, before), f"{name} is seen")
    assert max(session.sent for session in policy.sessions(lab, "rtsw2").values()) <= count
