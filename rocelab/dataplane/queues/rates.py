"""Changes a switch port's rate while the lab runs, and reads it back from the kernel.

For a port with queues it changes the rate of the HTB tree in place; a port without gets a token
bucket, which `bucket_removal` removes. Source: net/sched/sch_tbf.c; struct tc_tbf_qopt of
include/uapi/linux/pkt_sched.h.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from rocelab.dataplane.queues import htb
from rocelab.linux import netlink, tc
from rocelab.planning.queues import ETHERNET_HEADER_BYTES, burst_bytes

TCA_TBF_PARMS, TCA_TBF_RATE64, TCA_TBF_BURST = 1, 4, 6
TCA_HTB_PARMS, TCA_HTB_RATE64 = 1, 6
_TBF_NUMBERS = struct.Struct("=III")
_RATE64 = struct.Struct("=Q")


@dataclass(frozen=True, slots=True)
class PortRate:
    """The rate limit of a port: `kind` is `htb` for a tree with queues, `tbf` for a token
    bucket."""

    kind: str
    rate_bps: int


def change(rate_bps: int, mtu: int, *, queued: bool, buffer_bytes: int) -> bytes:
    """The message that sets a port's rate, on interface index 0.

    `buffer_bytes` is the queue of a port without queues while the bucket is empty.
    """
    if queued:
        return htb.rate_change(rate_bps, mtu)
    rate = max(1, rate_bps // 8)
    spec = htb.ratespec(rate)
    parameters = spec + bytes(len(spec)) + _TBF_NUMBERS.pack(buffer_bytes, 0, 0)
    # Unlike HTB, a bucket drops frames that are longer than its burst.
    burst = max(burst_bytes(rate_bps, mtu), mtu + ETHERNET_HEADER_BYTES)
    options = (
        netlink.attribute(TCA_TBF_PARMS, parameters)
        + netlink.attribute(TCA_TBF_RATE64, _RATE64.pack(rate))
        + netlink.attribute(TCA_TBF_BURST, netlink.u32(burst))
    )
    return tc.message(
        tc.RTM_NEWQDISC,
        "tbf",
        handle=htb.HANDLE,
        parent=tc.TC_H_ROOT,
        options=options,
        flags=netlink.REQUEST_ACK_REPLACE,
    )


def bucket_removal() -> bytes:
    """The message that removes a port's token bucket, on interface index 0."""
    return tc.message(
        tc.RTM_DELQDISC, "tbf", handle=htb.HANDLE, parent=tc.TC_H_ROOT, flags=netlink.REQUEST_ACK
    )


def read_rate(index: int) -> PortRate | None:
    """The rate limit of a port in the calling thread's namespace; None if it has none."""
    with netlink.open_socket() as channel:
        qdiscs = tc.read(channel, tc.RTM_GETQDISC, index)
        classes = tc.read(channel, tc.RTM_GETTCLASS, index)
    for qdisc in qdiscs:
        if qdisc.parent == tc.TC_H_ROOT and qdisc.kind == "tbf":
            return PortRate("tbf", 8 * _rate(qdisc.options, TCA_TBF_PARMS, TCA_TBF_RATE64))
    for installed in classes:
        if installed.handle == htb.ROOT_CLASS and installed.kind == "htb":
            return PortRate("htb", 8 * _rate(installed.options, TCA_HTB_PARMS, TCA_HTB_RATE64))
    return None


def _rate(options: dict[int, bytes], parameters: int, wide: int) -> int:
    """Bytes per second; rates beyond 32 bits are in a separate attribute."""
    if wide in options:
        return int(_RATE64.unpack(options[wide])[0])
    return int(htb.RATESPEC.unpack_from(options[parameters])[-1])
