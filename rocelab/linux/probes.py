"""Probes features of the kernel in a temporary network namespace.

Each feature gives an `Outcome`. It is used as a lab uses it (a veth pair made, a setting written, a
qdisc and a filter added), since a kernel's version or module list says less than its answer.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rocelab.base.sysctls import HASH_POLICY, HASH_SEED
from rocelab.linux import links, mounts, namespaces, netlink, rtnetlink, tc
from rocelab.linux.netlink import attribute
from rocelab.linux.settings import SETTINGS

PORT = "probe"


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """The outcome of a probe; `denied`: the privilege for it was missing."""

    ok: bool
    found: str
    denied: bool = False


def probe_kernel() -> dict[str, ProbeOutcome]:
    """The outcome of each probe, by name.

    Holds only "namespaces" if the namespace for the other probes could not be made. A failed probe
    is an outcome, never an exception.
    """
    return namespaces.on_own_thread(_probe_in_a_namespace_of_its_own)


def missing(names: Sequence[str]) -> str | None:
    """The first of these features that this kernel lacks, in words; None if it has all.

    Probing also loads their modules.
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


def _probe_in_a_namespace_of_its_own() -> dict[str, ProbeOutcome]:
    outcome = _attempt(_enter_scratch_namespace)
    outcomes = {"namespaces": outcome}
    if outcome.ok:
        for name, probe in PROBES.items():
            outcomes[name] = _attempt(probe)
    return outcomes


def _attempt(probe: Callable[[], None]) -> ProbeOutcome:
    try:
        probe()
    except OSError as error:
        denied = error.errno in (errno.EPERM, errno.EACCES)
        return ProbeOutcome(False, "needs root" if denied else _missing(error), denied)
    return ProbeOutcome(True, "present")


def _missing(error: OSError) -> str:
    # An unknown qdisc, filter or link type, or a missing sysctl.
    if error.errno in (errno.ENOENT, errno.EOPNOTSUPP):
        return f"not in this kernel ({os.uname().release})"
    return os.strerror(error.errno or 0)


def _enter_scratch_namespace() -> None:
    """Leave the calling thread in a new namespace, made as for a lab. Its mount ends with the
    thread."""
    os.close(namespaces.create(mounts.enter_scratch() / "netns"))


def _write(setting: str, value: str) -> None:
    path = SETTINGS / setting
    path.write_text(value)
    if path.read_text().strip() != value:
        raise OSError(errno.EINVAL, f"{path} did not accept {value}")


def _make_veth() -> None:
    """Make a veth pair; its end `PORT` is where qdiscs are tried."""
    with netlink.open_socket() as channel:
        netlink.send_batch(channel, [links.veth(PORT)])


def _make_link(kind: str) -> None:
    """Make a link of a kind, or hear what it lacks."""
    with netlink.open_socket() as channel:
        name = ("IFLA_IFNAME", f"try-{kind}")
        try:
            netlink.send_batch(channel, [rtnetlink.new_link([name, rtnetlink.of_kind(kind)])])
        except OSError as error:
            # Of a kind that the kernel has, it says what is missing (net/core/rtnetlink.c).
            if error.errno in (errno.EOPNOTSUPP, errno.EPERM):
                raise


def _add_qdisc(kind: str, options: bytes = b"") -> None:
    flags = netlink.REQUEST_ACK_REPLACE
    if kind == "clsact":
        _send(tc.clsact(flags=flags))
    else:
        _send(tc.message(tc.RTM_NEWQDISC, kind, parent=tc.TC_H_ROOT, options=options, flags=flags))


def _add_filter(kind: str, parent: int, options: bytes) -> None:
    info = tc.filter_info(1, tc.ETH_P_ALL)
    _send(tc.message(tc.RTM_NEWTFILTER, kind, parent=parent, info=info, options=options))


def _add_htb() -> None:
    _add_qdisc("htb", attribute(2, struct.pack("=IIIII", 3, 10, 0, 0, 0)))


def _add_u32_filter() -> None:
    """A filter that matches nothing, on a root qdisc of its own (struct tc_u32_sel)."""
    _add_htb()
    _add_filter("u32", 0, attribute(5, bytes([1]) + bytes(15)))


def _add_classic_bpf_filter() -> None:
    """A filter of one classic BPF instruction, `return 0`: it needs no loader and no compiler."""
    instruction = struct.pack("=HBBI", 0x06, 0, 0, 0)
    options = attribute(4, struct.pack("=H", 1)) + attribute(5, instruction)
    _add_filter("bpf", tc.CLSACT_INGRESS, options)


def tbf_options() -> bytes:
    """1 Mbit/s, 10 kB of bucket, 100 kB of queue (struct tc_tbf_qopt)."""
    rate = struct.pack("=BBHhHI", 0, 1, 0, 0, 0, 125_000)
    bucket_ticks = 1_250_000
    return attribute(1, rate + bytes(12) + struct.pack("=III", 100_000, bucket_ticks, 0))


def red_options() -> bytes:
    """Marks between 10 and 30 kB of queue (struct tc_red_qopt, a table and max_P)."""
    parameters = struct.pack("=IIIBBBB", 100_000, 10_000, 30_000, 9, 24, 10, 1)
    return attribute(1, parameters) + attribute(2, bytes(256)) + attribute(3, bytes(4))


def _send(message: bytes) -> None:
    """Send a request, made for interface index 0, for the port."""
    with netlink.open_socket() as channel:
        netlink.send_batch(channel, [tc.on_interface(message, socket.if_nametoindex(PORT))])


PROBES: dict[str, Callable[[], None]] = {
    "hash policy": partial(_write, HASH_POLICY, "1"),
    "hash seed": partial(_write, HASH_SEED, "1"),
    "veth": _make_veth,
    "clsact": partial(_add_qdisc, "clsact"),
    "cls_bpf": _add_classic_bpf_filter,
    "htb": _add_htb,
    "tbf": lambda: _add_qdisc("tbf", tbf_options()),
    "red": lambda: _add_qdisc("red", red_options()),
    "netem": lambda: _add_qdisc("netem", tc.netem_options(0, 1000)),
    "u32": _add_u32_filter,
    "bridge": partial(_make_link, "bridge"),
    "vxlan": partial(_make_link, "vxlan"),
    "vrf": partial(_make_link, "vrf"),
}
"""The probes in their order: later ones use the port and the hook made before."""
