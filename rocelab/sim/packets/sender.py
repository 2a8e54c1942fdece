"""The packet engine's senders: turns of queue pairs at a NIC, windows, pacing, go-back-N.

The rules are those of a lab's queue pair (`rocelab.agent.rc.requester`), but for selective
retransmission, which labs do not have (`rocelab.sim.packets.selective`).
"""

from __future__ import annotations

from rocelab.sim.packets import control
from rocelab.sim.packets import state as at
from rocelab.sim.packets.clock import set_timer
from rocelab.sim.packets.compiling import inlined, part
from rocelab.sim.packets.draws import draw
from rocelab.sim.packets.freelist import unused
from rocelab.sim.packets.lossless import is_lossless, wait_for_gate
from rocelab.sim.packets.selective import seek
from rocelab.sim.packets.state import FlowWay, PacketFlow, PacketState, Turns


@inlined
def take(
    run: PacketState, flow: int, place: int, size: int, psn: int, kind: int, class_: int
) -> int:
    """A new packet."""
    packet = unused(run)
    row = run.packet[packet]
    row.flow, row.place, row.size_class, row.psn = flow, place, size, psn
    row.kind, row.class_ = kind, class_
    row.ce = run.flow[flow].ecn == at.ALL_CE
    return packet


@part
def draw_way(run: PacketState, flow: int, way: FlowWay) -> None:
    """Let the next packet of a flow with several ways take one. way: that of its data or ACKs."""
    row, now = run.flow[flow], run.counts.now_ps
    if now - way.last_ps > run.rules.gap_ps:
        row.drawn += 1
        way.hash = draw(run.rules.seed, len(run.port) + flow, row.drawn)
    way.last_ps = now
    # As the kernel's ECMP chooses by a hash of 31 bits.
    way.path = run.path[way.ways + 1 + (way.hash * run.path[way.ways] >> 31)]


@inlined
def _may_send(row: PacketFlow) -> bool:
    """Whether a flow has a packet to send, and its window room for it: none once it gave up."""
    return bool(
        row.sending >= 0 and row.next_psn - row.unacked < row.window and row.next_psn < row.posted
    )


@inlined
def list_flow(run: PacketState, flow: int) -> None:
    """Give a flow that may send a turn at its NIC's port."""
    row = run.flow[flow]
    if row.listed or not _may_send(row):
        return
    row.listed, row.next_flow = 1, -1
    port = run.port[row.nic]
    if port.flows.first < 0:
        port.flows.first = flow
    else:
        run.flow[port.flows.last].next_flow = flow
    port.flows.last = flow


@inlined
def next_packet(run: PacketState, number: int) -> int:
    """The packet of the flow whose turn it is at a port; -1 if none may send."""
    port = run.port[number]
    while port.flows.first >= 0:
        flow = port.flows.first
        row = run.flow[flow]
        port.flows.first = row.next_flow
        row.listed = 0
        # It gave up, or an ACK or NAK came before the turn in which it was to send again.
        if not _may_send(row):
            continue
        if is_lossless(run, row.data_class):
            place = number * run.rules.classes + row.data_class
            if run.pause[place].is_closed:
                wait_for_gate(run, flow, place)
                continue
        sent = run.counts.now_ps
        if row.control >= 0:
            due = _due(run, flow)
            if due > sent:
                row.listed = 1
                rise = control.next_rise(run.pace[flow], run.rule[row.control])
                set_timer(run, int(rise) if rise < due else due, at.TURN_DUE, flow)
                continue
            if port.busy == at.GATHERS and row.sent_bytes > 0:
                # When a punctual host would have sent it.
                sent = max(due, port.free_ps)
        # Not in `_emit`, which is then too large to be inlined where it pays.
        if row.data_way.ways > 0:
            draw_way(run, flow, row.data_way)
        packet = _emit(run, flow, sent)
        list_flow(run, flow)
        return packet
    return -1


@inlined
def _due(run: PacketState, flow: int) -> int:
    """When a paced flow may send: at its present rate after its last packet."""
    row = run.flow[flow]
    now = float(run.counts.now_ps)
    rate = control.rate_bps(run.pace[flow], run.rule[row.control], now)
    return int(row.sent_ps + 8e12 * row.sent_bytes / rate)


@part
def _emit(run: PacketState, flow: int, sent: int) -> int:
    """The next packet of a flow. sent: when its rate counts it as sent."""
    row, now = run.flow[flow], run.counts.now_ps
    transfer = run.transfer[row.sending]
    psn = row.next_psn
    place = (psn - transfer.end_psn + transfer.packets) % transfer.message
    is_last = place == transfer.message - 1
    row.next_psn = psn + 1
    row.sent += 1
    asks = (
        is_last or psn - row.unacked == row.window - 1 or psn % row.ack_every == row.ack_every - 1
    )
    size, kind = row.middle_size, at.DATA
    if is_last:
        size = transfer.last_size
        if psn + 1 == transfer.end_psn:
            row.sending = transfer.next_transfer
    elif place == 0:
        size = row.first_size
    if psn == row.highest_psn:
        row.highest_psn = psn + 1
    else:
        row.retransmitted += 1
        if row.selective:
            asks, row.deadline_ps, row.again = True, at.NEVER, psn + 1
            seek(run, flow)
    if asks:
        kind = at.ASKING
        row.asked = max(row.asked, psn)
        if row.deadline_ps == at.NEVER:
            row.deadline_ps = now + row.timeout_ps
            if not row.timed:
                row.timed = 1
                set_timer(run, row.deadline_ps, at.ACK_LATE, flow)
    if row.control >= 0:
        row.sent_ps, row.sent_bytes = sent, run.sizes[size]
        bytes_ = run.sizes[size] - at.ETHERNET
        control.on_sent(run.pace[flow], run.rule[row.control], bytes_, float(now))
    return int(take(run, flow, row.data_way.path, size, psn, kind, row.data_class))


@inlined
def go_back(run: PacketState, flow: int) -> None:
    """Send again from the oldest packet that is not acknowledged on, a selective sender only what
    no NAK named; after too many attempts in a row the queue pair fails and sends no more."""
    row = run.flow[flow]
    row.deadline_ps = at.NEVER
    if row.left_retries == 0:
        row.window = 0
        run.counts.failed += 1
        return
    row.left_retries -= 1
    row.next_psn, row.sending = row.unacked, row.acking
    row.asked = row.unacked - 1
    row.again, row.lost_to = row.unacked, row.highest_psn
    list_flow(run, flow)


@inlined
def ack_timer(run: PacketState, flow: int) -> None:
    """A flow's timer runs out: at its deadline, or before one that has moved on."""
    row = run.flow[flow]
    row.timed = 0
    if row.deadline_ps == at.NEVER:
        return
    if row.deadline_ps > run.counts.now_ps:
        row.timed = 1
        set_timer(run, row.deadline_ps, at.ACK_LATE, flow)
        return
    row.timeouts += 1
    go_back(run, flow)


@part
def leave_turns(run: PacketState, flow: int) -> bool:
    """Take a flow out of the turns at its port, or of those that wait for a gate; whether it was
    among them. One that waits for its rate is not."""
    row = run.flow[flow]
    place = row.nic * run.rules.classes + row.data_class
    if _unlink(run, run.port[row.nic].flows, flow) or (
        is_lossless(run, row.data_class) and _unlink(run, run.pause[place].parked, flow)
    ):
        row.listed = 0
        return True
    return False


@inlined
def _unlink(run: PacketState, turns: Turns, flow: int) -> bool:
    before, entry = -1, turns.first
    while entry >= 0 and entry != flow:
        before, entry = entry, run.flow[entry].next_flow
    if entry < 0:
        return False
    following = run.flow[flow].next_flow
    if before < 0:
        turns.first = following
    else:
        run.flow[before].next_flow = following
    if turns.last == flow:
        turns.last = before
    return True
