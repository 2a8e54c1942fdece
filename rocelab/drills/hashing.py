"""The links of undisturbed flows under a plan of hash seeds, measured and predicted.

A `HashingRun` has the probes that crossed each link, counted by the kernel at the receiving port,
and the number that took another link than `rocelab.forwarding` predicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rocelab.forwarding.balance import Choice, link_loads, polarizations, tier_balances
from rocelab.forwarding.fib import Fib
from rocelab.forwarding.path import Path, find_nic, walk
from rocelab.interruption import shielded, undone
from rocelab.jobs.flow import Flow
from rocelab.kernel import namespaces
from rocelab.kernel.settings import write_settings
from rocelab.plan.build import plan
from rocelab.plan.fabric import Direction, Fabric
from rocelab.plan.settings import SEED
from rocelab.results.probes import HashingRun
from rocelab.runtime.lab import Lab
from rocelab.spec.model import SeedPlan
from rocelab.traffic.result import TrafficResult
from rocelab.traffic.taps import LinkPackets


class Prediction(NamedTuple):
    """The predicted packets per link, choices per flow and flows per group of links."""

    packets: LinkPackets
    choices: tuple[tuple[Choice, ...], ...]
    crossing: Mapping[tuple[str, Direction, str], int]


def plan_name(seed: SeedPlan | int) -> str:
    """The name of a seed plan in results: `per-node`, or `seed 7` for one seed on all switches."""
    return seed.value if isinstance(seed, SeedPlan) else f"seed {seed}"


def reseeded(fabric: Fabric, seed: SeedPlan | int) -> Fabric:
    """The same fabric with the hash seeds of another plan."""
    hashing = fabric.spec.hashing.model_copy(update={"seed": seed})
    return plan(fabric.spec.model_copy(update={"hashing": hashing}))


@contextmanager
def seeds_of(seeded: Fabric, lab: Lab, netns_of: Mapping[str, int]) -> Iterator[None]:
    """Set the running switches' hash seeds to those of `seeded`, and back to the lab's own
    afterwards."""
    with shielded("the lab gets its hash seeds back") as shield:
        try:
            with shield.lifted():
                _write_seeds(seeded, netns_of)
                yield
        finally:
            _write_seeds(lab.fabric, netns_of)
            undone("the lab has its hash seeds back")


def _write_seeds(fabric: Fabric, netns_of: Mapping[str, int]) -> None:
    namespaces.inside_each(
        netns_of, lambda name: write_settings({SEED: str(fabric.node(name).hash_seed)})
    )


def predict(
    fabric: Fabric, fibs: Mapping[str, Fib], sent: Sequence[tuple[Flow, int]]
) -> Prediction | None:
    """The prediction for flows with their numbers of packets, under the seeds of `fabric` and these
    tables.

    None if a switch hashes with the kernel's own secret (seed 0), and under a scheme other than
    `ecmp`, whose switches do not choose by these seeds alone. Raises NoPathError if a flow has no
    path.
    """
    steered = fabric.spec.scheme.kind != "ecmp"
    if steered or any(node.hash_seed == 0 for node in fabric.switches):
        return None
    packets: Counter[tuple[str, str]] = Counter()
    crossing: Counter[tuple[str, Direction, str]] = Counter()
    choices = []
    for flow, count in sent:
        source = find_nic(fabric, flow.source, flow.source_nic)
        destination = find_nic(fabric, flow.destination, flow.destination_nic)
        path = walk(
            fabric, fibs.__getitem__, source, destination, flow.sport, leaves_by=flow.leaves_by
        )
        groups = set()
        for hop in path.hops:
            directed = fabric.directed(hop.link, hop.node)
            if fabric.carries_session(directed):
                packets[directed.key] += count
                groups.add((directed.tier, directed.direction, directed.lower))
        crossing.update(groups)
        choices.append(_choices(fabric, path))
    return Prediction(packets, tuple(choices), crossing)


def _choices(fabric: Fabric, path: Path) -> tuple[Choice, ...]:
    """The choices of a path's switches; a stage is a tier and a direction, as `ctsw down`."""
    made = []
    for hop in path.hops:
        node = fabric.node(hop.node)
        if node.is_switch:
            up = fabric.link_by_name[hop.link].a.node == hop.node
            stage = f"{node.role.value} {'up' if up else 'down'}"
            made.append(Choice(hop.node, stage, hop.index, hop.width))
    return tuple(made)


def hashing_run(
    fabric: Fabric,
    own: bool,
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
        problems.append(f"not valid because {lost:,} packets were lost though nothing was broken")
    misplaced = None
    if prediction is not None:
        misplaced = sum(max(0, n - prediction.packets.get(at, 0)) for at, n in counted.items())
        if misplaced:
            problems.append(
                f"not valid because {misplaced:,} packets took other links than predicted"
            )
    run = HashingRun(
        hashing=name,
        own=own,
        loads=loads,
        tiers=tier_balances(loads, prediction.crossing if prediction else None),
        polarizations=polarizations(prediction.choices) if prediction else (),
        misplaced_packets=misplaced,
    )
    return run, tuple(f"undisturbed run under {name}: {problem}" for problem in problems)
