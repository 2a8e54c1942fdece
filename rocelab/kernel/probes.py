"""What the kernel can do, tried out in a network namespace that is gone afterwards.

Nothing goes in; out comes an `Outcome` per feature a lab may use. Each feature is used as a lab
uses it (a veth pair made, a setting written, a qdisc and a filter added), since a kernel's
version or module list says less than its answer.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rocelab.kernel import namespaces, netlink
from rocelab.kernel.tc import (
    CLSACT_HANDLE,
    REQUEST_ACK_CREATE_EXCL,
    RTM_NEWQDISC,
    RTM_NEWTFILTER,
    TC_H_CLSACT,
    TC_H_ROOT,
    TCA_KIND,
    TCA_OPTIONS,
    attribute,
)
from rocelab.plan.settings import SEED

HASH_POLICY = "ipv4/fib_multipath_hash_policy"
PORT = "probe"

# include/uapi/linux/rtnetlink.h, pkt_sched.h, if_link.h
RTM_NEWLINK = 16
REQUEST_ACK_CREATE_REPLACE = 0x505
IFLA_IFNAME = 3
IFLA_LINKINFO = 18
IFLA_INFO_KIND = 1
CLSACT_INGRESS = 0xFFFF_FFF2
ETH_P_ALL = 0x0003


@dataclass(frozen=True, slots=True)
class Outcome:
    """What trying a feature showed; `denied` when the privilege to try it was missing."""

    ok: bool
    found: str
    denied: bool = False


def probe_kernel() -> dict[str, Outcome]:
    """What trying each feature showed, by name.

    Holds only "namespaces" when the namespace to try the others in could not be made. What could
    not be tried is an outcome, never an exception.
    """
    return namespaces.on_own_thread(_probe_in_a_namespace_of_its_own)


def missing(names: Sequence[str]) -> str | None:
    """Which of these features this kernel lacks first, in words; None where it has all.

    Trying them out also loads the modules they are in.
    """

    def probe() -> str | None:
        _enter_scratch_namespace()
        _make_veth()
        for name in names:
            outcome = _attempt(PROBES[name])
            if not outcome.ok:
                return f"{name}: {outcome.found}"
        return None

    return namespaces.on_own_thread(probe)


def _probe_in_a_namespace_of_its_own() -> dict[str, Outcome]:
    outcome = _attempt(_enter_scratch_namespace)
    outcomes = {"namespaces": outcome}
    if outcome.ok:
        for name, probe in PROBES.items():
            outcomes[name] = _attempt(probe)
    return outcomes


def _attempt(probe: Callable[[], None]) -> Outcome:
    try:
        probe()
    except OSError as error:
        denied = error.errno in (errno.EPERM, errno.EACCES)
        return Outcome(False, "needs root" if denied else _missing(error), denied)
    return Outcome(True, "present")


def _missing(error: OSError) -> str:
    # An unknown qdisc, filter or link type, or a sysctl that is not there.
    if error.errno in (errno.ENOENT, errno.EOPNOTSUPP):
        return f"not in this kernel ({os.uname().release})"
    return os.strerror(error.errno or 0)


def _enter_scratch_namespace() -> None:
    """Leave the calling thread in a new namespace, made as a lab makes one and kept by nothing."""
    with tempfile.TemporaryDirectory() as folder:
        mount_point = Path(folder, "netns")
        os.close(namespaces.create(mount_point))
        namespaces.detach_mount(mount_point)


def _write(setting: str, value: str) -> None:
    path = Path("/proc/sys/net", setting)
    path.write_text(value)
    if path.read_text().strip() != value:
        raise OSError(errno.EINVAL, f"{path} did not take {value}")


def _make_veth() -> None:
    """A veth pair, the end called `PORT` being where qdiscs are tried."""
    kind = attribute(IFLA_INFO_KIND, b"veth")
    body = (
        bytes(16) + attribute(IFLA_IFNAME, PORT.encode() + b"\0") + attribute(IFLA_LINKINFO, kind)
    )
    _send(RTM_NEWLINK, body)


def _add_qdisc(kind: str, options: bytes = b"") -> None:
    clsact = kind == "clsact"
    parent, handle = (TC_H_CLSACT, CLSACT_HANDLE) if clsact else (TC_H_ROOT, 0)
    _send(RTM_NEWQDISC, _tc(kind, handle, parent, 0, options), REQUEST_ACK_CREATE_REPLACE)


def _add_htb() -> None:
    _add_qdisc("htb", attribute(2, struct.pack("=IIIII", 3, 10, 0, 0, 0)))


def _add_u32_filter() -> None:
    """A filter that matches nothing, on a root qdisc of its own (struct tc_u32_sel)."""
    _add_htb()
    selector = attribute(5, bytes([1]) + bytes(15))
    priority_and_protocol = 1 << 16 | socket.htons(ETH_P_ALL)
    _send(RTM_NEWTFILTER, _tc("u32", 0, 0, priority_and_protocol, selector))


def _add_classic_bpf_filter() -> None:
    """A filter of one classic BPF instruction, `return 0`: it needs no loader and no compiler."""
    instruction = struct.pack("=HBBI", 0x06, 0, 0, 0)
    options = attribute(4, struct.pack("=H", 1)) + attribute(5, instruction)
    priority_and_protocol = 1 << 16 | socket.htons(ETH_P_ALL)
    _send(RTM_NEWTFILTER, _tc("bpf", 0, CLSACT_INGRESS, priority_and_protocol, options))


def tbf_options() -> bytes:
    """1 Mbit/s, 10 kB of bucket, 100 kB of queue (struct tc_tbf_qopt)."""
    rate = struct.pack("=BBHhHI", 0, 1, 0, 0, 0, 125_000)
    bucket_ticks = 1_250_000
    return attribute(1, rate + bytes(12) + struct.pack("=III", 100_000, bucket_ticks, 0))


def red_options() -> bytes:
    """Marks between 10 and 30 kB of queue (struct tc_red_qopt, a table and max_P)."""
    parameters = struct.pack("=IIIBBBB", 100_000, 10_000, 30_000, 9, 24, 10, 1)
    return attribute(1, parameters) + attribute(2, bytes(256)) + attribute(3, bytes(4))


def netem_options() -> bytes:
    """No delay, a queue of 1,000 packets, no loss (struct tc_netem_qopt)."""
    return struct.pack("=IIIIII", 0, 1000, 0, 0, 0, 0)


def _tc(kind: str, handle: int, parent: int, info: int, options: bytes) -> bytes:
    index = socket.if_nametoindex(PORT)
    body = struct.pack("=BxxxiIII", socket.AF_UNSPEC, index, handle, parent, info)
    return body + attribute(TCA_KIND, kind.encode() + b"\0") + attribute(TCA_OPTIONS, options)


def _send(kind: int, body: bytes, flags: int = REQUEST_ACK_CREATE_EXCL) -> None:
    message = netlink.HEADER.pack(netlink.HEADER.size + len(body), kind, flags, 1, 0) + body
    with netlink.open_socket() as channel:
        netlink.send_batch(channel, [message])


PROBES: dict[str, Callable[[], None]] = {
    "hash policy": partial(_write, HASH_POLICY, "1"),
    "hash seed": partial(_write, SEED, "1"),
    "veth": _make_veth,
    "clsact": partial(_add_qdisc, "clsact"),
    "cls_bpf": _add_classic_bpf_filter,
    "htb": _add_htb,
    "tbf": lambda: _add_qdisc("tbf", tbf_options()),
    "red": lambda: _add_qdisc("red", red_options()),
    "netem": lambda: _add_qdisc("netem", netem_options()),
    "u32": _add_u32_filter,
}
"""In this order: what comes later uses the port and the hook made before."""
