"""Traffic matrices: the demands that running traffic has published below a lab's folder.

Reads a folder of JSON files as `rocelab.traffic.demand` writes them, and returns one `Demand` per
steerable flow of the fabric, and a sentence for every unusable file or flow: a broken file affects
only its own flows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from rocelab.planning.fabric import Fabric

MOST_PROBLEMS = 8
"""The most problems that are reported for one file; a broken publisher breaks every flow alike."""


class FlowKey(NamedTuple):
    """What identifies a flow for a switch: dotted IPv4 addresses and the UDP source port."""

    source_ip: str
    destination_ip: str
    source_port: int


@dataclass(frozen=True, slots=True)
class Demand:
    """A flow to be placed; `rate_bps` is in the modelled network.

    It enters at the first of `ingresses` that its NIC reaches: the switch of the port that sends
    it, then that of the NIC's other port.
    """

    key: FlowKey
    rate_bps: float
    ingresses: tuple[str, ...]


def read_demands(fabric: Fabric, folder: Path) -> tuple[tuple[Demand, ...], tuple[str, ...]]:
    """The demands of all files of a folder, largest first, and the problems with the rest.

    Queue pairs that share addresses and source port are one flow to a switch: their rates add up.
    """
    reader = _Reader(fabric)
    for file in files_of(folder):
        reader.read(file)
    merged = sorted(reader.demands.values(), key=lambda demand: (-demand.rate_bps, demand.key))
    return tuple(merged), tuple(reader.problems)


def files_of(folder: Path) -> list[Path]:
    """The files of runs that go on."""
    try:
        return sorted(file for file in folder.glob("*.json") if not is_left_behind(file))
    except OSError:
        return []


def is_left_behind(file: Path) -> bool:
    """Whether the run that wrote the file was killed: its process id is in the name."""
    pid, _, number = file.stem.partition("-")
    return pid.isdecimal() and number.isdecimal() and not Path("/proc", pid).exists()


class _Reader:
    def __init__(self, fabric: Fabric) -> None:
        self.demands: dict[FlowKey, Demand] = {}
        self.problems: list[str] = []
        self._fabric = fabric
        self._addresses = {nic.ip for server in fabric.servers for nic in fabric.nics(server.name)}

    def read(self, file: Path) -> None:
        try:
            flows = json.loads(file.read_text())
        except FileNotFoundError:
            return  # Its run has ended since the listing.
        except (OSError, ValueError) as error:
            self.problems.append(f"{file.name}: not JSON: {error}")
            return
        if not isinstance(flows, list):
            self.problems.append(f"{file.name}: expected a list of flows")
            return
        problems = list(self._take(flows))
        left = len(problems) - MOST_PROBLEMS
        self.problems += [f"{file.name}: {problem}" for problem in problems[:MOST_PROBLEMS]]
        if left > 0:
            self.problems.append(f"{file.name}: {left} more")

    def _take(self, flows: Iterable[Any]) -> Iterable[str]:
        for index, flow in enumerate(flows):
            try:
                demand = self._demand(flow)
            except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
                yield f"flow {index}: {type(error).__name__}: {error}"
                continue
            before = self.demands.get(demand.key)
            if before is not None:
                demand = replace(demand, rate_bps=demand.rate_bps + before.rate_bps)
            self.demands[demand.key] = demand

    def _demand(self, flow: dict[str, Any]) -> Demand:
        key = FlowKey(str(flow["source_ip"]), str(flow["destination_ip"]), int(flow["source_port"]))
        rate_bps = float(flow["bits_per_second"])
        number, port = int(flow["nic"]), int(flow["port"])
        if number < 1 or port < 0:
            raise ValueError(f"NIC {number} and port {port}: NICs count from 1, ports from 0")
        nic = self._fabric.nics(str(flow["server"]))[number - 1]
        if key.source_ip != nic.ip:
            raise ValueError(f"{key.source_ip} is not the address of {nic.server}'s NIC {number}")
        if key.destination_ip not in self._addresses:
            raise ValueError(f"{key.destination_ip} is the address of no NIC")
        if not 0 < key.source_port < 2**16:
            raise ValueError(f"source port {key.source_port}")
        if not 0 < rate_bps < float("inf"):
            raise ValueError(f"a rate of {rate_bps} bit/s")
        first = nic.links[port]
        rest = (link for link in nic.links if link is not first)
        return Demand(key, rate_bps, tuple(link.b.node for link in (first, *rest)))
