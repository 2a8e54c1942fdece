"""Single flows as the columns that hashes of many flows read."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

import numpy as np

from rocelab.routes.flows import Bytes, HeaderColumns
from rocelab.routes.multipath import Flow5


def as_columns(flows: Sequence[Flow5]) -> HeaderColumns:
    """The flows as columns. Raises ValueError for none, and for a mix of IPv4 and IPv6."""
    if len({flow.is_v6 for flow in flows}) != 1:
        raise ValueError("expected flows of one IP version")
    return HeaderColumns(
        _wire_bytes([flow.source for flow in flows]),
        _wire_bytes([flow.destination for flow in flows]),
        np.array([flow.protocol for flow in flows], np.uint32),
        np.array([flow.source_port for flow in flows], np.uint32),
        np.array([flow.destination_port for flow in flows], np.uint32),
        np.array([flow.flow_label for flow in flows], np.uint32),
    )


def _wire_bytes(addresses: Sequence[str]) -> Bytes:
    packed = b"".join(ip_address(address).packed for address in addresses)
    return np.frombuffer(packed, np.uint8).reshape(len(addresses), -1)
