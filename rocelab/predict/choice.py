"""The next hop that each flow takes in a group, by the kernel, a scheme's steering, or a switch
ASIC.

`chooser` returns a `Chooser` for a fabric's scheme or an ASIC's model, which gives the indexes of
the next hops of all flows at a switch at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from rocelab.errors import InputError
from rocelab.forwarding.asic import ChoiceModel, Crc, crc_model, kernel_model
from rocelab.forwarding.bulk import e_ecmp_hashes, select_all
from rocelab.forwarding.flows import Flows, Indices, columns_v4
from rocelab.forwarding.steering import (
    ROCE_PORT,
    EntryKey,
    NodeScheme,
    PinKey,
    node_scheme,
    planned_pins,
)
from rocelab.plan.addressing import dotted
from rocelab.plan.fabric import Node
from rocelab.predict.groups import Group
from rocelab.predict.matrix import Matrix
from rocelab.predict.wires import Ints, Wires

Chooser = Callable[[int, Group, Ints], Indices]
"""Returns the index in a group that each flow takes, from the node and the flows by number."""


class Model(StrEnum):
    """The switches' method of choice: Linux as the lab's scheme sets it, or a CRC of the five-tuple
    with modulo, like switch ASICs."""

    KERNEL = "kernel"
    CRC16 = "crc16"
    CRC32 = "crc32"


CRCS = {Model.CRC16: Crc.CRC_16_IBM_3740, Model.CRC32: Crc.CRC_32_ISO_HDLC}


@dataclass(frozen=True, slots=True, eq=False)
class _Addresses:
    source: npt.NDArray[np.uint32]
    destination: npt.NDArray[np.uint32]


def chooser(
    wires: Wires,
    matrix: Matrix,
    model: Model = Model.KERNEL,
    entries: Mapping[EntryKey, int] | None = None,
) -> Chooser:
    """The choice of every switch under the fabric's scheme, or by an ASIC's `model` instead.

    `entries` are those of scheme te. Raises InputError for a scheme whose choices are random or
    depend on earlier events, and for te without entries; the chooser raises it for a hash seed of
    0, because the kernel's own hash is then unknown.
    """
    fabric = wires.fabric
    addresses = _Addresses(wires.nic_address[matrix.source], wires.nic_address[matrix.destination])
    flows = columns_v4(addresses.source, addresses.destination, matrix.sport, ROCE_PORT)
    if model is not Model.KERNEL:
        return _by_hash(wires, flows, crc_model(CRCS[model]))
    scheme = fabric.spec.scheme
    _check_predictable(scheme.kind, entries)
    hashing = fabric.spec.hashing
    kernel = _by_hash(wires, flows, kernel_model(hashing.policy, hashing.fields))
    steered = _Steered(wires, matrix, addresses, entries or {})

    def choose(node: int, group: Group, which: Ints) -> Indices:
        hashes, known = steered.hashes(node_scheme(scheme, fabric.nodes[node]), node, which)
        if not known.any():
            return kernel(node, group, which)
        # skb->l4_hash: the kernel takes the upper 31 bits (net/ipv4/route.c fib_multipath_hash).
        taken = select_all(hashes >> np.uint32(1), group.weights)
        if not known.all():
            taken[~known] = kernel(node, group, which[~known])
        return taken

    return choose


def _by_hash(wires: Wires, flows: Flows, model: ChoiceModel) -> Chooser:
    def choose(node: int, group: Group, which: Ints) -> Indices:
        seed = wires.fabric.nodes[node].hash_seed
        return model.choose(flows.part(which), seed, group.weights)

    return choose


def _check_predictable(kind: str, entries: Mapping[EntryKey, int] | None) -> None:
    if kind in ("flowlet", "spray"):
        unit = "flowlet" if kind == "flowlet" else "packet"
        raise InputError(
            f"under {kind} each {unit} draws its path at random: loads cannot be predicted",
            hint="`rocelab compare` measures them",
        )
    if kind == "resilient":
        raise InputError(
            "paths under resilient depend on which buckets each switch has moved: loads cannot "
            "be predicted",
            hint="while nothing has failed they are as even as ecmp's: take --scheme ecmp, or "
            "measure with `rocelab compare`",
        )
    if kind == "te" and entries is None:
        raise InputError(
            "te places flows while the lab runs: these flows have no paths yet",
            hint="measure it with `rocelab compare`",
        )


class _Steered:
    """The hashes that steering sets for flows at a node."""

    def __init__(
        self,
        wires: Wires,
        matrix: Matrix,
        addresses: _Addresses,
        entries: Mapping[EntryKey, int],
    ) -> None:
        self._wires = wires
        self._matrix = matrix
        self._addresses = addresses
        self._entries = entries
        self._pins: dict[PinKey, int] | None = None

    def hashes(
        self, does: NodeScheme, node: int, which: Ints
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
        """A hash of each flow, and whether it has one."""
        name = self._wires.fabric.nodes[node]
        match does:
            case NodeScheme.E_ECMP:
                return self._with_qp(name, which), np.ones(len(which), np.bool_)
            case NodeScheme.PINS:
                return _looked_up([self._pin(name, int(flow)) for flow in which])
            case NodeScheme.ENTRIES:
                return _looked_up([self._entry(name, int(flow)) for flow in which])
            case _:
                return np.zeros(len(which), np.uint32), np.zeros(len(which), np.bool_)

    def _with_qp(self, node: Node, which: Ints) -> npt.NDArray[np.uint32]:
        columns = (
            self._addresses.source,
            self._addresses.destination,
            self._matrix.sport,
            self._matrix.dest_qp,
        )
        parts = [column[which].astype(np.uint64) for column in columns]
        return e_ecmp_hashes(parts[0], parts[1], parts[2], parts[3], node.hash_seed)

    def _pin(self, node: Node, flow: int) -> int | None:
        if self._pins is None:
            self._pins = planned_pins(self._wires.fabric)
        nic = self._wires.nics[int(self._matrix.destination[flow])]
        return self._pins.get(PinKey(node.name, nic.ip))

    def _entry(self, node: Node, flow: int) -> int | None:
        source, destination = self._addresses.source[flow], self._addresses.destination[flow]
        ends = dotted(int(source)), dotted(int(destination))
        return self._entries.get(EntryKey(node.name, *ends, int(self._matrix.sport[flow])))


def _looked_up(
    found: list[int | None],
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
    known = np.array([value is not None for value in found], np.bool_)
    return np.array([value or 0 for value in found], np.uint32), known
