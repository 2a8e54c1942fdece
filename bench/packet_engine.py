"""`python -m bench.packet_engine`: the speed of the packet engine.

Each row is a permutation of 2 MB per host at 100G on a three-tier fat tree with PFC, 4 kB packets
and an ACK for each: the traffic that packet simulators are compared with. A row is two processes:
the first compiles the loop, the second loads it from the cache and then runs the loop once more.
Times are seconds of CPU, of these processes with those that compile for them.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from typing import Any

from bench.campaign import command
from bench.campaign.apart import apart, cpu_s, peak_bytes
from bench.campaign.study import Series, Study
from rocelab import JobSpec
from rocelab import SimulationOptions as Options
from rocelab.jobs.job_spec import collective_job
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.pfc import PfcSpec
from rocelab.results.engines import Engine
from rocelab.sim.figures import simulation_environment
from rocelab.sim.packets.figures import lossless_links
from rocelab.sim.simulate import Simulation

ARITIES = (8, 16, 32)
"""Of fat trees of 128, 1,024 and 8,192 hosts."""
RATE_BPS = 100 * 10**9

Row = dict[str, Any]


def permutation(arity: int) -> Simulation:
    """Every host of a fat tree with PFC sends 2 MB to another one."""
    spec = load_spec(find_lab("fat-tree-4"))
    fabric = spec.fabric.model_copy(update={"k": arity})
    links = spec.links.model_copy(update={"rate": RATE_BPS, "server_rate": RATE_BPS})
    keys = {"pattern": "permutation", "ranks": arity**3 // 4, "size": "2MB"}
    job = JobSpec.model_validate({**keys, "transport": {"ack_every": 1}})
    pfc = PfcSpec.model_validate({"xoff": "100KB", "xon_offset": "5KB", "memory": "400KB"})
    queues = spec.queues.model_copy(update={"pfc": pfc})
    spec = spec.model_copy(update={"fabric": fabric, "links": links, "queues": queues})
    return Simulation(spec, [collective_job(job)], Options(engine=Engine.PACKETS))


def measure(arity: int) -> Row:
    """One size in this process: its first run, and the next one, for which the loop is loaded."""
    idle_bytes = peak_bytes()
    begin_s = cpu_s()
    simulation = permutation(arity)
    made_s = cpu_s()
    simulation.run_packets()
    first_s = cpu_s()
    ran = simulation.run_packets()
    loop_s = cpu_s() - first_s
    return {
        "hosts": arity**3 // 4,
        "packet_hops": ran.packet_hops,
        "make_s": made_s - begin_s,
        "first_s": first_s - made_s,
        "loop_s": loop_s,
        "peak_bytes": peak_bytes() - idle_bytes,
        "pauses": lossless_links(ran, simulation.network).transitions,
        "drops": int(ran.drops.sum()),
    }


def measured(arity: int) -> Row:
    """A row: compiled for the first time in one process, from the cache in the next."""
    with tempfile.TemporaryDirectory() as cache:
        kept = {"NUMBA_CACHE_DIR": cache}
        compiled_s = apart(measure, arity, environment=kept)["first_s"]
        row = apart(measure, arity, environment=kept)
    return {**row, "cached_s": row["first_s"], "first_s": compiled_s, "with_children": True}


STUDY = Study(
    name="packet_engine",
    about="the speed of the packet engine, up to 8,192 hosts",
    series=lambda: [Series.alone({f"{k**3 // 4} hosts": k for k in ARITIES}, measured)],
    environment=lambda: asdict(simulation_environment()),
)

if __name__ == "__main__":
    command.run(STUDY.name)
