"""`rocelab capture`: packets of one interface of a node, as a pcapng file.

tcpdump captures inside the node; its stream is written as pcapng, with the interface's name and
nanoseconds.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from rocelab.cli.arguments import ForceOption, NodeArgument, RunningLab, running_lab
from rocelab.cli.handover import handed_over
from rocelab.interruption import shielded, undone
from rocelab.kernel.rights import need_root
from rocelab.report.console import err, say

if TYPE_CHECKING:
    from rocelab.runtime.lab import Lab

_BUFFER_KIB = 16384


def capture(
    lab: RunningLab,
    node: NodeArgument,
    interface: Annotated[str, typer.Argument(metavar="IFACE", help="Such as ctsw1.")],
    file: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="A pcapng file.", show_default=False),
    ],
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after N packets.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.001, metavar="S", help="End after S seconds.")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Capture packets of a node's interface until Ctrl-C, --count or --seconds. However it ends,
    FILE is whole; after Ctrl-C the exit code is 130."""
    from rocelab.measure.tcpdump import counts_in
    from rocelab.outputs import check_new_file, create_file

    need_root("capturing in a node")
    chosen = running_lab(lab)
    _check_interface(chosen, node, interface)
    check_new_file(file, overwrite=force)
    with (
        handed_over(file),
        _tcpdump(chosen, node, interface, count) as process,
        shielded("what tcpdump holds is written", lambda: process.send_signal(signal.SIGINT)),
        create_file(file, overwrite=force) as target,
    ):
        timer = threading.Timer(seconds or 0, process.send_signal, (signal.SIGINT,))
        if seconds is not None:
            timer.start()
        until = "" if count or seconds else ", Ctrl-C ends it"
        err().print(f"capturing on {interface} of {node}{until}")
        assert process.stdout is not None and process.stderr is not None
        packets = _copy(process.stdout, target, f"{node}:{interface}")
        timer.cancel()
        counts = counts_in(process.stderr.read())
        # After --count packets it stops: what came meanwhile was not asked for.
        lost = counts.dropped if count else counts.dropped + counts.unread
        say(f"{packets:,} packets in {file}" + (f", {lost:,} more were lost" if lost else ""))
        undone(f"{file} is whole")


def _check_interface(lab: Lab, node: str, interface: str) -> None:
    from rocelab.errors import InputError

    name = lab.node(node).name
    interfaces = [link.port(name).interface for link in lab.fabric.links_of[name]]
    if interface not in (*interfaces, "lo"):
        more = " ..." if len(interfaces) > 8 else ""
        raise InputError(
            f"{node} has no interface {interface}",
            hint=f"its interfaces are {', '.join(interfaces[:8])}{more}",
        )


@contextmanager
def _tcpdump(
    lab: Lab, node: str, interface: str, count: int | None
) -> Iterator[subprocess.Popen[bytes]]:
    """tcpdump that captures already. Raises MachineError when it cannot."""
    from rocelab.measure.tcpdump import await_listening, start_tcpdump

    options = ["-U", "-B", str(_BUFFER_KIB), *(("-c", str(count)) if count else ())]
    netns = lab.node(node).netns
    with start_tcpdump(netns, interface, *options, output=subprocess.PIPE) as process:
        try:
            await_listening(process)
            yield process
        finally:
            process.kill()


def _copy(stream: IO[bytes], target: IO[bytes], interface: str) -> int:
    """Write the packets of a pcap stream as pcapng until it ends; return their number."""
    from importlib.metadata import version

    from rocelab.measure.pcapng import pcapng_header, pcapng_packet, read_pcap

    captured = read_pcap(stream)
    target.write(pcapng_header(f"rocelab {version('rocelab')}", interface, captured))
    packets = 0
    for packet in captured.packets:
        target.write(pcapng_packet(packet))
        packets += 1
    return packets
