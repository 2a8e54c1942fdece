"""How evenly and how fast the engines of `te` place the flows of a whole cluster.

    .venv/bin/python -m bench.te_placing

A ring in random order over all NICs of `meta-32k`, 16 queue pairs each. Prints, for E-ECMP and for
each engine, the utilisation of the most used link and the seconds that placing took.
"""

from __future__ import annotations

import time

import numpy as np

from rocelab import load
from rocelab.labfile.schemes.scheme_spec import scheme_of
from rocelab.labfile.schemes.te import TeEngine
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.flows import Flows
from rocelab.routes.arrays.paths import paths_of
from rocelab.routes.arrays.routes import Routes
from rocelab.routes.arrays.te import place_te, utilisation

QPS = 16


def main() -> None:
    """Place the flows with each engine."""
    network = network_of(load("meta-32k"))
    routes = Routes(network)
    ring = np.random.default_rng(0).permutation(network.nics)
    number = np.arange(QPS * network.nics)
    ends = np.repeat(ring, QPS), np.repeat(np.roll(ring, -1), QPS)
    columns = (*ends, 0 * number, 49152 + number % 16384, number)
    flows = Flows(*(column.astype(np.int32) for column in columns))
    rate_bps = np.full(len(flows), 400e9 / QPS)
    hashed = paths_of(network, routes, flows, scheme=scheme_of("e-ecmp"))
    print("e-ecmp", utilisation(hashed, rate_bps, network.capacity_bps).max())
    for engine in TeEngine:
        began_s = time.monotonic()
        paths = place_te(network, routes, flows, rate_bps, engine, fallback=hashed)
        most = utilisation(paths, rate_bps, network.capacity_bps).max()
        print(engine, most, time.monotonic() - began_s)


if __name__ == "__main__":
    main()
