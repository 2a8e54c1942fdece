"""The packet engine's senders: turns of queue pairs at a NIC, windows, pacing, go-back-N.

The rules are those of a lab's queue pair (`rocelab.agent.rc.requester`), but for selective
retransmission, which labs do not have (`rocelab.sim.packets.selective`).
"""

from __future__ import annotations

from rocelab.base.arrays import Longs
from rocelab.sim.packets import control
from rocelab.sim.packets import state as at
from rocelab.sim.packets.clock import set_timer
from rocelab.sim.packets.compiling import compiled, inlined
from rocelab.sim.packets.draws import draw
from rocelab.sim.packets.freelist import unused
from rocelab.sim.packets.lossless import is_lossless, park
from rocelab.sim.packets.selective import seek
from rocelab.sim.packets.state import State


@inlined
def take(run: State, flow: int, place: int, size: int, psn: int, kind: int, class_: int) -> int:
    """A new packet."""
    packet = unused(run)
    row = run.packet[packet]
    row[at.FLOW], row[at.PLACE], row[at.SIZE], row[at.PSN] = flow, place, size, psn
    row[at.KIND], row[at.CLASS] = kind, class_
    row[at.CE] = run.flow[flow, at.ECN] == at.ALL_CE
    return packet


@compiled
def draw_way(run: State, flow: int, path: int, drawn: int) -> None:
    """Let the next packet of a flow with several ways take one. path: DATA_PATH or ACK_PATH; drawn:
    DATA_HASH or ACK_HASH."""
    row, now = run.flow[flow], run.counts[at.NOW_PS]
    if now - row[drawn + 1] > run.rules[at.GAP_PS]:
        row[at.DRAWN] += 1
        row[drawn] = draw(run.rules[at.SEED], len(run.port) + flow, row[at.DRAWN])
    row[drawn + 1] = now
    ways = row[path + 1]
    # As the kernel's ECMP chooses by a hash of 31 bits.
    row[path] = run.path[ways + 1 + (row[drawn] * run.path[ways] >> 31)]


@inlined
def _may_send(row: Longs) -> bool:
    """Whether a flow has a packet to send, and its window room for it: none once it gave up."""
    return bool(
        row[at.SENDING] >= 0
        and row[at.NEXT_PSN] - row[at.UNACKED] < row[at.WINDOW]
        and row[at.NEXT_PSN] < row[at.POSTED]
    )


@inlined
def list_flow(run: State, flow: int) -> None:
    """Give a flow that may send a turn at its NIC's port."""
    row = run.flow[flow]
    if row[at.LISTED] or not _may_send(row):
        return
    row[at.LISTED], row[at.NEXT_FLOW] = 1, -1
    port = run.port[row[at.NIC]]
    if port[at.FIRST_FLOW] < 0:
        port[at.FIRST_FLOW] = flow
    else:
        run.flow[port[at.LAST_FLOW], at.NEXT_FLOW] = flow
    port[at.LAST_FLOW] = flow


@inlined
def next_packet(run: State, number: int) -> int:
    """The packet of the flow whose turn it is at a port; -1 if none may send."""
    port = run.port[number]
    while port[at.FIRST_FLOW] >= 0:
        flow = port[at.FIRST_FLOW]
        row = run.flow[flow]
        port[at.FIRST_FLOW] = row[at.NEXT_FLOW]
        row[at.LISTED] = 0
        # It gave up, or an ACK or NAK came before the turn in which it was to send again.
        if not _may_send(row):
            continue
        if is_lossless(run, row[at.DATA_CLASS]):
            place = number * run.rules[at.CLASSES] + row[at.DATA_CLASS]
            if run.pause[place, at.IS_CLOSED]:
                park(run, flow, place)
                continue
        sent = run.counts[at.NOW_PS]
        if row[at.CONTROL] >= 0:
            due = _due(run, flow)
            if due > sent:
                row[at.LISTED] = 1
                rise = control.next_rise(run.pace[flow], run.rule[row[at.CONTROL]])
                set_timer(run, int(rise) if rise < due else due, at.TURN_DUE, flow)
                continue
            if port[at.BUSY] == at.GATHERS and row[at.SENT_BYTES] > 0:
                # When a punctual host would have sent it.
                sent = max(due, port[at.FREE_PS])
        # Not in `_emit`, which is then too large to be inlined where it pays.
        if row[at.DATA_WAYS] > 0:
            draw_way(run, flow, at.DATA_PATH, at.DATA_HASH)
        packet = _emit(run, flow, sent)
        list_flow(run, flow)
        return packet
    return -1


@inlined
def _due(run: State, flow: int) -> int:
    """When a paced flow may send: at its present rate after its last packet."""
    row = run.flow[flow]
    now = float(run.counts[at.NOW_PS])
    rate = control.rate_bps(run.pace[flow], run.rule[row[at.CONTROL]], now)
    return int(row[at.SENT_PS] + 8e12 * row[at.SENT_BYTES] / rate)


@compiled
def _emit(run: State, flow: int, sent: int) -> int:
    """The next packet of a flow. sent: when its rate counts it as sent."""
    row, now = run.flow[flow], run.counts[at.NOW_PS]
    transfer = run.transfer[row[at.SENDING]]
    psn = row[at.NEXT_PSN]
    place = (psn - transfer[at.END_PSN] + transfer[at.PACKETS]) % transfer[at.MESSAGE]
    is_last = place == transfer[at.MESSAGE] - 1
    row[at.NEXT_PSN] = psn + 1
    row[at.SENT] += 1
    asks = (
        is_last
        or psn - row[at.UNACKED] == row[at.WINDOW] - 1
        or psn % row[at.ACK_EVERY] == row[at.ACK_EVERY] - 1
    )
    size, kind = row[at.MIDDLE_SIZE], at.DATA
    if is_last:
        size = transfer[at.LAST_SIZE]
        if psn + 1 == transfer[at.END_PSN]:
            row[at.SENDING] = transfer[at.NEXT_TRANSFER]
    elif place == 0:
        size = row[at.FIRST_SIZE]
    if psn == row[at.HIGHEST_PSN]:
        row[at.HIGHEST_PSN] = psn + 1
    else:
        row[at.RETRANSMITTED] += 1
        if row[at.SELECTIVE]:
            asks, row[at.DEADLINE_PS], row[at.AGAIN] = True, at.NEVER, psn + 1
            seek(run, flow)
    if asks:
        kind = at.ASKING
        row[at.ASKED] = max(row[at.ASKED], psn)
        if row[at.DEADLINE_PS] == at.NEVER:
            row[at.DEADLINE_PS] = now + row[at.TIMEOUT_PS]
            if not row[at.TIMED]:
                row[at.TIMED] = 1
                set_timer(run, row[at.DEADLINE_PS], at.ACK_LATE, flow)
    if row[at.CONTROL] >= 0:
        row[at.SENT_PS], row[at.SENT_BYTES] = sent, run.sizes[size]
        bytes_ = run.sizes[size] - at.ETHERNET
        control.on_sent(run.pace[flow], run.rule[row[at.CONTROL]], bytes_, float(now))
    return int(take(run, flow, row[at.DATA_PATH], size, psn, kind, row[at.DATA_CLASS]))


@inlined
def go_back(run: State, flow: int) -> None:
    """Send again from the oldest packet that is not acknowledged on, a selective sender only what
    no NAK named; after too many attempts in a row the queue pair fails and sends no more."""
    row = run.flow[flow]
    row[at.DEADLINE_PS] = at.NEVER
    if row[at.LEFT_RETRIES] == 0:
        row[at.WINDOW] = 0
        run.counts[at.FAILED] += 1
        return
    row[at.LEFT_RETRIES] -= 1
    row[at.NEXT_PSN], row[at.SENDING] = row[at.UNACKED], row[at.ACKING]
    row[at.ASKED] = row[at.UNACKED] - 1
    row[at.AGAIN], row[at.LOST_TO] = row[at.UNACKED], row[at.HIGHEST_PSN]
    list_flow(run, flow)


@inlined
def ack_timer(run: State, flow: int) -> None:
    """A flow's timer runs out: at its deadline, or before one that has moved on."""
    row = run.flow[flow]
    row[at.TIMED] = 0
    if row[at.DEADLINE_PS] == at.NEVER:
        return
    if row[at.DEADLINE_PS] > run.counts[at.NOW_PS]:
        row[at.TIMED] = 1
        set_timer(run, row[at.DEADLINE_PS], at.ACK_LATE, flow)
        return
    row[at.TIMEOUTS] += 1
    go_back(run, flow)


@compiled
def leave_turns(run: State, flow: int) -> bool:
    """Take a flow out of the turns at its port, or of those that wait for a gate; whether it was
    among them. One that waits for its rate is not."""
    row = run.flow[flow]
    place = row[at.NIC] * run.rules[at.CLASSES] + row[at.DATA_CLASS]
    if _unlink(run, run.port[row[at.NIC]], at.FIRST_FLOW, at.LAST_FLOW, flow) or (
        is_lossless(run, row[at.DATA_CLASS])
        and _unlink(run, run.pause[place], at.FIRST_PARKED, at.LAST_PARKED, flow)
    ):
        row[at.LISTED] = 0
        return True
    return False


@inlined
def _unlink(run: State, row: Longs, first: int, last: int, flow: int) -> bool:
    before, each = -1, row[first]
    while each >= 0 and each != flow:
        before, each = each, run.flow[each, at.NEXT_FLOW]
    if each < 0:
        return False
    following = run.flow[flow, at.NEXT_FLOW]
    if before < 0:
        row[first] = following
    else:
        run.flow[before, at.NEXT_FLOW] = following
    if row[last] == flow:
        row[last] = before
    return True
