"""`python -m bench.hashing`: the speed of predicting choices, and the effect of two tiers' hashes.

For pairs of tiers with equal and different seeds, how many uplinks of a second-tier switch are used
and their max-mean ratio: the kernel's hash cut by threshold and by modulo, and CRCs by modulo; then
flows per second of the hash and the choice in numpy and in the scalar model.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench.campaign import command
from bench.campaign.document import Document
from bench.campaign.study import Series, Study
from bench.choices import ChoiceModel, Cut, crc_model, kernel_model
from rocelab import HashPolicy, columns_v4, multipath_hashes
from rocelab.routes.asic import Crc
from rocelab.routes.flows import HeaderColumns
from rocelab.routes.multipath import Flow5, multipath_hash, select
from rocelab.sim.figures import simulation_environment

FLOWS = 200_000
"""Flows that enter the first tier: 12,500 for each of sixteen second-tier switches, whose links
have a max-mean ratio of about 1.06 by chance alone."""
TIERS = ((16, 16), (16, 18), (16, 15))
RUNS = 5
_RNG = 20240804


@dataclass(frozen=True, slots=True)
class SecondTier:
    """Uplinks used and max-mean ratio of a second-tier switch, means over those switches."""

    used: float
    mmr: float


def random_flows(count: int) -> HeaderColumns:
    """RoCEv2 flows between random addresses of 198.18.0.0/15."""
    generator = np.random.default_rng(_RNG)
    source, destination = 0xC612_0000 + generator.integers(0, 1 << 17, (2, count))
    return columns_v4(source, destination, generator.integers(49152, 65536, count), 4791)


def second_tier(
    models: tuple[ChoiceModel, ChoiceModel], seeds: tuple[int, int], sizes: tuple[int, int]
) -> SecondTier:
    """The use of uplinks by flows that a first-tier switch spreads over `sizes[0]` uplinks, each to
    a switch that spreads its part over `sizes[1]`. Each tier has its model and its seed."""
    flows = random_flows(FLOWS)
    first, second = (
        model.choose(flows, seed, [1] * size)
        for model, seed, size in zip(models, seeds, sizes, strict=True)
    )
    loads = np.zeros(sizes)
    np.add.at(loads, (first, second), 1)
    return SecondTier(
        used=float((loads > 0).sum(axis=1).mean()),
        mmr=float((loads.max(axis=1) / loads.mean(axis=1)).mean()),
    )


def speeds() -> dict[str, tuple[int, Callable[[], object]]]:
    """What is timed, and over how many flows."""
    many, few = random_flows(1_000_000), 2_000
    seeds = np.arange(1, len(many) + 1, dtype=np.uint32)
    one = Flow5("198.18.0.1", "198.19.0.1", 17, 49152, 4791)
    crc, kernel = crc_model(Crc.CRC_32_ISCSI), kernel_model(HashPolicy.L4)
    return {
        "hash, one seed": (len(many), lambda: multipath_hashes(many, 7, HashPolicy.L4)),
        "hash, a seed per flow": (len(many), lambda: multipath_hashes(many, seeds, HashPolicy.L4)),
        "hash and choice of 18": (len(many), lambda: kernel.choose(many, 7, [1] * 18)),
        "CRC-32C and modulo 18": (len(many), lambda: crc.choose(many, 7, [1] * 18)),
        "scalar hash and choice": (
            few,
            lambda: [select(multipath_hash(one, 7, HashPolicy.L4), [1] * 18) for _ in range(few)],
        ),
    }


def flows_per_second(timed: tuple[int, Callable[[], object]]) -> float:
    """The rate of a run over so many flows."""
    flows, run = timed
    begun_s = time.perf_counter()
    run()
    return flows / (time.perf_counter() - begun_s)


EQUAL, DIFFERENT = (7, 7), (7, 8)
Tiers = tuple[tuple[ChoiceModel, ChoiceModel], tuple[int, int]]


def tiers() -> dict[str, Tiers]:
    """The models of both tiers and their seeds."""
    crc, other_crc = crc_model(Crc.CRC_32_ISCSI), crc_model(Crc.CRC_32_ISO_HDLC)
    models = {
        "Linux: SipHash, threshold": kernel_model(HashPolicy.L4),
        "SipHash, modulo": kernel_model(HashPolicy.L4, cut=Cut.MODULO),
        "CRC-32C, modulo": crc,
        "CRC-16/ARC, modulo": crc_model(Crc.CRC_16_ARC),
    }
    rows: dict[str, Tiers] = {
        f"{name}; {word} seeds": ((model, model), seeds)
        for name, model in models.items()
        for word, seeds in (("equal", EQUAL), ("different", DIFFERENT))
    }
    return {**rows, "CRC-32C below CRC-32, modulo; equal seeds": ((crc, other_crc), EQUAL)}


def figures(document: Document) -> dict[str, Any]:
    """The rows of both tables."""
    names = tiers()
    measured = document.measured
    return {
        "tiers": TIERS,
        "flows": FLOWS,
        "polarization": {name: many[0] for name, many in measured.items() if name in names},
        "speeds": {name: many for name, many in measured.items() if name not in names},
    }


STUDY = Study(
    name="hashing",
    about="the speed of predicting choices, and the effect of two tiers' hashes",
    series=lambda: [
        Series.alone(
            tiers(), lambda row: [asdict(second_tier(row[0], row[1], sizes)) for sizes in TIERS]
        ),
        Series.alone(speeds(), flows_per_second, RUNS),
    ],
    figures=figures,
    environment=lambda: asdict(simulation_environment()),
    is_published=False,
)

if __name__ == "__main__":
    command.run(STUDY.name)
