"""When prompts are computed, and where: a queue for each replica, and batches of what waits."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import Floats, Ints, Longs
from rocelab.jobs.serving.requests import Requests
from rocelab.jobs.serving.times import PrefillTimes


@dataclass(frozen=True, eq=False)
class Prefilled:
    """Of each request, N."""

    replica: Ints
    begin_s: Floats
    end_s: Floats
    work_s: Floats
    """How long each replica computes in all."""
    free_s: Floats
    """When the replica can begin the next batch after this one: the first stage is done."""


def prefill(
    requests: Requests, computed: Longs, replicas: int, times: PrefillTimes, batch_tokens: int
) -> Prefilled:
    """Each request goes to the replica whose queue would be computed first. A replica that is free
    takes all that wait, up to `batch_tokens`, in order of arrival; the prompts of a batch are done
    together. computed: tokens of each prompt that are not reused."""
    count = len(requests)
    pairs = computed * (2.0 * (requests.prompt - computed) + computed)
    arrival = requests.arrival_s.tolist()
    tokens, pair = computed.tolist(), pairs.tolist()
    stages = times.spec.pipeline
    queues: list[list[int]] = [[] for _ in range(replicas)]
    clocks = [(0.0, number) for number in range(replicas)]
    for number in range(count):
        clock, chosen = clocks[0]
        alone_s = times.seconds(tokens[number], pair[number]) / stages
        heapq.heapreplace(clocks, (max(clock, arrival[number]) + alone_s, chosen))
        queues[chosen].append(number)
    replica = np.zeros(count, np.int32)
    begin_s, end_s, free_s = np.zeros((3, count))
    worked = np.zeros(replicas)
    for chosen, queue in enumerate(queues):
        at, free = 0, 0.0
        while at < len(queue):
            begin = max(free, arrival[queue[at]])
            batch, whole, far = [queue[at]], tokens[queue[at]], pair[queue[at]]
            at += 1
            while at < len(queue) and arrival[queue[at]] <= begin:
                if whole + tokens[queue[at]] > batch_tokens:
                    break
                whole += tokens[queue[at]]
                far += pair[queue[at]]
                batch.append(queue[at])
                at += 1
            took = times.seconds(whole, far)
            free = begin + took / stages
            worked[chosen] += took / stages
            begin_s[batch], end_s[batch], free_s[batch] = begin, begin + took, free
        replica[queue] = chosen
    return Prefilled(replica, begin_s, end_s, worked, free_s)
