"""Polarization: where all switches hash with one seed, a tier repeats the choice of the one before.

    .venv/bin/python scripts/polarization.py zone-small

Prints what part of the second tier's links 256 flows use, with one seed and with a seed per switch.
"""

import sys
from itertools import count

from rocelab import FlowRow, Lab, NicRef, predict


def flows(lab: Lab, number: int) -> list[FlowRow]:
    """One flow after the other from each server to that of the next rack."""
    servers = [node.name for node in lab.fabric.servers]
    ports = count(49152)
    rows = []
    for index in range(number):
        source, destination = servers[index % len(servers)], servers[(index + 1) % len(servers)]
        rows.append(FlowRow(NicRef(source, 1), NicRef(destination, 1), next(ports), 17))
    return rows


def main(name: str) -> None:
    lab = Lab.planned(name)
    for title, seed in (("a seed per switch", "per-node"), ("one seed for all", "1")):
        for polarization in predict(lab, flows(lab, 256), hashing=seed).polarizations:
            print(
                f"{title:18} {polarization.first} then {polarization.second}: "
                f"{polarization.used_links} of {polarization.offered_links} links used"
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
