"""What packets did, for the document of a simulation."""

from __future__ import annotations

import numpy as np

from rocelab.results.simulation import PacketCounts, PortQueue
from rocelab.sim.fabric.network import Network
from rocelab.sim.packets.run import PacketRun

MOST_QUEUES = 1024


def packet_counts(run: PacketRun, network: Network) -> PacketCounts:
    """The counts of a run, and the highest queues of switches."""
    is_switch = network.tier[network.sender] > 0
    (queued,) = np.nonzero(is_switch & ((run.highest_bytes > 0) | (run.drops > 0)))
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
    )
