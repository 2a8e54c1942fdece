"""A thousand flaps: daemons' memory and the number of routes stay flat."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from rocelab.faults.injector import Injector
from rocelab.faults.kinds.carrier_down import CarrierDownSpec
from rocelab.faults.selectors import LinkSelector
from rocelab.lab.convergence import convergence_timeout_s
from rocelab.lab.lab import Lab, RunningLab
from rocelab.linux.fibtable import Fib
from rocelab.observe.timeline import FibTimeline, opened_namespaces
from rocelab.routing.frr import vty
from tests.helpers.running import running

LAB = "name: soak-flap\nfabric: {kind: clos, racks: 4, spines: 4, servers_per_rack: 1}\n"
FLAPS = 1000
WARM_FLAPS = 200
"""Allocators grow to their working size first."""

DOWN_S = 0.05
BYTES_PER_FLAP_LIMIT = 100
"""A leak of one route, attribute or session buffer per flap would be more."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RunningLab]:
    file = tmp_path / "soak-flap.yaml"
    file.write_text(LAB)
    with running(Lab.planned(file)) as lab:
        yield lab


def memory_bytes(lab: RunningLab) -> dict[str, int]:
    """Private memory of all daemons of a kind, by daemon (proc_pid_smaps(5))."""
    total: dict[str, int] = {}
    for node in lab.fabric.switches:
        for name, pid in lab.node(node.name).daemons().items():
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Private_Dirty:"):
                    total[name] = total.get(name, 0) + int(line.split()[1]) * 1024
    return total


def rib_routes(lab: RunningLab) -> int:
    """Prefixes in the BGP tables of all switches."""
    return sum(
        len(
            vty.vty_json(lab.node(node.name).daemon_files, "bgpd", "show bgp ipv4 json", dict)[
                "routes"
            ]
        )
        for node in lab.fabric.switches
    )


def counted(tables: Mapping[str, Fib]) -> dict[str, int]:
    """Next hops of all routes together, by switch."""
    return {
        node: sum(len(route.next_hops) for route in table.routes) for node, table in tables.items()
    }


def test_a_thousand_flaps_leave_memory_and_routes_flat(
    lab: RunningLab, record_property: Callable[[str, object], None]
) -> None:
    flaps, samples = 0, []
    links = [
        CarrierDownSpec(
            kind="carrier-down",
            link=LinkSelector(node=link.a.node, interface=link.a.interface),
        )
        for link in lab.fabric.sessions
    ]
    with (
        opened_namespaces(lab, lab.fabric.switches) as netns_of,
        FibTimeline(lab, netns_of) as fib,
        Injector(lab) as injector,
    ):
        routes = rib_routes(lab)
        widths = counted(fib.read())
        while flaps < FLAPS:
            for spec in links:
                held = injector.prepare(spec)
                injector.inject(held)
                time.sleep(DOWN_S)
                injector.restore(held)
                flaps += 1
            injector.prove()
            injector.changes.clear()
            assert counted(fib.wait_until_whole(convergence_timeout_s(lab.fabric))) == widths
            samples.append((flaps, memory_bytes(lab)))
        assert rib_routes(lab) == routes
    warm = [(at, memory) for at, memory in samples if at >= WARM_FLAPS]
    for daemon in ("bgpd", "zebra"):
        slope, _ = np.polyfit([at for at, _ in warm], [memory[daemon] for _, memory in warm], 1)
        per_switch = slope / len(lab.fabric.switches)
        record_property(f"{daemon}_bytes_per_flap_and_switch", round(per_switch, 2))
        assert per_switch < BYTES_PER_FLAP_LIMIT
