"""Four-ary heaps of numbered items by a key, compiled.

Functions change the keys and items of a heap in place; the least key is on top. `settle` is for the
heap of flows by their next end of a transfer and keeps each flow's place in it.
"""

from __future__ import annotations

from rocelab.base.arrays import Floats, Ints
from rocelab.sim.engine import state as at
from rocelab.sim.engine.compiling import part
from rocelab.sim.engine.state import Numbers, Table


@part
def comes_first(keys: Floats, items: Ints, one: int, other: int) -> bool:
    """Whether the item at `one` has the lesser key or, if keys are equal, the lesser number."""
    return bool(keys[one] < keys[other] or (keys[one] == keys[other] and items[one] < items[other]))


@part
def sink(keys: Floats, items: Ints, place: int, size: int) -> None:
    """Move the item at `place` of a heap down to where it belongs; on equal keys the lesser number
    is on top."""
    key, item = keys[place], items[place]
    while True:
        least = 4 * place + 1
        if least >= size:
            break
        for child in range(least + 1, min(least + 4, size)):
            if comes_first(keys, items, child, least):
                least = child
        if keys[least] > key or (keys[least] == key and items[least] > item):
            break
        keys[place], items[place] = keys[least], items[least]
        place = least
    keys[place], items[place] = key, item


@part
def settle(flows: Table, of_flows: Numbers, place: int, size: int) -> None:
    """Move the flow at `place` of the heap of ends up or down to where it belongs."""
    key, flow = flows[at.END_KEY, place], of_flows[at.END_FLOW, place]
    while place > 0 and flows[at.END_KEY, (place - 1) // 4] > key:
        parent = (place - 1) // 4
        flows[at.END_KEY, place] = flows[at.END_KEY, parent]
        of_flows[at.END_FLOW, place] = of_flows[at.END_FLOW, parent]
        of_flows[at.PLACE, of_flows[at.END_FLOW, place]] = place
        place = parent
    while True:
        least = 4 * place + 1
        if least >= size:
            break
        for child in range(least + 1, min(least + 4, size)):
            if flows[at.END_KEY, child] < flows[at.END_KEY, least]:
                least = child
        if flows[at.END_KEY, least] >= key:
            break
        flows[at.END_KEY, place] = flows[at.END_KEY, least]
        of_flows[at.END_FLOW, place] = of_flows[at.END_FLOW, least]
        of_flows[at.PLACE, of_flows[at.END_FLOW, place]] = place
        place = least
    flows[at.END_KEY, place], of_flows[at.END_FLOW, place] = key, flow
    of_flows[at.PLACE, flow] = place
