"""Starts and stops a delay line of a switch: a veth pair and a process in its namespace.

The programs of its stage must be pinned. They redirect packets to `delay-in` (or `cable-in`) and
get them back there; the process holds them behind `delay-out`. Pair and process are made anew
unless the process lives, so remains of a killed command do no harm. Taking the lab down ends both.

For cables netem may hold the packets instead, all for the same time.
"""

from __future__ import annotations

import errno
import signal
import socket
from collections.abc import Iterable
from pathlib import Path

from rocelab.base.errors import MachineError
from rocelab.dataplane.impairments import program
from rocelab.dataplane.impairments.delayline import Lateness, read_lateness
from rocelab.dataplane.impairments.maps import ImpairmentMaps
from rocelab.dataplane.impairments.program import Stage
from rocelab.linux import background, links, namespaces, netlink, pidfile, processes, tc
from rocelab.record import LabFiles

NETEM_PACKETS = 1_000_000
"""The most that netem may hold in a switch."""

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0


def pid_file(stage: Stage, files: LabFiles, node: str) -> Path:
    """The pid file that a switch's delay line locks while it lives."""
    return files.root / f"{stage.line}-line-{node}"


def _log_file(stage: Stage, files: LabFiles, node: str) -> Path:
    return files.root / f"{stage.line}-line-{node}.log"


def _ends(stage: Stage) -> tuple[str, str]:
    """The interfaces of a pair: the program's, and the process's."""
    return f"{stage.line}-in", f"{stage.line}-out"


def is_alive(stage: Stage, files: LabFiles, node: str) -> bool:
    """Whether the switch's delay line is running."""
    return pidfile.holder(pid_file(stage, files, node)) is not None


def start(
    stage: Stage, files: LabFiles, node: str, place: int, maps: ImpairmentMaps, mtu: int
) -> None:
    """Start the delay line of the `place`-th switch of the fabric, for packets of up to `mtu`
    bytes.

    Does nothing if it runs already. Raises MachineError if it does not start.
    """
    if is_alive(stage, files, node):
        return
    netns = files.netns_of(node)
    namespaces.inside(netns, lambda: _make_pair(stage, maps[stage.returning], mtu))
    try:
        background.start(
            f"the delay line of {node}",
            "rocelab.dataplane.impairments.delayline",
            (str(stage.pins(files)), _ends(stage)[1], str(mtu), str(place), str(stage.least_ns)),
            pid_file=pid_file(stage, files, node),
            log=_log_file(stage, files, node),
            netns=netns,
            timeout_s=START_TIMEOUT_S,
        )
    except MachineError:
        stop(stage, files, node)
        raise


def start_in_kernel(
    stage: Stage, files: LabFiles, node: str, maps: ImpairmentMaps, mtu: int, delay_ns: int
) -> None:
    """Make a delay line of netem, which holds what goes into the pair. Raises OSError."""

    def make() -> None:
        _make_pair(stage, maps[stage.returning], mtu)
        out = stage.index + 1
        program.attach(stage, maps[stage.returning], 0, out, at_egress=False)
        held = tc.message(
            tc.RTM_NEWQDISC,
            "netem",
            parent=tc.TC_H_ROOT,
            options=tc.netem_options(delay_ns, NETEM_PACKETS),
            flags=netlink.REQUEST_ACK_REPLACE,
        )
        with netlink.open_socket() as channel:
            netlink.send_batch(channel, [tc.on_interface(held, stage.index)])

    namespaces.inside(files.netns_of(node), make)


def holds(stage: Stage, files: LabFiles, node: str) -> bool:
    """Whether the switch's delay line works, be it a process or netem: a process that a signal has
    stopped lets nothing out."""
    if pid_file(stage, files, node).exists():
        pid = pidfile.holder(pid_file(stage, files, node))
        return pid is not None and not processes.is_stopped(pid)
    return is_made(stage, files, node)


def stop(stage: Stage, files: LabFiles, node: str) -> None:
    """Send all packets that the switch's delay line holds, in order, and remove it.

    Idempotent. Raises MachineError where its process does not end.
    """
    end(stage, files, node)
    namespaces.inside(files.netns_of(node), lambda: _remove_pair(stage))


def end(stage: Stage, files: LabFiles, node: str) -> None:
    """End the process alone, as `stop` does: it keeps the namespace of a node that is gone."""
    pidfile.end(pid_file(stage, files, node), STOP_TIMEOUT_S)
    for file in (pid_file(stage, files, node), _log_file(stage, files, node)):
        file.unlink(missing_ok=True)


def lateness(stage: Stage, files: LabFiles, nodes: Iterable[str]) -> Lateness:
    """How late packets left the lines of these switches since the lab came up, with those that have
    ended; none are counted by netem."""
    counted = [read_lateness(pid_file(stage, files, node)) for node in nodes]
    return Lateness(*map(sum, zip(*counted, strict=True)))


def flush_cleared(stage: Stage, files: LabFiles, node: str) -> bool:
    """Send at once, in order, the packets whose rule no longer has a delay, even if a signal has
    stopped the process; return whether it lives."""
    held = pid_file(stage, files, node)
    return pidfile.tell(held, signal.SIGHUP) and pidfile.tell(held, signal.SIGCONT)


def is_made(stage: Stage, files: LabFiles, node: str) -> bool:
    """Whether the kernel has the switch's pair."""
    names = namespaces.inside(files.netns_of(node), socket.if_nameindex)
    return any(name in _ends(stage) for _, name in names)


def _make_pair(stage: Stage, returning: int, mtu: int) -> None:
    _remove_pair(stage)
    # Room for a VLAN tag. With GRO the receiving end has one queue, whose order does not depend
    # on the CPU that a packet comes from (`queues.engine.keep_order`); with a maximum of one byte,
    # GRO merges nothing.
    shared = netlink.attribute(links.IFLA_MTU, netlink.u32(mtu + 4))
    shared += netlink.attribute(links.IFLA_GRO_MAX_SIZE, netlink.u32(1))
    pair = links.veth(*_ends(stage), index=stage.index, shared=shared)
    with netlink.open_socket() as channel:
        netlink.send_batch(channel, [pair])
        for name in _ends(stage):
            ipv6 = Path("/proc/sys/net/ipv6/conf", name, "disable_ipv6")
            if ipv6.exists():
                ipv6.write_text("1")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
            for name in _ends(stage):
                # The process needs complete packets: segmented to the MTU, with checksums.
                links.set_offload(control, name, links.ETHTOOL_STXCSUM, 0)
                links.set_offload(control, name, links.ETHTOOL_STSO, 0)
                links.set_offload(control, name, links.ETHTOOL_SGRO, 1)
        program.attach(stage, returning, 0, stage.index, at_egress=False)
        netlink.send_batch(channel, [links.set_up(stage.index + end) for end in (0, 1)])


def _remove_pair(stage: Stage) -> None:
    with netlink.open_socket() as channel:
        try:
            netlink.send_batch(channel, [links.removal(stage.index)])
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
