"""`python -m bench.pfc_findings`: jobs that labs have run with and without PFC, packet by packet.

Prints what docs/pfc.md has beside the lab's figures, of the drills `finding-pfc-*` and of the
AlltoAll of `bench.lossless`: a lab's own latency is next to nothing in modelled time, and its ports
and hosts are those of a lab. Each job is run with ten seeds, which draw what is marked, how late
hosts wake, and which packet is first at one instant: medians, and the least and the most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from bench.campaign.pages import spread
from bench.lossless import ALLTOALL, QUEUES, spec_of
from rocelab import JobSpec, LabSpec, SimulationReport, simulate
from rocelab import SimulationOptions as Options
from rocelab.drills.drill_spec import load_drill
from rocelab.jobs.job_spec import collective_job
from rocelab.labfile.catalog import DRILLS, find, find_lab
from rocelab.labfile.load import load_spec
from rocelab.results.engines import Engine, PortModel
from rocelab.sim.packets.run import run_packets
from rocelab.sim.simulate import Simulation

SEEDS = range(1, 11)
AT_ONCE = "that take and send each packet at once"
OPTIONS = Options(engine=Engine.PACKETS, hop_latency_ns=20)


def main() -> None:
    """Print a line for each phase, and for each kind of queues and hosts."""
    lab = load_spec(find_lab("lossless-marked"))
    for name in ("finding-pfc-allreduce", "finding-pfc-alltoall"):
        for phase in load_drill(find(name, DRILLS)).phases:
            (job,) = phase.jobs
            assert isinstance(job, JobSpec)
            print(f"{name} {phase.name}: {_figures(_simulated(lab, job, PortModel.LAB))}")
        fluid = simulate(lab, [job], Options(eps=0.0, hop_latency_ns=0))
        print(f"{name} as a fluid: {fluid.jobs[0].headline('busbw').modelled.median:.2f} GB/s")
    # The lab's warm-up is an iteration like the others.
    warmup = ALLTOALL.job["warmup_iterations"]
    keys = {"iterations": warmup + ALLTOALL.job["iterations"], "warmup_iterations": 0}
    job = JobSpec.model_validate(ALLTOALL.job | keys)
    for kind in QUEUES:
        lab = spec_of(ALLTOALL, kind)
        for ports, hosts in (
            (PortModel.LAB, "of a lab"),
            (PortModel.LAB, AT_ONCE),
            (PortModel.CUT_THROUGH, AT_ONCE),
        ):
            lossless = _figures(_simulated(lab, job, ports, hosts), warmup)
            print(f"{ALLTOALL.name}, {kind}, ports {ports}, hosts {hosts}: {lossless}")


def _simulated(
    lab: LabSpec, job: JobSpec, ports: PortModel, hosts: str = ""
) -> list[SimulationReport]:
    reports = []
    for seed in SEEDS:
        options = replace(OPTIONS, ports=ports, seed=seed)
        simulation = Simulation(lab, [collective_job(job)], options)
        program, wirings, latency_s, sending, queues = simulation.packet_inputs()
        if hosts == AT_ONCE:
            sending = replace(sending, gathering=None)
        outcome = run_packets(program, wirings, latency_s, sending, queues)
        reports.append(simulation.report(outcome))
    return reports


def _figures(reports: Sequence[SimulationReport], warmup: int = 0) -> str:
    """Medians; of iterations, those behind the warm-up."""
    ratios, busbw, again, drops, pauses = [], [], [], [], []
    for report in reports:
        job, packets = report.jobs[0], report.packets
        assert packets is not None
        times_ns = [time_ns for time_ns in job.iterations_ns[warmup:] if time_ns is not None]
        ratios.append(fmean(times_ns) / job.roofline_ns)
        busbw.append(job.headline("busbw").modelled.median)
        again.append(packets.retransmitted)
        drops.append(packets.drops)
        pauses.append(0 if packets.lossless is None else packets.lossless.transitions)
    return (
        f"{spread(busbw, '.2f')} GB/s, JCT ratio {spread(ratios, '.2f')}, "
        f"{spread(again, ',.0f')} sent again, {spread(drops, ',.0f')} dropped, "
        f"{spread(pauses, ',.0f')} pauses"
    )


if __name__ == "__main__":
    main()
