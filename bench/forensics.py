"""`python -m bench.forensics`: tests `rocelab diagnose` on jobs with a known fault, or none.

Runs small labs, one after the other under several schemes; in each, short jobs with random patterns
and placements and a paused host, a grey or slow link, a link that another job congests, or no
fault. `--lossless` tries who makes others wait with pauses instead (`bench.pause_trials`). The
diagnosis sees only each job's document. Prints a table of injected faults against diagnoses.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from bench import pause_trials
from bench.trial import Run, Trial, names, outcome
from rocelab import (
    Diagnosis,
    JobSpec,
    Lab,
    LabSpec,
    RunningLab,
    diagnose_report,
    plan,
    run_job,
    run_jobs,
)
from rocelab.base.interruption import ending
from rocelab.dataplane.impairments.control import Impairments
from rocelab.dataplane.impairments.impairment import Impairment, ImpairmentKind
from rocelab.faults.base import Timed
from rocelab.faults.kinds.host_pause import HostPauseSpec
from rocelab.faults.kinds.rate_degrade import RateDegrade
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.observe.environment import read_environment
from rocelab.planning.fabric import DirectedLink
from rocelab.prediction.matrix import rows_of_jobs
from rocelab.prediction.predictor import Setting, paths_on
from rocelab.record import LabFiles
from rocelab.results.diagnosis import Cause
from rocelab.runs.attempts import RETRIES, measure_valid

SCHEMES = ("ecmp", "e-ecmp", "path-pinning")
DILATION = 10_000
PAUSE_S = (0.1, 0.3)
PAUSE_AFTER_S = (0.005, 0.05)
LOSS = (0.01, 0.05)
DRAWS = 200
"""Tries to find two jobs that share a link."""

PATTERNS: tuple[dict[str, Any], ...] = (
    {"pattern": "allreduce"},
    {"pattern": "allreduce", "algorithm": "tree"},
    {"pattern": "allgather"},
    {"pattern": "reducescatter"},
    {"pattern": "alltoall"},
    {"pattern": "alltoallv"},
    {"pattern": "broadcast"},
)
PLACEMENTS = ("contiguous", "topology-aware", "fragmented", "random")


def lab_of(scheme: str, name: str = "bench-forensics") -> Lab:
    """Four racks of two servers under two spines."""
    return Lab(
        plan(
            LabSpec.model_validate(
                {
                    "name": name,
                    "fabric": {"kind": "clos", "racks": 4, "spines": 2, "servers_per_rack": 2},
                    "dilation": DILATION,
                    "scheme": scheme,
                }
            )
        )
    )


def healthy(lab: RunningLab, rng: random.Random) -> Trial:
    """A job of a random kind, without a fault."""
    return Trial(Cause.NONE, (), run_job(lab, _drawn_job(rng)))


def host_pause(lab: RunningLab, rng: random.Random, placement: str | None = None) -> Trial:
    """The processes of a server stopped for 100 to 300 ms of the lab, soon after the job began.

    `placement` is random if it is None.
    """
    server = rng.choice(lab.fabric.servers).name
    spec = HostPauseSpec(kind="host-pause", server=server)
    begins_ns, lasts_ns = (round(rng.uniform(*drawn) * 1e9) for drawn in (PAUSE_AFTER_S, PAUSE_S))
    job = _job(rng, iterations=4, placement=placement or rng.choice(PLACEMENTS))
    run = run_jobs(lab, [job], faults=[Timed(spec, begins_ns, begins_ns + lasts_ns)])
    return Trial.of_fault(Cause.HOST_PAUSE, (server,), run.reports[0])


def grey_link(lab: RunningLab, rng: random.Random) -> Trial:
    """One direction of a link between switches, used by the job, that loses 1 to 5 % of packets."""
    job = _job(
        rng,
        placement=rng.choice(PLACEMENTS),
        transport={"qps": 4, "ack_timeout": "30us"},
    )
    link = rng.choice(sorted(_between_switches(lab, job)[0], key=str))
    impairments = Impairments(lab.fabric, LabFiles(lab.name))
    impairments.impair(link, Impairment(ImpairmentKind.LOSS, share=rng.uniform(*LOSS)))
    try:
        return Trial(Cause.GREY_LINK, (str(link),), run_job(lab, job))
    finally:
        impairments.clear(link, ImpairmentKind.LOSS)


def slow_link(lab: RunningLab, rng: random.Random) -> Trial:
    """A link between switches, used by the job, at an eighth to a quarter of its rate one way."""
    job = _job(rng, size="1MB", placement=rng.choice(PLACEMENTS), transport={"qps": 4})
    link = rng.choice(sorted(_between_switches(lab, job)[0], key=str))
    share_ppm = rng.randrange(125_000, 250_000)
    fault = RateDegrade((link.link,), share_ppm, link.receiver)
    try:
        fault.prepare(lab)
        fault.inject(lab)
        return Trial(Cause.SLOW_LINK, (str(link),), run_job(lab, job))
    finally:
        fault.restore(lab)


def congested_link(lab: RunningLab, rng: random.Random) -> Trial:
    """A stream between two other servers that shares a link between switches with the job."""
    names = [server.name for server in lab.fabric.servers]
    for _ in range(DRAWS):
        drawn = rng.sample(names, 6)
        job = _job(rng, ranks=4, size="4MB", placement=drawn[:4])
        other = JobSpec.model_validate(
            {
                "pattern": "pairs",
                "ranks": 2,
                "duration": "600us",
                "placement": drawn[4:],
                "seed": rng.randrange(10_000),
            }
        )
        mine, others = _between_switches(lab, job, other)
        if mine & others:
            report, _ = run_jobs(lab, [job, other]).reports
            return Trial(
                Cause.CONGESTED_LINK, tuple(map(str, sorted(mine & others, key=str))), report
            )
    raise ValueError(f"no two jobs of {DRAWS} share a link")


FAULTS: dict[Cause, Run] = {
    Cause.HOST_PAUSE: host_pause,
    Cause.GREY_LINK: grey_link,
    Cause.SLOW_LINK: slow_link,
    Cause.CONGESTED_LINK: congested_link,
}


def _job(rng: random.Random, **keys: object) -> JobSpec:
    base: dict[str, object] = {"pattern": "allreduce", "ranks": 8, "size": "2MB", "iterations": 3}
    return JobSpec.model_validate(base | {"seed": rng.randrange(1000)} | keys)


def _drawn_job(rng: random.Random) -> JobSpec:
    size = rng.choice(("512KB", "1MB", "2MB"))
    transport = {
        "qps": rng.choice((1, 2, 8)),
        "strategy": rng.choice(("split", "round-robin")),
        "dcqcn": rng.choice(("off", "hpcc-dcqcn")),
    }
    return _job(
        rng,
        **rng.choice(PATTERNS),
        size=size,
        placement=rng.choice(PLACEMENTS),
        transport=transport,
    )


def _between_switches(lab: RunningLab, *jobs: JobSpec) -> list[set[DirectedLink]]:
    """The links between switches that the data of each of some jobs will cross."""
    fabric = lab.fabric
    return [
        {
            link
            for path in paths_on(fabric, rows_of_jobs([job]), Setting())
            for link in path
            if link.is_between_switches
        }
        for job in plan_jobs(fabric, jobs)
    ]


def main(
    healthy_runs: Annotated[int, typer.Option("--healthy", min=0, help="runs without fault")] = 51,
    count: Annotated[int, typer.Option(min=0, help="runs per fault")] = 9,
    seed: Annotated[int, typer.Option(help="draws jobs, servers and links")] = 1,
    lossless: Annotated[
        bool, typer.Option("--lossless", help="on labs with PFC: who makes others wait with pauses")
    ] = False,
) -> None:
    """Inject, ask, compare; a table on standard output."""
    console = Console(stderr=True)
    rng = random.Random(seed)
    counts: Counter[tuple[str, str]] = Counter()
    links: Counter[int] = Counter()
    began_s = time.monotonic()
    made, undisturbed, faults = (
        (
            {kind: pause_trials.lab_of(kind) for kind in pause_trials.LABS},
            pause_trials.healthy,
            pause_trials.FAULTS,
        )
        if lossless
        else ({scheme: lab_of(scheme) for scheme in SCHEMES}, healthy, FAULTS)
    )
    for place, (kind, planned) in enumerate(made.items()):
        wanted: list[Run] = [undisturbed] * len(range(place, healthy_runs, len(made)))
        for fault in faults.values():
            wanted += [fault] * len(range(place, count, len(made)))
        with planned.brought_up() as lab:
            for number, run in enumerate(wanted, 1):
                trial, diagnosis = _tried(run, lab, rng)
                said = outcome(trial, diagnosis)
                counts[trial.injected.value, said] += 1
                if trial.injected is Cause.GREY_LINK and names(diagnosis.verdict, trial):
                    links[len(diagnosis.verdict.links)] += 1
                console.print(
                    f"{kind} {number} of {len(wanted)}: {trial.injected} "
                    f"{' or '.join(trial.expected)}: {said} ({diagnosis.verdict.subject}, "
                    f"{diagnosis.verdict.excess.lab_ns / 1e6:,.0f} ms)",
                    markup=False,
                    highlight=False,
                    soft_wrap=True,
                )
    flag = " --lossless" if lossless else ""
    command = f"{flag} --healthy {healthy_runs} --count {count} --seed {seed}"
    print(_markdown(counts, links, command, list(made), time.monotonic() - began_s))


def _tried(run: Run, lab: RunningLab, rng: random.Random) -> tuple[Trial, Diagnosis]:
    """A trial and its diagnosis; one that this machine did not carry is drawn again, as a drill's
    runs are."""

    def diagnosed(label: str) -> tuple[Trial, Diagnosis]:
        trial = run(lab, rng)
        return trial, diagnose_report(trial.report)[0]

    return measure_valid(
        1, RETRIES, diagnosed, lambda tried: tried[1].verdict.cause is not Cause.INVALID
    )[-1]


def _markdown(
    counts: Counter[tuple[str, str]],
    links: Counter[int],
    options: str,
    labs: Sequence[str],
    elapsed_s: float,
) -> str:
    environment = read_environment()
    said = sorted({column for _, column in counts})
    rows = sorted({row for row, _ in counts})
    lines = [
        f"`python -m bench.forensics{options}`, {elapsed_s:.0f} s on {environment.cpu_count} "
        f"CPUs ({environment.cpu_model}), {environment.kernel}, labs {', '.join(labs)}.",
        "",
        f"| injected | n | {' | '.join(said)} |",
        f"|---|---|{'---|' * len(said)}",
    ]
    for row in rows:
        cells = [counts[row, column] for column in said]
        lines.append(f"| {row} | {sum(cells)} | {' | '.join(str(cell or '') for cell in cells)} |")
    if links:
        sizes = ", ".join(f"{size}: {count}" for size, count in sorted(links.items()))
        lines += ["", f"Links named by right verdicts on grey links (links: runs): {sizes}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with ending():
        typer.run(main)
