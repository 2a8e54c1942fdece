"""Many flows as arrays, for the hashes of `rocelab.routes.bulk` and `rocelab.routes.asic`.

`Flows` are columns of the bytes and numbers that hashes read, all IPv4 or all IPv6.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from rocelab.routes.multipath import UDP
from rocelab.wire.headers import LABEL_BITS, ROCE_PORT

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class HeaderColumns:
    """n flows by column: wire bytes of addresses (n x 4 or n x 16), numbers of the rest (n)."""

    source: Bytes
    destination: Bytes
    protocol: Words
    source_port: Words
    destination_port: Words
    flow_label: Words

    def __len__(self) -> int:
        return len(self.source)

    @property
    def is_v6(self) -> bool:
        return bool(self.source.shape[1] == 16)

    def part(self, which: slice | Indices | npt.NDArray[np.bool_]) -> HeaderColumns:
        """Some of the flows, by a numpy slice, indices or a mask."""
        return HeaderColumns(
            self.source[which],
            self.destination[which],
            self.protocol[which],
            self.source_port[which],
            self.destination_port[which],
            self.flow_label[which],
        )

    def replaced(self, which: Indices, others: HeaderColumns) -> HeaderColumns:
        """The flows with others in these places."""
        columns = [getattr(self, one.name).copy() for one in fields(self)]
        for column, one in zip(columns, fields(self), strict=True):
            column[which] = getattr(others, one.name)
        return HeaderColumns(*columns)


def roce_columns(source: Bytes, destination: Bytes, source_port: npt.ArrayLike) -> HeaderColumns:
    """RoCEv2 flows of one family from the wire bytes of their addresses, n x 4 or 16, and their UDP
    source ports, with the flow labels that go with these."""
    ports = np.asarray(source_port).astype(np.uint32)
    count, is_v6 = source.shape[0], source.shape[1] == 16
    return HeaderColumns(
        source=source,
        destination=destination,
        protocol=np.full(count, UDP, np.uint32),
        source_port=ports,
        destination_port=np.full(count, ROCE_PORT, np.uint32),
        flow_label=ports & np.uint32(LABEL_BITS if is_v6 else 0),
    )


def columns_v4(
    source: npt.ArrayLike,
    destination: npt.ArrayLike,
    source_port: npt.ArrayLike,
    destination_port: npt.ArrayLike,
) -> HeaderColumns:
    """UDP flows over IPv4 from columns of numbers that broadcast to one length; addresses are
    integers."""
    values = (source, destination, source_port, destination_port)
    columns = np.broadcast_arrays(*(np.asarray(column, np.uint32) for column in values))
    from_, to, from_port, to_port = (np.ascontiguousarray(column).reshape(-1) for column in columns)
    return HeaderColumns(
        source=from_.astype(">u4").view(np.uint8).reshape(-1, 4),
        destination=to.astype(">u4").view(np.uint8).reshape(-1, 4),
        protocol=np.full(len(to), UDP, np.uint32),
        source_port=from_port,
        destination_port=to_port,
        flow_label=np.zeros(len(to), np.uint32),
    )
