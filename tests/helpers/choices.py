"""Polarization from the choices of each flow's path, one flow after the other: the plain way, which
`rocelab.prediction.loads.paired_choices` is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rocelab.routes.balance import PairedChoices, Polarization, polarization


class Choice(NamedTuple):
    """What one hop of a flow's path chose: option `option` (from 0) of the `options` next hops of
    `group`."""

    group: str
    stage: str
    option: int
    options: int


def polarizations(paths: Iterable[Sequence[Choice]]) -> tuple[Polarization, ...]:
    """Polarization between each two consecutive stages at which flows had a choice."""
    pairs: dict[tuple[str, str], list[tuple[int, int, int, int]]] = {}
    groups: dict[str, int] = {}
    for path in paths:
        choices = [choice for choice in path if choice.options > 1]
        for first, second in pairwise(choices):
            group = groups.setdefault(second.group, len(groups))
            row = (first.option, second.option, group, second.options)
            pairs.setdefault((first.stage, second.stage), []).append(row)
    return tuple(
        polarization(PairedChoices(*stages, *np.array(rows, dtype=np.int64).T))
        for stages, rows in pairs.items()
    )
