"""The engines of the simulator and their models of ports, by name, and what each leaves out.

It loads nothing, so that `--help` and the shell's completion wait for no model of a document.
"""

from __future__ import annotations

from enum import StrEnum


class Engine(StrEnum):
    """FLUID: rates are max-min fair. PACKETS: packet by packet. LINKS: packet by packet, each link
    alone."""

    FLUID = "fluid"
    PACKETS = "packets"
    LINKS = "links"


class PortModel(StrEnum):
    """When a packet leaves a port of the packet engine: LAB: as a lab's ports do, when its first
    bit does, and a port that was idle is ahead of its rate by a frame or by 200 us of the lab's
    clock, whichever is more; hosts wake as in a lab, too (`rocelab.sim.packets.hosts`).
    STORE_AND_FORWARD: when its last bit does. CUT_THROUGH: behind its header, unless the next port
    is faster."""

    STORE_AND_FORWARD = "store-and-forward"
    CUT_THROUGH = "cut-through"
    LAB = "lab"


_HOSTS = (
    "hosts: without a host model no PCIe, GPU or launch delays, no NVLink, and no time between a "
    "receive and the send that needs it other than the latency given; with one its times, each the "
    "same every time, whatever else GPUs and CPUs do"
)
LEAVES_OUT = {
    Engine.FLUID: (
        "queues: rates are max-min fair at every instant, as if congestion control were perfect; "
        "the cost of ECN marks, DCQCN's ramps, PFC pauses, drops and retransmissions is not "
        "included",
        "packets: a flow is a fluid; its headers are counted, the order of packets is not",
        _HOSTS,
    ),
    Engine.PACKETS: (
        "pause frames: a pause takes effect after its time, whatever else the link carries, and "
        "lasts until the port that asked for it is below XON; lossy classes share no memory",
        "routes: a packet keeps the way on which it left its NIC, also where routes change before "
        "it arrives",
        f"{_HOSTS} and, with the ports of a lab, the time until its hosts wake",
    ),
    Engine.LINKS: (
        "other links: each is simulated alone, with the packets that the links before let through. "
        "Its marks and drops act on what comes from the link before, not on the NIC: they do not "
        "relieve other links, and hold back also what is under way in queues",
        "ways back: acknowledgements and CNPs meet no other packets",
        "windows that a path does not fill: unless `ack_every` is 16 and `window` a multiple of it "
        "they let flows end up to 45% sooner or later",
        _HOSTS,
    ),
}
"""What each engine leaves out, in words."""
