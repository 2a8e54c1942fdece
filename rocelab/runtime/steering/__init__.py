"""How the switches of a running lab spread flows over equal paths: set, switched and read.

In: a fabric that is up and a scheme (`rocelab.spec.schemes`). Out: one eBPF program at the ingress
of its switch ports, which tells the kernel's ECMP what to hash with, and its maps. `Steering` is
the whole interface; docs/schemes.md says what each scheme does.
"""

from rocelab.runtime.steering.maps import NodeCounters
from rocelab.runtime.steering.scheme import Steering, read_scheme

__all__ = ["NodeCounters", "Steering", "read_scheme"]
