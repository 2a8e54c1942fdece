"""What a comparison goes through: each option with that of the command line. It loads no model of a
file but those of schemes."""

from __future__ import annotations

from dataclasses import dataclass

from rocelab.base.options import option
from rocelab.labfile.schemes.scheme_spec import SCHEME_DOOR, SCHEMES

_MATRIX = "What is compared"


@dataclass(frozen=True, slots=True)
class MatrixOptions:
    """The lists, between commas, whose combinations are compared, and how often each is run."""

    schemes: str = option(
        ",".join(kind for kind in SCHEMES if SCHEME_DOOR.origin(kind) is None),
        "Schemes, in this order.",
        metavar="NAME,...",
        panel=_MATRIX,
    )
    qps: str = option(
        "1,4,8,16,32", "Queue pairs per pair of NICs.", metavar="N,...", panel=_MATRIX
    )
    placement: str = option(
        "fragmented",
        "contiguous (server by server), topology-aware (leaf by leaf), fragmented (zones "
        "and leaves in turn), random.",
        metavar="HOW,...",
        panel=_MATRIX,
    )
    repeat: int = option(1, "How often each is run.", metavar="N", minimum=1, panel=_MATRIX)
