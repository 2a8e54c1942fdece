"""The orders in which rings pass the ranks of a group, so that they share a mesh's links.

In a mesh each two ranks have a link. RCCL has seven rings for eight GPUs (src/graph/rome_models.cc)
that take each link once each way. Rings that enter a group at one rank and leave it at another go
through it in a zigzag: those that begin at each rank of an even number take each link once.
"""

from __future__ import annotations

from functools import cache

CYCLES = {
    3: ("012", "021"),
    4: ("0213", "0312"),
    5: ("01324", "02143", "03412", "04231"),
    6: ("054321", "045123", "013524", "031425"),
    7: ("0165432", "0246315", "0341256", "0452613", "0536214", "0642351"),
    8: (
        *("01542736", "02137645", "03561247", "04675231"),
        *("05172634", "06257143", "07416532"),
    ),
}
"""Rings of so many ranks without a common link: one for each other rank where there are such, which
four and six ranks do not have (Tillson 1980, `A Hamiltonian decomposition of K*_2m`)."""


@cache
def cycles(ranks: int) -> tuple[tuple[int, ...], ...]:
    """Rings of a whole mesh; of others than CYCLES has, one and its way back."""
    if ranks in CYCLES:
        return tuple(tuple(map(int, cycle)) for cycle in CYCLES[ranks])
    forth = tuple(range(ranks))
    return (forth, forth[::-1]) if ranks > 2 else (forth,)


def places(group: int, channels: int, *, mesh: bool, alone: bool) -> list[list[int]]:
    """The places of a group's ranks in each channel's order. alone: the group is the whole ring.

    Without a mesh, and in one of an odd number that others follow, rotated by the channel's number.
    """
    if mesh and alone:
        rings = cycles(group)
        return [list(rings[channel % len(rings)]) for channel in range(channels)]
    if mesh and group % 2 == 0:
        steps = [(place + 1) // 2 * (1 if place % 2 else -1) for place in range(group)]
        return [[(channel + step) % group for step in steps] for channel in range(channels)]
    return [[(member + channel) % group for member in range(group)] for channel in range(channels)]
