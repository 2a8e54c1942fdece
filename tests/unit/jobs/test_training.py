"""Models, parallelism and what training, ranking and inference send."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rocelab.base.errors import InputError, SpecError
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.inference import InferenceSpec, inference_workload
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import SimulatedJob, collective_job, find_jobs, load_jobs
from rocelab.jobs.model_shape import ModelShape
from rocelab.jobs.models import MODELS
from rocelab.jobs.parallelism import RankLayout, in_groups
from rocelab.jobs.pass_times import pass_times
from rocelab.jobs.placement import Placement
from rocelab.jobs.ranking import RankingSpec, ranking_workload
from rocelab.jobs.steps import roofline_s
from rocelab.jobs.training import estimate, training_workload
from rocelab.jobs.training_spec import TrainingSpec
from rocelab.jobs.volumes import volumes
from rocelab.jobs.workload import Workload
from rocelab.labfile.catalog import JOBS, shipped_names
from rocelab.labfile.source import read_source
from rocelab.sim.traces.trace_spec import TraceSpec

NIC_BPS = 400e9
LLAMA = {
    "model": "llama3-405b",
    "tensor": 8,
    "pipeline": 16,
    "data": 128,
    "sharding": "fsdp",
    "micro_batches": 16,
    "gpu_flops": "400T",
}
MIXTRAL = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "ffn": 14336,
    "vocab": 32000,
    "sequence": 4096,
    "experts": 8,
    "top_k": 2,
}
TINY = {"layers": 8, "hidden": 256, "heads": 8, "ffn": 1024, "vocab": 1000, "sequence": 512}
MOE = {**TINY, "kv_heads": 4, "experts": 4, "top_k": 2}


def training(**keys: object) -> TrainingSpec:
    return TrainingSpec.model_validate(keys)


def sent_bytes(workload: Workload) -> dict[str, np.ndarray]:
    """Bytes that each rank sends, by the first word of the steps' names."""
    sent: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(workload.ranks))
    for step in workload.steps:
        if step.sends is not None:
            sends = step.sends
            totals = np.bincount(sends.source, sends.size_bytes, minlength=workload.ranks)
            sent[step.name.split()[0]] += totals
    return sent


@pytest.mark.parametrize(
    ("name", "published"), [("gpt3-175b", 175e9), ("llama3-405b", 405e9)], ids=["gpt3", "llama3"]
)
def test_a_preset_has_the_published_parameters_within_a_percent(
    name: str, published: float
) -> None:
    assert MODELS[name].parameters == pytest.approx(published, rel=0.01)


def test_gpt3_has_the_parameters_of_narayanans_formula() -> None:
    layers, hidden, vocab, sequence = 96, 12288, 50257, 2048
    formula = (
        12 * layers * hidden**2 * (1 + 13 / (12 * hidden))
        + (vocab + sequence) * hidden
        + 2 * hidden
    )
    assert MODELS["gpt3-175b"].parameters == round(formula)


def test_a_mixture_of_experts_has_many_parameters_and_meets_few() -> None:
    # Jiang et al. 2024 (Mixtral 8x7B): 47 billion, of which a token meets 13.
    shape = ModelShape.model_validate(MIXTRAL)
    assert shape.parameters == pytest.approx(46.7e9, rel=0.002)
    assert shape.active_parameters == pytest.approx(12.9e9, rel=0.002)


def test_gpt3_moves_what_table_3_of_the_hpn_paper_says() -> None:
    moved = volumes(training(model="gpt3-175b", tensor=8, pipeline=8, data=512, gpu_flops="400T"))
    assert moved.reduce_bytes == pytest.approx(5.5e9, rel=0.01)
    assert moved.pipeline_bytes == pytest.approx(6e6, rel=0.05)
    # 560 MB: within 8% of one all-reduce for each of a stage's layers; see docs/training.md.
    assert 96 / 8 * moved.tensor_bytes == pytest.approx(560e6, rel=0.08)


def test_llama_3_gathers_in_bf16_and_reduces_in_fp32() -> None:
    moved = volumes(training(**LLAMA))
    assert moved.gather_bytes == 2 * MODELS["llama3-405b"].parameters / 128
    assert moved.reduce_bytes == 2 * moved.gather_bytes
    assert moved.pipeline_bytes == 2 * 8192 * 16384 / 8


def test_context_and_expert_traffic_follow_their_formulas() -> None:
    moved = volumes(training(model=MIXTRAL, tensor=2, context=4, data=8, expert=4, gpu_flops="1T"))
    assert moved.context_bytes == 2 * 2 * 4096 * 1024 / 2
    assert moved.expert_bytes == 2 * (4096 / (4 * 2)) * 2 * 4096


def test_experts_are_reduced_among_those_that_hold_the_same() -> None:
    spec = training(model=MIXTRAL, data=8, expert=4, gpu_flops="1T")
    moved = volumes(spec)
    assert moved.expert_reduce_bytes == 2 * spec.model.expert_parameters / 4
    assert moved.reduce_bytes == 2 * spec.model.dense_parameters
    assert volumes(spec.model_copy(update={"expert": 8})).expert_reduce_bytes == 0


@given(
    *(st.integers(1, 4) for _ in range(4)),
    st.integers(1, 3),
)
def test_groups_of_each_kind_share_out_all_ranks(
    tensor: int, context: int, pipeline: int, replicas: int, expert: int
) -> None:
    layout = RankLayout(tensor, context, pipeline, replicas * expert, expert)
    everyone = slice(None)
    coordinate = {rank: index for index, rank in np.ndenumerate(layout.grid)}
    for groups, axes in (
        (layout.data_groups(everyone), {0, 2}),
        (layout.context_groups(everyone), {2}),
        (layout.expert_groups(everyone), {0}),
        (layout.expert_data_groups(everyone), {0, 2}),
    ):
        assert sorted(groups.reshape(-1)) == list(range(layout.grid.size))
        for group in groups:
            places = np.array([coordinate[rank] for rank in group])
            assert {axis for axis in range(4) if len(set(places[:, axis])) > 1} <= axes
    for group in layout.expert_groups(everyone):
        assert len({coordinate[rank][0] % expert for rank in group}) == expert
    for group in layout.expert_data_groups(everyone):
        assert len({coordinate[rank][0] % expert for rank in group}) == 1


def test_tensor_parallel_ranks_are_neighbours_and_replicas_farthest() -> None:
    layout = RankLayout(tensor=8, context=2, pipeline=4, data=3)
    assert layout.stage(1)[:8].tolist() == list(range(16, 24))
    assert layout.data_groups(slice(0, 1))[0].tolist() == [0, 8, 64, 72, 128, 136]


def test_a_ring_over_groups_stays_within_each() -> None:
    members = RankLayout(tensor=2, context=1, pipeline=1, data=4).data_groups(slice(None))
    sends = in_groups(Pattern.ALLREDUCE, 800, members)
    assert sends is not None
    assert set(zip(sends.source.tolist(), sends.destination.tolist(), strict=True)) == {
        (0, 2), (2, 4), (4, 6), (6, 0), (1, 3), (3, 5), (5, 7), (7, 1)
    }  # fmt: skip
    assert sends.size_bytes.tolist() == [1200] * 8
    assert sends.rounds == 6
    assert sends.chain is not None
    assert sends.chain.tolist() == [0] * 4 + [1] * 4


@given(
    tensor=st.sampled_from([1, 2]),
    context=st.sampled_from([1, 2]),
    pipeline=st.sampled_from([1, 2, 4]),
    data=st.sampled_from([2, 4]),
    expert=st.sampled_from([1, 2]),
    interleave=st.sampled_from([1, 2]),
    micro_batches=st.integers(4, 7),
    sharding=st.sampled_from(["none", "fsdp"]),
    overlap=st.sampled_from(["0%", "50%", "100%"]),
    buckets=st.integers(1, 5),
)
def test_an_iteration_sends_the_volumes_and_computes_for_the_pipeline(**keys: int) -> None:
    if keys["pipeline"] == 1:
        keys["interleave"] = 1
    spec = training(model=MOE, gpu_flops="1T", **keys)
    workload = training_workload(spec, servers=np.arange(spec.ranks, dtype=np.int32))
    sent, moved = sent_bytes(workload), volumes(spec)
    dense = spec.data * spec.context
    experts = dense // spec.expert
    rings = 1 if spec.sharding == "fsdp" else 2
    reduced = rings * (
        (dense - 1) / dense * moved.reduce_bytes
        + (experts - 1) / experts * moved.expert_reduce_bytes
    )
    assert sent["reduce"] == pytest.approx(np.full(spec.ranks, reduced), rel=1e-3)
    gathered = (dense - 1) / dense * moved.gather_bytes
    gathered += (experts - 1) / experts * moved.expert_gather_bytes
    assert sent["gather"] == pytest.approx(np.full(spec.ranks, gathered), rel=1e-3)

    layers = spec.model.layers / spec.pipeline * spec.micro_batches
    exchanged = 2 * layers * (spec.context - 1) / spec.context * moved.context_bytes
    exchanged += 4 * layers * (spec.expert - 1) / spec.expert * moved.expert_bytes
    assert sent["exchange"] == pytest.approx(np.full(spec.ranks, exchanged), rel=1e-3)

    boundaries = spec.pipeline * spec.interleave - 1
    passed = (sent["pass"] + sent["pipeline"]).sum()
    replicas = spec.ranks // spec.pipeline
    expected = 2 * spec.micro_batches * boundaries * replicas * moved.pipeline_bytes
    assert passed == pytest.approx(expected)

    times = pass_times(spec)
    filled = spec.micro_batches + (spec.pipeline - 1) / spec.interleave
    assert roofline_s(workload, float("inf")) == pytest.approx(filled * times.both_s)
    assert all(earlier < number for number, s in enumerate(workload.steps) for earlier in s.after)


def test_an_estimate_is_made_of_its_parts() -> None:
    spec = training(**LLAMA, interleave=4)
    parts = estimate(spec, NIC_BPS)
    multiplied = spec.model.parameters - 128256 * 16384
    operations = 6 * multiplied + 12 * 126 * 16384 * 8192
    whole = operations * spec.tokens_per_iteration / spec.ranks / 400e12
    assert parts.compute_s == pytest.approx(whole)
    assert parts.bubble_s == pytest.approx((parts.compute_s + parts.tensor_s) * 15 / 4 / 16)
    assert parts.exposed_s > 0
    assert parts.gpu_flops == pytest.approx(400e12 * parts.compute_s / parts.total_s)


def test_data_parallel_traffic_that_may_overlap_is_hidden() -> None:
    hidden, exposed = (
        estimate(training(**LLAMA, overlap=overlap), NIC_BPS) for overlap in ("100%", "0%")
    )
    moved = volumes(training(**LLAMA))
    alone_s = 127 / 128 * (moved.gather_bytes + moved.reduce_bytes) * 8 / NIC_BPS
    passing_s = 2 * 15 * moved.pipeline_bytes * 8 / NIC_BPS
    assert exposed.exposed_s == pytest.approx(alone_s + passing_s, rel=0.001)
    assert hidden.exposed_s < exposed.exposed_s / 2


def test_more_buckets_leave_less_exposed() -> None:
    few, many = (estimate(training(**LLAMA, buckets=n), NIC_BPS).exposed_s for n in (1, 8))
    assert many < few


def test_32256_ranks_are_a_few_hundred_steps() -> None:
    workload = training_workload(training(**{**LLAMA, "data": 252}))
    assert workload.ranks == 32_256
    assert len(workload.steps) < 400
    busiest = max(len(step.sends.source) for step in workload.steps if step.sends)
    assert busiest <= 2 * 32_256


def test_an_iteration_begins_when_all_of_the_one_before_is_over() -> None:
    spec = training(model=TINY, data=2, pipeline=2, micro_batches=2, gpu_flops="1T")
    once, thrice = (training_workload(spec, iterations=n) for n in (1, 3))
    assert len(thrice.steps) == 3 * len(once.steps)
    assert [step.iteration for step in thrice.steps] == sorted(s.iteration for s in thrice.steps)
    assert roofline_s(thrice, NIC_BPS) == pytest.approx(3 * roofline_s(once, NIC_BPS))


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"tensor": 16}, "16 tensor parallel GPUs do not fit evenly into a server of 8"),
        ({"pipeline": 127}, "126 layers do not fill 127 stages"),
        ({"context": 3}, "does not divide over 3 x 8 GPUs"),
        ({"expert": 3}, "128 replicas do not divide into groups of 3"),
        ({"expert": 2}, "1 per layer: experts do not divide over 2"),
        ({"data": 2000}, "256,000 GPUs"),
        ({"interleave": 2, "micro_batches": 4}, "a micro-batch for each"),
        ({"model": "llama3-405"}, "did you mean llama3-405b?"),
        ({"gpu_flops": "400"}, "expected a speed such as 400T"),
        ({"nvlink": "450G"}, "expected a bandwidth such as 450GB/s"),
        ({"tensor": 1, "pipeline": 1, "data": 1}, "sends nothing"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_division_that_does_not_fit_is_refused(
    tmp_path: Path, keys: dict[str, object], says: str
) -> None:
    with pytest.raises(SpecError) as refused:
        load_jobs(written(tmp_path, {"name": "a", "training": {**LLAMA, **keys}}))
    assert says in str(refused.value)
    assert "jobs.yaml:" in str(refused.value)


def test_a_ranking_model_exchanges_each_tables_rows() -> None:
    spec = RankingSpec.model_validate(
        {"ranks": 8, "tables": 20, "dimension": 64, "local_batch": 32, "dense_parameters": 10**6}
    )
    values = np.array([3, 3, 3, 3, 2, 2, 2, 2])
    forward, *_ = ranking_workload(spec).steps
    assert forward.sends is not None
    received = np.bincount(forward.sends.destination, forward.sends.size_bytes)
    assert received.tolist() == ((20 - values) * 32 * 64 * 4).tolist()
    sent = sent_bytes(ranking_workload(spec))
    assert sent["alltoallv"].tolist() == ((20 + 6 * values) * 32 * 64 * 4).tolist()
    assert sent["allreduce"].tolist() == [2 * 7 / 8 * 4e6] * 8


def test_ranks_without_a_table_send_no_embeddings() -> None:
    spec = RankingSpec.model_validate(
        {"ranks": 8, "tables": 2, "dimension": 64, "local_batch": 32, "dense_parameters": 10**6}
    )
    forward, *_ = ranking_workload(spec).steps
    assert forward.sends is not None
    assert set(forward.sends.source.tolist()) == {0, 1}


@pytest.mark.parametrize(("prefill", "decode"), [(4, 4), (2, 4), (4, 2)])
def test_every_prompts_keys_and_values_reach_a_decoding_replica_once(
    prefill: int, decode: int
) -> None:
    spec = InferenceSpec.model_validate(
        {
            "model": "llama3-405b",
            "tensor": 8,
            "pipeline": 2,
            "prefill": prefill,
            "decode": decode,
            "batch": 4,
            "prompt": 1000,
            "output": 10,
            "gpu_flops": "500T",
        }
    )
    caches = [s.sends for s in inference_workload(spec).steps if s.name.startswith("cache")]
    total = sum(sends.size_bytes.sum() for sends in caches if sends)
    assert total == prefill * 4 * 1000 * (2 * 2 * 126 * 1024)
    received = np.sum(
        [
            np.bincount(sends.destination, sends.size_bytes, minlength=spec.ranks)
            for sends in caches
            if sends
        ],
        axis=0,
    )
    first = prefill * 16
    assert set(received[:first]) == {0}
    assert len(set(received[first:])) == 1
    assert received[first] > 0


def test_decoding_cannot_be_faster_than_weights_are_read() -> None:
    keys = {"model": "gpt3-175b", "tensor": 8, "prefill": 1, "decode": 1, "gpu_flops": "400T"}
    spec = InferenceSpec.model_validate(
        {**keys, "prompt": 100, "output": 50, "memory": "2TB/s", "pipeline": 2}
    )
    decode = next(step for step in inference_workload(spec).steps if step.name == "decode")
    assert decode.compute_s > 50 * 2 * MODELS["gpt3-175b"].parameters / 8 / 2e12


def test_experts_of_a_serving_model_exchange_tokens_both_ways() -> None:
    spec = InferenceSpec.model_validate(
        {
            "model": MIXTRAL,
            "tensor": 2,
            "expert": 4,
            "prefill": 4,
            "decode": 4,
            "prompt": 1024,
            "output": 8,
            "gpu_flops": "400T",
        }
    )
    apart = np.arange(spec.ranks, dtype=np.int32)
    prefill = sent_bytes(inference_workload(spec, servers=apart))["prefill"]
    expected = 2 * 32 * 3 / 4 * (2 * 1024 / 2 * 2 * 4096)
    assert prefill.tolist() == [expected] * 8 + [0] * 8


def catalog(key: str) -> list[str]:
    return [name for name in shipped_names(JOBS) if key in read_source(find_jobs(name)).data]


STREAMS = catalog("duration")


@pytest.mark.parametrize("name", sorted({*shipped_names(JOBS)} - {*catalog("flows"), *STREAMS}))
def test_every_file_of_the_catalog_is_a_job_that_reads_back(name: str) -> None:
    for job in load_jobs(find_jobs(name)):
        assert SimulatedJob.model_validate_json(job.model_dump_json()) == job


def test_the_catalogs_llama_3_is_16384_gpus_and_16_million_tokens() -> None:
    (job,) = load_jobs(find_jobs("llama3-16k"))
    assert job.ranks == 16_384
    assert isinstance(job.workload, TrainingSpec)
    assert job.workload.tokens_per_iteration == 2**24


def test_a_file_of_jobs_that_is_not_there_is_refused_with_the_catalog() -> None:
    with pytest.raises(InputError, match="llama3-16k"):
        find_jobs("llama3-16")


COLLECTIVE = {"pattern": "allreduce", "ranks": 4, "size": "1MB", "placement": "random", "seed": 7}


def test_a_collective_says_its_own_placement_and_seed() -> None:
    job = SimulatedJob.model_validate({"name": "a", "collective": COLLECTIVE})
    assert (job.placement, job.seed, job.iterations) == (Placement.RANDOM, 7, 1)
    assert SimulatedJob.model_validate_json(job.model_dump_json()) == job


def test_a_collective_repeats_as_often_as_it_says() -> None:
    job = JobSpec.model_validate({**COLLECTIVE, "iterations": 3})
    assert collective_job(job).iterations == 3
    assert collective_job(job).name == "allreduce"


def test_a_key_said_twice_and_differently_is_refused() -> None:
    with pytest.raises(ValidationError, match="placement is said here and, otherwise"):
        SimulatedJob.model_validate(
            {"name": "a", "placement": "fragmented", "collective": COLLECTIVE}
        )


def test_streams_of_the_catalog_are_for_labs_only() -> None:
    assert STREAMS == ["deadlock"]
    for name in STREAMS:
        assert JobSpec.model_validate(read_source(find_jobs(name)).data).duration
        with pytest.raises(InputError, match="never complete"):
            load_jobs(find_jobs(name))


def test_a_collective_without_an_end_is_refused() -> None:
    stream = {"pattern": "pairs", "ranks": 2, "duration": "1ms"}
    with pytest.raises(ValidationError, match="never complete"):
        SimulatedJob.model_validate({"name": "a", "collective": stream})
    with pytest.raises(InputError, match="never complete"):
        collective_job(JobSpec.model_validate(stream))


def test_a_lab_s_job_file_is_a_job_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("pattern: allgather\nranks: 4\nsize: 1MB\n")
    (job,) = load_jobs(path)
    assert (job.kind, job.name, job.ranks) == ("collective", "allgather", 4)


def test_a_job_does_exactly_one_thing(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(
        "jobs:\n  - name: a\n    trace: {file: x.et}\n"
        "    ranking: {ranks: 2, tables: 1, dimension: 1, local_batch: 1, dense_parameters: 9}\n"
    )
    with pytest.raises(SpecError, match=r"jobs.yaml:3: jobs\[0\].trace: expected exactly one"):
        load_jobs(path)
    path.write_text("jobs:\n  - name: a\n")
    with pytest.raises(SpecError, match=r"jobs.yaml:2: jobs\[0\].name: expected .* got none"):
        load_jobs(path)


def test_two_jobs_of_one_name_are_refused(tmp_path: Path) -> None:
    entry = "  - {name: a, trace: {file: x.et}}\n"
    path = tmp_path / "jobs.yaml"
    path.write_text("jobs:\n" + entry + entry)
    with pytest.raises(SpecError, match="several jobs are called a"):
        load_jobs(path)


def test_a_trace_is_looked_for_beside_the_file_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text("jobs:\n  - {name: a, trace: {file: x.et}}\n")
    (job,) = load_jobs(path)
    assert isinstance(job.workload, TraceSpec)
    assert Path(job.workload.file) == tmp_path / "x.et"


def test_a_list_of_places_has_one_for_each_rank() -> None:
    with pytest.raises(ValidationError, match="lists 1 NICs for 16384 ranks"):
        SimulatedJob.model_validate({"name": "a", "placement": ["srv1"], "training": LLAMA})


def written(folder: Path, entry: dict[str, object]) -> Path:
    """A file of one job."""
    path = folder / "jobs.yaml"
    name, (kind, block) = entry["name"], next(item for item in entry.items() if item[0] != "name")
    assert isinstance(block, dict)
    lines = "".join(f"      {key}: {value}\n" for key, value in block.items())
    path.write_text(f"jobs:\n  - name: {name}\n    {kind}:\n{lines}")
    return path
