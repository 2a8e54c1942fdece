"""Simulates jobs on a fabric: from a spec and jobs to a report.

    spec = load_spec(find_lab("meta-32k"))
    report = simulate(spec, load_jobs(Path("jobs.yaml")))
    report.jobs[0].headline("busbw").modelled.median

`simulate` returns a `SimulationReport`; a `Simulation` gives the paths of flows and the iteration
times in any state of the network.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from rocelab.base.arrays import NONE, Bools, Floats, Ints, Longs
from rocelab.base.errors import InputError
from rocelab.base.family import Family
from rocelab.base.progress import ProgressSink, no_progress
from rocelab.hosts.model import TIMELESS
from rocelab.hosts.ranks import RankHosts
from rocelab.jobs.collectives import kind_of
from rocelab.jobs.flow_list import FlowList
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import SimulatedJob, collective_job
from rocelab.jobs.labschedule import LabSchedule, lab_schedule
from rocelab.jobs.merged_sends import sends_in_order, workload_of
from rocelab.jobs.ordered import Ordered, ordered
from rocelab.jobs.patterns.base import Algorithm
from rocelab.jobs.performance import wire_overhead_bytes
from rocelab.jobs.transport import TransportSpec
from rocelab.jobs.tuning import Tuned, check_needs_no_hosts, tuned_job
from rocelab.jobs.workload import Workload
from rocelab.jobs.workloads import JobPlace, endpoint_ranks
from rocelab.labfile.base import SECOND
from rocelab.labfile.model import LabSpec
from rocelab.results.engines import Engine, PortModel
from rocelab.results.simulation import SimulationReport
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.flows import Ways, joined_flows
from rocelab.routes.arrays.network import Network
from rocelab.routes.arrays.paths import along_paths
from rocelab.routes.models import Model
from rocelab.sim.ahead import TRAFFIC_ENGINEERING, compile_ahead, load_library
from rocelab.sim.asked import (
    KnownWork,
    check_sends,
    host_model_of,
    is_merged,
    network_of_jobs,
    placed,
    read_work,
    steps_of,
    with_ranks,
)
from rocelab.sim.compile import Compiled, PlacedJob, compile_jobs
from rocelab.sim.durations import (
    few_latencies_ns,
    fill_bits,
    iteration_seconds,
    iteration_spans,
    latencies_ns,
)
from rocelab.sim.endpoints import (
    endpoints_of,
    job_elsewhere,
    with_endpoint_rates,
)
from rocelab.sim.engine.program import Change, Limits, Outcome, Program
from rocelab.sim.engine.run import run
from rocelab.sim.events.changes import changes_of
from rocelab.sim.events.event_spec import TimelineSpec
from rocelab.sim.events.retransmission import Retransmission
from rocelab.sim.events.timeline import EventOutage, resolve
from rocelab.sim.figures import figures
from rocelab.sim.hosts import LocalPaths, domains_of, rank_hosts, with_hosts
from rocelab.sim.links.check import check_links
from rocelab.sim.links.run import check_hops, run_links
from rocelab.sim.options import Options
from rocelab.sim.packetinputs import (
    check_packet_options,
    patient_transport,
    port_rates_bps,
    wirings_of,
)
from rocelab.sim.packets.localsends import unlimited, with_rows
from rocelab.sim.packets.run import PacketRun, check_packets, run_packets
from rocelab.sim.packets.sending import (
    Queues,
    Sending,
    ack_bytes,
    gathering_of,
    most_acked,
    queues_of,
    sending_of,
)
from rocelab.sim.packets.wiring import Wiring
from rocelab.sim.placement import ring_group
from rocelab.sim.rings import MOST_ERROR, most_error
from rocelab.sim.routing import Routing
from rocelab.sim.size import check_fits, check_steps_fit
from rocelab.sim.usable import usable_sends
from rocelab.sim.windows import NO_WINDOW, Windowed, limits_of


@dataclass(frozen=True, eq=False)
class InOrder:
    """A workload whose merged sends are taken apart, as a lab sends them."""

    made: LabSchedule
    ordered: Ordered


PACKET_OVERHEAD_BYTES = wire_overhead_bytes(Family.IPV4)


class Simulation:
    """Jobs placed on a network, ready to run in any state of it."""

    def __init__(
        self,
        spec: LabSpec,
        jobs: Sequence[SimulatedJob],
        options: Options | None = None,
        progress: ProgressSink = no_progress,
    ) -> None:
        """Raises InputError if the jobs do not fit the fabric, MachineError if the simulation does
        not fit this machine."""
        lab, spec = spec, network_of_jobs(spec, jobs)
        self.spec, self.jobs, self.options = spec, tuple(jobs), options or Options()
        self.seconds: dict[str, float] = {}
        self.in_order: dict[int, InOrder] = {}
        self._loading_s = 0.0
        if self.options.model is Model.KERNEL:
            spec.scheme.check_simulation()
        if self.options.engine is Engine.LINKS:
            check_links(spec, self.jobs, self.options.timeline, self.options.ports)
        self._progress = progress
        self.host_model = host_model_of(spec, self.jobs, self.options)
        with self._timed("fabric"):
            self.fabric_network: Network = network_of(spec)
            self.network = self.fabric_network
            self._domain = np.empty(0, np.int32)
            if self.host_model is not None:
                self.network = with_hosts(self.fabric_network, self.host_model)
                self._domain = domains_of(self.network, self.host_model)
        with self._timed("jobs"):
            known = read_work(self.jobs, progress)
            self.endpoints = endpoints_of(self.network, self.jobs)
            self.places = placed(
                self.network,
                self.jobs,
                self.endpoints,
                {name: read.ranks for name, read in known.items()},
            )
            self.jobs = tuple(map(with_ranks, self.jobs, self.places, self.endpoints))
            self.network = with_endpoint_rates(self.network, self.jobs, self.endpoints)
            self._elsewhere_s = [
                self._time_elsewhere(lab, number) for number in range(len(self.jobs))
            ]
            self.jobs, self.costs = self._tuned()
            known = self._with_open_loops(known)
            listed = sum(len(read) for read in known.values() if isinstance(read, FlowList))
            check_fits(self.network, spec.scheme, self.jobs, listed)
            self.workloads = tuple(
                steps_of(known.get(job.name) or self._workload(number))
                for number, job in enumerate(self.jobs)
            )
            check_sends(self.jobs, self.workloads)
            self.stepped = self.workloads
            if self.options.engine is Engine.PACKETS:
                self._take_apart()
        self._take_paths()
        for number in range(len(self.jobs)):
            if self._is_better_in_order(number):
                ordered = steps_of(self._workload(number, in_order=True))
                check_fits(self.network, spec.scheme, self.jobs, listed + len(ordered.steps))
                self.workloads = tuple(
                    ordered if at == number else workload
                    for at, workload in enumerate(self.workloads)
                )
                self._take_paths()

    def _take_apart(self) -> None:
        """Let merged workloads send as a lab does, send by send, where these are not too many."""
        for number, (job, workload) in enumerate(zip(self.jobs, self.workloads, strict=True)):
            if job.workload is None or not is_merged(workload):
                continue
            whole = workload
            iterations = 1 + max(step.iteration for step in workload.steps)
            if workload.is_alike:
                place = replace(self.place(number, self.places[number]), iterations=1)
                whole = steps_of(job.workload.workload(place))
            else:
                iterations = 1
            hosts = self.host_model
            try:
                made = lab_schedule(whole, 0.0 if hosts is None else hosts.launch_ns / 1e9)
            except InputError:
                continue
            repeated = ordered(made.schedule, iterations, launches=False)
            self.in_order[number] = InOrder(made, repeated)
            self.workloads = tuple(
                repeated.workload if at == number else other
                for at, other in enumerate(self.workloads)
            )

    def _take_paths(self) -> None:
        """Compile the workloads, and find the paths of their flows."""
        for known in ("capacity_bps", "windowed", "_host_latency_s"):
            self.__dict__.pop(known, None)
        with self._timed("jobs"):
            check_steps_fit(self.jobs, self.workloads)
            self.compiled = self._compiled()
            self.flows = self.compiled.flows
        self.local = self._local_paths()
        self.routing = Routing(self.network, self.options.model, self.local)
        if self.routing.is_engineered:
            load_library(TRAFFIC_ENGINEERING, self._progress)
        with self._timed("paths"):
            self.whole_paths = self.routing.paths(self.flows)
            self.program = self._timed_program()
            if self.options.engine is Engine.FLUID:
                self.program = replace(self.program, limits=self._limits())

    def _tuned(self) -> tuple[tuple[SimulatedJob, ...], tuple[Tuned | None, ...]]:
        """The jobs with what NCCL would choose for their collectives on hosts of a model, and what
        that costs, and with the fabric of the model for what a model's layers send in a server; as
        they are without. Raises InputError for what needs a model."""
        merges = self.options.engine is Engine.FLUID
        jobs: list[SimulatedJob] = []
        costs: list[Tuned | None] = []
        for job, places in zip(self.jobs, self.places, strict=True):
            hosts, spec, cost = self.rank_hosts(places), job.collective, None
            if spec is not None and hosts is None:
                check_needs_no_hosts(spec)
            elif spec is not None and hosts is not None:
                spec, cost = tuned_job(spec, hosts, merges=merges)
                job = job.model_copy(update={"collective": spec})
            if job.workload is not None:
                job = job.model_copy(update={job.kind: job.workload.on_hosts(hosts)})
            jobs.append(job)
            costs.append(cost)
        return tuple(jobs), tuple(costs)

    def _with_open_loops(self, known: KnownWork) -> KnownWork:
        """And what jobs do whose flows begin at given times: what is drawn on their places."""
        drawn = {
            job.name: self._workload(number)
            for number, job in enumerate(self.jobs)
            if job.is_open_loop and job.name not in known
        }
        return {**known, **drawn}

    def _is_better_in_order(self, number: int) -> bool:
        """Whether the rings of a job are merged, may be off so, and need not be."""
        spec, iterations = self.jobs[number].collective, self.jobs[number].iterations
        if spec is None or self.options.engine is not Engine.FLUID:
            return False
        if self.workloads[number].ordered or not sends_in_order(spec, iterations, contended=True):
            return False
        return self.ring_error(number) > MOST_ERROR

    def ring_error(self, number: int) -> float:
        """The largest share of its time by which an iteration of a job's merged rings may be too
        long or too short."""
        first = np.array([step.iteration == 0 for step in self.workloads[number].steps])
        chosen = self.compiled.job == number
        chosen[chosen] = first[self.compiled.step[chosen]]
        return most_error(self.program, self.flows, self.whole_paths, self.capacity_bps, chosen)

    def _workload(self, number: int, *, in_order: bool = False) -> Workload | FlowList:
        """What a job does on its NICs; in_order: though its sends could be merged."""
        job = self.jobs[number]
        if job.workload is not None:
            return job.workload.workload(self.place(number, self.places[number]))
        spec = job.collective
        assert spec is not None
        needs_group = spec.group is None and spec.algorithm is Algorithm.HIERARCHICAL
        group = ring_group(self.network, self.places[number]) if needs_group else None
        # Flows that get out of step stay so in a fluid, and more of them with each iteration.
        barrier = self.options.engine is Engine.FLUID and kind_of(spec.pattern).is_exchange
        if barrier and spec.in_flight is None:
            # In turn each send is solved by itself: minutes, for a hundredth of the time.
            spec = spec.model_copy(update={"in_flight": spec.ranks})
        return workload_of(spec, group, job.iterations, barrier=barrier, contended=in_order)

    def place(self, number: int, nics: Ints) -> JobPlace:
        """A job on these NICs."""
        job, servers = self.jobs[number], self.network.nic_server[nics]
        sizes = [len(group) for group in self.endpoints[number]]
        return JobPlace(
            job.name,
            servers,
            self.nics_bps(nics),
            job.iterations,
            job.seed,
            self.rank_hosts(nics),
            endpoint_ranks(len(nics), sizes),
            self._elsewhere_s[number],
        )

    def _time_elsewhere(self, lab: LabSpec, number: int) -> float:
        """Seconds of what a job sends in another network of the lab, by itself. Raises
        InputError."""
        job, servers = self.jobs[number], self.network.nic_server[self.own_places(number)]
        apart = None if job.workload is None else job.workload.elsewhere(servers)
        if apart is None:
            return 0.0
        other = job_elsewhere(job, apart, self.network, self.spec, lab)
        options = replace(self.options, timeline=TimelineSpec(), host_model=None)
        there = Simulation(lab, [other], options, self._progress)
        (seconds,) = there.iteration_seconds(there.run())
        return seconds[0]

    def own_places(self, number: int) -> Ints:
        """The NICs of a job's own ranks, without those of its endpoints."""
        others = sum(map(len, self.endpoints[number]))
        places: Ints = self.places[number][: len(self.places[number]) - others]
        return places

    @property
    def hosts_in_words(self) -> str:
        """What hosts are taken for."""
        if self.options.ports is PortModel.LAB:
            return "hosts wake as in a lab"
        if self.host_model is None:
            return TIMELESS
        return self.host_model.words

    @property
    def collectives_in_words(self) -> str:
        """What hosts are taken for, and how they do collectives."""
        ways = [
            f"{job.name} in {cost.words}"
            for job, cost in zip(self.jobs, self.costs, strict=True)
            if cost is not None
        ]
        return "; ".join([self.hosts_in_words, *ways])

    def rank_hosts(self, nics: Ints) -> RankHosts | None:
        """The hosts of ranks on these NICs; None without a host model."""
        if self.host_model is None:
            return None
        return rank_hosts(self.network, self.host_model, self._domain, nics)

    def _local_paths(self) -> LocalPaths | None:
        if self.host_model is None:
            return None
        compiled = self.compiled
        flows = [self.flows]
        if compiled.answers is not None and compiled.clearing is not None:
            flows += [compiled.answers, compiled.clearing.flows, compiled.clearing.answers]
        program = compiled.program
        bits = np.bincount(program.flow, program.size_bits, len(self.flows))
        if self.options.engine is not Engine.FLUID:
            bits = np.full_like(bits, np.inf)
        bits_a_message = bits / np.maximum(1, compiled.posted)
        return LocalPaths(self.network, self.host_model, self._domain, flows, bits_a_message)

    @cached_property
    def capacity_bps(self) -> Floats:
        """Of each send, 2L, and of each row of hosts behind them."""
        return self._with_rows(self.network.capacity_bps)

    def link_name(self, send: int) -> str:
        """The link of a send, or the row of a host."""
        if send < self.network.sends or self.local is None:
            return self.network.link_name(send // 2)
        return self.local.name(send)

    def _with_rows(self, capacity_bps: Floats) -> Floats:
        return capacity_bps if self.local is None else self.local.extended(capacity_bps)

    @property
    def eps(self) -> float:
        """The eps of the engine (`rocelab.sim.engine.run.run`)."""
        return self.options.eps or 0.0

    def outages(self) -> tuple[EventOutage, ...]:
        """The timeline's outages on this network. Raises SpecError."""
        return resolve(self.network, self.options.timeline)

    def run(self) -> Outcome:
        """Run all jobs to their ends, through the timeline."""
        if self.options.engine is not Engine.FLUID:
            return self.run_packets()
        outages = self.outages()
        changes = changes_of(
            self.network,
            outages,
            self.flows,
            self.whole_paths,
            partial(self.routing.rerouted, self.whole_paths),
            [self.retransmissions[job.name] for job in self.jobs],
            self._job_of_flow().astype(np.int32),
            self._begins_s(),
        )
        with self._timed("run"):
            return run(
                self.program,
                self.whole_paths,
                self.capacity_bps,
                eps=self.eps,
                changes=map(self._change_with_rows, changes),
                prove=self.options.prove,
                load=self._load_engine,
                progress=self._progress,
            )

    def _change_with_rows(self, change: Change) -> Change:
        if self.local is None or change.capacity_bps is None:
            return change
        return replace(change, capacity_bps=self.local.extended(change.capacity_bps))

    def run_packets(self) -> PacketRun:
        """Run all jobs packet by packet, the whole network or link by link. Raises InputError for
        what cannot be simulated so."""
        engine = run_links if self.options.engine is Engine.LINKS else run_packets
        inputs = self.packet_inputs()
        self._load_engine()
        with self._timed("run"):
            outcome = engine(*inputs, self._progress)
        if self.local is None:
            return outcome
        # Its tasks begin when hosts have taken their time.
        return replace(outcome, start_s=outcome.start_s - self._host_s())

    def packet_inputs(self) -> tuple[Program, list[Wiring], Floats, Sending, Queues]:
        """What `run_packets` and `run_links` take. Raises InputError for what cannot be simulated
        packet by packet or would take too long, MachineError for what does not fit."""
        check_packet_options(
            self.options,
            self.host_model,
            self.engine_latency_ns,
            self.jobs,
            self.is_merged,
            self.whole_paths,
        )
        messages, clearing = self.compiled.messages, self.compiled.clearing
        assert messages is not None and clearing is not None
        latency_s = np.zeros(self.program.tasks)
        delay_s = self.program.delay_s + self._host_s()
        program = replace(self.program, latency_s=latency_s, delay_s=delay_s, rings=None)
        outages = self.outages()
        sending = sending_of(
            [self._transport(job, fails=bool(outages)) for job in self.jobs],
            np.concatenate((self._job_of_flow(), clearing.job)),
            joined_flows([self.flows, clearing.flows]),
            messages,
            clearing.of_flow,
            self.network,
            gathering_of(self.network) if self.options.ports is PortModel.LAB else None,
        )
        queues = queues_of(
            self.spec,
            self.fabric_network,
            self.options.ports,
            self.engine_latency_ns,
            self.options.seed,
        )
        engine_latency_ns = self.engine_latency_ns
        if self.local is not None:
            engine_latency_ns = self.local.padded(engine_latency_ns)
            queues = with_rows(queues, self.network.sends, len(engine_latency_ns))
            sending = unlimited(sending, self._local_queue_pairs())
        with self._timed("paths"):
            wirings = wirings_of(
                self.network,
                outages,
                self.ways,
                self._ways_over,
                partial(port_rates_bps, self.network, self.local, self.jobs),
            )
        if self.options.engine is Engine.LINKS:
            check_hops(program, wirings, sending)
        else:
            check_packets(program, wirings, sending, queues)
        return program, wirings, engine_latency_ns / 1e9, sending, queues

    def _host_s(self) -> Floats:
        """What hosts take before the sends of each task leave, T, packet by packet: of the flow
        that waits longest."""
        task_s = np.zeros(self.program.tasks)
        if self.local is not None:
            task = np.repeat(np.arange(len(task_s)), np.diff(self.program.first_transfer))
            np.maximum.at(
                task_s,
                task,
                self._host_latency_s[self.program.flow],
            )
        return task_s

    def _local_queue_pairs(self) -> Bools:
        """The flows, and behind them those for clear-to-sends, that do not use the network."""
        assert self.local is not None and self.compiled.clearing is not None
        return self.local.is_local(joined_flows([self.flows, self.compiled.clearing.flows]))

    def _job_of_flow(self) -> Longs:
        return np.repeat(np.arange(len(self.jobs)), np.diff(self.compiled.first_flow))

    @cached_property
    def ways(self) -> Ways:
        """The ways of the packets of each flow, those for clear-to-sends last, and behind them
        those of the ACKs and CNPs of each, while all links are up."""
        return self._ways_over(np.ones(self.network.links, np.bool_))

    def _ways_over(self, link_up: Bools) -> Ways:
        answers, clearing = self.compiled.answers, self.compiled.clearing
        assert answers is not None and clearing is not None
        back = joined_flows([answers, clearing.answers])
        return self.routing.ways(self.whole_paths, self.flows, clearing.flows, back, link_up)

    def _transport(self, job: SimulatedJob, *, fails: bool) -> TransportSpec:
        return patient_transport(job, self.retransmissions[job.name]) if fails else job.transport

    @cached_property
    def is_merged(self) -> Bools:
        """Of each job, whether some transfers are many sends of a lab: one after the other, or in
        a pipeline. They take as long as all of these together, waits included."""
        chains = self.compiled.chains
        is_task: Bools = fill_bits(self.compiled, self.workloads) > 0
        is_task[chains.task[(chains.rounds > 1) | (chains.tokens > 0)]] = True
        flags = np.zeros(len(self.jobs), np.bool_)
        flags[self.compiled.job[is_task]] = True
        return flags

    def report(self, outcome: Outcome | None = None) -> SimulationReport:
        """The report of `outcome`, or of a run if it is None."""
        outcome = outcome or self.run()
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return figures(self, outcome, peak_bytes)

    def iteration_times(self, link_up: Bools, capacity_bps: Floats) -> Mapping[str, float]:
        """Seconds of the last iteration of each job while routing uses these links, L, and sends
        have these capacities, 2L; inf for a job without progress."""
        return self.last_iterations(self.outcome_in(link_up, capacity_bps))

    def outcome_in(self, link_up: Bools, capacity_bps: Floats) -> Outcome:
        """The outcome in a state of the network as `iteration_times` has it, and its errors."""
        if self.options.engine is not Engine.FLUID:
            raise InputError(
                "the packet engine does not compute iterations in one state of the network",
                hint="use --engine fluid, or `rocelab simulate` with --event",
            )
        for job in self.jobs:
            if job.is_open_loop:
                raise InputError(
                    f"{job.name}: flows that begin at given times have no iterations to compare",
                    hint="use `rocelab simulate` with --event",
                )
        self._load_engine()
        return run(
            self.program,
            self.routing.paths(self.flows, link_up),
            self._with_rows(capacity_bps),
            eps=self.eps,
            prove=self.options.prove,
            progress=self._progress,
        )

    def last_iterations(self, outcome: Outcome) -> Mapping[str, float]:
        """Seconds of the last iteration of each job; inf for a job without progress."""
        return {
            job.name: times[-1]
            for job, times in zip(self.jobs, self.iteration_seconds(outcome), strict=True)
        }

    def iteration_seconds(self, outcome: Outcome) -> list[list[float]]:
        """The duration of each job's iterations, inf for those that never ended, without a
        collective's own pause, as in the lab."""
        return iteration_seconds(self.jobs, self.iteration_spans(outcome))

    def iteration_spans(self, outcome: Outcome) -> list[tuple[Floats, Floats]]:
        """When the iterations of each job begin and end."""
        return iteration_spans(self.jobs, self.workloads, self.compiled, outcome)

    @property
    def retransmissions(self) -> Mapping[str, Retransmission]:
        """How long each job's queue pairs wait after a loss: as the timeline says, else the job."""
        return self.retransmissions_in(self.options.timeline)

    def retransmissions_in(self, timeline: TimelineSpec) -> Mapping[str, Retransmission]:
        """The values of `retransmissions` for another timeline."""
        return {
            job.name: Retransmission.of(timeline.retransmission, job.transport) for job in self.jobs
        }

    def _compiled(self) -> Compiled:
        placed = [
            PlacedJob(workload, places, job.transport, job.seed, self.rank_hosts(places), costs)
            for workload, places, job, costs in zip(
                self.workloads, self.places, self.jobs, self.costs, strict=True
            )
        ]
        return compile_jobs(
            self.network,
            placed,
            overhead_bytes=wire_overhead_bytes(self.network.family),
            for_packets=self.options.engine is not Engine.FLUID,
        )

    @cached_property
    def latency_ns(self) -> Floats:
        """The modelled time that its link adds to each send, 2L."""
        return latencies_ns(self.network, self.options.hop_latency_ns)

    @cached_property
    def engine_latency_ns(self) -> Floats:
        """`latency_ns` as the engine takes it, 2L."""
        is_packets = self.options.engine is Engine.PACKETS
        return few_latencies_ns(self.latency_ns) if is_packets else self.latency_ns

    def _timed_program(self) -> Program:
        """The program with the latency of each task's longest chain, and jobs at their starts."""
        chains, program = self.compiled.chains, self.compiled.program
        program = chains.timed(program, self.flow_latency_s(self.latency_ns / 1e9))
        self.compiled = replace(self.compiled, chains=chains.longer)
        latency_s = program.latency_s + fill_bits(self.compiled, self.workloads) / self._fill_bps()
        first = np.diff(program.after_start) == 0
        starts = np.array([job.start / 1e9 for job in self.jobs])
        delay_s = program.delay_s + np.where(first, starts[self.compiled.job], 0.0)
        return replace(program, latency_s=latency_s, delay_s=delay_s)

    def _limits(self) -> Limits | None:
        """The flows that their windows may hold back."""
        packets = np.bincount(self.program.flow, self.compiled.packets)
        if packets.max(initial=0.0) <= min(job.transport.window for job in self.jobs):
            return None
        return limits_of(self.windowed, self.whole_paths, self.capacity_bps)

    @cached_property
    def windowed(self) -> Windowed:
        """The flows and their windows; those that do not use the network have none."""
        compiled, flows, flow = self.compiled, len(self.flows), self.program.flow
        job = self._job_of_flow()
        transports = [spec.transport for spec in self.jobs]
        window = np.array([transport.window for transport in transports], np.int64)[job]
        latency_s = self.latency_ns / SECOND
        if self.local is not None:
            window[self.local.is_local(self.flows)] = NO_WINDOW
            latency_s = self.local.padded(latency_s)
        rings, (rounds, between_s) = self.program.rings, np.zeros((2, flows))
        ring = np.full(flows, NONE)
        if rings is not None and len(rings.share):
            ring[flow] = rings.of_transfer
            of_ring = compiled.chains.rounds[compiled.chains.tokens > 0]
            np.add.at(rounds, flow, np.append(of_ring, 0)[rings.of_transfer])
            in_all_s = rings.latency_s * of_ring / np.maximum(1, of_ring - 1)
            np.add.at(between_s, flow, np.append(in_all_s, 0.0)[rings.of_transfer])
            between_s /= np.maximum(1, rounds)
        return Windowed(
            packets=np.bincount(flow, compiled.packets, flows).astype(np.int64),
            bits=np.bincount(flow, self.program.size_bits, flows).astype(np.float64),
            window=window,
            ack_every=np.array(list(map(most_acked, transports)), np.int64)[job],
            ack_bits=8 * ack_bytes(self.network.family),
            latency_s=along_paths(self.whole_paths, latency_s),
            ring=ring,
            rounds=rounds,
            between_s=between_s,
        )

    @cached_property
    def _host_latency_s(self) -> Floats:
        """What hosts add to each flow's sends, F."""
        assert self.local is not None
        return self.local.latency_s(self.flows, self.costs, self._job_of_flow())

    def flow_latency_s(self, latency_s: Floats) -> Floats:
        """How long a message without length of each flow takes, F. latency_s: of each send, 2L."""
        if self.local is None:
            return along_paths(self.whole_paths, latency_s)
        along_s = along_paths(self.whole_paths, self.local.padded(latency_s))
        times_s: Floats = along_s + self._host_latency_s
        return times_s

    def _fill_bps(self) -> Floats:
        """How fast bits pass from rank to rank, T: at the rate of the job's slowest NIC, or where
        some ranks reach each other without the network, the mean pace of a task's flows."""
        job_bps = np.array([self.nic_bps(number) for number in range(len(self.jobs))])
        task_bps: Floats = job_bps[self.compiled.job]
        if self.local is None or self.host_model is None or self.host_model.local is None:
            return task_bps
        counts = np.diff(self.compiled.program.first_transfer)
        bit_s = np.repeat(1 / task_bps, counts)
        local = self.local.is_local(self.flows)[self.compiled.program.flow]
        bit_s[local] = 1 / self.host_model.local.bandwidth_bps
        task = np.repeat(np.arange(len(counts)), counts)
        total_s = np.bincount(task, bit_s, len(counts))
        paces = np.divide(counts, total_s, out=task_bps.copy(), where=total_s > 0)
        return np.asarray(paces, np.float64)

    def _begins_s(self) -> Floats:
        """When each flow of an open loop begins, F; 0 for flows of other jobs."""
        begins = np.zeros(len(self.flows))
        open_loop = np.array([job.is_open_loop for job in self.jobs])[self.compiled.job]
        task = np.repeat(np.arange(self.program.tasks), np.diff(self.program.first_transfer))
        sent = open_loop[task]
        begins[self.program.flow[sent]] = self.program.delay_s[task[sent]]
        return begins

    def usable_sends(self) -> Bools:
        """The sends that switches can choose for some flow with any hash, 2L, while all links are
        up."""
        return usable_sends(self.network, self.flows, self.whole_paths, self.local)

    def nic_bps(self, number: int) -> float:
        """The rate of the slowest of a job's NICs."""
        return float(self.nics_bps(self.places[number]).min())

    def nics_bps(self, places: Ints) -> Floats:
        """The rate of each of these NICs, summed over its ports."""
        links = self.network.nic_links[places]
        rates: Floats = np.where(links == NONE, 0.0, self.network.rate_bps[links]).sum(axis=1)
        return rates

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        begun, loading_s = time.perf_counter(), self._loading_s
        yield
        took_s = time.perf_counter() - begun - (self._loading_s - loading_s)
        self.seconds[stage] = self.seconds.get(stage, 0.0) + took_s

    def _load_engine(self) -> None:
        """Compile the engine where it is not, and load it. No stage is billed for that."""
        begun = time.perf_counter()
        compile_ahead(self.options.engine, self._progress)
        self._loading_s += time.perf_counter() - begun


def simulate(
    spec: LabSpec,
    jobs: Sequence[SimulatedJob | JobSpec],
    options: Options | None = None,
    progress: ProgressSink = no_progress,
) -> SimulationReport:
    """Jobs that share a fabric, from the first one's start to the last one's end.

    A `JobSpec`, a job of a lab, is a collective of that job.
    Raises InputError if something does not fit the fabric or its scheme cannot be simulated,
    SpecError for events with unknown targets, MachineError if this machine has too little memory. A
    job that cannot end is no error: its iterations are None.
    """
    simulated = [collective_job(job) if isinstance(job, JobSpec) else job for job in jobs]
    return Simulation(spec, simulated, options, progress).report()
