"""How the switches of a running lab spread flows over equal paths: set, switched and read.

An eBPF program at the ingress of the switch ports gives the kernel's ECMP the hash of a packet, as
the scheme asks (`rocelab.labfile.schemes`). `Steering` is the whole interface; docs/schemes.md
describes the schemes.
"""

from rocelab.dataplane.steering.maps import NodeCounters
from rocelab.dataplane.steering.scheme import Steering, read_scheme

__all__ = ["NodeCounters", "Steering", "read_scheme"]
