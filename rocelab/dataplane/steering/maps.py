"""The maps of the steering program as Python values: the switches' schemes, pins, entries,
counters.

Reads and writes the pinned maps by names of nodes and addresses. The layouts are those of
rocelab/dataplane/bpf/steer.bpf.c.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path

from rocelab.labfile.schemes.base import ALL_FIELDS, Treatment
from rocelab.linux import bpf
from rocelab.planning.fabric import Fabric
from rocelab.routes.steering import EntryKey, PinKey

MAPS = ("nodes", "counters", "pins", "entries")

_INDEX = struct.Struct("=I")
_HASH = struct.Struct("=I")
_NODE = struct.Struct("=IIQQ")
_COUNTERS = struct.Struct("=5Q")
_PIN = struct.Struct("=I16s")
_ENTRY = struct.Struct("=I16s16sI")


@dataclass(frozen=True, slots=True)
class NodeCounters:
    """Counters of a switch's ports since the scheme was set, in packets."""

    steered: int
    """Given a hash by the program."""

    hits: int
    """For which there was a pin (path-pinning) or an entry (te)."""

    misses: int
    """For which there was none: the switch chose as the kernel does."""

    flowlets: int
    """That began a flowlet: a flow's first, and those after a pause."""

    changes: int
    """Flowlets after a pause: the path was drawn again, and may be the same."""


def node_ids(fabric: Fabric) -> dict[str, int]:
    """The program's number of each switch: its place among the fabric's nodes, from 1."""
    return {node.name: index for index, node in enumerate(fabric.nodes, 1) if node.is_switch}


class SteeringMaps(bpf.Pinned):
    """The pinned maps of a lab; a context manager that closes them."""

    def __init__(self, folder: Path, ids: Mapping[str, int]) -> None:
        """Raises BpfError if they are not pinned in `folder`."""
        self._id_of = ids
        self._name_of = {number: name for name, number in ids.items()}
        super().__init__(folder, MAPS)

    def set_node(
        self,
        name: str,
        treatment: Treatment,
        seed: int = 0,
        gap_ns: int = 0,
        fields: int = ALL_FIELDS,
    ) -> None:
        """Set a switch's treatment from its next packet on; `gap_ns` is on the lab's clock. fields:
        what is hashed, or the parameter of a scheme's own hash."""
        key = _INDEX.pack(self._id_of[name])
        bpf.set_element(self._pinned["nodes"], key, _NODE.pack(treatment, seed, gap_ns, fields))

    def counters(self) -> dict[str, NodeCounters]:
        """The counters of every switch."""
        counters = {}
        for name, number in self._id_of.items():
            data = bpf.element(self._pinned["counters"], _INDEX.pack(number), _COUNTERS.size)
            assert data is not None
            counters[name] = NodeCounters(*_COUNTERS.unpack(data))
        return counters

    def reset_counters(self) -> None:
        """Set all counters to 0."""
        for number in self._id_of.values():
            bpf.set_element(self._pinned["counters"], _INDEX.pack(number), bytes(_COUNTERS.size))

    def write_pins(self, pins: Mapping[PinKey, int]) -> None:
        """Set pins."""
        for pin, value in pins.items():
            key = _PIN.pack(self._id_of[pin.node], packed_address(pin.destination))
            bpf.set_element(self._pinned["pins"], key, _HASH.pack(value))

    def clear_pins(self) -> None:
        """Remove every pin."""
        for key in bpf.keys(self._pinned["pins"], _PIN.size):
            bpf.remove_element(self._pinned["pins"], key)

    def read_entries(self) -> dict[EntryKey, int]:
        """Every entry with its hash."""
        entries = {}
        for key in bpf.keys(self._pinned["entries"], _ENTRY.size):
            value = bpf.element(self._pinned["entries"], key, _HASH.size)
            if value is not None:
                number, source, destination, port = _ENTRY.unpack(key)
                place = EntryKey(
                    self._name_of[number], address_text(source), address_text(destination), port
                )
                entries[place] = _HASH.unpack(value)[0]
        return entries

    def write_entries(self, entries: Mapping[EntryKey, int]) -> None:
        """Set entries and keep all others. Raises BpfError if there is no room for more."""
        for place, value in entries.items():
            bpf.set_element(self._pinned["entries"], self._entry(place), _HASH.pack(value))

    def remove_entries(self, places: Iterable[EntryKey]) -> None:
        """Remove entries, ignoring those that do not exist."""
        for place in places:
            bpf.remove_element(self._pinned["entries"], self._entry(place))

    def _entry(self, place: EntryKey) -> bytes:
        addresses = packed_address(place.source), packed_address(place.destination)
        return _ENTRY.pack(self._id_of[place.node], *addresses, place.source_port)


def packed_address(address: str) -> bytes:
    """An address as the program's keys have it: IPv4's as IPv6 maps them."""
    return socket.inet_pton(socket.AF_INET6, address if ":" in address else f"::ffff:{address}")


def address_text(packed: bytes) -> str:
    """The address of `packed_address`."""
    address = IPv6Address(packed)
    return str(address.ipv4_mapped or address)
