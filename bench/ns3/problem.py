"""Writes what the packet engine is about to run for `flows.cc`, and reads what that answers.

A file of words. First the number of links and of flows. For each link its delay in ps, and the rate
of its two sends in bit/s. For each flow its start in ps, packets, bytes on the wire of the first
packet, of one between and of the last, bytes of an ACK, window and packets per ACK, whether ACKs go
first, the number of ways of its data and of its ACKs, and of each way the number of sends, and
these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rocelab.base.arrays import Floats, Longs
from rocelab.routes.arrays.flows import Ways
from rocelab.sim.engine.program import Program
from rocelab.sim.packets.build import packets_of
from rocelab.sim.packets.sending import Queues, Sending
from rocelab.sim.packets.wiring import PS, Wiring
from rocelab.wire.headers import Opcode

Rows = list[list[int]]


@dataclass(frozen=True, eq=False)
class Problem:
    """What both engines take. latency_ps and rate_bps: of each send, 2L. flows: the numbers of
    each, up to whether ACKs go first. data, acks: the sends of each way of each flow."""

    latency_ps: Longs
    rate_bps: Longs
    flows: Longs
    data: list[Rows]
    acks: list[Rows]


@dataclass(frozen=True, eq=False)
class Answer:
    """end_s: when the sender of each flow had its last ACK. run_s, cpu_s: CPU time of the events
    alone, and of the process."""

    end_s: Floats
    transmissions: int
    run_s: float
    cpu_s: float
    peak_bytes: int


def problem_of(
    program: Program,
    wirings: Sequence[Wiring],
    latency_s: Floats,
    sending: Sending,
    queues: Queues,
) -> Problem:
    """The links, flows and ways of what `run_packets` takes, if every flow is one message on a
    queue pair of its own. Raises ValueError for what `flows.cc` does not know."""
    messages, count = sending.messages, len(sending.source)
    latency_ps = np.rint(latency_s * PS).astype(np.int64)
    refused = {
        "several messages of a flow": not np.array_equal(program.flow, np.arange(count))
        or bool((messages.count != 1).any() or len(messages.count) != count),
        "flows that wait for others": len(program.first_transfer) != count + 1
        or bool(np.diff(program.after_start).any()),
        "congestion control": bool((sending.control >= 0).any()),
        "admission": sending.admission is not None,
        "pauses": queues.pausing is not None,
        "failures": len(wirings) > 1,
        "flowlets": wirings[0].ways.gap_s > 0,
        "links whose directions differ": bool((latency_ps[::2] != latency_ps[1::2]).any()),
    }
    if any(refused.values()):
        raise ValueError(", ".join(what for what, is_there in refused.items() if is_there))
    packets = packets_of(messages, sending.mtu)
    rest = messages.size_bytes - (packets - 1) * sending.mtu
    only, last = Opcode.RC_WRITE_ONLY_WITH_IMM, Opcode.RC_WRITE_LAST_WITH_IMM
    columns = (
        np.rint(program.delay_s * PS).astype(np.int64),
        packets,
        sending.wire_bytes(Opcode.RC_WRITE_FIRST, sending.mtu),
        sending.wire_bytes(Opcode.RC_WRITE_MIDDLE, sending.mtu),
        np.where(packets == 1, *(sending.wire_bytes(opcode, rest) for opcode in (only, last))),
        np.full(count, sending.ack_bytes),
        sending.window,
        sending.ack_every,
        _acks_go_first(sending, queues),
    )
    ways = _sends(wirings[0].ways)
    rates = np.rint(wirings[0].capacity_bps).astype(np.int64)
    return Problem(latency_ps, rates, np.stack(columns, 1), ways[:count], ways[count:])


def _acks_go_first(sending: Sending, queues: Queues) -> Longs:
    """Of each flow, whether its ACKs have a class that goes before that of data; else they share
    one. Raises ValueError for other classes."""
    is_first = np.isin(sending.ack_class, queues.strict)
    shares = sending.ack_class == sending.data_class
    if not (shares ^ (is_first & ~np.isin(sending.data_class, queues.strict))).all():
        raise ValueError("classes that take turns")
    first: Longs = (~shares).astype(np.int64)
    return first


def _sends(ways: Ways) -> list[Rows]:
    """The sends of each way of each flow."""
    paths = np.split(ways.paths.sends, ways.paths.start[1:-1])
    numbers = np.split(ways.way, ways.first[1:-1])
    return [[paths[way].tolist() for way in of_flow] for of_flow in numbers]


def write_problem(problem: Problem, path: Path) -> None:
    """Write the file that `flows.cc` reads."""
    rows: Rows = [[len(problem.rate_bps) // 2, len(problem.flows)]]
    pairs = problem.rate_bps.reshape(-1, 2).tolist()
    rows += [[delay, *pair] for delay, pair in zip(problem.latency_ps[::2], pairs, strict=True)]
    for numbers, data, acks in zip(problem.flows.tolist(), problem.data, problem.acks, strict=True):
        rows.append([*numbers, len(data), len(acks)])
        rows += [[len(sends), *sends] for sends in (*data, *acks)]
    path.write_text("".join(f"{' '.join(map(str, row))}\n" for row in rows))


def read_problem(path: Path) -> Problem:
    """Read the file of `write_problem`."""
    words = map(int, path.read_text().split())

    def row(count: int) -> list[int]:
        return [next(words) for _ in range(count)]

    links, flows = row(2)
    of_links = np.array([row(3) for _ in range(links)], np.int64).reshape(-1, 3)
    numbers, data, acks = [], [], []
    for _ in range(flows):
        *columns, ways, ways_back = row(11)
        numbers.append(columns)
        data.append([row(next(words)) for _ in range(ways)])
        acks.append([row(next(words)) for _ in range(ways_back)])
    latency_ps = np.repeat(of_links[:, 0], 2)
    rates = of_links[:, 1:].ravel()
    return Problem(latency_ps, rates, np.array(numbers, np.int64), data, acks)


def read_answer(text: str) -> Answer:
    """What `flows.cc` writes. Raises ValueError if a flow did not end."""
    *ends, last = text.splitlines()
    end_ps = np.array(ends, np.int64)
    if (end_ps < 0).any():
        raise ValueError("not all flows ended in ns-3")
    transmissions, run_s, cpu_s, peak = last.split()
    return Answer(end_ps / PS, int(transmissions), float(run_s), float(cpu_s), int(peak))
