"""`python -m bench.pfc_findings`: the jobs of the drills `finding-pfc-*`, packet by packet.

Prints what docs/pfc.md has beside the lab's figures: a lab's own latency is next to nothing in
modelled time, and its ports are those of a lab. Each job is run with ten seeds, which draw what is
marked: medians, and the least and the most.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from rocelab.drills.catalog import find_drill
from rocelab.drills.spec import load_drill
from rocelab.jobs.spec import collective_job
from rocelab.results.simulation import Engine, PortModel
from rocelab.sim.simulate import Options, simulate
from rocelab.spec.catalog import find_lab
from rocelab.spec.load import load_spec

SEEDS = range(1, 11)
OPTIONS = Options(engine=Engine.PACKETS, ports=PortModel.LAB, hop_latency_ns=20)


def main() -> None:
    """Print a line for each phase."""
    lab = load_spec(find_lab("lossless-marked"))
    for name in ("finding-pfc-allreduce", "finding-pfc-alltoall"):
        for phase in load_drill(find_drill(name)).phases:
            (job,) = phase.jobs
            busbw, pauses = [], []
            for seed in SEEDS:
                report = simulate(lab, [collective_job(job)], replace(OPTIONS, seed=seed))
                busbw.append(report.jobs[0].headline("busbw").modelled.median)
                packets = report.packets
                assert packets is not None
                pauses.append(0 if packets.lossless is None else packets.lossless.transitions)
            print(
                f"{name} {phase.name}: {median(busbw):.2f} GB/s "
                f"({min(busbw):.2f} to {max(busbw):.2f}), {median(pauses):.0f} pauses"
            )


if __name__ == "__main__":
    main()
