"""When chunks begin on a link that sends the packets of several flows in turn.

Chunks of flows that take turns end together, and began together: each took as long as all of them.
"""

from __future__ import annotations

import heapq
from pathlib import Path
from typing import Any

import numpy as np

from rocelab.base.arrays import Floats, Ints, Longs
from rocelab.base.compiling import numba
from rocelab.base.library import FunctionLibrary


def _types() -> dict[str, Any]:
    whole, real = numba().int64, numba().float64
    return {"Floats": real[::1], "Ints": numba().int32[::1], "Longs": whole[::1]}


LIBRARY = FunctionLibrary(Path(__file__).parent, types=_types)


@LIBRARY.entry
def begins_in_turn(left_s: Floats, takes_s: Floats, port: Ints, order: Longs) -> Floats:
    """When chunks begin that leave their ports at these times, C, and take so long where a port has
    no others: packets of several flows come in turn from it. order: the chunks of each port
    together, the last that leaves first."""
    begins_s = np.empty_like(left_s)
    # Backwards in time, in which a port shares itself out too. shared_s: what a chunk has had that
    # was under way all the time; under_way: how much of it is enough for each that is.
    shared_s, now_s, here = 0.0, 0.0, -1
    under_way = [(0.0, -1) for _ in range(0)]
    for chunk in order:
        is_other = port[chunk] != here
        while len(under_way) > 0:
            end_s = now_s - (under_way[0][0] - shared_s) * len(under_way)
            if end_s < left_s[chunk] and not is_other:
                break
            now_s = end_s
            shared_s, ended = heapq.heappop(under_way)
            begins_s[ended] = now_s
        if is_other:
            here, shared_s = port[chunk], 0.0
        elif len(under_way) > 0:
            shared_s += (now_s - left_s[chunk]) / len(under_way)
        now_s = left_s[chunk]
        heapq.heappush(under_way, (shared_s + takes_s[chunk], chunk))
    while len(under_way) > 0:
        now_s -= (under_way[0][0] - shared_s) * len(under_way)
        shared_s, ended = heapq.heappop(under_way)
        begins_s[ended] = now_s
    return begins_s
