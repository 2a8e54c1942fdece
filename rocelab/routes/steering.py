"""The hash that a switch gives a RoCE packet under each scheme: the model of
rocelab/dataplane/bpf/steer.bpf.c.

From a fabric, a scheme, a flow with its destination QP, and for `te` the controller's entries, it
computes the 32-bit hash that decides the kernel's ECMP choice at a switch; None means that the
kernel's own hash decides. Random choices cannot be computed and are an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address
from typing import NamedTuple

from rocelab.base.errors import InputError
from rocelab.labfile.schemes.base import ALL_FIELDS, Hashed, Headers, Treatment
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.planning.fabric import Fabric, Nic, Node
from rocelab.routes.multipath import HASH_BITS, UDP, Flow5

ROCE_PORT = 4791
"""UDP destination port of RoCEv2 (IANA)."""

MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""The multipliers of SplitMix64's finalizer."""

IPV4_BYTES = 4
_WORD = 2**64 - 1


class EntryKey(NamedTuple):
    """The packets of an exact-match entry: at a switch, between two addresses, from a UDP port."""

    node: str
    source: str
    destination: str
    source_port: int


class PinKey(NamedTuple):
    """The packets of a pin: at a switch, to a NIC's address."""

    node: str
    destination: str


def field_hash(flow: Flow5, destination_qp: int, seed: int, fields: Hashed = ALL_FIELDS) -> int:
    """The 32-bit hash of a five-tuple and a BTH destination QP (24 bits) under `seed`; what is not
    in `fields` counts as 0.

    Three rounds of SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014) over the seed, the
    addresses (`address_word`) and the rest. The result is the upper half, of which the kernel uses
    the upper 31 bits.
    """
    source = address_word(flow.source) if Hashed.SOURCE in fields else 0
    destination = address_word(flow.destination) if Hashed.DESTINATION in fields else 0
    source_port = flow.source_port if Hashed.SOURCE_PORT in fields else 0
    qp = destination_qp if Hashed.DESTINATION_QP in fields else 0
    rest = source_port << 48 | flow.destination_port << 32 | flow.protocol << 24
    return _mixed(_mixed(_mixed(seed) ^ (source << 32 | destination)) ^ rest ^ qp) >> 32


def address_word(address: str) -> int:
    """What a switch that steers hashes of an address: IPv4's 32 bits; of IPv6's two halves, two
    rounds of the same finalizer, the upper 32 bits."""
    packed = ip_address(address).packed
    if len(packed) == IPV4_BYTES:
        return int.from_bytes(packed)
    return _mixed(_mixed(int.from_bytes(packed[:8])) ^ int.from_bytes(packed[8:])) >> 32


def steering_hash(index: int, weights: Sequence[int]) -> int:
    """A 32-bit hash that makes the kernel take next hop `index` of a group with these weights.

    It is the middle of that next hop's range, so while the group is smaller it selects another.
    """
    before = sum(weights[:index])
    return ((2 * before + weights[index]) << HASH_BITS) // sum(weights)


def planned_pins(fabric: Fabric) -> dict[PinKey, int]:
    """Each leaf's pin for each NIC of another leaf: the hash of the uplink to that NIC.

    The uplink's number is that of the NIC's port among its own leaf's, modulo the leaf's uplinks
    (path pinning by destination slice; Gangidi et al., SIGCOMM 2024, section 4.1).
    """
    pins = {}
    for node in fabric.switches:
        uplinks = len(fabric.uplinks(node.name)) if node.is_leaf else 0
        if not uplinks:
            continue
        hashes = [steering_hash(index, [1] * uplinks) for index in range(uplinks)]
        for ip, (leaves, slot) in _slots(fabric).items():
            if node.name not in leaves:
                pins[PinKey(node.name, ip)] = hashes[slot % uplinks]
    return pins


def _slots(fabric: Fabric) -> dict[str, tuple[frozenset[str], int]]:
    """For each NIC, by address: its leaves, and its port's index on the first leaf."""
    place = {
        link.name: index
        for node in fabric.switches
        if node.is_leaf
        for index, link in enumerate(fabric.downlinks(node.name))
    }

    def slot(nic: Nic) -> tuple[frozenset[str], int]:
        return frozenset(link.b.node for link in nic.links), place[nic.links[0].name]

    return {nic.ip: slot(nic) for server in fabric.servers for nic in fabric.nics(server.name)}


@dataclass(frozen=True)
class SteeringModel:
    """The hashes that a fabric's switches give packets under a scheme.

    `entries` are those of a running lab under `te`, as its controller last wrote them.
    """

    fabric: Fabric
    scheme: SchemeSpec
    entries: Mapping[EntryKey, int] | None = field(default=None, repr=False)

    @cached_property
    def _pins(self) -> dict[PinKey, int]:
        return planned_pins(self.fabric)

    def hash_at(self, node: Node, flow: Flow5, destination_qp: int | None) -> int | None:
        """The 32-bit hash of the flow's packets at `node`, None if the kernel's own decides.

        Raises InputError if the scheme chooses at random, hashes a QP that is missing, uses unknown
        entries, or chooses by a table of buckets (`resilient`).
        """
        unpredictable = self.scheme.unpredictable
        if unpredictable and not self.scheme.is_steered:
            raise unpredictable.error("path")
        if flow.protocol != UDP or flow.destination_port != ROCE_PORT:
            return None
        treatment = self.scheme.treatment(is_leaf=node.is_leaf)
        match treatment:
            case Treatment.HASH | Treatment.FUNCTION:
                if destination_qp is None and Hashed.DESTINATION_QP in self.scheme.hashed:
                    raise InputError(
                        f"{self.scheme.kind} hashes the destination QP, and none is given",
                        hint="say which with --qp",
                    )
                qp, seed = destination_qp or 0, node.hash_seed
                if treatment is Treatment.HASH:
                    return field_hash(flow, qp, seed, self.scheme.hashed)
                return _own_hash(self.scheme, flow, qp, seed)
            case Treatment.PINS:
                return self._pins.get(PinKey(node.name, flow.destination))
            case Treatment.ENTRIES if self.entries is not None:
                key = EntryKey(node.name, flow.source, flow.destination, flow.source_port)
                return self.entries.get(key)
            case Treatment.ENTRIES | Treatment.FLOWLET | Treatment.SPRAY if unpredictable:
                raise unpredictable.error("path")
            case _:
                return None


def _own_hash(scheme: SchemeSpec, flow: Flow5, destination_qp: int, seed: int) -> int:
    """What a scheme's own function makes of a single packet."""
    import numpy as np

    numbers = (
        address_word(flow.source),
        address_word(flow.destination),
        flow.source_port,
        destination_qp,
    )
    headers = Headers(*(np.array([number], np.uint64) for number in numbers))
    return int(scheme.hashes(headers, np.array([seed], np.uint64))[0])


def _mixed(value: int) -> int:
    first, second = MULTIPLIERS
    value = (value ^ value >> 30) * first & _WORD
    value = (value ^ value >> 27) * second & _WORD
    return value ^ value >> 31
