"""`python -m bench.links_engine`: the engine `links` beside the packet engine.

A row is the same flows twice, on hosts of 100G: packet by packet through the whole network, and
link by link. Flows begin as Poisson processes. Patterns: `uniform`, to any other host; `skewed`,
three quarters of the flows to half of the hosts; `bursts`, 16 hosts send at once to the same one.
Where delays are added up, each link has its flows as NICs send them, and what it adds to a flow is
its time there less that at the NIC alone with the same flows, as published (Zhao et al., NSDI
2023), but flow by flow. Times are seconds of CPU, of all threads.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict, dataclass, replace
from itertools import chain, product
from typing import Any

import numpy as np

from bench.campaign import command
from bench.campaign.document import Document
from bench.campaign.study import Series, Study
from rocelab import LabSpec, SimulatedJob
from rocelab import SimulationOptions as Options
from rocelab.base.arrays import Floats
from rocelab.base.progress import no_progress
from rocelab.jobs.flow_list import FlowList
from rocelab.jobs.poisson import PoissonSpec, poisson_flows
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.results.engines import Engine
from rocelab.routes.arrays.paths import along_paths
from rocelab.sim.engine.completion import completion
from rocelab.sim.figures import simulation_environment, transfer_times
from rocelab.sim.links.part import Links, pass_part, rounds_s
from rocelab.sim.links.run import run_links
from rocelab.sim.links.traffic import Part, stages, traffic_of
from rocelab.sim.packets.run import PacketRun, run_packets
from rocelab.sim.simulate import Simulation

RATE_BPS = 100 * 10**9
BURST = 16
SIZES = ("websearch", "fb-hadoop", "alistorage")
PATTERNS = ("uniform", "skewed", "bursts")

Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """Flows of a row."""

    hosts: int
    sizes: str
    load: str
    pattern: str
    dcqcn: str
    duration: str

    @property
    def name(self) -> str:
        return f"{self.hosts} {self.sizes} {self.load} {self.pattern} {self.dcqcn}"


def cells() -> list[Cell]:
    """The rows. More than half of the bytes of web search are in flows that take over half a
    millisecond alone."""
    patterns = (("uniform", "off"), *((pattern, "hpcc-dcqcn") for pattern in PATTERNS))

    def duration(hosts: int, sizes: str) -> str:
        if hosts > 1024:
            return "250us"
        return "1ms" if sizes == "websearch" else "500us"

    return [
        Cell(hosts, sizes, load, *pattern, duration(hosts, sizes))
        for hosts, sizes, load, pattern in product((1024, 4096), SIZES, ("30%", "60%"), patterns)
    ]


def fabric(hosts: int) -> LabSpec:
    """A three-tier fabric without a bottleneck: a fat tree of 1,024 hosts, or a Clos of 4,096."""
    if hosts == 1024:
        spec = load_spec(find_lab("fat-tree-4"))
        changed: dict[str, Any] = {"k": 16}
    else:
        spec = load_spec(find_lab("meta-32k"))
        changed = {"zones": 4, "racks": 64, "servers_per_rack": 16, "nics_per_server": 1}
        changed |= {"spines": 16, "atsws": 16, "links_per_atsw": 4}
    links = spec.links.model_copy(update={"rate": RATE_BPS, "server_rate": RATE_BPS})
    shape = spec.fabric.model_copy(update=changed)
    return spec.model_copy(update={"fabric": shape, "links": links})


def flows_of(cell: Cell) -> FlowList:
    """The flows of a cell: Poisson arrivals, to the destinations of its pattern."""
    keys = {"sizes": cell.sizes, "load": cell.load, "duration": cell.duration}
    drawn = poisson_flows(PoissonSpec.model_validate(keys), np.full(cell.hosts, RATE_BPS), seed=1)
    source, destination, start_s = drawn.source, drawn.destination, drawn.start_s
    rng = np.random.default_rng(2)
    if cell.pattern == "skewed":
        is_hot = rng.random(len(drawn)) < 0.5
        destination = np.where(is_hot, destination // 2 * 2, destination)
    elif cell.pattern == "bursts":
        burst = np.arange(len(drawn)) // BURST * BURST
        destination, start_s = destination[burst], start_s[burst]
    destination = np.where(destination == source, (source + 2) % cell.hosts, destination)
    return FlowList(cell.hosts, source, destination.astype(np.int32), drawn.size_bytes, start_s)


def simulation(cell: Cell) -> Simulation:
    """The flows of a cell on its fabric."""
    flows = flows_of(cell)
    columns = (flows.source, flows.destination, flows.size_bytes, flows.start_s)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    lines = [f"{source} {to} 3 100 {size} {at!r}\n" for source, to, size, at in rows]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(f"{len(flows)}\n{''.join(lines)}")
        file.flush()
        keys = {"name": "flows", "flows": {"file": file.name}, "transport": {"dcqcn": cell.dcqcn}}
        job = SimulatedJob.model_validate(keys)
        return Simulation(fabric(cell.hosts), [job], Options(engine=Engine.PACKETS))


def p99_added_up(made: Simulation) -> float:
    """The p99 of the slowdown where delays of links that do not know each other are added up."""
    program, _, latency_s, sending, queues = made.packet_inputs()
    paths, capacity_bps = made.whole_paths, made.network.capacity_bps
    traffic = traffic_of(program, paths, sending)
    nic = paths.sends[paths.start[:-1]].astype(np.int64)
    round_s = rounds_s(traffic, capacity_bps, latency_s)
    links = Links(traffic, capacity_bps, latency_s, queues, round_s)
    nics, *others = stages(traffic, len(capacity_bps))
    begin_s = traffic.start_s[traffic.flow]
    over_s = _left_s(links, begin_s, nics)[traffic.last] + along_paths(paths, latency_s)
    for part in chain.from_iterable(others):
        from_nic = replace(part, before=nic[part.flow])
        # A NIC for each link, alone with the flows that go on to it.
        pairs, number = np.unique(
            np.stack((part.link, from_nic.before)), axis=1, return_inverse=True
        )
        alone = Part(part.flow, number.reshape(-1), np.full_like(part.link, -1), 0 * part.hop)
        real = pairs[1]
        without = replace(links, capacity_bps=capacity_bps[real], latency_s=latency_s[real])
        alone_s = _left_s(without, begin_s, [alone])
        over_s += (_left_s(links, alone_s, [from_nic]) - alone_s)[traffic.last]
    times = completion(program, paths, capacity_bps, latency_s, program.delay_s, over_s)
    return float(np.quantile(times.slowdown, 0.99))


def _left_s(links: Links, comes_s: Floats, parts: list[Part]) -> Floats:
    """When chunks have passed the links of these parts, if they come at these times, C; 0 for
    chunks that do not cross them."""
    zeros = np.zeros(len(comes_s))
    for part in parts:
        passed = pass_part(links, comes_s, no_progress, part)
        zeros[passed.chunk] = passed.left_s
    return zeros


def measured(cell: Cell) -> Row:
    """A row of the table."""
    made = simulation(cell)
    inputs = made.packet_inputs()
    row: Row = {**asdict(cell), "flows": len(made.flows)}
    for name, engine in (("packets", run_packets), ("links", run_links)):
        begin = time.process_time()
        ran = engine(*inputs)
        row[name] = figures(made, ran, time.process_time() - begin)
    row["error"] = row["links"]["p99"] / row["packets"]["p99"] - 1
    if cell.pattern == "uniform" and cell.load == "60%" and cell.hosts == 1024:
        row["error_added_up"] = p99_added_up(made) / row["packets"]["p99"] - 1
        other = figures(made, run_packets(*inputs[:-1], replace(inputs[-1], seed=2)), 0.0)
        row["error_of_marks"] = other["p99"] / row["packets"]["p99"] - 1
    return row


def figures(made: Simulation, ran: PacketRun, seconds: float) -> Row:
    """Those of a run. seconds: of CPU."""
    slowdown = transfer_times(made, ran).slowdown
    p50, p99 = np.quantile(slowdown, [0.5, 0.99]).tolist()
    switches = made.network.tier[made.network.sender] > 0
    return {
        "p50": p50,
        "p99": p99,
        "highest_bytes": int(ran.highest_bytes[switches].max()),
        "seconds": seconds,
    }


def figures_of_page(document: Document) -> dict[str, Any]:
    """The rows with the largest errors, and errors of those of which there are several."""
    rows = document.firsts
    several = [row for row in rows if "error_added_up" in row]
    return {
        "worst": max(rows, key=lambda row: abs(row["error"])),
        "errors": [abs(row["error"]) for row in rows],
        "added": [abs(row["error_added_up"]) for row in several],
        "beside": [abs(row["error"]) for row in several],
        "marks": [abs(row["error_of_marks"]) for row in several],
    }


STUDY = Study(
    name="links_engine",
    about="the engine `links` beside the packet engine, on the same flows",
    series=lambda: [Series.alone({cell.name: cell for cell in cells()}, measured)],
    figures=figures_of_page,
    environment=lambda: asdict(simulation_environment()),
)

if __name__ == "__main__":
    command.run(STUDY.name)
