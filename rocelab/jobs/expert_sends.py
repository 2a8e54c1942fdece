"""The sends of tokens to experts and back, over all groups of GPUs that divide the experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import Floats, Ints, Longs
from rocelab.jobs.experts import ExpertRouting, TokenRouting, exchanged
from rocelab.jobs.parallelism import joined
from rocelab.jobs.workload import Sends


@dataclass(frozen=True, eq=False)
class ExpertTraffic:
    """What GPUs that divide the experts send each other, by how their group lies on servers."""

    network: Mapping[bytes, Floats]
    """Of each way to lie, tokens [source][destination] for each token of a GPU."""
    servers: Ints
    """Of each rank of the job."""
    inside: float
    """Tokens that the busiest GPU gets over NVLink, for each token of a GPU."""

    def sends(
        self, groups: Ints, dispatch_bytes: float, combine_bytes: float, repeats: float
    ) -> Sends | None:
        """`repeats` dispatches and combines in each group (G x n), one after the other, each to all
        others at once, as DeepEP and NCCL's grouped sends do; None if none goes over the network.
        dispatch_bytes, combine_bytes: of all tokens of a GPU, each once."""
        forms: dict[bytes, list[int]] = {}
        for number, group in enumerate(groups):
            forms.setdefault(_form(self.servers[group]).tobytes(), []).append(number)
        parts: list[Sends | None] = []
        for form, numbers in forms.items():
            tokens = self.network[form]
            sizes = np.rint((tokens * dispatch_bytes + tokens.T * combine_bytes) * repeats)
            parts.append(_over(groups[numbers], sizes.astype(np.int64), repeats))
        return joined(*parts)


def expert_traffic(
    routing: TokenRouting, spec: ExpertRouting, groups: Ints, servers: Ints
) -> ExpertTraffic:
    """The traffic of groups (G x n) of a job with ranks on these servers."""
    forms = {form.tobytes(): form for form in (_form(servers[group]) for group in groups)}
    by_form = {key: exchanged(routing, spec.exchange, form) for key, form in forms.items()}
    inside = max((traffic.inside for traffic in by_form.values()), default=0.0)
    network = {key: traffic.network for key, traffic in by_form.items()}
    return ExpertTraffic(network, servers, inside)


def _form(servers: Ints) -> Ints:
    """Servers numbered in the order in which a group has them."""
    _, first, number = np.unique(servers, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number].astype(np.int32)


def _over(groups: Ints, sizes: Longs, repeats: float) -> Sends | None:
    """The same sends in every group."""
    source, destination = np.nonzero(sizes)
    if not len(source):
        return None
    rounds = max(1, round(2 * repeats))
    count = len(groups) * len(source)
    return Sends(
        groups[:, source].reshape(-1),
        groups[:, destination].reshape(-1),
        np.tile(sizes[source, destination], len(groups)),
        np.full(count, rounds, np.int64),
        np.full(count, rounds, np.int64),
    )
