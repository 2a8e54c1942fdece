"""The steering program in the kernel: loaded once per lab, at the ingress of every switch port.

`attach` attaches the program and pins its maps below the lab's bpffs, or does neither. Attaching
and detaching are repeatable: the next command completes what a killed one left half done. Ports may
have the queues' program at egress: each has its own side of clsact.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from rocelab.base.files import make_folder
from rocelab.base.progress import Progress, ProgressSink
from rocelab.dataplane.steering.maps import MAPS, node_ids
from rocelab.linux import bpf, namespaces, netlink, tc
from rocelab.planning.fabric import Fabric
from rocelab.record import LabFiles

SOURCE = Path(__file__).parents[1] / "bpf" / "steer.bpf.c"
NEEDS = ("clsact", "cls_bpf")
"""The probes of `rocelab.linux.probes` that steering needs."""

MAX_ENTRIES = 1 << 18
"""Exact-match entries of a lab, all switches together; each takes memory when it is set."""

PRIORITY = 10
_MAJOR = 1 << 16


def pins_folder(files: LabFiles) -> Path:
    """Where the maps are pinned while the program is attached."""
    return files.bpf / "steering"


def attach(
    fabric: Fabric, files: LabFiles, pins: int, hashes: Path | None, progress: ProgressSink
) -> None:
    """Load the program, with room for `pins` pins and the `hashes` of a scheme, pin its maps and
    attach it to every port.

    It does nothing until its map is set. Raises OSError (BpfError is one).
    """
    ids = node_ids(fabric)
    file = bpf.compiled(SOURCE, {} if hashes is None else {"HASHES": hashes})
    bpf.mount(files.bpf)
    folder = pins_folder(files)
    nodes = len(fabric.nodes) + 1
    sizes = {"nodes": nodes, "counters": nodes, "pins": max(1, pins), "entries": MAX_ENTRIES}
    shutil.rmtree(folder, ignore_errors=True)
    with bpf.LoadedObject(file, sizes) as loaded:
        make_folder(folder, 0o700)
        loaded.pin(MAPS, folder)
        program = loaded.descriptor("steer")

        def requests(node: str) -> list[bytes]:
            classid = _MAJOR | ids[node]
            attached = tc.bpf_filter(program, tc.CLSACT_INGRESS, PRIORITY, "rocelab", classid)
            return [tc.clsact(), attached]

        _on_every_port(fabric, files, requests, progress)


def detach(fabric: Fabric, files: LabFiles, progress: ProgressSink) -> None:
    """Remove the program from every port, and its maps. Raises OSError."""
    shutil.rmtree(pins_folder(files), ignore_errors=True)
    request = tc.bpf_removal(tc.CLSACT_INGRESS, PRIORITY)
    _on_every_port(fabric, files, lambda _: [request], progress)


def _on_every_port(
    fabric: Fabric,
    files: LabFiles,
    requests_of: Callable[[str], Sequence[bytes]],
    progress: ProgressSink,
) -> None:
    total = len(fabric.switches)
    done = 0

    def visit(name: str) -> None:
        nonlocal done
        ports = [link.port(name).index for link in fabric.links_of[name]]
        messages = [
            tc.on_interface(request, port) for port in ports for request in requests_of(name)
        ]
        with netlink.open_socket(receive_buffer_bytes=8 << 20) as channel:
            netlink.send_batch(channel, messages)
        done += 1
        progress(Progress("scheme", done, total))

    with namespaces.opened(
        {node.name: files.netns_of(node.name) for node in fabric.switches}
    ) as descriptors:
        namespaces.inside_each(descriptors, visit)
