"""A drill planned on its lab, once: a preview shows the plan that a run carries out.

Of each phase: the fabric under the phase's conditions, its faults with their times, and its flows
or jobs. What does not fit the lab is refused here, before the lab comes up. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocelab.base import quantities
from rocelab.base.errors import InputError
from rocelab.base.wording import counted, listed, name_hint
from rocelab.drills.drill_spec import DrillSpec, PhaseSpec, TrafficSpec, load_drill
from rocelab.drills.hashing import reseeded
from rocelab.drills.program_spec import ProgramTrafficSpec
from rocelab.faults.base import Timed
from rocelab.faults.schedule import expand
from rocelab.jobs.flow import ProbeStream, permutation, resolve_flow
from rocelab.jobs.jobplan import JobPlan
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.labfile.catalog import find_lab, tree_of
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec
from rocelab.labfile.reference import named_by
from rocelab.labfile.stacks import DEFAULT_STACK
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.prediction.predictor import asked_fabric
from rocelab.programs.ranks import RankedProgram, matching_servers, plan_programs
from rocelab.routing.stack import stack_for
from rocelab.traffic.demand import probe_demands


@dataclass(frozen=True, slots=True)
class _Phase:
    """A phase of a drill on a lab."""

    spec: PhaseSpec
    lab: Fabric
    fabric: Fabric
    """The network of its traffic, with the scheme and the hash seeds of the phase; the lab if jobs
    are in several."""
    faults: tuple[Timed, ...]

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass(frozen=True, slots=True)
class ProbePhase(_Phase):
    """A phase that sends probes."""

    traffic: TrafficSpec
    flows: tuple[ProbeStream, ...]

    @property
    def unpredicted(self) -> str | None:
        """Why the links of its flows cannot be known before they are sent; None if they can."""
        if scheme := self.fabric.spec.scheme.unpredictable:
            return scheme.why
        if all(node.hash_seed for node in self.fabric.switches):
            return None
        return "with hash seed 0 a switch chooses by the kernel's secret"


@dataclass(frozen=True, slots=True)
class JobPhase(_Phase):
    """A phase that runs jobs."""

    jobs: tuple[JobPlan, ...]


@dataclass(frozen=True, slots=True)
class ProgramPhase(_Phase):
    """A phase that runs programs."""

    traffic: ProgramTrafficSpec
    programs: tuple[RankedProgram, ...]


PlannedPhase = ProbePhase | JobPhase | ProgramPhase


@dataclass(frozen=True, slots=True)
class PlannedDrill:
    """A drill that fits its lab."""

    spec: DrillSpec
    fabric: Fabric
    phases: tuple[PlannedPhase, ...]
    notes: tuple[str, ...] = ()
    """What is left out of it there."""


def lab_of(drill: DrillSpec, path: Path) -> Path:
    """The lab file of the drill read from `path`: a name is looked up in the drill's own tree
    first; a relative path starts at the drill's folder.

    Raises InputError if there is no such lab.
    """
    return find_lab(drill.lab, tree_of(path), path.parent)


def lab_spec(drill: DrillSpec, path: Path) -> LabSpec:
    """The spec of the drill's lab, with the drill's dilation if it has one. Raises InputError, and
    SpecError with every problem of the lab's file."""
    file = lab_of(drill, path)
    with named_by(path, file):
        spec = load_spec(file)
    if drill.dilation is None:
        return spec
    return spec.model_copy(update={"dilation": drill.dilation})


def planned_drill(path: Path) -> PlannedDrill:
    """The drill in the file `path`, on its own lab. Raises as `lab_spec` and `plan_drill`, and
    SpecError with every problem of the file."""
    drill = load_drill(path)
    return plan_drill(drill, plan(lab_spec(drill, path)))


def plan_drill(drill: DrillSpec, fabric: Fabric) -> PlannedDrill:
    """The drill on the fabric of its lab. Raises InputError if a job, a flow or a fault does not
    fit; it names the phase if there are several."""
    drill, notes = _as_allowed(drill, fabric)
    phases = []
    for phase in drill.phases:
        try:
            phases.append(_planned(phase, fabric))
        except InputError as error:
            if len(drill.phases) == 1:
                raise
            raise InputError(f"phase {phase.name}: {error.message}", hint=error.hint) from error
    return PlannedDrill(drill, fabric, tuple(phases), (*notes, *_uncrossed(phases)))


def _uncrossed(phases: Sequence[PlannedPhase]) -> Iterator[str]:
    """A note of each phase whose flows are not made to cross its broken links."""
    for phase in phases:
        if isinstance(phase, ProbePhase) and phase.spec.crossing and phase.unpredicted:
            of_phase = f" of phase {phase.name}" if len(phases) > 1 else ""
            yield (
                f"skipped crossing{of_phase}: {phase.unpredicted}, so which links flows cross is "
                "left to chance"
            )


def _planned(phase: PhaseSpec, lab: Fabric) -> PlannedPhase:
    fabric = _under(lab, phase)
    if phase.health is not None:
        phase.health.check_networks([part.network_name for part in lab.networks])
    faults = _faults(lab, phase)
    if phase.programs is not None:
        traffic = phase.programs
        programs = plan_programs(
            fabric,
            matching_servers(fabric, traffic.servers),
            traffic.command,
            per_server=traffic.per_server,
            environment=traffic.env,
        )
        _check_ranks(traffic, len(programs))
        return ProgramPhase(phase, lab, fabric, faults, traffic, programs)
    if phase.probes is None:
        return JobPhase(phase, lab, fabric, faults, plan_jobs(fabric, phase.jobs))
    return ProbePhase(phase, lab, fabric, faults, phase.probes, probe_flows(fabric, phase.probes))


def _check_ranks(traffic: ProgramTrafficSpec, programs: int) -> None:
    for name, metric in traffic.metrics.items():
        if metric.rank != "all" and metric.rank >= programs:
            raise InputError(
                f"metric {name} is of rank {metric.rank}: "
                f"{counted(programs, 'program')} from rank 0"
            )


def _under(fabric: Fabric, phase: PhaseSpec) -> Fabric:
    """The fabric under the phase's conditions. Raises InputError for a link that the lab does not
    have, and for a scheme or seeds if jobs are in several networks."""
    for name in phase.links_down:
        if name not in fabric.link_by_name:
            raise InputError(
                f"lab {fabric.name} has no link {name}", name_hint(name, fabric.link_by_name)
            )
    traffic = phase.programs or phase.probes
    names = [job.network for job in phase.jobs] if traffic is None else [traffic.network]
    networks = {part.network_name: part for part in map(fabric.network, names)}
    if len(networks) > 1:
        if phase.seed is not None or phase.scheme is not None:
            raise InputError(
                f"seed and scheme are of one network, and the jobs are in "
                f"{listed(map(str, networks), 'and')}",
                "leave them out, or run the jobs of each network in a phase of their own",
            )
        return fabric
    (fabric,) = networks.values()
    seeded = fabric if phase.seed is None else reseeded(fabric, phase.seed)
    return asked_fabric(seeded, phase.scheme)


def _faults(fabric: Fabric, phase: PhaseSpec) -> tuple[Timed, ...]:
    """Every single fault with its times. Raises InputError if one does not fit the lab, or a
    campaign draws one that ends after the probes."""
    faults = expand(fabric, phase.faults)
    for timed in faults:
        timed.spec.resolve(fabric)
        last_ns = timed.begins_ns if timed.ends_ns is None else timed.ends_ns
        probes = phase.probes
        if probes is not None and last_ns > probes.duration - phase.measure.sustained:
            raise InputError(
                f"{timed.spec.kind} at {quantities.duration(timed.begins_ns)} changes the lab as "
                f"late as {quantities.duration(last_ns)}, and the traffic ends at "
                f"{quantities.duration(probes.duration)}",
                hint="lengthen traffic.duration, or give the campaign fewer faults",
            )
    return faults


def probe_flows(fabric: Fabric, traffic: TrafficSpec) -> tuple[ProbeStream, ...]:
    """The flows of probes on a fabric. Raises InputError if one does not fit it."""
    fabric = fabric.network(traffic.network)
    flows = permutation(fabric, traffic.flows, traffic.rate_pps, traffic.payload, traffic.seed)
    for flow in flows:
        resolve_flow(fabric, flow)
    _check_load(fabric, flows)
    return flows


def _check_load(fabric: Fabric, flows: Sequence[ProbeStream]) -> None:
    """Raises InputError if flows offer a NIC more than its links carry, so that packets would be
    lost without any fault."""
    offered: Counter[tuple[str, int, str]] = Counter()
    for flow, demand in zip(flows, probe_demands(fabric, flows), strict=True):
        bps = round(demand.bits_per_second)
        offered[flow.source, flow.source_nic, "send"] += bps
        offered[flow.destination, flow.destination_nic, "receive"] += bps
    for (server, number, way), load_bps in offered.items():
        nic = fabric.nics(server)[number - 1]
        rate_bps = sum(link.rate_bps for link in nic.links)
        if load_bps > rate_bps:
            dilation = fabric.spec.dilation
            raise InputError(
                f"{server}:{number} is to {way} {quantities.rate(load_bps / dilation)} of probes, "
                f"and its links carry {quantities.rate(rate_bps / dilation)} on the lab's clock: "
                "packets would be lost without any fault",
                hint="lower traffic.rate_pps, traffic.flows or traffic.payload in a copy of the "
                "drill, or the lab's dilation",
            )


def _without_stages(drill: DrillSpec, fabric: Fabric) -> tuple[DrillSpec, tuple[str, ...]]:
    """The drill without stages where these are not applicable, and a note of that."""
    why = _why_no_stages(fabric)
    if why is None or not any(phase.measure.stages for phase in drill.phases):
        return drill, ()
    phases = tuple(
        phase.model_copy(update={"measure": phase.measure.model_copy(update={"stages": False})})
        for phase in drill.phases
    )
    return drill.model_copy(update={"phases": phases}), (f"stages are not applicable: {why}",)


def _why_no_stages(fabric: Fabric) -> str | None:
    """Why a lab has no stages; None if it has."""
    stack = stack_for(fabric)
    if stack.name != DEFAULT_STACK:
        return f"they are read from FRR's traces, and the lab's switches run {stack.title}"
    if fabric.spec.routing.is_rendered:
        return None
    return "they are those of BGP as rocelab renders it, and the lab has a configuration of its own"


def _as_allowed(drill: DrillSpec, fabric: Fabric) -> tuple[DrillSpec, tuple[str, ...]]:
    """The drill with only what may be done to the lab, and notes of what was left out: faults alone
    may change a lab that was adopted. Raises InputError for a phase with seeds of its own."""
    if not fabric.is_adopted:
        return _without_stages(drill, fabric)
    if any(phase.seed is not None for phase in drill.phases):
        raise InputError(
            f"drill {drill.name} gives switches other hash seeds, and lab {fabric.name} was "
            "adopted",
            hint="only faults change an adopted lab: remove `seed` in a copy of the drill",
        )
    left_out = []
    if any(phase.measure.stages for phase in drill.phases):
        left_out.append("stages, since every daemon would have to trace")
    if any(phase.compare_hashing for phase in drill.phases):
        left_out.append("compare_hashing, since switches would need other seeds")
    phases = tuple(
        phase.model_copy(
            update={
                "measure": phase.measure.model_copy(update={"stages": False}),
                "compare_hashing": (),
            }
        )
        for phase in drill.phases
    )
    notes = tuple(f"skipped {what}: the lab was adopted" for what in left_out)
    return drill.model_copy(update={"phases": phases}), notes
