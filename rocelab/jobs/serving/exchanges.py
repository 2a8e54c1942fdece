"""How long replicas that divide a model's experts wait for dispatch and combine, by formula.

The busiest NIC's bytes at its rate, beside what the busiest GPU gets over NVLink, and a latency of
each exchange: a lower bound, as if no other traffic were there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rocelab.jobs.expert_sends import expert_traffic
from rocelab.jobs.experts import Overlap, token_bytes
from rocelab.jobs.serving.serving_spec import RequestServingSpec
from rocelab.jobs.serving_times import routing
from rocelab.jobs.workloads import JobPlace

EXCHANGE_LATENCY_S = 4e-6
"""Four links of 1 us, the simulator's default. Assumed."""


@dataclass(frozen=True, slots=True)
class ExchangeTimes:
    """Of all layers, for each token of a replica."""

    network_s: float = 0.0
    inside_s: float = 0.0
    latency_s: float = 0.0
    hides: bool = False
    """It goes on beside the computation of another micro-batch."""

    def seconds(self, tokens: float) -> float:
        return self.latency_s + tokens * max(self.network_s, self.inside_s)

    @property
    def without_network(self) -> ExchangeTimes:
        """Where the network takes no time."""
        return ExchangeTimes(0.0, self.inside_s, 0.0, self.hides)


def exchange_times(
    spec: RequestServingSpec, place: JobPlace, *, decodes: bool, seed: int
) -> ExchangeTimes:
    """The exchanges of replicas that prefill or decode, on these NICs."""
    size, chosen = spec.expert, spec.routing
    if decodes:
        size, chosen = spec.decoding, spec.routing_to_decode
    if size < 2:
        return ExchangeTimes()
    gpus, nics = spec.gpus, spec.replica_nics
    nic = np.arange(gpus) * nics // gpus
    servers = place.domains.reshape(spec.replicas, nics)[:, nic]
    first = spec.prefill if decodes and spec.decode is not None else 0
    count = spec.decoders if decodes else spec.prefill
    rank = np.arange(spec.replicas * gpus, dtype=np.int32).reshape(spec.replicas, gpus)
    groups = rank[first : first + count].reshape(-1, size, gpus).swapaxes(1, 2).reshape(-1, size)
    routed = routing(spec, decodes=decodes, seed=seed)
    traffic = expert_traffic(routed, chosen, groups, servers.reshape(-1).astype(np.int32))
    most = max(
        (
            max(float(form.sum(axis=0).max()), float(form.sum(axis=1).max()))
            for form in traffic.network.values()
        ),
        default=0.0,
    )
    bytes_ = sum(
        token_bytes(spec.model.hidden, precision) / spec.tensor
        for precision in (chosen.dispatch, chosen.combine)
    )
    layers = spec.model.expert_layers
    nic_bytes_per_s = float(place.nic_bps.min()) / 8 * nics / gpus
    return ExchangeTimes(
        layers * most * bytes_ / nic_bytes_per_s,
        layers * traffic.inside * bytes_ / spec.nvlink_bps,
        layers * 2 * EXCHANGE_LATENCY_S if most else 0.0,
        chosen.overlap is Overlap.MICRO_BATCHES,
    )
