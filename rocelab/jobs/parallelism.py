"""The groups of ranks in a model-parallel job, and their sends as arrays over all groups.

A `Layout` gives groups of ranks as G x n arrays. `over_groups` repeats the sends of one group over
all of them, so that 128 rings take no longer to make than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rocelab.base.arrays import NONE, Bools, Ints
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.merged_sends import sends_of
from rocelab.jobs.workload import Sends


@dataclass(frozen=True)
class RankLayout:
    """Ranks in the order [TP, CP, PP, DP], tensor parallel ranks next to each other.

    As Dubey et al. 2024 (Llama 3), section 3.3.2; with `pipeline_outside` [TP, CP, DP, PP], the
    order of Megatron-LM (parallel_state, `tp-cp-ep-dp-pp`). Expert parallel groups are neighbours
    in the data parallel dimension, with `expert_tensor` of a replica's tensor parallel ranks.
    """

    tensor: int
    context: int
    pipeline: int
    data: int
    expert: int = 1
    pipeline_outside: bool = False
    expert_tensor: int = 1

    @cached_property
    def grid(self) -> Ints:
        """The rank at (data, pipeline stage, context, tensor)."""
        shape = (self.data, self.pipeline, self.context, self.tensor)
        if self.pipeline_outside:
            outside = (self.pipeline, self.data, self.context, self.tensor)
            ranks = np.arange(np.prod(outside), dtype=np.int32).reshape(outside)
            return ranks.swapaxes(0, 1)
        return np.arange(np.prod(shape), dtype=np.int32).reshape(shape)

    def stage(self, number: int) -> Ints:
        """The ranks of a pipeline stage, by data, context and tensor."""
        ranks: Ints = self.grid[:, number].reshape(-1)
        return ranks

    def tensor_groups(self, stages: slice) -> Ints:
        """Groups that divide each layer."""
        return self.grid[:, stages].reshape(-1, self.tensor)

    def data_groups(self, stages: slice) -> Ints:
        """Groups with the same parameters: data x context ranks, one group per stage and slice."""
        return self._groups(self.grid[:, stages], (1, 3, 0, 2), self.data * self.context)

    def context_groups(self, stages: slice) -> Ints:
        """Groups that divide a sequence."""
        return self._groups(self.grid[:, stages], (1, 0, 3, 2), self.context)

    def expert_groups(self, stages: slice) -> Ints:
        """Groups that divide a layer's experts."""
        return self._groups(self._by_expert(stages), (2, 0, 3, 4, 1, 5), self.expert)

    def expert_data_groups(self, stages: slice) -> Ints:
        """Groups with the same experts."""
        size = self.data * self.expert_tensor // self.expert * self.context
        return self._groups(self._by_expert(stages), (2, 1, 4, 5, 0, 3), size)

    def _by_expert(self, stages: slice) -> Ints:
        """Ranks by (group of replicas, replica, stage, context, tensor apart, tensor together)."""
        ranks, replicas = self.grid[:, stages], self.expert // self.expert_tensor
        grid: Ints = ranks.reshape(
            self.data // replicas,
            replicas,
            *ranks.shape[1:-1],
            self.tensor // self.expert_tensor,
            self.expert_tensor,
        )
        return grid

    @staticmethod
    def _groups(ranks: Ints, axes: tuple[int, ...], size: int) -> Ints:
        groups: Ints = ranks.transpose(axes).reshape(-1, size)
        return groups


def over_groups(sends: Sends, members: Ints) -> Sends:
    """The sends of ranks 0 to n - 1, repeated for every row of `members` (G x n)."""
    return Sends(
        members[:, sends.source].reshape(-1),
        members[:, sends.destination].reshape(-1),
        np.tile(sends.size_bytes, len(members)),
        sends.rounds,
        None if sends.parts is None else np.tile(sends.parts, len(members)),
        None if sends.chain is None else _numbered_chains([sends.chain] * len(members)),
        None if sends.hops is None else np.tile(sends.hops, len(members)),
        sends.fill_bytes,
        sends.tokens,
        None if sends.turn is None else _numbered_chains([sends.turn] * len(members)),
    )


def in_groups(
    pattern: Pattern, size_bytes: float, members: Ints, repeats: float = 1
) -> Sends | None:
    """A collective of `size_bytes` (as nccl-tests counts it) in every group, repeated `repeats`
    times in sequence; None if there is nothing to send."""
    group = members.shape[1]
    size = round(size_bytes * repeats)
    if not len(members) or group < 2 or size < group:
        return None
    one = over_groups(sends_of(pattern, group, size), members)
    return replace(
        one,
        rounds=np.maximum(1, np.rint(one.rounds * repeats)).astype(np.int64),
        parts=np.maximum(1, np.rint(one.each_parts * repeats).astype(np.int64)),
    )


def between(source: Ints, destination: Ints, size_bytes: float, repeats: int = 1) -> Sends | None:
    """`repeats` messages from each source to its destination; None if there are none."""
    size = round(size_bytes) * repeats
    if size < 1 or len(source) == 0:
        return None
    sizes, parts = (np.full(len(source), value, np.int64) for value in (size, repeats))
    return Sends(source, destination, sizes, repeats, parts)


def over_network(
    size_bytes: float, groups: Ints, apart: Bools | None, repeats: float
) -> Sends | None:
    """The all-reduces of those of some tensor parallel `groups` that are `apart`, of which a job
    has one for each group of its ranks; None if there are none."""
    if apart is None:
        return None
    return in_groups(
        Pattern.ALLREDUCE, size_bytes, groups[apart[groups[:, 0] // groups.shape[1]]], repeats
    )


def joined(*parts: Sends | None) -> Sends | None:
    """Sends that start together, as one; None if all parts are None."""
    sends = [part for part in parts if part is not None]
    if len(sends) < 2:
        return sends[0] if sends else None
    return Sends(
        np.concatenate([send.source for send in sends]),
        np.concatenate([send.destination for send in sends]),
        np.concatenate([send.size_bytes for send in sends]),
        np.concatenate([np.broadcast_to(send.rounds, len(send.source)) for send in sends]),
        np.concatenate([send.each_parts for send in sends]),
        _numbered_chains([_chain(send) for send in sends]),
        np.concatenate([send.each_hops for send in sends]),
        max(send.fill_bytes for send in sends),
        min(send.tokens for send in sends),
        _numbered_chains([turns(send) for send in sends]),
    )


def _chain(sends: Sends) -> Ints:
    return np.arange(len(sends.source), dtype=np.int32) if sends.chain is None else sends.chain


def turns(sends: Sends) -> Ints:
    """The turn of each, NONE for one that waits for none."""
    return np.full(len(sends.source), NONE, np.int32) if sends.turn is None else sends.turn


def _numbered_chains(chains: Sequence[Ints]) -> Ints:
    """The chains (or turns) of several sends, numbered one after the other."""
    most = [int(chain.max(initial=NONE)) + 1 for chain in chains]
    first = np.cumsum([0, *most[:-1]])
    return np.concatenate(
        [
            np.where(chain == NONE, NONE, chain + begin).astype(np.int32)
            for chain, begin in zip(chains, first.tolist(), strict=True)
        ]
    )
