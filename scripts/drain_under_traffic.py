"""Drain a switch of a lab under traffic, and print what went through it and what was lost.

    sudo .venv/bin/rocelab up zone-small
    sudo .venv/bin/python scripts/drain_under_traffic.py zone-small ctsw2

Its neighbours are asked to prefer any other path (RFC 8326), and a few seconds later not to.
"""

import sys
import time

from rocelab import RouteWatch, RunningLab

PERIOD_S = 2.0


def received(lab: RunningLab, switch: str) -> int:
    """The packets that all ports of a switch have received."""
    links = lab.fabric.links_of[switch]
    return sum(lab.link(link.name).counters()[switch].rx_packets for link in links)


def watch(lab: RunningLab, switch: str, title: str, tables: RouteWatch) -> None:
    """Print how many packets the switch gets in a period, once routing has settled."""
    while tables.events(PERIOD_S):
        pass
    before = received(lab, switch)
    time.sleep(PERIOD_S)
    gone = received(lab, switch) - before
    print(f"{title:9} {gone / PERIOD_S:8,.0f} packets/s through {switch}")


def main(name: str, switch: str) -> None:
    lab = RunningLab.open(name)
    with lab.watch_routes() as tables, lab.traffic(flows=24, rate_pps=500) as traffic:
        watch(lab, switch, "before:", tables)
        with lab.fault("drain", switch=switch):
            watch(lab, switch, "drained:", tables)
        watch(lab, switch, "restored:", tables)
    result = traffic.result
    lost = [len(flow.sent_seq) - len(flow.received_seq) for flow in result.flows]
    sent = sum(len(flow.sent_seq) for flow in result.flows)
    print(f"lost: {sum(lost)} of {sent:,} packets, in {sum(map(bool, lost))} of {len(lost)} flows")
    print(*result.problems, sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
