"""A drill result computed by hand: a small zone, 24 flows, one link flap, two seed plans."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import lru_cache

import numpy as np

from rocelab.drills.drill_spec import DrillSpec, PhaseDrillSpec, PhaseSpec
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import Direction, Fabric
from rocelab.results.convergence import FlowSamples
from rocelab.results.drill import DrillResult, PhaseRun, ProbePlan, conclude, in_both_clocks
from rocelab.results.environment import Environment
from rocelab.results.probes import (
    Event,
    FaultChange,
    FibChange,
    Flow,
    HashingRun,
    ProbeRun,
    Timeline,
    probe_run,
)
from rocelab.routes.balance import link_loads, tier_balances
from tests.helpers.choices import Choice, polarizations

MS = 10**6
START = 1_000 * 10**9
LINK = "rtsw1:ctsw2"
DRILL = {
    "name": "link-flap",
    "title": "Carrier flap of one RTSW uplink",
    "description": "A cable is pulled for two seconds.",
    "lab": "zone-small",
    "traffic": {"flows": 24},
    "faults": [{"kind": "carrier-down", "at": "2s", "link": "rtsw1:ctsw2", "lasts": "2s"}],
    "compare_hashing": ["per-node", "shared"],
    "expect": {
        "restored": True,
        "affected_flows": ">= 1",
        "full_convergence": "<= 1s",
        "lost_outside_events": 0,
        "lost_packets": "<= 50",
    },
}


def lab() -> LabSpec:
    return LabSpec(name="zone-small", fabric=ClosSpec(racks=4, spines=4, servers_per_rack=2))


def flows(fabric: Fabric, count: int = 24) -> list[Flow]:
    servers = [node.name for node in fabric.servers]
    made = []
    for index in range(count):
        source = servers[index % len(servers)]
        destination = servers[(index + 2) % len(servers)]
        made.append(
            Flow(
                name=f"f{index + 1}",
                source=source,
                destination=destination,
                source_ip=fabric.nics(source)[0].ip,
                destination_ip=fabric.nics(destination)[0].ip,
                source_port=49152 + index,
                destination_port=4791,
            )
        )
    return made


def rack_of(server: str) -> str:
    """`rtsw3` of `srv3-1`."""
    return f"rtsw{server.removeprefix('srv').partition('-')[0]}"


def hashing(fabric: Fabric, plan: str, is_own: bool, seed: int) -> HashingRun:
    """2,000 packets of each flow over a random spine."""
    draw = random.Random(seed)
    packets = dict.fromkeys(fabric.directed_links, 0)
    paths = []
    for flow in flows(fabric):
        rack, far = (
            f"rtsw{name[3:].partition('-')[0]}" for name in (flow.source, flow.destination)
        )
        spine = draw.randrange(4) if is_own else draw.choice([0, 0, 1, 3])
        packets[fabric.link_by_name[f"{rack}:ctsw{spine + 1}"].up] += 2000
        packets[fabric.link_by_name[f"{far}:ctsw{spine + 1}"].down] += 2000
        second = draw.randrange(4) if is_own else spine
        paths.append(
            [
                Choice(rack, "rtsw up", spine, 4),
                Choice(f"ctsw{spine + 1}", "ctsw down", second, 4),
            ]
        )
    loads = link_loads(fabric, packets)
    crossing = {
        ("rtsw-ctsw", direction, f"rtsw{rack}"): 6
        for direction in Direction
        for rack in range(1, 5)
    }
    return HashingRun(plan, is_own, loads, tier_balances(loads, crossing), polarizations(paths))


def samples(outage_ms: dict[int, int], index: int) -> FlowSamples:
    sent = np.arange(6000, dtype=np.int64)
    sent_ns = START + sent * MS + index * 40_000
    first, after = 2000, 2000 + outage_ms.get(index, 0)
    got = np.concatenate([sent[:first], sent[after:]])
    return FlowSamples(sent, sent_ns, got, sent_ns[got] + 50_000 + 977 * got % 30_000)


def fib(fabric: Fabric, jitter: random.Random) -> list[FibChange]:
    down, up = START + 2000 * MS, START + 4000 * MS
    changes = []
    for rack in range(1, 5):
        prefixes = [f"198.18.0.{4 * other}/29" for other in range(1, 4)]
        for prefix in prefixes:
            at = 4 * MS if rack == 1 else 22 * MS
            late = jitter.randrange(6 * MS)
            changes.append(FibChange(down + at + late, f"rtsw{rack}", prefix, "replace", 4, 3))
            changes.append(
                FibChange(up + 1100 * MS + late * 10, f"rtsw{rack}", prefix, "replace", 3, 4)
            )
    changes.append(FibChange(down + 3 * MS, "ctsw2", "198.18.0.0/29", "delete", 1, None))
    changes.append(FibChange(up + 1050 * MS, "ctsw2", "198.18.0.0/29", "new", None, 1))
    return changes


@lru_cache
def repeat(seed: int, problems: tuple[str, ...] = ()) -> ProbeRun:
    fabric = build_fabric(lab())
    jitter = random.Random(seed)
    outage_ms = {0: 5 + seed, 3: 24 + seed, 9: 27 + seed}
    events = tuple(
        Event(
            t_ns,
            "carrier-down",
            "begin" if begins else "end",
            LINK,
            faults=(FaultChange(t_ns, "carrier-down", begins, LINK, (LINK,), dark=True),),
        )
        for t_ns, begins in ((START + 2000 * MS, True), (START + 4000 * MS, False))
    )
    spec = phase()
    return probe_run(
        {flow: samples(outage_ms, i) for i, flow in enumerate(flows(fabric))},
        Timeline(events, START, START + 6000 * MS, spec.measure.event_window),
        spec.measure.method,
        fib=fib(fabric, jitter),
        hashing=[hashing(fabric, "shared", False, 3), hashing(fabric, "per-node", True, 1)],
        problems=problems,
    )


def storm(number: int = 8) -> ProbeRun:
    """A run with so many events, 600 ms apart: each has every third flow out, the third longest."""
    fabric = build_fabric(lab())
    at_ms = [500 + 600 * place for place in range(number)]
    sent = np.arange(600 * number + 1000, dtype=np.int64)
    flows_of: dict[Flow, FlowSamples] = {}
    for index, flow in enumerate(flows(fabric)):
        arrived = np.ones(len(sent), bool)
        for place, at in enumerate(at_ms):
            if index % 3 == place % 3:
                arrived[at : at + (120 if place == 2 else 10 + place)] = False
        sent_ns = START + sent * MS + index * 40_000
        got = sent[arrived]
        flows_of[flow] = FlowSamples(sent, sent_ns, got, sent_ns[got] + 50_000)
    events = tuple(
        Event(
            START + at * MS,
            "several faults" if place == 2 else "carrier-down",
            "begin",
            "ctsw1, rtsw1:ctsw2, rtsw2:ctsw3" if place == 2 else LINK,
            changes=3 if place == 2 else 1,
            faults=STORM_FAULTS if place == 2 else (FaultChange(0, "carrier-down", True, LINK),),
        )
        for place, at in enumerate(at_ms)
    )
    spec = phase()
    timeline = Timeline(events, START, START + len(sent) * MS, spec.measure.event_window)
    return probe_run(flows_of, timeline, replace(spec.measure.method, sustained_ns=200 * MS))


STORM_FAULTS = (
    FaultChange(0, "power-loss", True, "ctsw1", (), ("ctsw1",), dark=True),
    FaultChange(MS, "blackhole", True, LINK, (LINK,)),
    FaultChange(2 * MS, "carrier-down", True, "rtsw2:ctsw3", ("rtsw2:ctsw3",), dark=True),
)


def drill() -> DrillSpec:
    return PhaseDrillSpec.model_validate(DRILL).with_phases()


def expecting(expect: dict[str, object]) -> DrillSpec:
    """The drill with other expectations."""
    return PhaseDrillSpec.model_validate({**DRILL, "expect": expect}).with_phases()


def phase() -> PhaseSpec:
    return drill().phases[0]


def result(*repeats: ProbeRun, spec: DrillSpec | None = None) -> DrillResult:
    spec = spec or drill()
    (of_phase,) = spec.phases
    fault = of_phase.faults[0]
    assert fault.lasts is not None
    clocks = in_both_clocks(
        1000.0,
        {"fault at": fault.at, "carrier down for": fault.lasts, "packet interval": MS},
        {"rate of a flow": 1000},
    )
    return conclude(
        drill=spec.model_dump(mode="json", exclude_none=True),
        lab=lab().model_dump(mode="json"),
        environment=Environment(
            tool_version="0.1.0",
            kernel="Linux 6.12.0",
            frr_version="8.4.4",
            python="3.11.2",
            cpu_model="an <ordinary> CPU",
            cpu_count=2,
            memory_bytes=24 * 2**30,
            started="2025-01-01T00:00:00Z",
        ),
        dilation=1000.0,
        notes=(),
        repeats=[
            [PhaseRun(spec.name, probes=repeat)]
            for repeat in repeats or (repeat(1), repeat(2), repeat(4))
        ],
        expectations={spec.name: of_phase.expect.expectations()},
        probes={spec.name: ProbePlan(of_phase.measure.method, clocks)},
    )
