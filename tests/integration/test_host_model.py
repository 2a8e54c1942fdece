"""A host model in a lab: an iteration takes what the packet engine says, within what it agrees to
without one."""

from __future__ import annotations

from functools import partial

import pytest

from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import collective_job
from rocelab.results.engines import Engine
from rocelab.runs.jobs import run_job
from rocelab.sim.options import Options
from rocelab.sim.simulate import simulate
from tests.helpers.measured import measured
from tests.integration.conftest import MakeLab

LAB = """
fabric: {kind: rail, units: 1, servers_per_unit: 2, rails: 4, spines: 2}
dilation: 16000
host_model:
  name: four
  gpus: 4
  nics: 4
  nic: {cap: 300G}
  fabric: {kind: switch, bandwidth: 370GB/s, latency: 3400ns}
  costs: {launch: 8400ns, step: 14us}
"""
VETH_NS = 10.0
"""A lab's veth pairs have no length, and the engine needs one."""


def test_jobs_with_hosts_take_what_packets_take(make_lab: MakeLab) -> None:
    lab = make_lab("t-hosts", LAB)
    lab.start()
    options = Options(engine=Engine.PACKETS, hop_latency_ns=VETH_NS)
    for pattern, way in (("allreduce", "tree, protocol ll128"), ("alltoall", "pxn")):
        job = JobSpec.model_validate({"pattern": pattern, "ranks": 8, "size": "2MB"})
        report = measured(partial(run_job, lab, job))
        assert report.hosts.startswith(f"hosts as four in {way}")
        assert report.valid
        (packets,) = simulate(lab.fabric.spec, [collective_job(job)], options).jobs
        simulated = packets.headline("iteration_time").modelled.median
        # As docs/agreement.md, and what a machine that has run tests for minutes adds to a step.
        taken = report.headline("iteration_time").modelled.median
        assert taken == pytest.approx(simulated, rel=0.1)
