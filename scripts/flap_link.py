"""Pull a cable of a lab that is up, and print when which switch's kernel changed its routes.

    sudo .venv/bin/rocelab up zone-small
    sudo .venv/bin/python scripts/flap_link.py zone-small rtsw1:ctsw2

The carrier goes as with `ip link set down`, by pyroute2 in the namespace of the link's first end.
"""

import sys
import time

from pyroute2 import NetNS

from rocelab import RunningLab


def set_carrier(lab: RunningLab, link: str, state: str) -> int:
    """Take the carrier away or give it back; the CLOCK_REALTIME ns at which that was asked for."""
    end = lab.fabric.link_by_name[link].a
    with NetNS(str(lab.node(end.node).netns), flags=0) as netlink:
        (index,) = netlink.link_lookup(ifname=end.interface)
        asked_ns = time.time_ns()
        netlink.link("set", index=index, state=state)
    return asked_ns


def main(name: str, link: str) -> None:
    lab = RunningLab.open(name)
    with lab.watch_routes() as watch:
        for state in ("down", "up"):
            asked_ns = set_carrier(lab, link, state)
            last: dict[str, tuple[int, int]] = {}
            while changes := watch.events(2.0):
                for change in changes:
                    last[change.node] = (change.time_ns, last.get(change.node, (0, 0))[1] + 1)
            print(f"{link} {state}:")
            for node, (time_ns, number) in sorted(last.items()):
                after_ms = (time_ns - asked_ns) / 1e6
                print(f"  {node:8} {number:3} changes, the last {after_ms:.1f} ms after")


if __name__ == "__main__":
    main(*sys.argv[1:])
