"""The same fabric through Mininet's API, for the comparison in `python -m bench`.

Runs under the system's Python, where Debian's mininet package lives, and needs nothing else. Reads
one JSON document on standard input (nodes, links, daemons), then executes commands, one per line:
`daemons` starts them, `stop` takes the network down. It answers each with a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from mininet.net import Mininet


def wire(fabric: dict[str, Any]) -> Mininet:
    """Make nodes, links, addresses and kernel settings, like a Mininet user's script."""
    net = Mininet(topo=None, build=False, controller=None, waitConnected=False)
    for node in fabric["nodes"]:
        host = net.addHost(node["name"], ip=None)
        for name, value in node["sysctls"].items():
            host.cmd(f"echo {value} > /proc/sys/net/{name}")
        if node["loopback"]:
            host.cmd(f"ip address add {node['loopback']}/32 dev lo")
    for link in fabric["links"]:
        ends = (link["a"], link["b"])
        net.addLink(
            *(net[end["node"]] for end in ends),
            intfName1=ends[0]["interface"],
            intfName2=ends[1]["interface"],
            params1={"ip": ends[0]["address"]},
            params2={"ip": ends[1]["address"]},
        )
    net.build()
    return net


def main() -> None:
    fabric = json.loads(sys.stdin.readline())
    started = time.monotonic()
    net = wire(fabric)
    pids = {host.name: host.pid for host in net.hosts}
    answer({"seconds": time.monotonic() - started, "pids": pids})
    for line in sys.stdin:
        started = time.monotonic()
        if line.strip() == "stop":
            net.stop()
            answer({"seconds": time.monotonic() - started})
            return
        for daemon in fabric["daemons"]:
            net[daemon["node"]].cmd(daemon["command"])
        answer({"seconds": time.monotonic() - started})


def answer(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.path = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
    main()
