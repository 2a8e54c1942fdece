"""`python -m bench.hashing`: the speed of predicting choices, and the effect of two tiers' hashes.

Prints flows per second of the hash and the choice in numpy and in the scalar model, then, for
pairs of tiers with equal and different seeds, how many uplinks of a second-tier switch are used and
their max-mean ratio: the kernel's hash cut by threshold and by modulo, and CRCs by modulo.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.choices import ChoiceModel, Cut, crc_model, kernel_model
from rocelab import HashPolicy, columns_v4, multipath_hashes
from rocelab.routes.asic import Crc
from rocelab.routes.flows import HeaderColumns
from rocelab.routes.multipath import Flow5, multipath_hash, select

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


def flows_per_second(flows: int, run: Callable[[], object]) -> list[float]:
    """Rates of several runs over that many flows."""
    rates = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run()
        rates.append(flows / (time.perf_counter() - start))
    return rates


def speeds() -> Table:
    many, few = random_flows(1_000_000), 2_000
    seeds = np.arange(1, len(many) + 1, dtype=np.uint32)
    one = Flow5("198.18.0.1", "198.19.0.1", 17, 49152, 4791)
    crc, kernel = crc_model(Crc.CRC_32_ISCSI), kernel_model(HashPolicy.L4)
    cases: dict[str, tuple[int, Callable[[], object]]] = {
        "hash, one seed": (len(many), lambda: multipath_hashes(many, 7, HashPolicy.L4)),
        "hash, a seed per flow": (len(many), lambda: multipath_hashes(many, seeds, HashPolicy.L4)),
        "hash and choice of 18": (len(many), lambda: kernel.choose(many, 7, [1] * 18)),
        "CRC-32C and modulo 18": (len(many), lambda: crc.choose(many, 7, [1] * 18)),
        "scalar hash and choice": (
            few,
            lambda: [select(multipath_hash(one, 7, HashPolicy.L4), [1] * 18) for _ in range(few)],
        ),
    }
    table = Table("flows per second", "median", "min", "max", title=f"{RUNS} runs each")
    for name, (count, run) in cases.items():
        rates = flows_per_second(count, run)
        figures = (statistics.median(rates), min(rates), max(rates))
        table.add_row(name, *(f"{figure:,.0f}" for figure in figures))
    return table


def polarization() -> Table:
    linux = kernel_model(HashPolicy.L4)
    modulo = kernel_model(HashPolicy.L4, cut=Cut.MODULO)
    crc, other_crc = crc_model(Crc.CRC_32_ISCSI), crc_model(Crc.CRC_32_ISO_HDLC)
    crc_16 = crc_model(Crc.CRC_16_ARC)
    equal, different = (7, 7), (7, 8)
    rows = (
        ("Linux: SipHash, threshold", "equal", (linux, linux), equal),
        ("", "different", (linux, linux), different),
        ("SipHash, modulo", "equal", (modulo, modulo), equal),
        ("", "different", (modulo, modulo), different),
        ("CRC-32C, modulo", "equal", (crc, crc), equal),
        ("", "different", (crc, crc), different),
        ("CRC-16/ARC, modulo", "equal", (crc_16, crc_16), equal),
        ("", "different", (crc_16, crc_16), different),
        ("CRC-32C below CRC-32, modulo", "equal", (crc, other_crc), equal),
    )
    table = Table(
        "hash and cut of both tiers",
        "seeds",
        *(f"{first} to {second}: used, MMR" for first, second in TIERS),
        title=f"uplinks of a second-tier switch, {FLOWS:,} flows",
    )
    for name, word, models, seeds in rows:
        tiers = [(sizes, second_tier(models, seeds, sizes)) for sizes in TIERS]
        cells = (f"{tier.used:.1f} of {sizes[1]}, {tier.mmr:.2f}" for sizes, tier in tiers)
        table.add_row(name, word, *cells)
    return table


if __name__ == "__main__":
    console = Console(width=120)
    console.print(polarization())
    console.print(speeds())
