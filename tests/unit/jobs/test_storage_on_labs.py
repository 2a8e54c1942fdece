"""Storage jobs on a lab: whose NICs their ranks are, and what only simulations have."""

from __future__ import annotations

import pytest

from rocelab.base.errors import InputError
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.jobs.jobplan import JobPlan
from rocelab.jobs.jobplanning import plan_jobs
from tests.helpers.labs import planned

TRAINING = {
    "model": {"layers": 4, "hidden": 128, "heads": 8, "ffn": 512, "vocab": 1000, "sequence": 128},
    "data": 4,
    "server_gpus": 1,
    "gpu_flops": "100T",
}
STORE: dict[str, object] = {"size": "1MB", "storage": ["srv3-*"]}


def plans(*jobs: tuple[str, str, dict[str, object]]) -> tuple[JobPlan, ...]:
    blocks = [{"name": name, kind: keys} for name, kind, keys in jobs]
    return plan_jobs(planned("checkpoint"), [SimulatedJob.model_validate(job) for job in blocks])


def names(plan: JobPlan) -> list[str]:
    return [place.server for place in plan.places]


def test_storage_is_kept_from_ranks_and_another_jobs_nics_are_shared() -> None:
    training, write = plans(
        ("train", "training", TRAINING), ("write", "checkpoint", {**STORE, "of": "train"})
    )
    ranks = ["srv1-1", "srv1-2", "srv2-1", "srv2-2"]
    assert names(training) == ranks
    assert names(write) == [*ranks, "srv3-1", "srv3-2"]
    assert write.schedule is not None
    sends = {(send.source, send.destination): send.size_bytes for send in write.schedule.sends}
    assert sends == {(rank, node): 500_000 for rank in range(4) for node in (4, 5)}


def test_a_restore_reads_what_a_checkpoint_writes() -> None:
    (read,) = plans(("read", "restore", STORE))
    assert names(read)[-2:] == ["srv3-1", "srv3-2"] and read.ranks == 6
    assert read.schedule is not None
    assert {send.source for send in read.schedule.sends} == {4, 5}


def test_a_step_with_a_checkpoint_is_repeated() -> None:
    cycle = {**TRAINING, "checkpoint": {"every": 1, "storage": ["srv3-*"], "size": "4MB"}}
    (plan,) = plans(("train", "training", cycle))
    assert plan.schedule is not None
    written = [send for send in plan.schedule.sends if send.destination in (4, 5)]
    assert sum(send.size_bytes for send in written) == 4e6
    assert all(send.after for send in written)


@pytest.mark.parametrize(
    ("kind", "keys", "message"),
    [
        ("restore", {**STORE, "storage_rate": "1GB/s"}, "the rate of their links"),
        ("checkpoint", {**STORE, "of": "train"}, "no job of that name stands before it"),
        (
            "training",
            {**TRAINING, "checkpoint": {"every": 2, "storage": ["srv3-*"], "network": "frontend"}},
            "it sends in another network too",
        ),
    ],
)
def test_what_only_a_simulation_has_is_refused(
    kind: str, keys: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        plans(("job", kind, keys))
