"""VXLAN's headers (RFC 7348), as a leaf puts them before a tenant's frame. Standard library only.

Ethernet 14 | IPv4 20 | UDP 8 | VXLAN 8 | the frame, from its Ethernet header on
"""

from __future__ import annotations

VXLAN_PORT = 4789
FIRST_SOURCE_PORT, LAST_SOURCE_PORT = 49152, 65535
"""The outer source ports (RFC 7348, section 5: the dynamic ports)."""
VXLAN_BYTES = 50
"""What it adds to an IP packet: outer IP 20, UDP 8, VXLAN 8, inner Ethernet 14. The frame inside
starts so many bytes after the start of the outer one."""
