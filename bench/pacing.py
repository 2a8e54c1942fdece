"""The pacing of an agent's probes: rates compared with the requested ones, and the size of bursts.

`pacing` computes it for a run of constant-rate flows from the kernel's receive stamps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rocelab import TrafficResult
from rocelab.traffic.result import SECOND_NS, FlowTransmission

BURST_NS = 1_000_000
"""The span within which packets count as one burst."""


@dataclass(frozen=True, slots=True)
class Pacing:
    """A burst is the number of packets within any 1 ms: the largest, and the 99.9th percentile of
    the bursts that begin with each packet. `lost` packets did not arrive, for any reason."""

    flows: int
    worst_rate_error: float
    lost: int
    burst_of_a_flow: int
    burst_of_all: int
    burst_of_all_p999: int
    lag_p99_ns: int
    lag_max_ns: int
    sender_us: float
    problems: tuple[str, ...]


def rate_error(flow: FlowTransmission) -> float:
    """The relative difference of a flow's arrival rate from the requested rate.

    Raises ValueError if fewer than two packets arrived.
    """
    if len(flow.receive_ns) < 2:
        raise ValueError(f"{len(flow.receive_ns)} packets of flow {flow.flow.id} arrived")
    elapsed_ns = int(flow.receive_ns[-1] - flow.receive_ns[0])
    rate = (len(flow.receive_ns) - 1) * SECOND_NS / elapsed_ns
    return abs(rate / flow.flow.rate_pps - 1)


def bursts(times_ns: npt.NDArray[np.int64], span_ns: int = BURST_NS) -> npt.NDArray[np.int64]:
    """For each of these sorted times, the number within `span_ns` from it on, including itself."""
    after = np.searchsorted(times_ns, times_ns + span_ns, side="left")
    return np.asarray(after - np.arange(len(times_ns)), np.int64)


def pacing(result: TrafficResult) -> Pacing:
    """The figures of a run. Raises ValueError if fewer than two packets of a flow arrived."""
    flows = result.flows
    of_all = bursts(np.sort(np.concatenate([flow.receive_ns for flow in flows])))
    packets = sum(flow.offered for flow in flows)
    senders = {flow.flow.source for flow in flows}
    return Pacing(
        flows=len(flows),
        worst_rate_error=max(rate_error(flow) for flow in flows),
        lost=sum(flow.offered - len(flow.received_seq) for flow in flows),
        burst_of_a_flow=max(int(bursts(np.sort(flow.receive_ns)).max()) for flow in flows),
        burst_of_all=int(of_all.max()),
        burst_of_all_p999=int(np.percentile(of_all, 99.9)),
        lag_p99_ns=max(flow.lag_p99_ns for flow in flows),
        lag_max_ns=max(flow.lag_max_ns for flow in flows),
        sender_us=1e6 * sum(a.cpu_s for a in result.agents if a.server in senders) / packets,
        problems=result.problems,
    )
