"""The flows that `bench.ns3` gives to both engines, as connection matrices of htsim.

The kit reads a matrix as it reads one from htsim (`rocelab.jobs.flow_files`), places host i on NIC
i, and finds the paths.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rocelab import SimulatedJob
from rocelab import SimulationOptions as Options
from rocelab.base.arrays import Floats
from rocelab.labfile.load import load_spec
from rocelab.labfile.queues import ACK_DSCP, DATA_DSCP
from rocelab.results.engines import Engine
from rocelab.sim.engine.program import Program
from rocelab.sim.packets.sending import Queues, Sending
from rocelab.sim.packets.wiring import PS, Wiring
from rocelab.sim.simulate import Simulation

Inputs = tuple[Program, list[Wiring], Floats, Sending, Queues]

RATES = 40
"""Of varied links."""

LAB = """
name: ns3
fabric: {{kind: fat-tree, k: {case.arity}}}
links: {{rate: 100G, server_rate: 100G, delay: 1us}}
queues: {{buffer: 4GB}}
scheme: {case.scheme}
"""
"""Buffers hold more than all flows together."""


@dataclass(frozen=True, slots=True)
class Case:
    """Flows between the hosts of a fat tree. senders: to host 0; flows: between random hosts, of
    random sizes up to size_bytes; without either every host sends to another one. over_ns: flows
    begin at random times up to this; 0: all at once. acks_first: ACKs have a class of their own
    that goes first, else that of data. varied: each link has a rate and a delay of its own."""

    name: str
    size_bytes: int = 2_000_000
    arity: int = 8
    senders: int = 0
    flows: int = 0
    over_ns: int = 0
    acks_first: bool = True
    spray: bool = False
    varied: bool = False
    window: int = 512
    ack_every: int = 16
    mtu: int = 4096

    @property
    def hosts(self) -> int:
        return self.arity**3 // 4

    @property
    def scheme(self) -> str:
        """How switches choose among equal paths."""
        return "spray" if self.spray else "ecmp"

    @property
    def draws(self) -> int:
        """How often it runs, with other draws each time."""
        return 8 if self.spray else 1


_WINDOW = Case("permutation, small window", window=32, ack_every=4, over_ns=100_000)
_RANDOM = Case(
    "random pairs, sizes and starts", 1_000_000, flows=4_000, over_ns=1_000_000, mtu=1024
)

CASES = (
    Case("permutation"),
    Case("permutation, random starts", over_ns=100_000),
    Case("permutation, ACKs as data", acks_first=False),
    Case("permutation, ACKs as data, random starts", acks_first=False, over_ns=100_000),
    Case("permutation, 1,024 hosts, random starts", arity=16, over_ns=100_000),
    _WINDOW,
    replace(_WINDOW, name=f"{_WINDOW.name}, varied links", varied=True),
    replace(_WINDOW, name=f"{_WINDOW.name}, 150 kB, varied links", size_bytes=150_000, varied=True),
    replace(_WINDOW, name=f"{_WINDOW.name}, 16 hosts", arity=4),
    replace(_WINDOW, name=f"{_WINDOW.name}, 16 hosts, varied links", arity=4, varied=True),
    Case("incast, 32 to 1", senders=32),
    Case("incast, 32 to 1, random starts", senders=32, over_ns=100_000),
    Case("incast, 127 to 1, random starts", senders=127, ack_every=1, over_ns=100_000),
    _RANDOM,
    replace(_RANDOM, name=f"{_RANDOM.name}, varied links", varied=True),
    Case("spray, permutation", spray=True),
    Case("spray, permutation, random starts", spray=True, over_ns=20_000),
)


def matrix(case: Case, seed: int = 1) -> str:
    """The connection matrix of a case, in htsim's form."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(case.hosts)
    others = order[order != 0][: case.senders]
    if case.flows:
        source = rng.integers(0, case.hosts, case.flows)
        to = (source + rng.integers(1, case.hosts, case.flows)) % case.hosts
    elif case.senders:
        source, to = others, np.zeros_like(others)
    else:
        # One cycle through all hosts: nobody sends to itself.
        source, to = order, np.roll(order, 1)
    count = len(source)
    sizes = np.full(count, case.size_bytes)
    if case.flows:
        sizes = np.exp(rng.uniform(0.0, np.log(case.size_bytes), count)).astype(np.int64)
    starts = rng.integers(0, 1000 * case.over_ns + 1, count)
    columns = (source.tolist(), to.tolist(), starts.tolist(), sizes.tolist())
    lines = [
        f"{one}->{other} id {number} start {start} size {size}"
        for number, (one, other, start, size) in enumerate(zip(*columns, strict=True), start=1)
    ]
    return "\n".join((f"Nodes {case.hosts}", f"Connections {count}", *lines)) + "\n"


def simulation(case: Case, seed: int = 1) -> Simulation:
    """The matrix of a case on its fabric, packet by packet. seed: of ties and of sprayed
    packets."""
    with tempfile.TemporaryDirectory() as name:
        lab, flows = Path(name) / "lab.yaml", Path(name) / "flows.cm"
        lab.write_text(LAB.format(case=case))
        flows.write_text(matrix(case))
        job = SimulatedJob.model_validate(
            {
                "name": "flows",
                "flows": {"file": str(flows)},
                "transport": {
                    "mtu": case.mtu,
                    "window": case.window,
                    "ack_every": case.ack_every,
                    "message": f"{case.size_bytes}B",
                    "out_of_order": case.spray,
                    "ack_timeout": "10s",
                    "ack_dscp": ACK_DSCP if case.acks_first else DATA_DSCP,
                },
            }
        )
        return Simulation(load_spec(lab), [job], Options(engine=Engine.PACKETS, seed=seed))


def inputs(case: Case, made: Simulation) -> Inputs:
    """What the packet engine takes. Varied links are up to 1% slower and 10 ns longer."""
    program, wirings, latency_s, sending, queues = made.packet_inputs()
    if case.varied:
        rng, links = np.random.default_rng(3), len(latency_s) // 2
        latency_s = latency_s + np.repeat(rng.integers(0, 10_001, links), 2) / PS
        (wiring,) = wirings
        slower = 1 - 0.01 * rng.integers(0, RATES, 2 * links) / RATES
        wirings = [replace(wiring, capacity_bps=np.rint(wiring.capacity_bps * slower))]
    return program, wirings, latency_s, sending, queues
