"""Compares a job's report with the captured packets of its queue pairs. Pure.

The packets are those of all servers' ports in one phase; the results are `Comparison`s.

Packets, retransmissions, marks, CNPs and bytes are counted on the wire and must be equal, except
for packets that a NIC refused, which were never there, and a batch that waits in the queue of a
port that is paused at the job's end. A message's immediate has its iteration, so that the wire
shows when an iteration's last message arrived.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from rocelab.agent.nic import BATCH
from rocelab.base.units import parse_duration_ns
from rocelab.results.job import FlowFigures, JobReport
from tests.adversary.observer import Packets
from tests.adversary.truth import Comparison

_WRITE_FIRST, _WRITE_LAST_IMM, _WRITE_ONLY_IMM, _CNP = 0x06, 0x09, 0x0B, 0x81
_HEADERS = {0x06: 16, 0x07: 0, 0x08: 0, 0x09: 4, 0x0A: 16, 0x0B: 20}
"""Bytes between BTH and payload, by opcode (RETH, ImmDt)."""

_IP_UDP_BTH_ICRC = 20 + 8 + 12 + 4
_CE = 0b11
_GRANT = 1 << 31
_ID_BITS, _ROUNDS = 22, 1 << 9


def compare_report(report: JobReport, packets: Packets) -> Iterator[Comparison]:
    """Comparisons of every figure of a valid report that the wire shows."""
    data = packets[(packets["opcode"] >= _WRITE_FIRST) & (packets["opcode"] <= _WRITE_ONLY_IMM)]
    for flow in report.flows:
        yield from _compare_flow(report, flow, packets, data)
    if report.iterations and not report.errors:
        job_packets = data[np.isin(data["queue_pair"], [flow.dest_qp for flow in report.flows])]
        yield from _compare_iterations(report, job_packets[~job_packets["outgoing"]])


def _compare_flow(
    report: JobReport, flow: FlowFigures, packets: Packets, data: Packets
) -> Iterator[Comparison]:
    name = f"rank {flow.rank} to {flow.peer}, QP {flow.dest_qp}"
    refused, damaged = report.roce.refused, report.roce.icrc_errors
    mine = data[data["queue_pair"] == flow.dest_qp]
    out, into = mine[mine["outgoing"]], mine[~mine["outgoing"]]
    numbers, firsts = np.unique(out["psn"], return_index=True)
    unseen = refused + (BATCH if _ends_paused(report, flow.rank) else 0)
    yield Comparison(f"{name} packets", flow.packets, len(out), unseen)
    yield Comparison(f"{name} sent again", flow.retransmitted, len(out) - len(numbers), unseen)
    marked = int(np.count_nonzero(into["tos"] & _CE == _CE))
    yield Comparison(f"{name} marks", flow.ce, marked, damaged)
    cnps = packets[(packets["opcode"] == _CNP) & (packets["queue_pair"] == flow.acks_qp)]
    yield Comparison(f"{name} CNPs", flow.cnps, int(np.count_nonzero(~cnps["outgoing"])))
    if not report.errors:
        came = np.isin(numbers, into["psn"])
        delivered = int(_payload(out[firsts][came]).sum())
        yield Comparison(f"{name} bytes", flow.bytes, delivered)


def _ends_paused(report: JobReport, rank: int) -> bool:
    """Whether the rank's server was paused when the job ended."""
    server = report.ranks[rank].nic.partition(":")[0]
    spans = () if report.lossless is None else report.lossless.spans
    return any(span.node == server and span.end_ns is None for span in spans)


def _payload(packets: Packets) -> npt.NDArray[np.int64]:
    headers = np.zeros(256, np.int64)
    for opcode, size in _HEADERS.items():
        headers[opcode] = size
    whole = packets["ip_bytes"].astype(np.int64) - _IP_UDP_BTH_ICRC - headers[packets["opcode"]]
    return np.asarray(whole - (packets["pad"] >> 4 & 0b11), np.int64)


def _compare_iterations(report: JobReport, arrived: Packets) -> Iterator[Comparison]:
    warm_up, measured = report.job["warmup_iterations"], len(report.iterations)
    if warm_up + measured >= _ROUNDS:
        return
    ends = _ends(arrived)
    resolution_ns = 0 if report.resolution is None else report.resolution.lab_ns
    pause_ns = round(parse_duration_ns(report.job["compute"]) * report.clock.dilation)
    for number, said in enumerate(report.iterations, warm_up):
        if number - 1 not in ends or number not in ends:
            continue  # the first has no iteration before it that tells when it began
        (before, after), (first, last) = ends[number - 1], ends[number]
        blur_ns = (after - before) / 2 + (last - first) / 2
        true_ns = (first + last) / 2 - (before + after) / 2 - pause_ns
        allowed_ns = resolution_ns + blur_ns
        yield Comparison(f"iteration {number} in ns", said.lab_ns, true_ns, allowed_ns)


def _ends(arrived: Packets) -> dict[int, tuple[int, int]]:
    """When the last message of each iteration arrived: between the first and the last copy if it
    was retransmitted, because the wire does not show which one was taken."""
    last = arrived[np.isin(arrived["opcode"], (_WRITE_LAST_IMM, _WRITE_ONLY_IMM))]
    only = last["opcode"] == _WRITE_ONLY_IMM
    named = np.where(only, last["stamp_ns"].astype(np.uint64) >> np.uint64(32), last["magic"])
    is_named = named < _GRANT
    last, named = last[is_named], named[is_named].astype(np.int64)
    iterations = named >> _ID_BITS & (_ROUNDS - 1)
    copies = last["queue_pair"].astype(np.int64) << 24 | last["psn"].astype(np.int64)
    ends = {}
    for iteration in np.unique(iterations).tolist():
        of = iterations == iteration
        times, keys = last["time_ns"][of], copies[of]
        order = np.argsort(times, kind="stable")
        firsts = times[order][np.unique(keys[order], return_index=True)[1]]
        ends[iteration] = int(firsts.max()), int(times.max())
    return ends
