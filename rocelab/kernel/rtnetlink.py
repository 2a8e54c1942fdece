"""Encodes requests to change links, addresses, neighbours and routes, with pyroute2.

Fields and attributes have the kernel's names (include/uapi/linux/if_link.h, if_addr.h, neighbour.h
and rtnetlink.h). pyroute2 is imported with the first request: most commands make none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocelab.kernel.fib import RTM_NEWROUTE
from rocelab.kernel.links import RTM_NEWLINK
from rocelab.kernel.netlink import REQUEST_ACK, REQUEST_ACK_CREATE_EXCL, REQUEST_ACK_REPLACE
from rocelab.kernel.portstate import RTM_NEWADDR, RTM_NEWNEIGH

if TYPE_CHECKING:
    from pyroute2.netlink import nlmsg

Attributes = Sequence[tuple[str, object]]


def new_link(attributes: Attributes, **fields: int) -> bytes:
    """The request for a link that there is not."""
    return _link(REQUEST_ACK_CREATE_EXCL, attributes, fields)


def change_link(attributes: Attributes = (), **fields: int) -> bytes:
    """The request that changes a link."""
    return _link(REQUEST_ACK, attributes, fields)


def new_address(attributes: Attributes, **fields: int) -> bytes:
    """The request for an address that the link does not have."""
    from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg

    return _encoded(ifaddrmsg(), RTM_NEWADDR, REQUEST_ACK_CREATE_EXCL, attributes, fields)


def put_neighbour(attributes: Attributes, **fields: int) -> bytes:
    """The request for a neighbour, in place of one with this address."""
    from pyroute2.netlink.rtnl.ndmsg import ndmsg

    return _encoded(ndmsg(), RTM_NEWNEIGH, REQUEST_ACK_REPLACE, attributes, fields)


def put_route(attributes: Attributes, **fields: int) -> bytes:
    """The request for a route, in place of one to this prefix."""
    from pyroute2.netlink.rtnl.rtmsg import rtmsg

    return _encoded(rtmsg(), RTM_NEWROUTE, REQUEST_ACK_REPLACE, attributes, fields)


def _link(flags: int, attributes: Attributes, fields: dict[str, int]) -> bytes:
    from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

    return _encoded(ifinfmsg(), RTM_NEWLINK, flags, attributes, fields)


def _encoded(
    message: nlmsg, kind: int, flags: int, attributes: Attributes, fields: dict[str, int]
) -> bytes:
    for name, value in fields.items():
        message[name] = value
    message["attrs"] = list(attributes)
    message["header"]["type"] = kind
    message["header"]["flags"] = flags
    message.encode()
    return bytes(message.data)
