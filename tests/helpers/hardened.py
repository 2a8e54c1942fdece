"""A machine whose network settings are none of the kernel's own, as hardening guides want it.

The machine's own settings are left alone: each new node gets what the kernel would have it inherit
(`net.core.devconf_inherit_init_net`), before the lab touches it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from rocelab.base.progress import ProgressSink
from rocelab.lab.providers import NodeProvider
from rocelab.linux import namespaces
from rocelab.planning.fabric import Fabric
from rocelab.record import LabFiles

CONF = Path("/proc/sys/net")
LEFT_OUT = ("stable_secret", "mtu", "mc_forwarding")


class HardenedHost:
    """A runtime whose nodes begin with other settings of ports than the kernel's own."""

    def __init__(self, provider: NodeProvider) -> None:
        self._provider = provider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def make_nodes(self, fabric: Fabric, files: LabFiles, progress: ProgressSink) -> None:
        self._provider.make_nodes(fabric, files, progress)
        for node in fabric.nodes:
            namespaces.inside(files.netns_of(node.name), harden)


def harden() -> None:
    """Give the calling thread's namespace other settings than the kernel does. Like those that the
    machine's sysctl.conf sets, they count as set by hand: a later change of the default does not
    change a port that has them."""
    for family in ("ipv4", "ipv6"):
        for where in ("all", "default"):
            for path in sorted(Path(CONF, family, "conf", where).iterdir()):
                if path.name not in LEFT_OUT:
                    # The kernel refuses some values.
                    with suppress(OSError):
                        path.write_text("0" if path.read_text().strip() == "1" else "1")
