"""From a lab file to a result.

labfile -> planning -> render | dataplane, lab -> traffic, faults -> observe, runs -> results
           planning -> jobs, routes -> prediction | sim -> results -> report, diagnose

A YAML file of `labs/` is read (`labfile`), planned (`planning`: every name, address and route) and
brought up (`lab`, with the queues, PFC and steering of `dataplane`). Jobs (`jobs`) become packets
(`traffic`, sent by a process in each server: `agent`). Drills of `scripts/` (`drills`) inject
faults (`faults`), send and count (`runs`) and look at the lab (`observe`); `prediction` and `sim`
compute the same without a running lab. Results (`results`) are shown (`report`) and explained
(`diagnose`).

The names of `rocelab.__all__` are the API (docs/api.md). Every module is private.
"""

from typing import TYPE_CHECKING

from rocelab.api import HOMES, place

if TYPE_CHECKING:
    from rocelab.base.errors import ExpectationError as ExpectationError
    from rocelab.base.errors import InputError as InputError
    from rocelab.base.errors import MachineError as MachineError
    from rocelab.base.errors import RocelabError as RocelabError
    from rocelab.base.errors import SpecError as SpecError
    from rocelab.dataplane.queues.reading import QueueSampler as QueueSampler
    from rocelab.dataplane.queues.reading import read_queue_counters as read_queue_counters
    from rocelab.diagnose.diagnose import diagnose_report as diagnose_report
    from rocelab.drills.labuse import kept as kept
    from rocelab.drills.run import run_drill as run_drill
    from rocelab.hosts.host_spec import HostModelSpec as HostModelSpec
    from rocelab.jobs.collectives import Pattern as Pattern
    from rocelab.jobs.inference import InferenceSpec as InferenceSpec
    from rocelab.jobs.inference import estimate_serving
    from rocelab.jobs.job import JobSpec as JobSpec
    from rocelab.jobs.job_spec import SimulatedJob as SimulatedJob
    from rocelab.jobs.job_spec import load_jobs as load_jobs
    from rocelab.jobs.placement import NicRef as NicRef
    from rocelab.jobs.training import estimate
    from rocelab.jobs.training_spec import TrainingSpec as TrainingSpec
    from rocelab.jobs.volumes import volumes
    from rocelab.lab.management import open_ssh as open_ssh
    from rocelab.lab.prediction import predict as predict
    from rocelab.labfile.load import load as load
    from rocelab.labfile.model import HashPolicy as HashPolicy
    from rocelab.labfile.model import LabSpec as LabSpec
    from rocelab.labfile.servers import server_named
    from rocelab.linux.fibwatch import FibWatch
    from rocelab.observe.evidence.unconverged import keep_unconverged as keep_unconverged
    from rocelab.observe.health.health_spec import HealthSpec as HealthSpec
    from rocelab.observe.health.monitor import HealthMonitor as HealthMonitor
    from rocelab.planning.build import plan as plan
    from rocelab.planning.fabric import Fabric as Fabric
    from rocelab.prediction.matrix import FlowRow as FlowRow
    from rocelab.programs.running import OutputLine as OutputLine
    from rocelab.results.diagnosis import Diagnosis as Diagnosis
    from rocelab.results.drill import DrillResult as DrillResult
    from rocelab.results.drill import read_drill_result as read_drill_result
    from rocelab.results.health import HealthReport as HealthReport
    from rocelab.results.health import Sli as Sli
    from rocelab.results.job import JobReport as JobReport
    from rocelab.results.job import read_job_report as read_job_report
    from rocelab.results.prediction import Prediction as Prediction
    from rocelab.results.programs import ProgramReport as ProgramReport
    from rocelab.results.simulation import SimulationReport as SimulationReport
    from rocelab.routes.bulk import multipath_hashes as multipath_hashes
    from rocelab.routes.bulk import select_all as select_all
    from rocelab.routes.flows import columns_v4 as columns_v4
    from rocelab.runs.jobs import run_job as run_job
    from rocelab.runs.jobs import run_jobs as run_jobs
    from rocelab.sim.events.event_spec import RestartSpec as RestartSpec
    from rocelab.sim.events.expectation import expected_cost as expected_cost
    from rocelab.sim.events.rates import LLAMA3
    from rocelab.sim.networks import simulate_networks as simulate_networks
    from rocelab.sim.options import Options
    from rocelab.sim.simulate import simulate as simulate
    from rocelab.sim.sweep.run import run_sweep as run_sweep
    from rocelab.sim.sweep.sweep_spec import read_sweep as read_sweep
    from rocelab.sim.sweep.workerpool import worker_processes as worker_processes
    from rocelab.sim.traces.export import write_trace as write_trace
    from rocelab.sim.traces.hostfit import fit_hosts as fit_hosts
    from rocelab.sim.traces.nccl_tests import read_nccl_tests as read_nccl_tests
    from rocelab.sim.traces.reference import compare
    from rocelab.sim.traces.reference import fit_alpha_beta as fit_alpha_beta
    from rocelab.sim.traces.replay import read_workload as read_workload
    from rocelab.testkit.duration import Duration as Duration
    from rocelab.testkit.kit import FaultMaker as FaultMaker
    from rocelab.testkit.kit import InjectedFault as InjectedFault
    from rocelab.testkit.kit import MeasureMaker as MeasureMaker
    from rocelab.testkit.kit import TrafficMaker as TrafficMaker
    from rocelab.testkit.lab import Lab as Lab
    from rocelab.testkit.lab import RunningLab as RunningLab
    from rocelab.testkit.measurement import InvalidRunError as InvalidRunError
    from rocelab.testkit.measurement import Measurement as Measurement
    from rocelab.testkit.measurement import NotMeasuredError as NotMeasuredError
    from rocelab.testkit.traffic import Traffic as Traffic
    from rocelab.traffic.result import TrafficResult as TrafficResult

    RouteWatch = FibWatch
    load_host_model = server_named
    serving_estimate = estimate_serving
    training_estimate = estimate
    training_volumes = volumes
    LLAMA3_RATES = LLAMA3
    SimulationOptions = Options
    compare_times = compare

__all__ = [*HOMES, "__version__"]

__version__: str
"""The installed version, which is that of pyproject.toml."""


def __getattr__(name: str) -> object:
    # Late, since the command line imports this package for every `--help`.
    if name in HOMES:
        from importlib import import_module

        module, attribute = place(name)
        try:
            value = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            from rocelab.base.extras import missing

            raise missing(error) or error from None
    elif name == "__version__":
        from importlib.metadata import version

        value = version("rocelab")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
