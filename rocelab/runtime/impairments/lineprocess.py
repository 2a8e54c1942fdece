"""Starts and stops the delay line of a switch: a veth pair and a process in its namespace.

The lab's impairments program must be pinned. It redirects packets to `delay-in` and gets them back
there; the process holds them behind `delay-out`. Pair and process are made anew unless the process
lives, so remains of a killed command do no harm. Taking the lab down ends both.
"""

from __future__ import annotations

import errno
import signal
import socket
from pathlib import Path

from rocelab.errors import MachineError
from rocelab.kernel import background, links, namespaces, netlink, pidfile
from rocelab.runtime.impairments import program
from rocelab.runtime.impairments.delayline import RECEIVES
from rocelab.runtime.impairments.maps import ImpairmentMaps
from rocelab.runtime.record import LabFiles

REDIRECTS = "delay-in"
FIRST_INDEX = 60001
"""DELAY_LINE of rocelab/runtime/bpf/impairments.bpf.c; the other end has the next."""

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 5.0


def pid_file(files: LabFiles, node: str) -> Path:
    """The pid file that a switch's delay line locks while it lives."""
    return files.root / f"delay-line-{node}"


def _log_file(files: LabFiles, node: str) -> Path:
    return files.root / f"delay-line-{node}.log"


def is_alive(files: LabFiles, node: str) -> bool:
    """Whether the switch's delay line is running."""
    return pidfile.holder(pid_file(files, node)) is not None


def start(files: LabFiles, node: str, place: int, maps: ImpairmentMaps, mtu: int) -> None:
    """Start the delay line of the `place`-th switch of the fabric, for packets of up to `mtu`
    bytes.

    Does nothing if it runs already. Raises MachineError if it does not start.
    """
    if is_alive(files, node):
        return
    netns = files.netns_of(node)
    namespaces.inside(netns, lambda: _make_pair(maps.program("resume"), mtu))
    try:
        background.start(
            f"the delay line of {node}",
            "rocelab.runtime.impairments.delayline",
            (str(program.pins_folder(files)), str(mtu), str(place)),
            pid_file=pid_file(files, node),
            log=_log_file(files, node),
            netns=netns,
            timeout_s=START_TIMEOUT_S,
        )
    except MachineError:
        stop(files, node)
        raise


def stop(files: LabFiles, node: str) -> None:
    """Send all packets that the switch's delay line holds, in order, and remove it.

    Idempotent. Raises MachineError where its process does not end.
    """
    end(files, node)
    namespaces.inside(files.netns_of(node), _remove_pair)


def end(files: LabFiles, node: str) -> None:
    """End the process alone, as `stop` does: it keeps the namespace of a node that is gone."""
    pidfile.end(pid_file(files, node), STOP_TIMEOUT_S)
    for file in (pid_file(files, node), _log_file(files, node)):
        file.unlink(missing_ok=True)


def let_out(files: LabFiles, node: str) -> bool:
    """Send at once, in order, the packets whose rule no longer has a delay; return whether the
    process lives."""
    return pidfile.tell(pid_file(files, node), signal.SIGHUP)


def is_made(files: LabFiles, node: str) -> bool:
    """Whether the kernel has the switch's pair."""
    names = namespaces.inside(files.netns_of(node), socket.if_nameindex)
    return any(name in (REDIRECTS, RECEIVES) for _, name in names)


def _make_pair(resume: int, mtu: int) -> None:
    _remove_pair()
    # Room for the VLAN tag. With GRO the receiving end has one queue, whose order does not depend
    # on the CPU that a packet comes from (`queues.engine.keep_order`); with a maximum of one byte,
    # GRO merges nothing.
    shared = netlink.attribute(links.IFLA_MTU, netlink.u32(mtu + 4))
    shared += netlink.attribute(links.IFLA_GRO_MAX_SIZE, netlink.u32(1))
    pair = links.veth(REDIRECTS, RECEIVES, index=FIRST_INDEX, shared=shared)
    with netlink.open_socket() as channel:
        netlink.send_batch(channel, [pair])
        for name in (REDIRECTS, RECEIVES):
            ipv6 = Path("/proc/sys/net/ipv6/conf", name, "disable_ipv6")
            if ipv6.exists():
                ipv6.write_text("1")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
            for name in (REDIRECTS, RECEIVES):
                # The process needs complete packets: segmented to the MTU, with checksums.
                links.set_offload(control, name, links.ETHTOOL_STXCSUM, 0)
                links.set_offload(control, name, links.ETHTOOL_STSO, 0)
                links.set_offload(control, name, links.ETHTOOL_SGRO, 1)
        program.attach(resume, 0, FIRST_INDEX, at_egress=False)
        netlink.send_batch(channel, [links.set_up(FIRST_INDEX + end) for end in (0, 1)])


def _remove_pair() -> None:
    with netlink.open_socket() as channel:
        try:
            netlink.send_batch(channel, [links.removal(FIRST_INDEX)])
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
