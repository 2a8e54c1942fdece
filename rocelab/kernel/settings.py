"""Kernel settings of a node's namespace, written by a thread that is inside it.

Sources: Documentation/networking/ip-sysctl.rst for each name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rocelab.errors import MachineError
from rocelab.sysctls import HASH_SEED

SETTINGS = Path("/proc/sys/net")

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


def seeds_supported() -> bool:
    """Whether this kernel lets a namespace choose its ECMP hash seed (Linux 6.11 and later)."""
    return Path(SETTINGS, HASH_SEED).exists()


def write_settings(settings: Mapping[str, str]) -> None:
    """Write sysctls in the calling thread's namespace.

    Raises MachineError if the kernel lacks a setting that a lab needs.
    """
    for name, value in settings.items():
        try:
            descriptor = os.open(SETTINGS / name, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if name in OPTIONAL:
                continue
            raise MachineError(
                f"this kernel ({os.uname().release}) has no sysctl net/{name}",
                "IPv6 is off here; labs with routing.numbering: numbered do without it"
                if name.startswith("ipv6/")
                else "run `rocelab doctor` for what a lab needs",
            ) from None
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)
