"""The program of tunnels in the kernel: on the ports of leaves that bridge tenants.

`TunnelPorts` is used while a lab comes up; the ports keep the program. What it does and why is in
rocelab/dataplane/bpf/tunnel.bpf.c, its model in `rocelab.routes.tunnel`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rocelab.base.errors import MachineError
from rocelab.linux import bpf, probes, tc
from rocelab.linux.closing import Closing
from rocelab.planning.fabric import Fabric
from rocelab.planning.tenancy import tenant_links

SOURCE = Path(__file__).parents[1] / "bpf" / "tunnel.bpf.c"
NEEDS = ("bridge", "vxlan", "clsact", "cls_bpf")
"""The probes of `rocelab.linux.probes` that tenants need."""
PRIORITY = 30
"""After all other programs of a port: these read a packet's mark, and one of tunnels sets it."""


class TunnelPorts(Closing):
    """Puts the program on ports while a lab comes up; without tenants it does nothing."""

    def __init__(self, fabric: Fabric) -> None:
        """Load the program. Raises MachineError if this machine cannot, or has no VXLAN."""
        self._fabric = fabric
        self._loaded: bpf.LoadedObject | None = None
        if not fabric.tenants:
            return
        lacking = probes.missing(NEEDS)
        try:
            if lacking:
                raise OSError(lacking)
            self._loaded = bpf.LoadedObject(bpf.compiled(SOURCE), {})
        except OSError as error:
            raise MachineError(
                f"tenants do not run here: {error}",
                "run `rocelab doctor` for what they need, or leave tenants out",
            ) from None

    def close(self) -> None:
        """Close the program; ports keep it."""
        if self._loaded is not None:
            self._loaded.close()

    def messages_of(self, node: str) -> list[bytes]:
        """The messages that put the program on a node's ports."""
        return list(self._messages(node)) if self._loaded is not None else []

    def _messages(self, node: str) -> Iterator[bytes]:
        assert self._loaded is not None
        below = tenant_links(self._fabric, node)
        if not below:
            return
        enter, leave = (self._loaded.descriptor(name) for name in ("enter", "leave"))
        trunks = [link for link in self._fabric.links_of[node] if link.is_between_switches]
        requests = [
            (enter, tc.CLSACT_INGRESS, [link for links in below.values() for link in links]),
            (leave, tc.CLSACT_EGRESS, trunks),
        ]
        for program, side, links in requests:
            for link in links:
                port = link.port(node).index
                yield tc.on_interface(tc.clsact(), port)
                attached = tc.bpf_filter(program, side, PRIORITY, "rocelab-tunnel")
                yield tc.on_interface(attached, port)
