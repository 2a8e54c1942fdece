"""`python -m bench.packet_engine`: the speed of the packet engine.

Each row is a permutation of 2 MB per host at 100G on a three-tier fat tree with PFC, 4 kB packets
and an ACK for each: the traffic that packet simulators are compared with. A row is two processes:
the first compiles the loop, the second loads it from the cache and then runs the loop once more.
Times are seconds of CPU. Writes bench/packet_engine.json and bench/packet_engine.md.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from typing import Annotated, Any

import typer
from rich.console import Console

from bench.written import write
from rocelab import JobSpec
from rocelab import SimulationOptions as Options
from rocelab.base.interruption import ending
from rocelab.jobs.job_spec import collective_job
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.pfc import PfcSpec
from rocelab.results.engines import Engine
from rocelab.results.environment import cpu_model
from rocelab.sim.packets.figures import lossless_links
from rocelab.sim.simulate import Simulation

ARITIES = (8, 16, 32)
"""Of fat trees of 128, 1,024 and 8,192 hosts."""
RATE_BPS = 100 * 10**9

HTSIM = (
    "A packet simulator in C++, [htsim](https://github.com/Broadcom/csg-htsim), took 7.8 s of user "
    "time and 96 MB for the bytes of 1,024 hosts, RoCE with PFC. That was measured by hand at "
    "another time on a machine of this project, when this benchmark was planned; this command does "
    "not run it, since its source is in no package registry."
)

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
    idle_bytes = _peak_bytes()
    begin = time.process_time()
    simulation = permutation(arity)
    made = time.process_time()
    simulation.run_packets()
    first = time.process_time()
    ran = simulation.run_packets()
    loop_s = time.process_time() - first
    return {
        "hosts": arity**3 // 4,
        "packet_hops": ran.packet_hops,
        "make_s": made - begin,
        "first_s": first - made,
        "loop_s": loop_s,
        "peak_bytes": _peak_bytes() - idle_bytes,
        "pauses": lossless_links(ran, simulation.network).transitions,
        "drops": int(ran.drops.sum()),
    }


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _in_process(arity: int, cache: str) -> Row:
    argv = [sys.executable, "-m", "bench.packet_engine", "--only", str(arity)]
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_CACHE_DIR": cache},
    )
    row: Row = json.loads(done.stdout)
    return row


def measured(arity: int) -> Row:
    """A row: compiled for the first time in one process, from the cache in the next."""
    with tempfile.TemporaryDirectory() as cache:
        compiled_s = _in_process(arity, cache)["first_s"]
        row = _in_process(arity, cache)
    return {**row, "cached_s": row["first_s"], "first_s": compiled_s}


def markdown(rows: list[Row], machine: str) -> str:
    """The table and the machine."""
    lines = [
        "# Results of `python -m bench.packet_engine`",
        "",
        f"On {machine}, one thread, seconds of CPU.",
        "",
        "A permutation of 2 MB per host at 100G on a three-tier fat tree with PFC (XOFF at 100 kB "
        "for each port that a packet came by), 4 kB packets and an ACK for each; a packet-hop is a "
        "transmission of a packet or an ACK. The run is "
        "compiled for the first time, loaded from the cache in a new process, or the second in its "
        "process: the loop alone. Memory is the process's peak, with fabric and paths, above that "
        "when idle.",
        "",
        "| hosts | packet-hops | fabric and paths, s | first run, s | from the cache, s | "
        "loop, s | packet-hops/s | memory, MB | pauses | drops |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['hosts']:,} | {row['packet_hops']:,} | {row['make_s']:.2f} | "
        f"{row['first_s']:.1f} | {row['cached_s']:.2f} | {row['loop_s']:.2f} | "
        f"{row['packet_hops'] / row['loop_s'] / 1e6:.2f} M | {row['peak_bytes'] / 1e6:.0f} | "
        f"{row['pauses']:,} | {row['drops']:,} |"
        for row in rows
    ]
    lines += ["", HTSIM]
    return "\n".join(lines) + "\n"


def main(only: Annotated[int, typer.Option(hidden=True)] = 0) -> None:
    """Measure, print and write results."""
    if only:
        print(json.dumps(measure(only)))
        return
    rows = [measured(arity) for arity in ARITIES]
    machine = f"{cpu_model()}, Python {platform.python_version()}"
    text = markdown(rows, machine)
    write("packet_engine", {"machine": machine, "rows": rows}, text)
    Console().print(text, markup=False)


if __name__ == "__main__":
    with ending():
        typer.run(main)
