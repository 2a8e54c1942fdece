"""The sends of a collective merged per pair of ranks, where a schedule of single sends is too
large.

`sends_of` returns everything that one rank sends another as one send, in arrays; `workload_of` a
job as a `Workload`. The formulas are those of `rocelab.jobs.collectives`, whose schedules have the
same bytes between the same ranks.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import lru_cache

import numpy as np

from rocelab.base.arrays import NONE, Ints, Longs
from rocelab.base.errors import InputError
from rocelab.jobs.collectives import (
    Pattern,
    Schedule,
    check_collective,
    count_sends,
    kind_of,
    point_to_point,
    schedule,
)
from rocelab.jobs.in_switch import in_network, in_switch
from rocelab.jobs.job import JobSpec, schedule_of
from rocelab.jobs.messages import spread_evenly
from rocelab.jobs.ordered import ordered
from rocelab.jobs.patterns.base import IN_SWITCH, Algorithm
from rocelab.jobs.patterns.building import PIECE_BYTES
from rocelab.jobs.patterns.mesh import places
from rocelab.jobs.relays import in_two_levels, relayed
from rocelab.jobs.summing import divided, summed, tree_of
from rocelab.jobs.workload import Sends, Step, Workload

MOST_ORDERED = 2**15
"""Sends of an iteration that are simulated one by one although they can be merged."""

MOST_IN_TURN = 2**20
"""Sends of a job, over all iterations, that are simulated one by one: an AlltoAll of 1,024 ranks
once."""

OVERTAKING = {Algorithm.TREE: 0.26, Algorithm.HIERARCHICAL: 0.4}
"""How much more or less time these take merged, as a share, because pieces overtake each other in
order and phases overlap: the most that was seen."""


def sends_of(
    pattern: Pattern,
    ranks: int,
    size_bytes: int,
    *,
    algorithm: Algorithm = Algorithm.RING,
    channels: int = 1,
    group: int | None = None,
    root: int = 0,
    seed: int = 0,
    in_flight: int | None = None,
    mesh: bool = False,
) -> Sends:
    """All that one rank sends another in one collective as one send, by source and destination.

    The sums of `rocelab.jobs.collectives.schedule` with the same arguments, byte for byte; `parts`
    are how many of its sends each is, `rounds` its longest chain. Merging loses when a pair's sends
    may begin. Rings keep every NIC busy throughout, but the first piece of a tree or a chain has to
    reach its end before the last rank receives anything: `fill_bytes`. The sends of an AlltoAll(v)
    are not merged, and those beyond `in_flight` of a rank (None: none) wait for earlier ones
    (`exchange`).

    Raises InputError if the numbers do not fit.
    """
    check_collective(pattern, ranks, size_bytes, algorithm, channels, group, root)
    match pattern:
        case _ if algorithm is Algorithm.COLLNET:
            return in_network(ranks, size_bytes, group or 1)
        case _ if algorithm in IN_SWITCH:
            return in_switch(pattern, ranks, size_bytes, group or ranks)
        case Pattern.ALLREDUCE if algorithm is Algorithm.TREE:
            return _trees(
                _orders(ranks, group or ranks, channels, mesh=mesh), size_bytes, group or 1
            )
        case Pattern.ALLREDUCE if algorithm is Algorithm.HIERARCHICAL and group is not None:
            return _hierarchical(ranks, channels, size_bytes, group)
        case Pattern.ALLREDUCE | Pattern.REDUCESCATTER | Pattern.ALLGATHER if (
            algorithm is not Algorithm.PAT
        ):
            return _ring(pattern, _rings(ranks, group or ranks, channels, mesh=mesh), size_bytes)
        case Pattern.BROADCAST:
            rings = _rings(ranks, group or ranks, channels, mesh=mesh)
            return _chain(rings, size_bytes, root)
        case Pattern.ALLTOALL | Pattern.ALLTOALLV:
            if in_flight is not None and in_flight < ranks - 1:
                check_exchanged(ranks * (ranks - 1) * channels)
            sizes = _exchanged(pattern, ranks, size_bytes, seed)
            if algorithm is Algorithm.PXN and group is not None:
                return relayed(sizes, group)
            return exchange(sizes, channels, in_flight)
        case Pattern.GATHER:
            source = np.arange(ranks)
            sizes = np.where(source == root, 0, divided(np.array(size_bytes), ranks))
            return _at_once(source, np.full(ranks, root), sizes, channels)
        case Pattern.INCAST | Pattern.PAIRS | Pattern.PERMUTATION:
            pairs = np.array(point_to_point(pattern, ranks, seed), np.int64)
            return _at_once(pairs[:, 0], pairs[:, 1], np.full(len(pairs), size_bytes), channels)
        case _:
            return _sums_of_schedule(
                schedule(
                    pattern,
                    ranks,
                    size_bytes,
                    algorithm=algorithm,
                    channels=channels,
                    group=group,
                    root=root,
                    seed=seed,
                    in_flight=in_flight or ranks,
                )
            )


def _exchanged(pattern: Pattern, ranks: int, size_bytes: int, seed: int) -> Longs:
    """The bytes [source][destination] of an AlltoAll(v)."""
    if pattern is Pattern.ALLTOALL:
        return np.tile(divided(np.array(size_bytes), ranks), (ranks, 1))
    return _uneven_sizes(ranks, size_bytes, seed)


def _sums_of_schedule(planned: Schedule) -> Sends:
    """The sums of a schedule."""
    pairs: dict[tuple[int, int], list[int]] = {}
    rounds: list[int] = []
    for send in planned.sends:
        both = pairs.setdefault((send.source, send.destination), [0, 0])
        both[0] += send.size_bytes
        both[1] += 1
        rounds.append(1 + max((rounds[before] for before in send.after), default=0))
    ends = np.array(sorted(pairs), np.int32).reshape(-1, 2)
    size, parts = np.array([pairs[pair] for pair in sorted(pairs)], np.int64).reshape(-1, 2).T
    return Sends(ends[:, 0], ends[:, 1], size, max(rounds, default=1), parts)


def _phases(job: JobSpec, group: int | None, size_bytes: int) -> tuple[Sends, ...]:
    """A job's merged sends (`sends_of`) in consecutive parts: three for a hierarchical AllReduce
    (rings in groups, among groups, in groups again), two for such an AlltoAll(v), one for every
    other collective."""
    if (job.pattern, job.algorithm) == (Pattern.ALLREDUCE, Algorithm.HIERARCHICAL) and group:
        check_collective(
            job.pattern, job.ranks, size_bytes, algorithm_of(job), channels_of(job), group, job.root
        )
        rings = _hierarchical_phases(job.ranks, channels_of(job), size_bytes, group)
        return tuple(ring for ring in rings if len(ring.source))
    if kind_of(job.pattern).is_exchange and job.algorithm is Algorithm.HIERARCHICAL and group:
        sizes = _exchanged(job.pattern, job.ranks, size_bytes, job.seed)
        levels = in_two_levels(sizes, group, job.in_flight)
        return tuple(level for level in levels if len(level.source))
    whole = sends_of(
        job.pattern,
        job.ranks,
        size_bytes,
        algorithm=algorithm_of(job),
        channels=channels_of(job),
        group=group,
        root=job.root,
        seed=job.seed,
        in_flight=job.in_flight,
        mesh=job.is_on_mesh,
    )
    return (whole,)


def algorithm_of(job: JobSpec) -> Algorithm:
    """How a job's collective is done."""
    return job.algorithm or Algorithm.RING


def channels_of(job: JobSpec) -> int:
    """How many parts of a job's buffer go on independently."""
    return job.channels or 1


def workload_of(
    job: JobSpec,
    group: int | None,
    iterations: int,
    *,
    barrier: bool = False,
    contended: bool = False,
) -> Workload:
    """`iterations` of a job with a size, `job.compute` between them.

    `group` is the group size if the job does not set it (`rocelab.sim.placement.ring_group`). A
    workload of `sends_in_order` is `ordered`: each send of the schedule is a step that waits for
    the same sends as in the lab, and a rank begins an iteration, after its pause, when all its
    sends and receives of the previous one have finished; with a `barrier`, when those of all ranks
    have. In any other, an iteration is one step of merged sends that all ranks begin together, or
    three (`_phases`).

    Raises InputError for a job of streams, for a group that does not divide the ranks, and for more
    than MOST_IN_TURN sends that cannot be merged.
    """
    if job.size is None:
        raise InputError(
            "a job with a duration sends streams, which never complete",
            hint="give it a size: a simulation finds how long that takes",
        )
    compute_s = job.compute / 1e9
    if sends := sends_in_order(job, iterations, contended=contended):
        of_job = _in_order if sends <= MOST_ORDERED else _in_order.__wrapped__
        sending = job.model_copy(update={"host_model": None})  # which has no part in it, nor a hash
        return of_job(sending, group, iterations, barrier)
    phases = _phases(job, group if job.group is None else job.group, job.size)
    steps: list[Step] = []
    for iteration in range(iterations):
        for phase, merged in enumerate(phases):
            steps.append(
                Step(
                    f"iteration {iteration + 1}",
                    after=(len(steps) - 1,) if steps else (),
                    compute_s=0.0 if phase or not iteration else compute_s,
                    sends=_following(job.pattern, merged) if iteration else merged,
                    iteration=iteration,
                    launches=not phase,
                )
            )
    return Workload(job.ranks, tuple(steps))


@lru_cache(maxsize=2)
def _in_order(job: JobSpec, group: int | None, iterations: int, barrier: bool) -> Workload:
    """The sends of a job's schedule. Fits and tables simulate one after the other with several
    types of servers."""
    planned = schedule_of(job, group)
    return ordered(planned, iterations, job.compute / 1e9, barrier=barrier).workload


def sends_in_order(job: JobSpec, iterations: int, *, contended: bool = False) -> int:
    """The sends of `iterations` of a job with a size if they are simulated one by one, else 0.

    More than MOST_ORDERED in an iteration (MOST_IN_TURN of OVERTAKING ones, and of `contended`
    rings, for which merged sends may be off), or MOST_IN_TURN in all, are merged, if all
    queue pairs carry as much of each part of a ring, tree or chain, within a hundredth
    (`spread_evenly`). Merged sends keep all of them busy all the time; in order, a queue pair that
    gets more of a part than others delays the rest of its way.

    Raises InputError for more than MOST_IN_TURN that cannot be merged.
    """
    assert job.size is not None
    if job.algorithm in IN_SWITCH:
        return 0
    once = count_sends(
        job.pattern, job.ranks, job.size, algorithm_of(job), channels_of(job), job.group
    )
    if job.algorithm is Algorithm.PXN:
        if job.in_flight is not None and job.in_flight >= job.ranks - 1:
            return 0
        check_exchanged(iterations * once)
        return iterations * once
    sends = iterations * once
    if job.algorithm is Algorithm.PAT:
        if sends > MOST_IN_TURN:
            raise InputError(
                f"{job.pattern} in pat is {sends:,} sends; at most {MOST_IN_TURN:,} are simulated",
                hint="use fewer ranks or iterations, or a ring",
            )
        return sends
    part_bytes = _part_bytes(job, job.size)
    overtaking = job.pattern is Pattern.ALLREDUCE and job.algorithm in OVERTAKING
    if (
        once <= (MOST_IN_TURN if overtaking or contended else MOST_ORDERED)
        and sends <= MOST_IN_TURN
    ):
        return sends
    if part_bytes is None or spread_evenly(np.array(part_bytes), job.transport):
        return 0
    if sends > MOST_IN_TURN:
        raise InputError(
            f"{sends:,} sends, each after another, of which {job.transport.qps} queue pairs do not "
            f"carry as much each; at most {MOST_IN_TURN:,} are simulated",
            hint="with transport.strategy: split (--strategy split) each message is divided over "
            "all queue pairs; or take one queue pair, or fewer ranks, channels or iterations",
        )
    return sends


def _part_bytes(job: JobSpec, size_bytes: int) -> int | None:
    """The longest of the parts that pass from rank to rank; None where no rank passes any on."""
    match job.pattern:
        case Pattern.ALLREDUCE if job.algorithm is Algorithm.TREE:
            return _piece_bytes(size_bytes, 2 * channels_of(job))
        case Pattern.BROADCAST:
            return _piece_bytes(size_bytes, channels_of(job))
        case Pattern.ALLREDUCE | Pattern.REDUCESCATTER | Pattern.ALLGATHER:
            return -(-size_bytes // (job.ranks * channels_of(job)))
        case _:
            return None


def _following(pattern: Pattern, merged: Sends) -> Sends:
    """The sends of an iteration that follows another. The chain of a broadcast is full by then:
    each rank begins as soon as it has passed on the last piece of the iteration before."""
    if pattern is not Pattern.BROADCAST:
        return merged
    return replace(merged, rounds=1, chain=None, hops=None, fill_bytes=0)


def _weighed(sizes: Longs) -> Longs:
    """Bytes and number of sends: sizes x 2. An empty send does not count."""
    return np.stack((sizes, sizes > 0), axis=-1)


def _chunks(ranks: int, channels: int, size_bytes: int) -> Longs:
    """The chunk of each rank and channel: ranks x channels x 2."""
    return _weighed(divided(divided(np.array(size_bytes), ranks), channels))


def _orders(ranks: int, group: int, channels: int, *, mesh: bool) -> Ints:
    """The ranks in each channel's order, as `Call.orders` has it."""
    start = np.arange(0, ranks, group)[:, None]
    order = np.array(places(group, channels, mesh=mesh, alone=group == ranks))
    orders: Ints = (start + order[:, None]).reshape(channels, ranks).astype(np.int32)
    return orders


def _rings(ranks: int, group: int, channels: int, *, mesh: bool) -> Ints:
    """The ranks along each channel's ring: every second group of `_orders` backwards."""
    groups = _orders(ranks, group, channels, mesh=mesh).reshape(channels, -1, group)
    groups[:, 1::2] = groups[:, 1::2, ::-1]
    return groups.reshape(channels, ranks)


def _ring(pattern: Pattern, orders: Ints, size_bytes: int) -> Sends:
    """A chunk crosses every edge of its ring, except the one out of its owner while it is reduced
    and the one into its owner while it is gathered."""
    channels, ranks = orders.shape
    chunks = _chunks(ranks, channels, size_bytes)
    total = chunks.sum(axis=0)[:, None]
    chunk = chunks[orders, np.arange(channels)[:, None]]
    load = np.zeros_like(chunk)
    if pattern is not Pattern.ALLGATHER:
        load += total - chunk
    if pattern is not Pattern.REDUCESCATTER:
        load += total - np.roll(chunk, -1, axis=1)
    rounds = (ranks - 1) * (2 if pattern is Pattern.ALLREDUCE else 1)
    chain = np.zeros_like(orders)
    total = summed(ranks, orders, np.roll(orders, -1, axis=1), load, rounds, chain)
    return replace(total, tokens=1)


def _chain(orders: Ints, size_bytes: int, root: int) -> Sends:
    """Every channel's part crosses each edge of its ring except the one into the root."""
    channels, ranks = orders.shape
    part = divided(np.array(size_bytes), channels)
    load = np.stack((part, -(-part // PIECE_BYTES)), axis=-1)[:, None]
    following = np.roll(orders, -1, axis=1)
    load = load * (following != root)[..., None]
    chained = summed(ranks, orders, following, load, ranks - 1, np.zeros_like(orders))
    return replace(chained, fill_bytes=(ranks - 2) * _piece_bytes(size_bytes, channels))


def _trees(orders: Ints, size_bytes: int, group: int) -> Sends:
    """Each half of a channel's part goes up and down every edge of its tree: of the chain in each
    group of `group` ranks, and between the groups' first ranks."""
    channels, ranks = orders.shape
    groups = orders.reshape(channels, -1, group)
    count = groups.shape[1]
    parent, depth, longest = tree_of(count)
    halves = divided(divided(np.array(size_bytes), channels), 2)
    load = np.stack((halves, -(-halves // PIECE_BYTES)), axis=-1)
    others = groups[:, ::-1] if count % 2 == 0 else np.roll(groups, -1, axis=1)
    both = np.stack((groups, others), axis=1)
    towards = both.copy()
    towards[..., 1:] = both[..., :-1]
    towards[..., 1:, 0] = both[..., parent[1:], 0]
    # The root sends to nobody.
    child = both.reshape(channels, 2, ranks)[..., 1:]
    towards = towards.reshape(channels, 2, ranks)[..., 1:]
    source, destination = np.stack((child, towards)), np.stack((towards, child))
    last = group if count > 1 else 0
    ends = np.concatenate((longest * group, last + np.arange(1, group)))
    chain = np.full(source.shape, NONE, np.int32)
    chain[:, 0, 0, ends - 1] = 0
    rounds = 2 * (depth + group - 1)
    # A single piece takes the time of two per round, because two ranks send to one or one to two,
    # except next to the root. The time of all pieces includes that of two rounds both ways.
    fill_bytes = max(0, 2 * rounds - 6) * _piece_bytes(size_bytes, 2 * channels)
    total = summed(ranks, source, destination, load[:, :, None], rounds, chain)
    return replace(total, fill_bytes=fill_bytes)


def _piece_bytes(size_bytes: int, parts: int) -> int:
    """The longest piece of a buffer in `parts` parts."""
    part = -(-size_bytes // parts)
    return -(-part // -(-part // PIECE_BYTES))


def _hierarchical(ranks: int, channels: int, size_bytes: int, group: int) -> Sends:
    """The sums of the phases; a pair may be of one group and of two of one rank each."""
    phases = _hierarchical_phases(ranks, channels, size_bytes, group)
    source, destination, size, parts = (
        np.concatenate([getattr(phase, column) for phase in phases])
        for column in ("source", "destination", "size_bytes", "parts")
    )
    load = np.stack((size, parts), axis=-1)
    rounds = sum(int(phase.rounds) for phase in phases)
    return summed(ranks, source, destination, load, rounds, np.zeros_like(source))


def _hierarchical_phases(
    ranks: int, channels: int, size_bytes: int, group: int
) -> tuple[Sends, Sends, Sends]:
    """The three phases: in a group a chunk crosses every edge except the one out of its collector,
    and on the way back every edge except the one into it; between groups it goes as in a ring, from
    collector to collector."""
    groups = ranks // group
    chunks = _chunks(ranks, channels, size_bytes).reshape(groups, group, channels, 2)
    channel = np.arange(channels)[:, None]
    member = (np.arange(group) - channel) % group
    collected = chunks.sum(axis=0)[member, channel]
    total = collected.sum(axis=1, keepdims=True)
    reduced = (total - collected).sum(axis=0)
    spread = (total - np.roll(collected, -1, axis=1)).sum(axis=0)
    chunk = chunks[:, member, channel]
    among = (2 * collected - chunk - np.roll(chunk, -1, axis=0)).sum(axis=1)
    rank = np.arange(ranks, dtype=np.int32).reshape(groups, group)
    of_group, of_place = np.indices(rank.shape, np.int32)
    next_member, next_group = np.roll(rank, -1, axis=1), np.roll(rank, -1, axis=0)

    def within(load: Longs) -> Sends:
        load = np.broadcast_to(load, among.shape)
        total = summed(ranks, rank, next_member, load, group - 1, of_group)
        return replace(total, tokens=groups * channels)

    through = summed(ranks, rank, next_group, among, 2 * (groups - 1), of_place)
    return within(reduced), replace(through, tokens=channels), within(spread)


def check_exchanged(sends: int) -> None:
    """Raise InputError where AlltoAll(v)s are more sends than are simulated in turn."""
    if sends > MOST_IN_TURN:
        raise InputError(
            f"AlltoAlls of {sends:,} sends, each after its rank's last; at most "
            f"{MOST_IN_TURN:,} are simulated",
            hint="use fewer ranks, channels or iterations, or several jobs with fewer ranks each",
        )


def exchange(sizes: Longs, channels: int = 1, in_flight: int | None = None) -> Sends:
    """An AlltoAllv of bytes [source][destination], ranks x ranks: in each channel a rank sends to
    `in_flight` others at once (None: to all), as `rocelab.jobs.collectives.schedule` has it. What a
    rank keeps is not sent.

    Raises InputError for more than MOST_IN_TURN sends that wait for one another.
    """
    ranks = len(sizes)
    if in_flight is None or in_flight >= ranks - 1:
        others = sizes.copy()
        np.fill_diagonal(others, 0)
        source, destination = np.nonzero(others)
        part = sizes[source, destination]
        return _at_once(source, destination, part, channels)
    check_exchanged(ranks * (ranks - 1) * channels)
    channel, step, source = np.indices((channels, ranks - 1, ranks)).reshape(3, -1)
    distance = (channel * (ranks - 1) // channels + step) % (ranks - 1) + 1
    destination = (source + distance) % ranks
    part = divided(sizes, channels)[source, destination, channel]
    sent = np.flatnonzero(part)
    ends = source[sent].astype(np.int32), destination[sent].astype(np.int32)
    turn = ((channel * ranks + source) * in_flight + step % in_flight)[sent].astype(np.int32)
    return Sends(*ends, part[sent], turn=turn)


def _uneven_sizes(ranks: int, size_bytes: int, seed: int) -> Longs:
    """The draws of `rocelab.jobs.collectives.uneven_sizes`: both are the Mersenne Twister's 53
    bits."""
    _, state, _ = random.Random(seed).getstate()  # noqa: S311 - repeatable draws, not secrets
    twister = np.random.MT19937()
    twister.state = {
        "bit_generator": "MT19937",
        "state": {"key": np.array(state[:-1], np.uint32), "pos": state[-1]},
    }
    drawn = np.random.Generator(twister).random((ranks, ranks - 1))
    cuts = np.sort((drawn * (size_bytes + 1)).astype(np.int64), axis=1)
    return np.diff(cuts, axis=1, prepend=0, append=size_bytes)


def _at_once(source: Longs, destination: Longs, sizes: Longs, channels: int) -> Sends:
    """One send per pair, in as many parts as there are channels."""
    sent = np.flatnonzero(sizes)
    return Sends(
        source[sent].astype(np.int32),
        destination[sent].astype(np.int32),
        sizes[sent],
        parts=None if channels == 1 else np.minimum(sizes[sent], channels),
    )
