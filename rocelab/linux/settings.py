"""Kernel settings of a node's namespace, read and written by a thread that is inside it.

Sources: Documentation/networking/ip-sysctl.rst for each name; net/ipv4/devinet.c and
net/ipv6/addrconf.c for how conf/all, conf/default and a port's own settings work together.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from rocelab.base.errors import MachineError
from rocelab.base.sysctls import HASH_SEED

SETTINGS = Path("/proc/sys/net")
ALL, DEFAULT = "all", "default"
"""What the kernel combines with a port's own settings, and what a new port begins with."""

OPTIONAL = frozenset(
    {
        # If IPv6 is off as a whole (ipv6.disable=1) there is nothing to switch off.
        "ipv6/conf/all/disable_ipv6",
        "ipv6/conf/default/disable_ipv6",
        # Without these, which older kernels have only per machine, traceroutes take longer.
        "ipv4/icmp_ratelimit",
        "ipv4/icmp_msgs_per_sec",
        "ipv4/icmp_msgs_burst",
    }
)
"""Settings that a lab can do without if the kernel lacks them."""
_LONGEST = 256


def seeds_supported() -> bool:
    """Whether this kernel lets a namespace choose its ECMP hash seed (Linux 6.11 and later)."""
    return Path(SETTINGS, HASH_SEED).exists()


def write_settings(settings: Mapping[str, str]) -> None:
    """Write sysctls in the calling thread's namespace, where they differ.

    Raises MachineError if the kernel lacks a setting that a lab needs.
    """
    for name, value in settings.items():
        try:
            _write(f"{SETTINGS}/{name}", value)
        except FileNotFoundError:
            if name in OPTIONAL:
                continue
            raise MachineError(
                f"this kernel ({os.uname().release}) has no sysctl net/{name}",
                "IPv6 is off here; labs with routing.numbering: numbered do without it"
                if name.startswith("ipv6/")
                else "run `rocelab doctor` for what a lab needs",
            ) from None


def write_port_settings(ports: Mapping[str, str]) -> dict[str, str]:
    """Give the calling thread's namespace the settings of its ports, by family and name, before it
    has any: a port that exists may keep what it has. Returns those that were not so.

    What the kernel lacks is left out: it has nothing to inherit. Raises OSError.
    """
    written = {}
    for where in (ALL, DEFAULT):
        for name, value in ports.items():
            with suppress(FileNotFoundError):
                if _write(f"{SETTINGS}/{port_setting(name, where)}", value):
                    written[name] = value
    return written


def port_setting(name: str, port: str) -> str:
    """The sysctl of a port, or of `ALL` or `DEFAULT`, below /proc/sys/net: `ipv4/rp_filter` is
    ipv4/conf/PORT/rp_filter."""
    family, _, setting = name.partition("/")
    return f"{family}/conf/{port}/{setting}"


def read_settings(names: Iterable[str]) -> dict[str, str]:
    """Those of these sysctls that the calling thread's namespace has. Raises OSError."""
    values = {}
    for name in names:
        with suppress(FileNotFoundError):
            descriptor = os.open(f"{SETTINGS}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                values[name] = os.read(descriptor, _LONGEST).decode().strip()
            finally:
                os.close(descriptor)
    return values


def _write(path: str, value: str) -> bool:
    """Whether another value was there."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.read(descriptor, _LONGEST).strip() == value.encode():
            return False
        os.pwrite(descriptor, value.encode(), 0)
        return True
    finally:
        os.close(descriptor)
