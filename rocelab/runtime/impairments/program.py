"""The wire program in the kernel: pinned once per lab, attached only to impaired ports.

Attaches the program before all other filters of a port, or removes it, and clsact with it if
nothing else uses that. Interface indexes are those of the calling thread's namespace. Every
operation is repeatable: the next command completes what a killed one left half done.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path

from rocelab.files import make_folder
from rocelab.kernel import bpf, namespaces, netlink, tc
from rocelab.runtime.impairments.maps import PINS
from rocelab.runtime.queues.engine import bpf_folder
from rocelab.runtime.record import LabFiles

SOURCE = Path(__file__).parents[1] / "bpf" / "impairments.bpf.c"
NEEDS = ("clsact", "cls_bpf")
"""The probes of `rocelab.kernel.probes` that impairments need."""

NAME = "rocelab-impairments"
PRIORITY = 2
"""Runs before the filters of queues and steering, which have priority 10, and after that of
lossless classes, for which a packet on a cable has left its switch."""


def pins_folder(files: LabFiles) -> Path:
    """Where the program and its maps are pinned while any port is impaired."""
    return bpf_folder(files) / "impairments"


def make_pins(files: LabFiles, slots: int) -> None:
    """Load the program with room for slots up to `slots`, and pin it, unless it is pinned already.

    Raises OSError (BpfError is one).
    """
    folder = pins_folder(files)
    if folder.is_dir():
        return
    sizes = {"rules": slots, "counters": slots + 1}
    with bpf.Loaded(bpf.compiled(SOURCE), sizes) as loaded:
        bpf.mount(bpf_folder(files))
        # The folder gets this name only when it is complete.
        fresh = folder.with_name("impairments-new")
        shutil.rmtree(fresh, ignore_errors=True)
        make_folder(fresh, 0o700)
        loaded.pin(PINS, fresh)
        fresh.rename(folder)


def remove_pins(files: LabFiles) -> None:
    """Remove program and maps, and the bpffs if nothing else is on it. Idempotent."""
    base = bpf_folder(files)
    for folder in (pins_folder(files), base / "impairments-new"):
        shutil.rmtree(folder, ignore_errors=True)
    # Names with a dot are the kernel's own (kernel/bpf/inode.c): it puts two on every bpffs.
    if os.path.ismount(base) and all("." in each.name for each in base.iterdir()):
        namespaces.detach_mount(base)
    with suppress(OSError):
        base.rmdir()


def attach(program: int, classid: int, index: int, *, at_egress: bool) -> None:
    """Attach the program first on a port, replacing an earlier one. Raises OSError."""
    requests = (tc.clsact(), tc.bpf_filter(program, _side(at_egress), PRIORITY, NAME, classid))
    with netlink.open_socket() as channel:
        netlink.send_batch(channel, [tc.on_interface(request, index) for request in requests])


def detach(index: int, *, at_egress: bool) -> None:
    """Remove the program from a port, if both are there. Raises OSError."""
    with netlink.open_socket() as channel:
        if _is_on(channel, index, _side(at_egress)):
            request = tc.bpf_removal(_side(at_egress), PRIORITY)
            netlink.send_batch(channel, [tc.on_interface(request, index)])
        if not any(_filters(channel, index, _side(each)) for each in (False, True)):
            request = tc.clsact(tc.RTM_DELQDISC, flags=netlink.REQUEST_ACK)
            try:
                netlink.send_batch(channel, [tc.on_interface(request, index)])
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EINVAL, errno.ENODEV):
                    raise


def is_attached(index: int, *, at_egress: bool) -> bool:
    """Whether the kernel has the program on a port. Raises OSError."""
    with netlink.open_socket() as channel:
        return _is_on(channel, index, _side(at_egress))


def _side(at_egress: bool) -> int:
    return tc.CLSACT_EGRESS if at_egress else tc.CLSACT_INGRESS


def _is_on(channel: socket.socket, index: int, side: int) -> bool:
    wanted = f"{NAME}\0".encode()
    return any(
        each.options.get(tc.TCA_BPF_NAME) == wanted for each in _filters(channel, index, side)
    )


def _filters(channel: socket.socket, index: int, side: int) -> list[tc.Installed]:
    """Every filter on one side of a port's clsact; none if the port has no clsact."""
    return tc.read(channel, tc.RTM_GETTFILTER, index, side)
