"""What a load-balancing scheme says of itself: its keys, and what switches do wherever it runs.

A scheme is a class of `Scheme` in a module of its own, registered in the group `rocelab.schemes`
(`rocelab.labfile.schemes.scheme_spec`). Labs, predictions and simulations ask it, and know none by
name.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from rocelab.base.errors import InputError
from rocelab.base.kinds import LAST
from rocelab.labfile.base import SpecModel

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Words = npt.NDArray[np.uint32]
    Words64 = npt.NDArray[np.uint64]

US = 1000


class Treatment(IntEnum):
    """A switch's treatment of a RoCE packet: which hash it gives it, by which the kernel chooses
    among the next hops of its route. The numbers are those of rocelab/dataplane/bpf/steer.bpf.c.

    OFF: the kernel's own hash. KERNEL: the same where another switch has given a packet one.
    HASH: of the header fields that the scheme's `hashed` names. FLOWLET: drawn, again after a pause
    of `gap_ns`. SPRAY: drawn for each packet of data. PINS: that of the uplink planned for the
    destination. ENTRIES: a controller's. FUNCTION: that of the scheme's `hashes`, and in labs of
    its `program`.
    """

    OFF = 0
    KERNEL = 1
    HASH = 2
    FLOWLET = 3
    SPRAY = 4
    PINS = 5
    ENTRIES = 6
    FUNCTION = 255


class Hashed(IntFlag):
    """Header fields that a switch may hash: IP addresses, the UDP source port, and the BTH's
    destination QP. The bits are those of rocelab/dataplane/bpf/steer.bpf.c."""

    SOURCE = 1
    DESTINATION = 2
    SOURCE_PORT = 4
    DESTINATION_QP = 8


ALL_FIELDS = Hashed.SOURCE | Hashed.DESTINATION | Hashed.SOURCE_PORT | Hashed.DESTINATION_QP


class Headers(NamedTuple):
    """The fields of RoCE packets, a cell each; addresses as numbers of 32 bits, which for IPv6 are
    hashes of its 128 (`rocelab.routes.steering.address_word`)."""

    source: Words64
    destination: Words64
    source_port: Words64
    destination_qp: Words64


class Unpredictable(NamedTuple):
    """Why no flow's path is known before it is sent; of a path and of the loads of links, what
    follows and what to do."""

    why: str
    path: tuple[str, str]
    loads: tuple[str, str]

    def error(self, of: Literal["path", "loads"]) -> InputError:
        """The error for who asks for a flow's path, or for loads."""
        then, hint = self.path if of == "path" else self.loads
        return InputError(f"{self.why}: {then}", hint)


def drawn(why: str) -> Unpredictable:
    """Of a scheme that draws paths."""
    return Unpredictable(
        why,
        ("a flow's path cannot be predicted", "`rocelab scheme LAB ecmp` gives paths that can"),
        ("loads cannot be predicted", "`rocelab compare` measures them"),
    )


class Scheme(SpecModel):
    """A scheme; its class says what distinguishes it from hashing by each switch."""

    title: ClassVar[str]
    """Its name in tables that compare schemes."""
    place: ClassVar[int] = LAST
    """Where it stands in lists."""
    is_steered: ClassVar[bool] = True
    """Whether switches set a packet's hash, for which the kernel must hash by `l4`; otherwise the
    kernel's is unchanged."""
    divides_flows: ClassVar[bool] = False
    """Whether a flow takes several paths, so that its packets arrive in any order."""
    unpredictable: ClassVar[Unpredictable | None] = None
    """None if tables and flows alone decide paths, or entries if it has them."""
    program: ClassVar[Path | None] = None
    """A file in C, which switches of labs run where the treatment is FUNCTION. It has

        static __always_inline __u32 hashes(const struct packet *packet, __u32 seed,
                                            __u64 parameter)

    which gives a packet the hash of the method `hashes`; `struct packet` is that of
    rocelab/dataplane/bpf/steer.bpf.c. None: no lab has the scheme."""
    controller: ClassVar[str | None] = None
    """The class of its controller's rounds, `module:name`, which takes a `ControlledLab`
    (`rocelab.dataplane.controller.lab`). Only the process of a lab's controller loads it."""

    kind: str

    def treatment(self, *, is_leaf: bool) -> Treatment:
        """What a switch does, the leaves and all others."""
        return Treatment.OFF

    @property
    def treatments(self) -> frozenset[Treatment]:
        """What switches do."""
        return frozenset(self.treatment(is_leaf=is_leaf) for is_leaf in (True, False))

    @property
    def hashed(self) -> Hashed:
        """The fields that are hashed where the treatment is HASH or FUNCTION."""
        return ALL_FIELDS

    def hashes(self, headers: Headers, seeds: Words64) -> Words:
        """32-bit hashes of packets at switches with these seeds, where the treatment is FUNCTION;
        the kernel takes their upper 31 bits."""
        raise NotImplementedError

    @property
    def parameter(self) -> int:
        """What `program` gets of the scheme's keys: 64 bits."""
        return 0

    @property
    def has_entries(self) -> bool:
        """Whether a controller tells switches the next hop of each flow."""
        return Treatment.ENTRIES in self.treatments

    @property
    def gap_ns(self) -> int:
        """The pause after which a flow may change its path, of the modelled network; 0: none."""
        return 0

    @property
    def controller_period_s(self) -> float | None:
        """Seconds between rounds of its controller without events, None without a controller."""
        return None if self.controller is None else 1.0

    def check_lab(self) -> None:
        """Raise InputError for a scheme that no lab has."""
        if Treatment.FUNCTION in self.treatments and self.program is None:
            raise InputError(
                f"scheme {self.kind} has no program for a lab",
                "it can be predicted and simulated",
            )

    def check_simulation(self) -> None:
        """Raise InputError for a scheme that no simulation has."""
        if self.has_entries:
            raise InputError(
                f"what the controller of scheme {self.kind} decides is not simulated",
                "measure it in a lab, with `rocelab compare`",
            )
