"""`python -m bench.links_collectives`: whether collectives could be simulated link by link.

The sends of a collective begin when others end, which the engine `links` does not know: it takes
flows that begin at given times. Here they are given by iteration: all sends link by link, each a
flow of its own; then, with how long each took, when each can begin; then again, until no begin
moves by more than a hundredth of the collective's time. The first times are those of sends that are
alone. A row is a collective on hosts of 100G in a fat tree. Seconds are of CPU, of all threads.
"""

from __future__ import annotations

import time
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np

from bench.campaign import command
from bench.campaign.study import Series, Study
from rocelab import JobSpec
from rocelab import SimulationOptions as Options
from rocelab.base.arrays import Bools, Floats, Longs
from rocelab.jobs.job_spec import collective_job
from rocelab.jobs.placement import Placement
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.results.engines import Engine
from rocelab.routes.arrays.flows import joined_paths, paths_taken, ways_along
from rocelab.sim.engine.completion import completion
from rocelab.sim.engine.program import Program
from rocelab.sim.figures import simulation_environment
from rocelab.sim.links.run import run_links
from rocelab.sim.packets.sending import Sending, ack_bytes
from rocelab.sim.packets.wiring import Wiring
from rocelab.sim.simulate import Simulation

RATE_BPS = 100 * 10**9
MOST_ITERATIONS = 64
SETTLED = 0.01
ARITY = 8
"""Of the fat tree, of 128 hosts."""

CELLS = tuple(
    (pattern, ranks, size, dcqcn)
    for pattern in ("allreduce", "alltoall")
    for ranks, size in ((8, "8MB"), (16, "16MB"))
    for dcqcn in ("off", "hpcc-dcqcn")
)

Row = dict[str, Any]


def simulation(pattern: str, ranks: int, size: str, dcqcn: str) -> Simulation:
    """A collective on hosts that are drawn, so that sends meet on links."""
    spec = load_spec(find_lab("fat-tree-4"))
    fabric = spec.fabric.model_copy(update={"k": ARITY})
    links = spec.links.model_copy(update={"rate": RATE_BPS, "server_rate": RATE_BPS})
    keys = {"pattern": pattern, "ranks": ranks, "size": size, "transport": {"dcqcn": dcqcn}}
    if pattern == "alltoall":
        keys["in_flight"] = 1
    job = collective_job(JobSpec.model_validate({**keys, "placement": Placement.RANDOM}))
    spec = spec.model_copy(update={"fabric": fabric, "links": links})
    return Simulation(spec, [job], Options(engine=Engine.PACKETS))


def measured(pattern: str, ranks: int, size: str, dcqcn: str) -> Row:
    """A row."""
    made = simulation(pattern, ranks, size, dcqcn)
    program, (wiring,), latency_s, sending, queues = made.packet_inputs()
    made.run_packets()
    begun = time.process_time()
    jct_s = float(made.run_packets().end_s.max())
    packets_s = time.process_time() - begun
    open_loop, closed = opened(program, sending)
    answers = made.compiled.answers
    assert answers is not None
    paths, back = (
        paths_taken(ways, program.flow) for ways in (made.whole_paths, made.routing.paths(answers))
    )
    both = ways_along(joined_paths(paths, back))
    answer_bits = 8 * ack_bytes(made.network.family)
    answer_s = answer_bits / made.network.capacity_bps[paths.sends] + latency_s[paths.sends]
    answered_s = np.add.reduceat(answer_s, paths.start[:-1])
    receives = waits_for_data(program, sending)
    zero = np.zeros(program.tasks)
    capacity_bps = made.network.capacity_bps
    alone = completion(program, made.whole_paths, capacity_bps, latency_s, zero, zero)
    _, chain = begins_s(replace(program, delay_s=zero), zero + 1, zero, receives)
    start_s, _ = begins_s(program, alone.least_s + answered_s, answered_s, receives)
    times: list[float] = []
    moved, begun = 1.0, time.process_time()
    while moved > SETTLED and len(times) < MOST_ITERATIONS:
        flows = replace(open_loop, delay_s=start_s)
        ran = run_links(flows, [Wiring(0.0, wiring.capacity_bps, both)], latency_s, closed, queues)
        times.append(float(ran.finish_s.max()) / jct_s)
        before_s = start_s
        start_s, _ = begins_s(program, ran.finish_s - start_s, answered_s, receives)
        moved = float(np.abs(start_s - before_s).max()) / jct_s
    return {
        "pattern": pattern,
        "ranks": ranks,
        "size": size,
        "dcqcn": dcqcn,
        "chain": round(chain),
        "jct_us": 1e6 * jct_s,
        "times": times,
        "moved": moved,
        "packets_s": packets_s,
        "links_s": time.process_time() - begun,
    }


def opened(program: Program, sending: Sending) -> tuple[Program, Sending]:
    """Each transfer of a program as a flow of its own that waits for no other."""
    count = program.transfers
    assert count == program.tasks, "a task is a send on one queue pair"
    alone = replace(
        program,
        after_start=np.zeros(count + 1, np.int64),
        after=np.empty(0, np.int32),
        flow=np.arange(count, dtype=np.int32),
    )
    columns = {
        field.name: getattr(sending, field.name)[program.flow]
        for field in fields(Sending)
        if field.name not in ("messages", "rules", "admission", "gathering", "family")
    }
    return alone, replace(sending, **columns)


def waits_for_data(program: Program, sending: Sending) -> Bools:
    """Of each of `program.after`, whether the send that waits leaves from where the other's data
    arrives; else it waits for the last ACK of its own NIC's send."""
    waiter = np.repeat(np.arange(program.tasks), np.diff(program.after_start))
    sender, receiver = sending.source[program.flow], sending.destination[program.flow]
    mask: Bools = sender[waiter] == receiver[program.after]
    return mask


def begins_s(
    program: Program, took_s: Floats, answered_s: Floats, receives: Bools
) -> tuple[Floats, float]:
    """When each send begins if each takes so long to its last ACK, and when the last one ends."""
    start_s, after = np.zeros(program.tasks), program.after.astype(np.int64)
    end_s, data_s = np.zeros(program.tasks), np.zeros(program.tasks)
    bounds: Longs = program.after_start
    for task, (begin, end) in enumerate(
        zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    ):
        others = after[begin:end]
        ready_s = np.where(receives[begin:end], data_s[others], end_s[others])
        start_s[task] = ready_s.max(initial=0.0) + program.delay_s[task]
        end_s[task] = start_s[task] + took_s[task]
        data_s[task] = end_s[task] - answered_s[task]
    return start_s, float(end_s.max())


STUDY = Study(
    name="links_collectives",
    about="collectives link by link, whose sends begin when others end, by iteration",
    series=lambda: [
        Series.alone(
            {
                f"{pattern} {ranks} {dcqcn}": cell
                for cell in CELLS
                for pattern, ranks, _, dcqcn in [cell]
            },
            lambda cell: measured(*cell),
        )
    ],
    figures=lambda _: {"settled": SETTLED, "most": MOST_ITERATIONS},
    environment=lambda: asdict(simulation_environment()),
)

if __name__ == "__main__":
    command.run(STUDY.name)
