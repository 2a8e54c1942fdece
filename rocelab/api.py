"""The face: every name that `import rocelab` gives, by section, with the module that has it.

This one list makes `rocelab.__all__` and docs/api.md, and a test holds the typed imports of
`rocelab/__init__.py` to it. Everything else in rocelab is private, but for `rocelab.mininet`, which
needs Mininet, and DOORS: it may move or change in any release.
"""

from __future__ import annotations

from collections.abc import Mapping

SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Plan a lab": {
        "load": "rocelab.labfile.load",
        "plan": "rocelab.planning.build",
        "Lab": "rocelab.testkit.lab",
        "LabSpec": "rocelab.labfile.model",
        "Fabric": "rocelab.planning.fabric",
    },
    "Run a lab": {
        "RunningLab": "rocelab.testkit.lab",
        "Traffic": "rocelab.testkit.traffic",
        "TrafficResult": "rocelab.traffic.result",
        "RouteWatch": "rocelab.linux.fibwatch:FibWatch",
        "InjectedFault": "rocelab.testkit.kit",
        "Measurement": "rocelab.testkit.measurement",
        "Duration": "rocelab.testkit.duration",
        "HealthMonitor": "rocelab.observe.health.monitor",
        "HealthSpec": "rocelab.observe.health.health_spec",
        "HealthReport": "rocelab.results.health",
        "Sli": "rocelab.results.health",
        "QueueSampler": "rocelab.dataplane.queues.reading",
        "read_queue_counters": "rocelab.dataplane.queues.reading",
        "keep_unconverged": "rocelab.observe.evidence.unconverged",
        "open_ssh": "rocelab.lab.management",
        "ProgramReport": "rocelab.results.programs",
        "OutputLine": "rocelab.programs.running",
    },
    "Fixtures of pytest, for annotations": {
        "TrafficMaker": "rocelab.testkit.kit",
        "FaultMaker": "rocelab.testkit.kit",
        "MeasureMaker": "rocelab.testkit.kit",
    },
    "Run jobs and drills": {
        "JobSpec": "rocelab.jobs.job",
        "run_job": "rocelab.runs.jobs",
        "run_jobs": "rocelab.runs.jobs",
        "run_drill": "rocelab.drills.run",
        "kept": "rocelab.drills.labuse",
        "JobReport": "rocelab.results.job",
        "read_job_report": "rocelab.results.job",
        "DrillResult": "rocelab.results.drill",
        "read_drill_result": "rocelab.results.drill",
        "diagnose_report": "rocelab.diagnose.diagnose",
        "Diagnosis": "rocelab.results.diagnosis",
    },
    "Predict and simulate": {
        "predict": "rocelab.lab.prediction",
        "FlowRow": "rocelab.prediction.matrix",
        "NicRef": "rocelab.jobs.placement",
        "Prediction": "rocelab.results.prediction",
        "simulate": "rocelab.sim.simulate",
        "simulate_networks": "rocelab.sim.networks",
        "SimulationOptions": "rocelab.sim.options:Options",
        "SimulatedJob": "rocelab.jobs.job_spec",
        "load_jobs": "rocelab.jobs.job_spec",
        "HostModelSpec": "rocelab.hosts.host_spec",
        "load_host_model": "rocelab.labfile.servers:server_named",
        "SimulationReport": "rocelab.results.simulation",
        "read_sweep": "rocelab.sim.sweep.sweep_spec",
        "run_sweep": "rocelab.sim.sweep.run",
        "worker_processes": "rocelab.sim.sweep.workerpool",
        "TrainingSpec": "rocelab.jobs.training_spec",
        "training_volumes": "rocelab.jobs.volumes:volumes",
        "training_estimate": "rocelab.jobs.training:estimate",
        "InferenceSpec": "rocelab.jobs.inference",
        "serving_estimate": "rocelab.jobs.inference:estimate_serving",
        "RestartSpec": "rocelab.sim.events.event_spec",
        "LLAMA3_RATES": "rocelab.sim.events.rates:LLAMA3",
        "expected_cost": "rocelab.sim.events.expectation",
        "HashPolicy": "rocelab.labfile.model",
        "columns_v4": "rocelab.routes.flows",
        "multipath_hashes": "rocelab.routes.bulk",
        "select_all": "rocelab.routes.bulk",
    },
    "Read traces and published runs": {
        "Pattern": "rocelab.jobs.collectives",
        "read_workload": "rocelab.sim.traces.replay",
        "write_trace": "rocelab.sim.traces.export",
        "read_nccl_tests": "rocelab.sim.traces.nccl_tests",
        "compare_times": "rocelab.sim.traces.reference:compare",
        "fit_alpha_beta": "rocelab.sim.traces.reference",
        "fit_hosts": "rocelab.sim.traces.hostfit",
    },
    "Errors": {
        "RocelabError": "rocelab.base.errors",
        "InputError": "rocelab.base.errors",
        "SpecError": "rocelab.base.errors",
        "MachineError": "rocelab.base.errors",
        "ExpectationError": "rocelab.base.errors",
        "InvalidRunError": "rocelab.testkit.measurement",
        "NotMeasuredError": "rocelab.testkit.measurement",
    },
}
"""A home is a module, or `module:name` for what has another name there."""

DOORS = (
    "rocelab.base.arrays",
    "rocelab.base.progress",
    "rocelab.base.units",
    "rocelab.dataplane.controller.lab",
    "rocelab.fabrics.addressing",
    "rocelab.fabrics.base",
    "rocelab.fabrics.layout",
    "rocelab.fabrics.roles",
    "rocelab.faults.base",
    "rocelab.jobs.congestion",
    "rocelab.jobs.patterns.base",
    "rocelab.jobs.workload",
    "rocelab.jobs.workloads",
    "rocelab.lab.checks",
    "rocelab.lab.providers.base",
    "rocelab.lab.providers.netns",
    "rocelab.labfile.schemes.base",
    "rocelab.linux.bracket",
    "rocelab.planning.fabric",
    "rocelab.record",
    "rocelab.results.kpi",
    "rocelab.results.probes",
    "rocelab.routes.steering",
    "rocelab.routing.frr.kind",
    "rocelab.routing.stack",
    "rocelab.sim.packets.compiling",
)
"""Modules that plug-ins import from too: what an instance behind a door is made of."""

HOMES: Mapping[str, str] = {
    name: home for section in SECTIONS.values() for name, home in section.items()
}


def place(name: str) -> tuple[str, str]:
    """The module of a name, and its name there. Raises KeyError for a name that is not public."""
    module, _, attribute = HOMES[name].partition(":")
    return module, attribute or name
