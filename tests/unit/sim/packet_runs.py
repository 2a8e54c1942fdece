"""Runs of the packet engine on ports that a test numbers, of 100G and 1 us unless it says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from rocelab.base.arrays import Floats
from rocelab.base.progress import ProgressSink, no_progress
from rocelab.jobs.messages import Messages
from rocelab.routes.arrays.flows import Paths, Ways, joined_paths, ways_along
from rocelab.sim.engine.program import Program
from rocelab.sim.packets import control
from rocelab.sim.packets import state as at
from rocelab.sim.packets.draws import drawn_order
from rocelab.sim.packets.run import PacketRun, check_packets, run_packets
from rocelab.sim.packets.sending import Queues, Sending
from rocelab.sim.packets.wiring import Wiring

RATE_BPS = 100e9
LATENCY_PS = 1_000_000
FRAME = 4096 + 58 + 20
"""Of a full packet that is a message of its own, with RETH and immediate, as queues count it."""

ACK_BYTES, CLEARANCE_BYTES = 58 + 24 + 4, 58 + 24 + 20
"""On the wire."""

FULL_PS, ACK_PS = (FRAME + 24) * 80, ACK_BYTES * 80
ENDLESS = Queues(10**15, 10**14, 10**15, 1.0, (3, 4), 9014)

ORDERED = next(seed for seed in count() if drawn_order(seed, 3).tolist() == [0, 1, 2])
"""A seed with which three NICs begin in their order where they begin at one instant."""


@dataclass(frozen=True)
class Flow:
    """A queue pair with one transfer. message: packets of each message; each is one of its own
    unless a test says otherwise, so that all have one size."""

    path: Sequence[int]
    payload: int
    after: Sequence[int] = ()
    window: int = 512
    ack_every: int = 1
    message: int = 1
    timeout_ns: int = 10**6
    retries: int = 7
    mtu: int = 4096
    ecn: int = at.ECT
    classes: tuple[int, int, int] = (3, 6, 5)
    rule: Sequence[float] = field(default=())
    any_order: bool = False
    selective: bool = False


ONE_WAITS = replace(ENDLESS, buffer_bytes=FRAME, seed=ORDERED)
OTHERS = [Flow([0, 20], 4096), Flow([2, 20], 4096)]
"""With one packet more by port 20 at once: the first is sent, the second waits, the third is lost
where one waits."""


def ran(
    flows: Sequence[Flow],
    queues: Queues = ENDLESS,
    rates_bps: dict[int, float] | None = None,
    latency_ps: int = LATENCY_PS,
    progress: ProgressSink = no_progress,
    **changes: object,
) -> PacketRun:
    """A run of these flows, a task each, with `changes` for all of them."""
    changed = [replace(flow, **changes) for flow in flows]  # type: ignore[arg-type]
    arguments = arranged(changed, queues, rates_bps, latency_ps)
    program, wirings, _, sending, arranged_queues = arguments
    check_packets(program, wirings, sending, arranged_queues)
    return run_packets(*arguments, progress)


def there_and_back(paths: Paths) -> Ways:
    """A way for the data of each flow, and for what comes back the same in reverse."""
    hops = np.diff(paths.start)
    number = np.arange(len(paths.sends)) - np.repeat(paths.start[:-1], hops)
    back = np.repeat(paths.start[1:] - 1, hops) - number
    return ways_along(joined_paths(paths, Paths(paths.start, paths.sends[back] ^ 1)))


def arranged(
    flows: Sequence[Flow],
    queues: Queues = ENDLESS,
    rates_bps: dict[int, float] | None = None,
    latency_ps: int = LATENCY_PS,
) -> tuple[Program, list[Wiring], Floats, Sending, Queues]:
    """The arguments of `run_packets` and `state_of`."""
    numbers = np.arange(len(flows) + 1, dtype=np.int64)
    payload = np.array([flow.payload for flow in flows], np.int64)
    program = Program(
        np.concatenate(([0], np.cumsum([len(flow.after) for flow in flows]))).astype(np.int64),
        np.array([task for flow in flows for task in flow.after], np.int32),
        np.zeros(len(flows)),
        np.zeros(len(flows)),
        numbers,
        np.arange(len(flows), dtype=np.int32),
        payload * 8.0,
    )
    starts = np.concatenate(([0], np.cumsum([len(flow.path) for flow in flows]))).astype(np.int64)
    sends = np.array([send for flow in flows for send in flow.path], np.int32)
    capacity_bps = np.full(2 * (1 + sends.max() // 2), RATE_BPS)
    for port, rate_bps in (rates_bps or {}).items():
        capacity_bps[port] = rate_bps
    rules = [list(flow.rule) for flow in flows if flow.rule]

    def column(values: Sequence[int]) -> np.ndarray:
        return np.array(values, np.int64)

    sending = Sending(
        messages([[flow.payload] for flow in flows], [flow.message * flow.mtu for flow in flows]),
        source=column([flow.path[0] for flow in flows]),
        destination=column([flow.path[-1] ^ 1 for flow in flows]),
        mtu=column([flow.mtu for flow in flows]),
        window=column([flow.window for flow in flows]),
        ack_every=column([flow.ack_every for flow in flows]),
        ack_timeout_ns=column([flow.timeout_ns for flow in flows]),
        retries=column([flow.retries for flow in flows]),
        ecn=column([flow.ecn for flow in flows]),
        data_class=column([flow.classes[0] for flow in flows]),
        ack_class=column([flow.classes[1] for flow in flows]),
        cnp_class=column([flow.classes[2] for flow in flows]),
        control=column(
            [
                sum(bool(flow.rule) for flow in flows[:i]) if flow.rule else -1
                for i, flow in enumerate(flows)
            ]
        ),
        reach=column([flow.window * (flow.any_order or flow.selective) for flow in flows]),
        selective=column([flow.selective for flow in flows]),
        rules=np.array(rules, np.float64).reshape(-1, control.RULE_CELLS),
    )
    wiring = Wiring(0.0, capacity_bps, there_and_back(Paths(starts, sends)))
    latency_s = np.full(len(capacity_bps), latency_ps / 1e12)
    return program, [wiring], latency_s, sending, queues


def messages(transfers: Sequence[Sequence[int]], most_bytes: Sequence[int]) -> Messages:
    """Each transfer is some sends, each of which is cut into messages of at most so many bytes."""
    runs = [
        [run for send in sends for run in ((send // most, most), (1, send % most)) if all(run)]
        for sends, most in zip(transfers, most_bytes, strict=True)
    ]
    count, size_bytes = np.array([run for size in runs for run in size], np.int64).T
    return Messages(np.cumsum([0, *map(len, runs)]), count, size_bytes)


def finish_ps(run: PacketRun) -> list[float]:
    """When each flow's last packet was acknowledged."""
    return (run.finish_s * 1e12).tolist()
