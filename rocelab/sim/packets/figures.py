"""What packets did, for the document of a simulation."""

from __future__ import annotations

import numpy as np

from rocelab.results.lossless import PauseSpan, find_deadlock
from rocelab.results.simulation import LinkPauses, LosslessLinks, PacketCounts, PortQueue
from rocelab.routes.arrays.network import Network
from rocelab.sim.packets.run import PacketRun
from rocelab.sim.packets.wiring import PS

MOST_QUEUES = 1024
MOST_LINKS = 1024
PS_OF_NS = 1000


def packet_counts(run: PacketRun, network: Network) -> PacketCounts:
    """The counts of a run, and the highest queues of switches."""
    is_switch = network.tier[network.sender] > 0
    is_queued = (run.highest_bytes > 0) | (run.drops > 0)
    (queued,) = np.nonzero(is_switch & is_queued[: network.sends])
    order = np.lexsort((queued, -run.highest_bytes[queued]))[:MOST_QUEUES]
    return PacketCounts(
        data_packets=run.packets,
        acks=run.acks,
        packet_hops=run.packet_hops,
        marks=int(run.marks.sum()),
        drops=int(run.drops.sum()),
        marked=int(run.marked.sum()),
        cnps=int(run.cnps.sum()),
        naks=int(run.naks.sum()),
        retransmitted=int(run.retransmitted.sum()),
        timeouts=int(run.timeouts.sum()),
        failed_queue_pairs=run.failed,
        queues=tuple(
            PortQueue(
                network.send_name(send),
                int(run.highest_bytes[send]),
                int(run.marks[send]),
                int(run.drops[send]),
            )
            for send in queued[order].tolist()
        ),
        lossless=lossless_links(run, network) if run.lossless else None,
        out_of_order=int(run.out_of_order.sum()),
        lost=run.lost,
    )


def lossless_links(run: PacketRun, network: Network) -> LosslessLinks:
    """What the lossless classes of a run did."""
    pause = run.pause
    dropped, held = pause.refused, pause.held_highest
    if len(run.buffer):
        slow = run.buffer.drain_bps > 0
        bits = run.buffer.fill_highest_ps[slow] * (run.buffer.drain_bps[slow] / PS)
        held[slow] = np.rint(bits / 8).astype(np.int64)[:, None]
        dropped[slow, 0] = run.buffer.overflows[slow]
    touched = pause.stops + dropped + pause.discards > 0
    places = np.argwhere(touched)
    order = np.argsort(-pause[touched].paused_ps, kind="stable")[:MOST_LINKS]

    def link(send: int, number: int) -> LinkPauses:
        row = pause[send, number]
        return LinkPauses(
            network.send_name(send),
            network.node_names[network.receiver[send]],
            run.lossless[number],
            int(row.stops),
            int(row.paused_ps) / PS_OF_NS,
            int(row.longest_ps) / PS_OF_NS,
            bool(row.is_closed),
            int(held[send, number]),
            int(row.beyond_highest),
            int(dropped[send, number]),
            int(row.discards),
            int(row.firings),
        )

    return LosslessLinks(
        classes=run.lossless,
        transitions=int(pause.stops.sum()),
        paused_ns=int(pause.paused_ps.sum()) / PS_OF_NS,
        dropped_packets=int(dropped.sum()),
        discarded_packets=int(pause.discards.sum()),
        watchdog=int(pause.firings.sum()),
        links=tuple(link(*row) for row in places[order].tolist()),
        deadlock=find_deadlock(_lasting(run, network), servers=()),
    )


def _lasting(run: PacketRun, network: Network) -> list[PauseSpan]:
    """The pauses that have not ended: nothing else is to happen."""
    names = network.node_names
    return [
        PauseSpan(
            names[network.sender[send]],
            network.send_name(send).partition(":")[2],
            run.lossless[number],
            names[network.receiver[send]],
            int(run.pause.closed_ps[send, number]) // PS_OF_NS,
            None,
        )
        for send, number in np.argwhere(run.pause.is_closed > 0).tolist()
    ]
