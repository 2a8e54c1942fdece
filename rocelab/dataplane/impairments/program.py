"""The wire programs in the kernel: pinned once per lab and stage, attached only where needed.

A packet passes two stages at the end of a cable: the cable itself, if it takes time (`CABLES`), and
what is wrong with it (`IMPAIRMENTS`). Attaches a stage's program before the filters of queues and
steering, or removes it, and clsact with it if nothing else uses that. Interface indexes are those
of the calling thread's namespace. Every operation is repeatable: the next command completes what a
killed one left half done.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rocelab.base.files import make_folder
from rocelab.dataplane.impairments.maps import MAPS, ImpairmentMaps
from rocelab.linux import bpf, namespaces, netlink, tc
from rocelab.record import LabFiles

SOURCE = Path(__file__).parents[1] / "bpf" / "impairments.bpf.c"
NEEDS = ("clsact", "cls_bpf")
"""The probes of `rocelab.linux.probes` that impairments need."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What packets pass on a cable, with its own maps and its own delay lines."""

    name: str
    crossing: str
    """The program on ports, at `priority`."""
    returning: str
    """That on the pair of interfaces `line`, of which the first has this index (as in
    rocelab/dataplane/bpf/impairments.bpf.c) and the other the next."""
    priority: int
    line: str
    index: int
    least_ns: int
    """Of delays, where it is about very late packets (`delayline.Lateness`)."""

    def pins(self, files: LabFiles) -> Path:
        """Where programs and maps are pinned while any port has this stage."""
        return files.bpf / self.name

    def maps(self, files: LabFiles) -> ImpairmentMaps:
        """The pinned maps and programs. Raises BpfError if there are none."""
        return ImpairmentMaps(self.pins(files), (self.crossing, self.returning))


CABLES = Stage("cables", "cable", "arrive", 2, "cable", 60003, 0)
IMPAIRMENTS = Stage("impairments", "cross", "resume", 3, "delay", 60001, 2_500_000)
"""Both run before the filters of queues and steering, which have priority 10, and after that of
lossless classes, for which a packet on a cable has left its switch. A fault may delay packets by
less than any machine is punctual to: they are very late from 50 ms on."""


def make_pins(stage: Stage, files: LabFiles, slots: int) -> None:
    """Load a stage's programs with room for slots up to `slots`, and pin them, unless they are
    pinned already.

    Raises OSError (BpfError is one).
    """
    folder = stage.pins(files)
    if folder.is_dir():
        return
    sizes = {"rules": slots, "counters": slots + 1}
    with bpf.LoadedObject(bpf.compiled(SOURCE), sizes) as loaded:
        bpf.mount(files.bpf)
        # The folder gets this name only when it is complete.
        fresh = _unfinished(folder)
        shutil.rmtree(fresh, ignore_errors=True)
        make_folder(fresh, 0o700)
        loaded.pin((*MAPS, stage.crossing, stage.returning), fresh)
        fresh.rename(folder)


def remove_pins(stage: Stage, files: LabFiles) -> None:
    """Remove programs and maps, and the bpffs if nothing else is on it. Idempotent."""
    base = files.bpf
    for folder in (stage.pins(files), _unfinished(stage.pins(files))):
        shutil.rmtree(folder, ignore_errors=True)
    # Names with a dot are the kernel's own (kernel/bpf/inode.c): it puts two on every bpffs.
    if os.path.ismount(base) and all("." in entry.name for entry in base.iterdir()):
        namespaces.detach_mount(base)
    with suppress(OSError):
        base.rmdir()


def attach(stage: Stage, program: int, classid: int, index: int, *, at_egress: bool) -> None:
    """Attach a program of a stage to a port, replacing an earlier one. Raises OSError."""
    name, side = _name(stage), _side(at_egress)
    requests = (tc.clsact(), tc.bpf_filter(program, side, stage.priority, name, classid))
    with netlink.open_socket() as channel:
        netlink.send_batch(channel, [tc.on_interface(request, index) for request in requests])


def detach(stage: Stage, index: int, *, at_egress: bool) -> None:
    """Remove a stage's program from a port, if both are there. Raises OSError."""
    with netlink.open_socket() as channel:
        if _is_on(channel, stage, index, _side(at_egress)):
            request = tc.bpf_removal(_side(at_egress), stage.priority)
            netlink.send_batch(channel, [tc.on_interface(request, index)])
        if not any(_filters(channel, index, _side(egress)) for egress in (False, True)):
            request = tc.clsact(tc.RTM_DELQDISC, flags=netlink.REQUEST_ACK)
            try:
                netlink.send_batch(channel, [tc.on_interface(request, index)])
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EINVAL, errno.ENODEV):
                    raise


def is_attached(stage: Stage, index: int, *, at_egress: bool) -> bool:
    """Whether the kernel has a stage's program on a port. Raises OSError."""
    with netlink.open_socket() as channel:
        return _is_on(channel, stage, index, _side(at_egress))


def _unfinished(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-new")


def _name(stage: Stage) -> str:
    return f"rocelab-{stage.name}"


def _side(at_egress: bool) -> int:
    return tc.CLSACT_EGRESS if at_egress else tc.CLSACT_INGRESS


def _is_on(channel: socket.socket, stage: Stage, index: int, side: int) -> bool:
    wanted = f"{_name(stage)}\0".encode()
    return any(
        installed.options.get(tc.TCA_BPF_NAME) == wanted
        for installed in _filters(channel, index, side)
    )


def _filters(channel: socket.socket, index: int, side: int) -> list[tc.InstalledFilter]:
    """Every filter on one side of a port's clsact; none if the port has no clsact."""
    return tc.read(channel, tc.RTM_GETTFILTER, index, side)
