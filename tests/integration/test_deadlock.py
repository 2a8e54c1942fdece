"""A cyclic buffer dependency deadlocks for real: full buffers wait for each other until the
watchdog drops what one of them holds. On up-down routes the same load never does.

Every wait is for a state. That a queue stands still is said by pauses, not by a clock: each is
refreshed before it expires, and a queue that could send would have done so long before that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic_ns

import pytest

from rocelab.dataplane.pfc.journal import JournalAction
from rocelab.dataplane.pfc.reading import ClassCounters, PauseReader
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.jobs.options import job_from_file
from rocelab.lab.lab import Lab, RunningLab
from rocelab.labfile.catalog import JOBS, find, find_lab
from rocelab.linux.fib import read_fib
from rocelab.planning.dependencies import search
from rocelab.planning.pauses import PausePort
from rocelab.planning.routes import expected_routes
from rocelab.traffic.session import TrafficSession
from tests.helpers.lossless import in_queue
from tests.helpers.running import running
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.few_at_once

BROKEN = ("rtsw1:ctsw1", "rtsw2:ctsw2")
DURATION_NS = 500_000_000
REFRESHES = 3
"""A pause that is sent again this often has lasted 30 times as long as a full buffer takes to
drain at the rate of its link."""

PACKETS = 5000
"""Delivered in all: many times what the buffers of the fabric hold together."""

Ring = tuple[PausePort, ...]


@contextmanager
def shipped(name: str, folder: Path) -> Iterator[RunningLab]:
    """A lab that ships, up under a name of its own."""
    text = find_lab(name).read_text()
    file = folder / f"t-{name}.yaml"
    body = text[text.index("\nfabric:") :]
    file.write_text(f"name: {file.stem}{body}")
    with running(Lab.planned(file)) as lab:
        yield lab


@pytest.fixture(scope="module")
def ring_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """Without a watchdog; its cables are broken by the second test that asks for it."""
    with shipped("deadlock", tmp_path_factory.mktemp("ring")) as lab:
        yield lab


def rings(lab: RunningLab, reader: PauseReader) -> tuple[Ring, Ring]:
    """The ports whose queues `plan` says can wait for each other, in the order of packets, and
    those of the other way round, which can as well."""
    cycle = search(lab.fabric).cycle
    assert cycle is not None
    by_name = {(port.node, port.port.interface): port for port in reader.plan.ports}
    forward = tuple(by_name[link.sender, link.port.interface] for link in cycle.links)
    back = tuple(by_name[link.receiver, link.far.interface] for link in reversed(cycle.links))
    return forward, back


def break_cables(lab: RunningLab) -> None:
    """Pull the cables, and wait until every kernel has the routes in which `plan` saw the cycle."""
    cycle = search(lab.fabric).cycle
    assert cycle is not None
    assert tuple(link.name for link in cycle.without) == BROKEN
    for name in BROKEN:
        lab.link(name).down()
    kept = tuple(link for link in lab.fabric.links if link not in cycle.without)
    left = replace(lab.fabric, links=kept)
    racks = {prefix.prefix for prefix in left.prefixes if left.node(prefix.origins[0]).is_leaf}
    expected = {
        node: {
            prefix: {link.port(node).interface for link in links}
            for prefix, links in routes.items()
            if prefix in racks
        }
        for node, routes in expected_routes(left).items()
    }

    def routed() -> Mapping[str, Mapping[str, set[str]]]:
        return {
            node: {
                route.prefix: {hop.interface for hop in route.next_hops if hop.carrier}
                for route in read_fib(lab.node(node).netns).routes
                if route.prefix in expected[node]
            }
            for node in expected
        }

    wait_until(lambda: routed() == expected, "the routes around the broken cables")


@contextmanager
def load(lab: RunningLab) -> Iterator[None]:
    """The job that ships for this, but longer. Senders end with the block, whatever is queued."""
    job = job_from_file(find("deadlock", JOBS)).model_copy(update={"duration": DURATION_NS})
    plans = plan_jobs(lab.fabric, [job])
    with TrafficSession(lab.fabric, lambda name: lab.node(name).netns, (), plans) as session:
        session.start()
        yield


def counters(reader: PauseReader) -> Mapping[PausePort, ClassCounters]:
    return {port: count for (port, _), count in reader.counters(monotonic_ns()).items()}


def is_stuck(by_port: Mapping[PausePort, ClassCounters], ring: Ring) -> bool:
    """Whether each queue of the ring is not empty and its gate is closed."""
    return all(by_port[port].is_paused and in_queue(by_port[port]) > 0 for port in ring)


def wait_for_standstill(reader: PauseReader, candidates: tuple[Ring, ...]) -> Ring:
    """Return a ring of which no queue has sent a packet while each of its pauses was refreshed
    REFRESHES times."""
    rings: list[Ring] = []

    def stands() -> bool:
        before = counters(reader)
        stuck = [ring for ring in candidates if is_stuck(before, ring)]
        if not stuck:
            return False
        (ring,) = stuck[:1]
        sent = {port: before[port].sent_packets for port in ring}
        known = len(reader.entries())

        def refreshed_or_moved() -> bool:
            now = counters(reader)
            if not is_stuck(now, ring) or any(
                now[port].sent_packets != sent[port] for port in ring
            ):
                return True
            again = [
                entry.slot
                for entry in reader.entries(known)
                if entry.what is JournalAction.REFRESHED
            ]
            return all(again.count(port.peer) >= REFRESHES for port in ring)

        wait_until(refreshed_or_moved, "refreshed pauses, or a packet that moves")
        now = counters(reader)
        if is_stuck(now, ring) and all(now[port].sent_packets == sent[port] for port in ring):
            rings.append(ring)
        return bool(rings)

    wait_until(stands, "a ring of queues that stand still")
    return rings[0]


def wait_until_drained(reader: PauseReader) -> None:
    """Wait until no queue holds a packet and no gate is closed; then all packets are accounted
    for."""

    def drained() -> bool:
        return not any(
            in_queue(counter) or counter.is_paused for counter in counters(reader).values()
        )

    wait_until(drained, "empty queues and open gates")
    assert reader.imbalance() == ()
    assert all(counter.held == 0 for port, counter in counters(reader).items() if not port.is_nic)


def delivered(by_port: Mapping[PausePort, ClassCounters]) -> int:
    """Packets that reached NICs."""
    return sum(
        counters.sent_packets
        for port, counters in by_port.items()
        if not port.is_nic and port.port.interface.startswith("srv")
    )


def test_the_same_load_never_stops_on_up_down_routes(ring_lab: RunningLab) -> None:
    lab = ring_lab
    with PauseReader(lab.fabric) as reader:
        with load(lab):
            wait_until(
                lambda: delivered(counters(reader)) >= PACKETS, f"{PACKETS} packets at their NICs"
            )
            # Buffers do fill: the load is one that pauses spread under.
            wait_until(
                lambda: any(
                    counter.pauses_sent
                    for port, counter in counters(reader).items()
                    if not port.is_nic
                ),
                "switches that pause",
            )
        wait_until_drained(reader)
        assert not any(counter.discarded_packets for counter in counters(reader).values())


def test_a_ring_of_full_buffers_stands_still_even_after_all_senders_have_stopped(
    ring_lab: RunningLab,
) -> None:
    lab = ring_lab
    break_cables(lab)
    with PauseReader(lab.fabric) as reader:
        candidates = rings(lab, reader)
        with load(lab):
            ring = wait_for_standstill(reader, candidates)
            before = counters(reader)
        assert wait_for_standstill(reader, (ring,)) == ring
        after = counters(reader)
        assert [after[port].sent_packets for port in ring] == [
            before[port].sent_packets for port in ring
        ]
        assert not any(
            counters.watchdog_fired or counters.discarded_packets for counters in after.values()
        )
        # What each of them waits for is the memory that the next one's packets hold.
        for port, onward in zip(ring, (*ring[1:], *ring[:1]), strict=True):
            waiting_for = reader.plan.by_slot[port.peer]
            assert waiting_for.node == onward.node
            assert after[waiting_for].held > 0


def test_the_watchdog_frees_the_ring(tmp_path: Path) -> None:
    with shipped("deadlock-watchdog", tmp_path) as lab, PauseReader(lab.fabric) as reader:
        break_cables(lab)
        candidates = rings(lab, reader)

        def fired() -> bool:
            now = counters(reader)
            return any(now[port].watchdog_fired for ring in candidates for port in ring)

        with load(lab):
            wait_until(fired, "a watchdog that fires in a ring")
            arrived = delivered(counters(reader))
            wait_until(
                lambda: delivered(counters(reader)) > arrived, "packets that arrive after it fired"
            )
        wait_until_drained(reader)
        assert sum(counter.discarded_packets for counter in counters(reader).values()) > 0
