"""The flows of keys and values, from the replicas that prefill to those that decode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import Floats, Ints, Longs
from rocelab.base.errors import InputError
from rocelab.jobs.flow_list import MOST_FLOWS, FlowList
from rocelab.jobs.serving.prefill import Prefilled
from rocelab.jobs.serving.serving_spec import RequestServingSpec


@dataclass(frozen=True, eq=False)
class Transfers:
    """X flows by their start, and the request of each."""

    flows: FlowList
    request: Ints
    cache_bytes: Longs
    """Of each request, N."""

    def moved_s(self, over_s: Floats, computed_s: Floats) -> Floats:
        """When the cache of each request is there, N. over_s: when each flow is over, X.
        computed_s: when each request's prompt is, N."""
        moved = computed_s.copy()
        np.maximum.at(moved, self.request, over_s)
        return moved

    def alone_s(self, nic_bps: Floats) -> Floats:
        """When each flow would be over if it were alone on NICs of these rates, X."""
        flows = self.flows
        rate = np.minimum(nic_bps[flows.source], nic_bps[flows.destination])
        alone: Floats = flows.start_s + flows.size_bytes * 8 / rate
        return alone


def transfers(
    spec: RequestServingSpec,
    prefilled: Prefilled,
    decoder: Ints,
    tokens: Longs,
    job: str,
) -> Transfers:
    """Each cache is cut evenly over the NICs of a replica, NIC i to NIC i, and over `cache_parts`:
    a part is sent as soon as its share of the prefill is over. tokens: of each request's cache that
    travel. Copies for more GPUs than heads of keys and values are made within a server. Raises
    InputError for too many flows."""
    nics, parts = spec.replica_nics, spec.cache_parts
    pieces = nics * parts
    if len(tokens) * pieces > MOST_FLOWS:
        raise InputError(
            f"{job}: {len(tokens):,} caches in {pieces} pieces each are "
            f"{len(tokens) * pieces:,} flows; at most {MOST_FLOWS:,} are simulated",
            hint="take fewer requests: first: N; or fewer nics or cache_parts",
        )
    cache = tokens * spec.model.cache_bytes
    piece = np.arange(pieces)
    sizes = cache[:, None] // pieces + (piece < cache[:, None] % pieces)
    nic, part = piece % nics, piece // nics
    took_s = (prefilled.end_s - prefilled.begin_s)[:, None]
    start_s = prefilled.begin_s[:, None] + took_s * (part + 1) / parts
    source = prefilled.replica[:, None] * nics + nic
    destination = (spec.prefill + decoder[:, None]) * nics + nic
    request = np.broadcast_to(np.arange(len(tokens))[:, None], sizes.shape)
    sent = np.flatnonzero(sizes.reshape(-1) > 0)
    order = sent[np.argsort(start_s.reshape(-1)[sent], kind="stable")]

    return Transfers(
        FlowList(
            spec.ranks,
            _flat(source, order).astype(np.int32),
            _flat(destination, order).astype(np.int32),
            _flat(sizes, order),
            start_s.reshape(-1)[order],
        ),
        _flat(request, order).astype(np.int32),
        cache,
    )


def _flat(values: Longs | Ints, order: Longs) -> Longs:
    return values.reshape(-1)[order].astype(np.int64)
