"""The links that a flow takes, choice by choice, and how many of a job's flows take them with it.

    .venv/bin/python scripts/find_link.py zone-small srv1-1 srv3-1 50000

The tables are those that BGP will build; of a lab that is up, `rocelab path` reads the kernel's.
"""

import sys

from rocelab import Lab


def main(name: str, source: str, destination: str, port: str) -> None:
    lab = Lab.planned(name)
    path = lab.path(source, destination, int(port))
    others = [lab.path(source, destination, other) for other in range(49152, 49152 + 64)]
    for hop in path.hops:
        choice = "" if hop.flow_hash is None else f", hash {hop.flow_hash}"
        shared = sum(hop.link in (step.link for step in other.hops) for other in others)
        sender = hop.link.port
        print(
            f"{sender.node:8} {sender.interface:8} {hop.link.name:18} "
            f"{hop.index + 1} of {hop.width}{choice}, as {shared} of 64 other ports"
        )
    print(path.destination)


if __name__ == "__main__":
    main(*sys.argv[1:])
