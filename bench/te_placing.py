"""How evenly and how fast the engines of `te` place the flows of a whole cluster.

    .venv/bin/python -m bench.te_placing

A ring in random order over all NICs of `meta-32k`, 16 queue pairs each: for E-ECMP and for each
engine the utilisation of the most used link and the seconds that placing took.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

import numpy as np

from bench.campaign import command
from bench.campaign.study import Measure, Series, Study
from rocelab import load
from rocelab.labfile.schemes.scheme_spec import scheme_of
from rocelab.labfile.schemes.te import TeEngine
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.flows import Flows
from rocelab.routes.arrays.paths import paths_of
from rocelab.routes.arrays.routes import Routes
from rocelab.routes.arrays.te import place_te, utilisation
from rocelab.sim.figures import simulation_environment

QPS = 16


E_ECMP = "e-ecmp"


@contextmanager
def _flows(_: Sequence[str]) -> Iterator[Measure]:
    network = network_of(load("meta-32k"))
    routes = Routes(network)
    ring = np.random.default_rng(0).permutation(network.nics)
    number = np.arange(QPS * network.nics)
    ends = np.repeat(ring, QPS), np.repeat(np.roll(ring, -1), QPS)
    columns = (*ends, 0 * number, 49152 + number % 16384, number)
    flows = Flows(*(column.astype(np.int32) for column in columns))
    rate_bps = np.full(len(flows), 400e9 / QPS)
    hashed = paths_of(network, routes, flows, scheme=scheme_of(E_ECMP))

    def placed(engine: TeEngine | None) -> dict[str, float]:
        begun_s = time.monotonic()
        paths = hashed
        if engine is not None:
            paths = place_te(network, routes, flows, rate_bps, engine, fallback=hashed)
        took_s = time.monotonic() - begun_s
        return {"most": utilisation(paths, rate_bps, network.capacity_bps).max(), "took_s": took_s}

    yield placed


STUDY = Study(
    name="te_placing",
    about="how evenly and how fast the engines of `te` place the flows of a whole cluster",
    series=lambda: [Series({E_ECMP: None, **{str(one): one for one in TeEngine}}, _flows)],
    environment=lambda: asdict(simulation_environment()),
    is_published=False,
)

if __name__ == "__main__":
    command.run(STUDY.name)
