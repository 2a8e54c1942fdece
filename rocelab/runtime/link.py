"""A running link: a veth pair between two namespaces.

In: a link of the plan and its lab's files. Out: a handle (`rocelab.runtime.base.LinkHandle`) that
pulls the cable, plugs it in again and reads the ports' counters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocelab.kernel import namespaces
from rocelab.plan.fabric import Link
from rocelab.runtime import wiring
from rocelab.runtime.base import Counters
from rocelab.runtime.node import NamespaceNode
from rocelab.runtime.record import LabFiles


@dataclass(frozen=True, slots=True)
class VethLink:
    """A link that is a veth pair; its state is that of its lower end."""

    link: Link
    files: LabFiles
    indexes: Mapping[tuple[str, str], int]

    @property
    def name(self) -> str:
        return self.link.name

    def down(self) -> None:
        """Take the lower end down: both ends lose carrier at once."""
        index = self.indexes[self.link.a.node, self.link.a.interface]
        self._send([wiring.set_up(index, up=False)])

    def up(self) -> None:
        """Give the carrier back."""
        self._send(wiring.bring_up(self.link, self.link.a.node, self.indexes))

    def _send(self, messages: Sequence[bytes]) -> None:
        NamespaceNode(self.link.a.node, self.files).send(messages)

    def counters(self) -> dict[str, Counters]:
        ports = (self.link.a, self.link.b)
        read = {
            port.node: namespaces.inside(self.files.netns_of(port.node), read_counters)
            for port in ports
        }
        return {port.node: read[port.node][port.interface] for port in ports}


def read_counters() -> dict[str, Counters]:
    """Counters of every interface of the calling thread's namespace, by name (/proc/net/dev)."""
    found = {}
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]:
        name, _, text = line.partition(":")
        field = [int(word) for word in text.split()]
        found[name.strip()] = Counters(
            rx_packets=field[1],
            rx_bytes=field[0],
            tx_packets=field[9],
            tx_bytes=field[8],
            rx_dropped=field[3],
            tx_dropped=field[11],
        )
    return found
