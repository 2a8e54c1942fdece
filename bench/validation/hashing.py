"""Case 1: the imbalance of hashed flows over parallel uplinks.

Measures max-mean ratios of the uplinks of one rack, by hash model, on the paths of
`rocelab.routes.arrays`, and compares them with uniform random hashing.
"""

from __future__ import annotations

import numpy as np

from bench.validation.tasks import Found, Task
from bench.validation.zone import E_ECMP, ECMP
from rocelab.jobs.sport import FIRST_SPORT, SPORTS
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.flows import Flows, Paths
from rocelab.routes.arrays.network import Network
from rocelab.routes.arrays.paths import flows_per_send, paths_of
from rocelab.routes.arrays.routes import Routes
from rocelab.routes.balance import balance, random_groups
from rocelab.routes.models import Model

LAB = "uplinks-16"
FLOWS = (16, 64, 256, 512, 1000)
LINKS = (16, 18, 32)
DRAWS = 100
PAIRS_QPS = 16
"""Queue pairs of each of the NIC pairs of the case with few of them."""


def tasks(seeds: int) -> list[Task]:
    """The same number of draws for each model, independent of `seeds`: they cost little."""
    tasks = [Task(expected, (tasks, links)) for tasks in FLOWS for links in LINKS]
    tasks += [Task(drawn, (model, tasks)) for model in Model for tasks in FLOWS]
    tasks += [Task(few_pairs, (seeds,))]
    return tasks


def expected(flows: int, links: int) -> Found:
    """The mean and the 99th percentile of uniform hashing."""
    random = random_groups(((flows, links),))
    key = f"mmr/uniform/{links}/{flows}"
    return {key: [random.mmr], f"{key}/p99": [random.mmr_p99]}


def drawn(model: Model, flows: int) -> Found:
    """Flows between random NICs of two racks, with random source ports."""
    network = network_of(load_spec(find_lab(LAB)))
    draw = np.random.default_rng((flows, len(model)))
    half = network.nics // 2
    values = []
    for _ in range(DRAWS):
        some = Flows(
            source=draw.integers(half, size=flows, dtype=np.int32),
            destination=half + draw.integers(half, size=flows, dtype=np.int32),
            port=np.zeros(flows, np.int32),
            sport=FIRST_SPORT + draw.integers(SPORTS, size=flows, dtype=np.int32),
            dest_qp=draw.integers(2**24, size=flows, dtype=np.int32),
        )
        values.append(_mmr(network, some, ECMP, model))
    return {f"mmr/{model}/{flows}": values}


def few_pairs(seeds: int) -> Found:
    """Every NIC of one rack to every one of the other, several queue pairs each, all with one
    source port: compares a hash of the five-tuple with one that includes the queue pair."""
    network = network_of(load_spec(find_lab(LAB)))
    half = network.nics // 2
    source, destination, pair = (
        axis.reshape(-1).astype(np.int32)
        for axis in np.meshgrid(*map(np.arange, (half, half, PAIRS_QPS)), indexing="ij")
    )
    values: dict[str, list[float]] = {}
    for seed in range(seeds):
        draw = np.random.default_rng(seed)
        port = FIRST_SPORT + int(draw.integers(SPORTS))
        first_qp = int(draw.integers(2**23))
        some = Flows(
            source=source,
            destination=half + destination,
            port=np.zeros_like(source),
            sport=np.full_like(source, port),
            dest_qp=(first_qp + PAIRS_QPS * (half * source + destination) + pair).astype(np.int32),
        )
        for scheme in (ECMP, E_ECMP):
            key = f"mmr/few/{scheme.kind}"
            values.setdefault(key, []).append(_mmr(network, some, scheme, Model.KERNEL))
    return values


def _mmr(network: Network, flows: Flows, scheme: SchemeSpec, model: Model) -> float:
    paths: Paths = paths_of(network, Routes(network), flows, scheme=scheme, model=model)
    leaf = network.node_number("rtsw1")
    up = 2 * np.flatnonzero(network.lower == leaf)
    ratio = balance(flows_per_send(network, paths)[up].tolist()).mmr
    assert ratio is not None
    return ratio
