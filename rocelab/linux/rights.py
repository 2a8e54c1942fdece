"""Checks root's rights on this machine that labs need: capabilities, and places to write to.

An error names everything that is missing before anything is begun.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from rocelab.base.errors import MachineError

RUN = Path("/run")
SETTINGS = Path("/proc/sys/net/ipv4/ip_forward")
"""One of the kernel settings that a lab writes: /proc/sys is writable as a whole or not at all."""


@dataclass(frozen=True, slots=True)
class Capability:
    """A bit of CapEff (include/uapi/linux/capability.h) and what a lab does with it."""

    name: str
    bit: int
    needed: bool
    """Required to bring a lab up."""
    takes_down: bool
    """Required to take one down."""
    purpose: str
    remedy: str = "run as root; in a container: --cap-add"


CAPABILITIES = (
    Capability(
        "CAP_NET_ADMIN", 12, True, True, "links, addresses, routes and kernel settings of nodes"
    ),
    Capability("CAP_SYS_ADMIN", 21, True, True, "network namespaces and the mounts that keep them"),
    Capability(
        "CAP_SYS_CHROOT", 18, True, False, "a file system of their own for a switch's FRR daemons"
    ),
    Capability("CAP_NET_RAW", 13, True, False, "RoCEv2 packets as raw frames"),
    Capability(
        "CAP_SETUID", 7, True, False, "FRR daemons, which start as root and go on as user frr"
    ),
    Capability("CAP_SETGID", 6, True, False, "FRR daemons, which go on as group frr"),
    Capability("CAP_CHOWN", 0, True, False, "folders that belong to user frr"),
    Capability("CAP_DAC_OVERRIDE", 1, True, True, "removing what user frr has written"),
    Capability("CAP_KILL", 5, True, True, "ending processes of user frr"),
    Capability("CAP_SYS_PTRACE", 19, True, True, "finding processes of user frr by namespace"),
    Capability(
        "CAP_SYS_NICE",
        23,
        False,
        False,
        "senders and bfdd before other processes; without it they may be late on a busy machine",
    ),
    Capability(
        "CAP_SYS_RESOURCE",
        24,
        False,
        False,
        "more open files than the hard limit, and `docker run --privileged`; labs run without",
        "run on the machine itself or with --cap-add SYS_RESOURCE",
    ),
)


def effective_capabilities(status: str) -> int:
    """The CapEff bits in the text of /proc/PID/status."""
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return int(match[1], 16) if match else 0


def missing_capabilities() -> tuple[Capability, ...]:
    """The capabilities that this process lacks."""
    effective = effective_capabilities(Path("/proc/self/status").read_text())
    return tuple(capability for capability in CAPABILITIES if not effective >> capability.bit & 1)


def is_writable(path: Path) -> bool:
    """Whether this process can write there, by access(2), which considers read-only mounts."""
    return os.access(path, os.W_OK)


def need_root(what: str) -> None:
    """Raises MachineError, with the command line to type, for a user other than root."""
    if os.geteuid() == 0:
        return
    # PATH as well: sudo looks for programs in folders of its own.
    program = () if os.access(sys.argv[0], os.X_OK) else (sys.executable,)
    again = shlex.join(["sudo", *program, *sys.argv])
    raise MachineError(f"{what} needs root", hint=f"run it with sudo: {again}")


def check_rights(*, taking_down: bool = False) -> tuple[str, ...]:
    """Notes about features that a lab lacks here.

    Raises MachineError with everything that is missing if no lab can be brought up or taken down.
    """
    need_root("a lab")
    missing = missing_capabilities()
    lacking = [
        f"{capability.name} is missing ({capability.purpose})"
        for capability in missing
        if (capability.takes_down if taking_down else capability.needed)
    ]
    if not is_writable(RUN):
        lacking.append(f"{RUN} is read-only")
    if not taking_down and not is_writable(SETTINGS):
        lacking.append("/proc/sys is read-only")
    if lacking:
        raise MachineError(
            f"labs cannot be {'taken down' if taking_down else 'brought up'} here: "
            f"{'; '.join(lacking)}",
            "in a container: --cap-add for what is missing, --security-opt systempaths=unconfined "
            "for /proc/sys; `rocelab doctor` lists all that a lab needs",
        )
    return tuple(
        f"{capability.name} is missing: {capability.purpose}"
        for capability in missing
        if capability.name == SYS_NICE
    )


SYS_NICE = "CAP_SYS_NICE"


def may_prioritise() -> bool:
    """Whether this process may raise and lower the priority of processes."""
    return all(capability.name != SYS_NICE for capability in missing_capabilities())
