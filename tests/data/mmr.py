"""Generates mmr.csv: the balance of n uniformly hashed flows over k links.

Run from the repository's root: `python -m tests.data.mmr > tests/data/mmr.csv`, half a minute. Each
trial draws the link of every flow, one by one: a different method from
`rocelab.routes.balance`, which draws the links' counts from their multinomial distribution.
"""

from __future__ import annotations

import csv
import sys

import numpy as np

FLOWS = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
LINKS = (2, 4, 8, 16, 18, 32, 60)
DRAWS = 20_000_000
TRIALS = (5_000, 40_000)
"""The least and the most trials; between them as many as make DRAWS draws."""
SEED = 2026


def main() -> None:
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["n", "k", "E[MMR]", "p99MMR", "E[JFI]", "E[CoV]", "idle_frac"])
    generator = np.random.default_rng(SEED)
    for links in LINKS:
        for flows in FLOWS:
            fewest, most = TRIALS
            trials = max(fewest, min(most, DRAWS // flows))
            loads = np.zeros((trials, links))
            for _ in range(flows):
                loads[np.arange(trials), generator.integers(links, size=trials)] += 1
            mmr = loads.max(axis=1) * links / flows
            figures = (
                mmr.mean(),
                np.quantile(mmr, 0.99),
                (flows**2 / (links * (loads**2).sum(axis=1))).mean(),
                (loads.std(axis=1) * links / flows).mean(),
                (loads == 0).mean(),
            )
            table.writerow([flows, links, *(f"{figure:.4f}" for figure in figures)])


if __name__ == "__main__":
    main()
