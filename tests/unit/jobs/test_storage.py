"""Checkpoints, restores and ingestion: who sends what to whom, by arithmetic on paper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rocelab.base.errors import InputError
from rocelab.jobs.checkpoint import CheckpointSpec
from rocelab.jobs.ingest import IngestSpec
from rocelab.jobs.restore import RestoreSpec
from rocelab.jobs.storage import busiest_s, striped
from rocelab.jobs.workload import Sends, StepTiming, Workload
from rocelab.jobs.workloads import JobPlace

GBPS = 1e9


def place(*sizes: int, bps: float = 200 * GBPS, iterations: int = 1) -> JobPlace:
    """Ranks in groups of these sizes, the job's own first, each on a server of its own."""
    ranks = np.arange(sum(sizes), dtype=np.int32)
    first = np.cumsum(sizes)[:-1]
    groups = np.split(ranks, first)[1:]
    nics_bps = np.full(len(ranks), bps)
    return JobPlace("job", ranks, nics_bps, iterations, endpoints=tuple(groups))


def checkpoint(**keys: object) -> CheckpointSpec:
    return CheckpointSpec.model_validate({"size": "1GB", "storage": ["sto*"], **keys})


def sends_of(workload: Workload, name: str) -> Sends:
    (sends,) = [step.sends for step in workload.steps if step.name == name]
    assert sends is not None
    return sends


@given(
    ranks=st.integers(1, 40),
    nodes=st.integers(1, 20),
    size=st.integers(1, 10**12),
    stripes=st.integers(1, 30),
)
def test_every_byte_of_a_rank_is_written_once_and_nodes_get_as_many_parts(
    ranks: int, nodes: int, size: int, stripes: int
) -> None:
    storage = np.arange(ranks, ranks + nodes, dtype=np.int32)
    sends = striped(np.arange(ranks, dtype=np.int32), storage, size, stripes)
    assert (sends.size_bytes > 0).all()
    assert np.bincount(sends.source, sends.size_bytes).tolist() == [size] * ranks
    parts = np.bincount(sends.destination - ranks, minlength=nodes)
    assert parts.max() - parts.min() <= 1
    pairs = np.stack((sends.source, sends.destination))
    assert np.unique(pairs, axis=1).shape == pairs.shape


def test_the_least_time_of_an_incast_is_the_busiest_nics() -> None:
    """16 x 1 GB to 2 storage NICs of 25 GB/s is 0.32 s; to 32 it is 40 ms, the writers' own."""
    for nodes, expected_s in ((2, 0.32), (32, 0.04)):
        where = place(16, nodes)
        sends = striped(where.own_ranks, where.endpoints[0], 10**9, nodes)
        assert busiest_s(sends, where) == pytest.approx(expected_s)


def test_a_restore_is_a_checkpoint_the_other_way() -> None:
    where = place(4, 3)
    keys = {"size": "1GB", "storage": ["sto*"], "stripes": 2}
    read = sends_of(RestoreSpec.model_validate(keys).workload(where), "read")
    written = sends_of(CheckpointSpec.model_validate(keys).workload(where), "write")
    assert read.source.tolist() == written.destination.tolist()
    assert read.destination.tolist() == written.source.tolist()
    assert read.size_bytes.tolist() == written.size_bytes.tolist()


def test_a_checkpoint_that_storage_cannot_carry_in_its_interval_is_refused() -> None:
    """4 x 1 GB to a NIC of 25 GB/s is 160 ms."""
    checkpoint(every="160ms").workload(place(4, 1))
    with pytest.raises(InputError, match="a checkpoint takes 160 ms at least") as error:
        checkpoint(every="159ms").workload(place(4, 1))
    assert "it would never catch up" in str(error.value.hint)


def test_checkpoints_begin_at_their_interval_and_one_after_the_other() -> None:
    first, wait, second, *_ = checkpoint(every="1s").workload(place(4, 1, iterations=3)).steps
    assert first.after == () and wait.after == () and second.after == (0, 1)
    assert (wait.compute_s, wait.counts) == (1.0, StepTiming.BEFORE)


def test_readers_fetch_the_batches_of_their_ranks_and_pass_them_on() -> None:
    where = place(5, 2, 2, iterations=2)
    spec = IngestSpec.model_validate(
        {"size": "1MB", "every": "1s", "storage": ["sto*"], "readers": ["read*"]}
    )
    workload = spec.workload(where)
    steps = workload.steps
    assert [step.name for step in steps] == ["fetch", "deliver", "due", "fetch", "deliver"]
    assert [step.after for step in steps] == [(), (0,), (), (2,), (3,)]
    fetch, deliver = (step.sends for step in steps[:2])
    assert fetch is not None and deliver is not None
    got = np.bincount(fetch.destination, fetch.size_bytes, minlength=9)
    passed = np.bincount(deliver.source, deliver.size_bytes, minlength=9)
    assert got.tolist() == passed.tolist() == [0] * 7 + [3e6, 2e6]
    assert np.bincount(deliver.destination, deliver.size_bytes).tolist() == [1e6] * 5


def test_a_reader_without_a_rank_fetches_nothing() -> None:
    spec = IngestSpec.model_validate(
        {"size": "1MB", "every": "1s", "storage": ["sto*"], "readers": ["read*"]}
    )
    fetch = sends_of(spec.workload(place(1, 2, 3)), "fetch")
    assert set(fetch.destination.tolist()) == {3}


@pytest.mark.parametrize("keys", [{"storage": []}, {"size": "0B"}, {"stripes": 0}])
def test_what_cannot_be_stored_is_refused(keys: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        checkpoint(**keys)
