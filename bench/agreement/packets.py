"""Simulates a program packet by packet, with first-in-first-out queues.

From a `Simulation` of one job and the endpoints' lateness it computes the end of each iteration.
Switches store and forward, queues are unlimited and serve in order of arrival, and a NIC sends a
packet of each of its queue pairs in turn: the lab without marks, losses and CPU time. A fluid
shares a link again as soon as a flow begins; a queue serves earlier packets first, so some flows
get ahead.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable

import numpy as np

from rocelab.arrays import Floats
from rocelab.sim.simulate import Simulation

Event = tuple[float, int, Callable[..., None], tuple[int, ...]]


class PacketRun:
    """One run. Times are seconds of the modelled network."""

    def __init__(
        self, simulation: Simulation, packets: Floats, late_s: float, seed: int = 1
    ) -> None:
        """`packets`: the number of each transfer. Each step of a rank is up to `late_s` late, drawn
        from `seed`: agents collect arrivals for that long."""
        self._program, self._paths = simulation.program, simulation.whole_paths
        self._bps = simulation.network.capacity_bps.tolist()
        program = self._program
        self._packets = packets.astype(np.int64).tolist()
        self._bits = (program.size_bits / packets).tolist()
        self._late_s, self._random = late_s, random.Random(seed)
        self._task_of = np.repeat(
            np.arange(program.tasks), np.diff(program.first_transfer)
        ).tolist()
        self._waits = np.diff(program.after_start).tolist()
        self._dependents: list[list[int]] = [[] for _ in range(program.tasks)]
        for task in range(program.tasks):
            for before in program.after[program.after_start[task] : program.after_start[task + 1]]:
                self._dependents[int(before)].append(task)
        self._left = np.add.reduceat(
            np.append(packets, 0.0), np.minimum(program.first_transfer[:-1], len(packets))
        ).astype(np.int64) * (np.diff(program.first_transfer) > 0)
        self._free_s = [0.0] * len(self._bps)
        self._turns: dict[int, deque[list[int]]] = {}
        self._events: list[Event] = []
        self._number = 0
        self.end_s = np.full(program.tasks, np.inf)

    def run(self) -> Floats:
        """The end of each task."""
        for task, waits in enumerate(self._waits):
            if not waits:
                self._at(self._late(), self._begin, task)
        while self._events:
            time_s, _, act, arguments = heapq.heappop(self._events)
            act(time_s, *arguments)
        return self.end_s

    def _late(self) -> float:
        return self._random.random() * self._late_s

    def _at(self, time_s: float, act: Callable[..., None], *arguments: int) -> None:
        self._number += 1
        heapq.heappush(self._events, (time_s, self._number, act, arguments))

    def _begin(self, now_s: float, task: int) -> None:
        first, last = self._program.first_transfer[task : task + 2].tolist()
        if first == last:
            self._over(now_s, task)
        for transfer in range(first, last):
            start = int(self._paths.start[self._program.flow[transfer]])
            send = int(self._paths.sends[start])
            turns = self._turns.setdefault(send, deque())
            turns.append([transfer, self._packets[transfer]])
            if len(turns) == 1:
                self._at(max(now_s, self._free_s[send]), self._leave, send)

    def _leave(self, now_s: float, send: int) -> None:
        """Send a packet of the next queue pair on a NIC's link."""
        turns = self._turns[send]
        turn = turns[0]
        transfer = turn[0]
        turn[1] -= 1
        turns.rotate(-1)
        if not turn[1]:
            turns.pop()
        self._free_s[send] = done_s = now_s + self._bits[transfer] / self._bps[send]
        self._at(done_s, self._arrive, transfer, 1)
        if turns:
            self._at(done_s, self._leave, send)

    def _arrive(self, now_s: float, transfer: int, hop: int) -> None:
        flow = self._program.flow[transfer]
        at = int(self._paths.start[flow]) + hop
        if at == self._paths.start[flow + 1]:
            task = self._task_of[transfer]
            self._left[task] -= 1
            if not self._left[task]:
                self._at(now_s + self._late(), self._over, task)
            return
        send = int(self._paths.sends[at])
        begins_s = max(now_s, self._free_s[send])
        self._free_s[send] = done_s = begins_s + self._bits[transfer] / self._bps[send]
        self._at(done_s, self._arrive, transfer, hop + 1)

    def _over(self, now_s: float, task: int) -> None:
        self.end_s[task] = now_s
        for dependent in self._dependents[task]:
            self._waits[dependent] -= 1
            if not self._waits[dependent]:
                self._at(now_s + float(self._program.delay_s[dependent]), self._begin, dependent)
