"""Both engines under Poisson arrivals, beside what queueing theory says of one port.

Each test has independent queues side by side in one run, whose means give a confidence interval at
99% that has to hold the closed form. It is narrow enough to tell the next best model.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from rocelab.base.arrays import Floats
from rocelab.jobs.poisson import FlowSizes, PoissonSpec, poisson_flows
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.engine.program import Program
from rocelab.sim.engine.run import run
from rocelab.sim.packets.run import run_packets
from tests.unit.sim.packet_runs import FULL_PS, Flow, arranged

BPS = 100e9


def interval(means: Floats) -> tuple[float, float]:
    """At 99%, of the mean of independent means (Student 1908)."""
    half = stats.t.ppf(0.995, len(means) - 1) * means.std(ddof=1) / np.sqrt(len(means))
    return float(means.mean() - half), float(means.mean() + half)


@pytest.mark.long
@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_packets_wait_for_a_port_as_in_an_m_d_1_queue(rho: float) -> None:
    """Pollaczek 1930: packets of one length that arrive as a Poisson process wait for
    rho / (2 (1 - rho)) of the time that one takes. Each is a flow of its own, from a NIC that is a
    hundred times as fast."""
    queues, packets, warm_up = 24, 2000, 500
    service_s = FULL_PS / 1e12
    flows = [
        Flow([4 * queue, 4 * queue + 2], 4096) for queue in range(queues) for _ in range(packets)
    ]
    fast = {4 * queue: 100 * BPS for queue in range(queues)}
    program, *others = arranged(flows, rates_bps=fast)
    gaps_s = np.random.default_rng(1).exponential(service_s / rho, (queues, packets))
    program.delay_s[:] = gaps_s.cumsum(axis=1).reshape(-1)
    outcome = run_packets(program, *others)
    took_s = (outcome.finish_s - outcome.start_s).reshape(queues, packets)
    alone_s = took_s.min()
    waits = (took_s[:, warm_up:] - alone_s).mean(axis=1) / service_s
    low, high = interval(waits)
    mean = rho / (2 * (1 - rho))
    assert low <= mean <= high
    assert high - low < 0.25 * mean, "narrower than what tells M/M/1, twice as long"


@pytest.mark.long
@pytest.mark.parametrize(
    ("sizes", "load", "duration_ms"),
    [(FlowSizes.ALISTORAGE, 60, 30), (FlowSizes.FB_HADOOP, 40, 100)],
)
def test_flows_share_a_link_as_in_an_m_g_1_processor_sharing_queue(
    sizes: FlowSizes, load: int, duration_ms: int
) -> None:
    """Kleinrock 1967: under processor sharing the mean slowdown is 1 / (1 - rho), whatever the
    distribution of sizes."""
    links, rho = 32, load / 100
    keys = {"sizes": sizes, "load": f"{load}%", "duration": f"{duration_ms}ms"}
    spec = PoissonSpec.model_validate(keys)
    flows = poisson_flows(spec, np.full(links, BPS), seed=1)
    count = len(flows)
    size_bits = 8.0 * flows.size_bytes
    program = Program(
        np.zeros(count + 1, np.int64),
        np.empty(0, np.int32),
        flows.start_s,
        np.zeros(count),
        np.arange(count + 1),
        np.arange(count, dtype=np.int32),
        size_bits,
    )
    # Only the links of senders are shared.
    outcome = run(program, Paths(np.arange(count + 1), flows.source), np.full(links, BPS))
    slowdown = (outcome.end_s - outcome.start_s) * BPS / size_bits
    assert slowdown.min() >= 1 - 1e-6, "to the accuracy of the clock"
    # The first flows find the links empty, and nothing comes after the last.
    steady = abs(1e3 * flows.start_s / duration_ms - 0.5) < 0.4
    low, high = interval(
        np.array([slowdown[steady & (flows.source == link)].mean() for link in range(links)])
    )
    assert low <= 1 / (1 - rho) <= high
    assert high - low < 0.15 / (1 - rho), "narrower than what tells a tenth more load"
