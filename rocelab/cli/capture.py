"""`rocelab capture`: packets of one interface of a node, as a pcapng file.

tcpdump captures inside the node; its stream is written as pcapng, with the interface's name and
nanoseconds.
"""

from __future__ import annotations

import re
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
    from rocelab.outputs import check_new_file, create_file

    need_root("capturing in a node")
    chosen = running_lab(lab)
    _check_interface(chosen, node, interface)
    check_new_file(file, overwrite=force)
    with (
        handed_over(file),
        _tcpdump(chosen, node, interface, count) as (process, messages),
        shielded("what tcpdump holds is written", lambda: process.send_signal(signal.SIGINT)),
        create_file(file, overwrite=force) as target,
    ):
        timer = threading.Timer(seconds or 0, process.send_signal, (signal.SIGINT,))
        if seconds is not None:
            timer.start()
        until = "" if count or seconds else ", Ctrl-C ends it"
        err().print(f"capturing on {interface} of {node}{until}")
        assert process.stdout is not None
        packets = _copy(process.stdout, target, f"{node}:{interface}")
        timer.cancel()
        lost = _lost(messages.read().decode(errors="replace"))
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
) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """A tcpdump that is already capturing, and its messages. Raises MachineError if it cannot."""
    from rocelab.errors import MachineError
    from rocelab.kernel import namespaces

    arguments = ["tcpdump", "-i", interface, "-n", "-U", "-w", "-", "-B", str(_BUFFER_KIB)]
    arguments += ["--time-stamp-precision=nano", "--immediate-mode"]
    arguments += ["-c", str(count)] if count else []

    def start() -> subprocess.Popen[bytes]:
        # In its own process group it gets no Ctrl-C: this process ends it and writes its remaining
        # packets.
        return subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )

    try:
        process = namespaces.inside(lab.node(node).netns, start)
    except FileNotFoundError:
        raise MachineError(
            "tcpdump is not installed", hint="install it with `make setup`"
        ) from None
    with process:
        assert process.stderr is not None
        try:
            said = b""
            while b"listening on" not in said:
                line = process.stderr.readline()
                if not line:
                    raise MachineError(f"tcpdump did not start: {said.decode(errors='replace')}")
                said += line
            yield process, process.stderr
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


def _lost(messages: str) -> int:
    """Packets that the kernel dropped, according to tcpdump's messages."""
    found = re.search(r"(\d+) packets dropped by kernel", messages)
    return int(found[1]) if found else 0
