"""Runs the flows of `bench.simgrid` over explicit routes in SimGrid, with timing.

`/usr/bin/python3 -I bench/simgrid_flows.py PROBLEM FOLDER [solve]`, with only the standard library
and Debian's python3-simgrid; -I because this folder has its own simgrid.py. PROBLEM is a file of
`bench.simgrid_cases.write_problem`. FOLDER gets `rates` (bit/s) and `ends` (s) as doubles, and
`times.json`, rewritten after each phase so that it remains if the process is ended.

A pair of hosts has one route, so each flow has its own pair, from as few hosts as possible. Hosts
do not limit their sending; the sends of the fabric are the links. One actor starts all flows.
"""

import json
import os
import sys
import time
from array import array
from pathlib import Path
from typing import BinaryIO

import simgrid  # type: ignore[import-not-found, unused-ignore]

SETTINGS = {
    "network/model": "CM02",
    "network/latency-factor": "1",
    "network/bandwidth-factor": "1",
    "network/weight-S": "0",
    "network/crosstraffic": "0",
    "maxmin/precision": "1e-9",
    "surf/precision": "1e-12",
}
"""Plain max-min fairness: no correction of rates, no traffic on the way back, equal weights. Links
have no latency, without which network/TCP-gamma limits nothing."""
SAMPLE_S = 1e-3
"""Rates are computed from the bytes transferred by then; no flow ends before."""
LATER_S = 1e9
"""All flows have ended by then."""


def read_words(file: BinaryIO, count: int) -> "array[int]":
    words = array("q")
    words.fromfile(file, count)
    return words


def resident_bytes() -> int:
    """The peak memory of this process so far; getrusage would include its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


class Flows:
    """A problem as SimGrid's hosts, links and routes."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            flows, sends, entries = read_words(file, 3)
            self.start = read_words(file, flows + 1)
            self.sends = read_words(file, entries)
            self.sizes = read_words(file, flows)
            self.capacity = read_words(file, sends)
        self.ends: list[tuple[simgrid.Host, simgrid.Host]] = []
        self.zone = simgrid.NetZone.create_full_zone("fabric")
        self._links: dict[int, simgrid.LinkInRoute] = {}
        self._build()

    def _build(self) -> None:
        flows = len(self.sizes)
        count = 2
        while count * (count - 1) < flows:
            count += 1
        hosts = [self.zone.create_host(f"host{number}", 1e9) for number in range(count)]
        points = [host.netpoint for host in hosts]
        for flow in range(flows):
            source, destination = divmod(flow, count - 1)
            destination += destination >= source
            route = [
                self._link(self.sends[entry])
                for entry in range(self.start[flow], self.start[flow + 1])
            ]
            self.zone.add_route(points[source], points[destination], None, None, route, False)
            self.ends.append((hosts[source], hosts[destination]))
        self.zone.seal()

    def _link(self, send: int) -> "simgrid.LinkInRoute":
        if send not in self._links:
            link = self.zone.create_link(f"send{send}", float(self.capacity[send]))
            self._links[send] = simgrid.LinkInRoute(link.seal())
        return self._links[send]


class Watch:
    """The one actor: starts all flows, reads rates, waits until all have ended."""

    def __init__(
        self, flows: Flows, folder: Path, times: dict[str, float], to_the_end: bool
    ) -> None:
        self.flows, self.folder, self.times, self.to_the_end = flows, folder, times, to_the_end

    def __call__(self) -> None:
        flows, clock = self.flows, time.process_time
        begun = clock()
        comms = [
            simgrid.Comm.sendto_async(source, destination, size)
            for (source, destination), size in zip(flows.ends, flows.sizes, strict=True)
        ]
        started = clock()
        simgrid.this_actor.sleep_for(SAMPLE_S)
        solved = clock()
        rates = [
            8 * (size - comm.remaining) / SAMPLE_S
            for comm, size in zip(comms, flows.sizes, strict=True)
        ]
        self._keep("rates", rates)
        self._note(start_s=started - begun, solve_s=solved - started)
        if self.to_the_end:
            go_on = clock()
            simgrid.this_actor.sleep_for(LATER_S)
            over = clock()
            self._keep("ends", [comm.finish_time for comm in comms])
            self._note(to_the_end_s=solved - started + over - go_on)

    def _keep(self, name: str, values: list[float]) -> None:
        with self.folder.joinpath(name).open("wb") as file:
            array("d", values).tofile(file)

    def _note(self, **times: float) -> None:
        note(self.folder, self.times, **times)


def note(folder: Path, times: dict[str, float], **more: float) -> None:
    """Write all times known so far."""
    times.update(more, peak_bytes=resident_bytes())
    unfinished = folder / "times.json.new"
    unfinished.write_text(json.dumps(times))
    unfinished.replace(folder / "times.json")


def main() -> None:
    problem, folder, only = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    times: dict[str, float] = {"before_bytes": resident_bytes()}
    settings = [f"--cfg={key}:{value}" for key, value in SETTINGS.items()]
    engine = simgrid.Engine([sys.argv[0], *settings, "--log=root.thres:warning"])
    begun = time.process_time()
    flows = Flows(problem)
    note(folder, times, build_s=time.process_time() - begun)
    watch = Watch(flows, folder, times, to_the_end=only != ["solve"])
    simgrid.Actor.create("watch", flows.ends[0][0], watch)
    engine.run()
    # SimGrid takes its platform apart for as long as it took to build it; nothing is left to do.
    os._exit(0)


if __name__ == "__main__":
    main()
