"""DeepEP's normal kernels beside its published GB/s, which are counted bytes over a time.

A token goes once to each server that has one of its experts, to the GPU of the sender's place, and
on over NVLink. Published are the bytes that its test counts: of all servers of a token, the
sender's own too (tests/test_internode.py), so more than a NIC's rate. Ours is the longer of two
times: of the bytes that cross the network, simulated, and of those over the busiest GPU's NVLinks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from bench.validation.published import Row, row
from rocelab import HostModelSpec, LabSpec, load_host_model
from rocelab.jobs.experts import Exchange, ExpertRouting, exchanged, routing_of, token_bytes
from rocelab.jobs.gpus import Precision
from rocelab.jobs.models import MODELS

Simulated = Callable[[LabSpec, Mapping[str, object], HostModelSpec, bool], float]

SERVER_GPUS, MOST_GROUPS = 8, 4
KINDS = {"dispatch": Precision.FP8, "combine": Precision.BF16}


@dataclass(frozen=True)
class Table:
    """Published GB/s of dispatch and combine by GPUs. nvlinks: of a GPU, GB/s."""

    name: str
    tokens: int
    nvlink_gbs: float
    gbs: Mapping[int, tuple[float, float]]


NVLINK_GBS = {"H800": 8 * 20.6, "H100": 18 * 20.6, "Blackwell": 18 * 40.1}
"""As NCCL counts NVLinks (src/graph/topo.h)."""

FIRST = Table(
    "V1, H800", 4096, NVLINK_GBS["H800"], {8: (153, 158), 16: (43, 43), 32: (58, 57), 64: (51, 50)}
)
SECOND = (
    Table("V2, SM90", 8192, NVLINK_GBS["H100"], {16: (90, 81), 32: (61, 61)}),
    Table("V2, SM100", 8192, NVLINK_GBS["Blackwell"], {8: (726, 740), 16: (90, 91)}),
)


def normal_rows(simulated_ns: Simulated) -> list[Row]:
    """A row for each kernel, number of GPUs and version."""
    return [
        _row(table, number, ranks, gbs, simulated_ns)
        for table, number in product((FIRST, *SECOND), range(len(KINDS)))
        for ranks, gbs in table.gbs.items()
    ]


def _row(
    table: Table, number: int, ranks: int, gbs: tuple[float, float], simulated_ns: Simulated
) -> Row:
    kind, precision = list(KINDS.items())[number]
    servers = ranks // SERVER_GPUS
    groups = {"expert_groups": servers, "top_groups": min(servers, MOST_GROUPS)}
    model = MODELS["deepseek-v3"].model_copy(update=groups)
    routing = routing_of(model, ExpertRouting(), ranks)
    server = (np.arange(ranks) // SERVER_GPUS).astype(np.int32)
    tokens = exchanged(routing, Exchange.PER_SERVER, server)
    bytes_each = table.tokens * token_bytes(model.hidden, precision)
    reached = float(routing.reached(np.arange(SERVER_GPUS, dtype=np.int32))[0])
    ours_ns = tokens.inside * bytes_each / table.nvlink_gbs
    counted = float(routing.met.sum()) if servers == 1 else servers * reached
    if servers > 1:
        ours_ns = max(ours_ns, _network_ns(servers, reached * bytes_each, simulated_ns))
    label = f"{table.name}, {kind}, EP {ranks} ({gbs[number]:g} GB/s)"
    return row(label, counted * bytes_each / gbs[number] / 1e3, ours_ns)


def _network_ns(servers: int, pair_bytes: float, simulated_ns: Simulated) -> float:
    """One rail: a GPU of each server sends to the one of its place in each other server."""
    units = {"units": 1, "servers_per_unit": servers, "rails": 1, "spines": 2}
    lab = LabSpec.model_validate({"name": "ep", "fabric": {"kind": "rail", **units}})
    data = load_host_model("dgx-h100").model_dump(mode="json", exclude_none=True)
    data |= {"gpus": 1, "nics": 1, "costs": {}, "sources": {}}
    hosts = HostModelSpec.model_validate({key: data[key] for key in data if key != "fabric"})
    job = {
        "pattern": "alltoall",
        "algorithm": "direct",
        "ranks": servers,
        "size": f"{round(servers * pair_bytes)}B",
        "transport": {"mtu": 4096},
    }
    return simulated_ns(lab, job, hosts, True)
