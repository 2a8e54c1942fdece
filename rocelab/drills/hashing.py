"""The links of undisturbed flows under a plan of hash seeds, measured and predicted.

A `HashingRun` has the probes that crossed each link, counted by the kernel at the receiving port,
and the number that took another link than `rocelab.routes` predicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rocelab.base.interruption import shielded, undone
from rocelab.base.sysctls import HASH_SEED
from rocelab.jobs.flow import ProbeStream
from rocelab.labfile.model import SeedPlan
from rocelab.linux import namespaces
from rocelab.linux.fibtable import Fib
from rocelab.linux.settings import write_settings
from rocelab.planning.fabric import Fabric
from rocelab.prediction.loads import LinkLoads, by_link, misplaced_packets
from rocelab.prediction.matrix import row_of_probe
from rocelab.prediction.predictor import Setting, asked_fabric, predict_loads
from rocelab.results.probes import HashingRun
from rocelab.routes.balance import link_loads, polarization, tier_balances
from rocelab.traffic.result import TrafficResult
from rocelab.traffic.taps import LinkPackets


def plan_name(seed: SeedPlan | int) -> str:
    """The name of a seed plan in results: `per-node`, or `seed 7` for one seed on all switches."""
    return seed.value if isinstance(seed, SeedPlan) else f"seed {seed}"


def reseeded(fabric: Fabric, seed: SeedPlan | int) -> Fabric:
    """The same fabric with the hash seeds of another plan."""
    hashing = fabric.spec.hashing.model_copy(update={"seed": seed})
    return asked_fabric(fabric, hashing=hashing)


@contextmanager
def seeds_of(seeded: Fabric, fabric: Fabric, netns_of: Mapping[str, int]) -> Iterator[None]:
    """Set the running switches' hash seeds to those of `seeded`, and back to their `own`
    afterwards."""
    with shielded("restoring the lab's hash seeds") as shield:
        try:
            with shield.lifted():
                _write_seeds(seeded, netns_of)
                yield
        finally:
            _write_seeds(fabric, netns_of)
            undone("restored the lab's hash seeds")


def _write_seeds(fabric: Fabric, netns_of: Mapping[str, int]) -> None:
    in_network = {name: netns for name, netns in netns_of.items() if name in fabric.node_by_name}
    namespaces.inside_each(
        in_network, lambda name: write_settings({HASH_SEED: str(fabric.node(name).hash_seed)})
    )


def predict(
    fabric: Fabric, fibs: Mapping[str, Fib], sent: Sequence[tuple[ProbeStream, int]]
) -> LinkLoads | None:
    """The prediction for flows with their numbers of packets, under the seeds of `fabric` and these
    tables.

    None if a switch hashes with the kernel's own secret (seed 0), and under a scheme other than
    `ecmp`, whose switches do not choose by these seeds alone. Raises NoPathError if a flow has no
    path.
    """
    steered = fabric.spec.scheme.kind != "ecmp"
    if steered or any(node.hash_seed == 0 for node in fabric.switches):
        return None
    rows = [row_of_probe(flow, count) for flow, count in sent]
    return predict_loads(fabric, rows, Setting(fibs.__getitem__))


def hashing_run(
    fabric: Fabric,
    is_own: bool,
    counted: LinkPackets,
    traffic: TrafficResult,
    fibs: Mapping[str, Fib],
) -> tuple[HashingRun, tuple[str, ...]]:
    """The figures of one undisturbed run under the seeds of `fabric`, and the reasons why they are
    not valid.

    Every probe must be on its predicted link: a misplaced one means that the switches differ from
    the model, and a lost one that the run was disturbed. Send times do not affect paths, so late
    senders do not matter here.
    """
    prediction = predict(fabric, fibs, [(one.flow, len(one.sent_seq)) for one in traffic.flows])
    loads = link_loads(fabric, counted)
    name = plan_name(fabric.spec.hashing.seed)
    problems = []
    if lost := sum(len(one.sent_seq) - len(one.received_seq) for one in traffic.flows):
        problems.append(f"not valid because packets were lost without any fault: {lost:,}")
    misplaced = None
    if prediction is not None and prediction.packets is not None:
        misplaced = misplaced_packets(counted, by_link(fabric, prediction.packets))
        if misplaced:
            problems.append(
                f"not valid because {misplaced:,} packets took other links than predicted"
            )
    run = HashingRun(
        hashing=name,
        own=is_own,
        loads=loads,
        tiers=tier_balances(loads, prediction.crossing if prediction else None),
        polarizations=tuple(map(polarization, prediction.choices)) if prediction else (),
        misplaced_packets=misplaced,
    )
    return run, tuple(f"undisturbed run under {name}: {problem}" for problem in problems)
