"""Training and serving of mixtures of experts: bytes by hand, overlap, and orders of ranks."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rocelab.jobs.experts import token_bytes
from rocelab.jobs.gpus import Precision
from rocelab.jobs.inference import InferenceSpec, inference_workload
from rocelab.jobs.parallelism import RankLayout
from rocelab.jobs.pass_times import bubble_passes, pass_times
from rocelab.jobs.serving_times import token_s
from rocelab.jobs.steps import roofline_s
from rocelab.jobs.training import TrainingJob, training_workload
from rocelab.jobs.training_spec import TrainingSpec
from rocelab.jobs.workload import Dimension, Workload

MOE: dict[str, Any] = {
    "layers": 4,
    "hidden": 256,
    "heads": 8,
    "ffn": 512,
    "vocab": 1000,
    "sequence": 512,
    "experts": 8,
    "top_k": 2,
}
JOB: dict[str, Any] = {"model": MOE, "data": 8, "expert": 8, "gpu_flops": "1T", "server_gpus": 4}


def training(**keys: object) -> TrainingSpec:
    return TrainingSpec.model_validate({**JOB, **keys})


def sent(workload: Workload, dimension: Dimension) -> np.ndarray:
    """Bytes that each rank sends for a dimension."""
    total = np.zeros(workload.ranks)
    for step in workload.steps:
        if step.dimension is dimension and step.sends is not None:
            total += np.bincount(step.sends.source, step.sends.size_bytes, workload.ranks)
    return total


@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.parametrize(
    ("exchange", "copies"),
    # Of two copies one on the other server; at least one of them there: 1 - 6/28.
    [("alltoall", 1.0), ("per-server", 1 - 6 / 28)],
)
def test_tokens_are_sent_in_fp8_and_come_back_in_bf16(
    exchange: str, copies: float, micro_batches: int
) -> None:
    spec = training(micro_batches=micro_batches, routing={"exchange": exchange, "dispatch": "fp8"})
    # Forward and backward: a dispatch and a combine of each layer, of 512 tokens.
    token = 256 * (1 + 4 / 128) + 2 * 256
    expected = 2 * micro_batches * 4 * 512 * copies * token
    counted = sent(training_workload(spec), Dimension.EXPERT)
    assert counted == pytest.approx(np.full(8, expected), rel=1e-4)


def test_leading_dense_layers_send_no_tokens() -> None:
    plain, dense = (
        sent(training_workload(training(model={**MOE, "dense_layers": n})), Dimension.EXPERT).sum()
        for n in (0, 3)
    )
    assert dense == pytest.approx(plain / 4, rel=1e-4)


@settings(max_examples=25)
@given(
    pipeline=st.sampled_from([1, 2, 4]),
    expert=st.sampled_from([1, 2, 4, 8]),
    tensor=st.sampled_from([1, 2]),
    micro_batches=st.integers(4, 9),
    overlap=st.sampled_from(["none", "micro-batches"]),
    skew=st.sampled_from([0.0, 1.0]),
)
def test_no_byte_is_lost_and_hiding_never_costs_time(
    pipeline: int, expert: int, tensor: int, micro_batches: int, overlap: str, skew: float
) -> None:
    keys: dict[str, object] = {
        "pipeline": pipeline,
        "expert": expert,
        "tensor": tensor,
        "micro_batches": micro_batches,
    }
    visible = training(**keys, routing={"skew": skew})
    spec = training(**keys, routing={"skew": skew, "overlap": overlap})
    workload = training_workload(spec)
    assert (
        sent(workload, Dimension.EXPERT).sum()
        == sent(training_workload(visible), Dimension.EXPERT).sum()
    )
    assert roofline_s(workload, 100e9) <= roofline_s(training_workload(visible), 100e9) + 1e-12
    times = pass_times(spec)
    least = (micro_batches + pipeline - 1) * times.both_s
    assert roofline_s(workload, 1e30) >= least - 1e-9


def test_a_skew_makes_every_gpu_wait_for_the_busiest() -> None:
    even, skewed = (pass_times(training(routing={"skew": skew})) for skew in (0.0, 1.5))
    assert skewed.forward_s > even.forward_s


def test_dualpipe_waits_for_fewer_passes() -> None:
    keys: dict[str, object] = {
        "data": 2,
        "expert": 2,
        "pipeline": 4,
        "micro_batches": 8,
        "server_gpus": 1,
    }
    plain, both = training(**keys), training(**keys, schedule="dualpipe")
    times = pass_times(both)
    # F + B + B - 3 W with B = 2 F and W = F, once, over F + B.
    assert bubble_passes(both, times) == pytest.approx(2 / 3, rel=0.02)
    assert bubble_passes(plain, times) == 3
    assert roofline_s(training_workload(both), 1e30) == pytest.approx(
        (8 + bubble_passes(both, times)) * times.both_s, rel=1e-6
    )


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"pipeline": 3, "micro_batches": 6}, "DualPipe wants an even number"),
        ({"pipeline": 2, "micro_batches": 2}, "DualPipe wants an even number"),
        ({"pipeline": 2, "micro_batches": 5}, "DualPipe wants an even number"),
    ],
)
def test_dualpipe_that_cannot_be_is_refused(keys: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        training(**keys, schedule="dualpipe")


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"expert": 16}, "8 replicas do not divide into groups of 16"),
        ({"expert": 3, "data": 3}, "experts do not divide over 3"),
        ({"tensor": 2, "expert_tensor": 3}, "3 of 2 tensor parallel GPUs"),
        ({"tensor": 2, "expert_tensor": 1, "expert": 1}, "do not divide into groups of 1"),
        ({"model": "llama3-8b", "expert": 1, "routing": {"skew": 1.0}}, "routes no tokens"),
        ({"routing": {"tokens": [[1, 1]]}}, "rows of 2 tokens"),
        ({"gpu_flops": None}, "expected gpu or gpu_flops"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_division_of_experts_that_does_not_fit_is_refused(
    keys: dict[str, object], says: str
) -> None:
    with pytest.raises(ValidationError, match=says):
        training(**keys)


@given(
    tensor=st.sampled_from([1, 2, 4]),
    context=st.integers(1, 2),
    pipeline=st.integers(1, 3),
    replicas=st.integers(1, 3),
    groups=st.integers(1, 2),
    outside=st.booleans(),
    apart=st.booleans(),
)
def test_expert_groups_share_out_all_ranks_in_every_order(
    tensor: int,
    context: int,
    pipeline: int,
    replicas: int,
    groups: int,
    outside: bool,
    apart: bool,
) -> None:
    spread = tensor if apart else 1
    layout = RankLayout(
        tensor, context, pipeline, replicas * groups, replicas * spread, outside, spread
    )
    everyone = slice(None)
    ranks = list(range(layout.grid.size))
    assert sorted(layout.grid.reshape(-1)) == ranks
    same = layout.expert_data_groups(everyone)
    for rows in (layout.expert_groups(everyone), same, layout.data_groups(everyone)):
        assert sorted(rows.reshape(-1)) == ranks
    # No two GPUs of a group that divides the experts hold the same ones.
    holder = {rank: number for number, group in enumerate(same.tolist()) for rank in group}
    for group in layout.expert_groups(everyone).tolist():
        assert len({holder[rank] for rank in group}) == len(group)


def test_gpus_that_divide_experts_are_neighbours_by_default() -> None:
    spec = training(pipeline=2, data=8)
    groups = spec.layout.expert_groups(slice(0, 1))
    assert groups.tolist() == [list(range(8))]
    inside = training(pipeline=2, data=8, order="tp-cp-pp-dp").layout.expert_groups(slice(0, 1))
    assert inside.tolist() == [list(range(0, 16, 2))]


def test_parameters_that_are_not_kept_are_gathered_for_each_pass() -> None:
    keys: dict[str, object] = {"model": "llama3-8b", "expert": 1, "micro_batches": 3}
    once, again = (
        sent(training_workload(training(**keys, sharding=sharding)), Dimension.DATA)
        for sharding in ("zero2", "zero3")
    )
    whole = 2 * training(**keys).model.parameters * 7 / 8
    assert once == pytest.approx(np.full(8, 3 * whole), rel=1e-4)
    assert again - once == pytest.approx(np.full(8, 5 * whole), rel=1e-4)


def test_recomputation_costs_a_forward_pass() -> None:
    none, full = (pass_times(training(recompute=kind)) for kind in ("none", "full"))
    computed = none.forward_s - 2 * 512 * 256 * 1000 / 1e12
    assert full.backward_s - none.backward_s == pytest.approx(computed, rel=1e-3)
    assert full.forward_s == none.forward_s


SERVING: dict[str, Any] = {
    "model": {**MOE, "experts": 64},
    "prefill": 8,
    "decode": 8,
    "expert": 8,
    "prompt": 64,
    "output": 8,
    "gpu": "h100",
}


def serving(**keys: object) -> InferenceSpec:
    return InferenceSpec.model_validate({**SERVING, **keys})


def test_decoding_sends_each_token_once_an_answer_s_token_and_layer() -> None:
    spec = serving(batch=2, decode_routing={"dispatch": "fp8"})
    workload = inference_workload(spec, servers=np.arange(16, dtype=np.int32))
    decode = next(step for step in workload.steps if step.name == "decode experts")
    assert decode.sends is not None
    token = token_bytes(256, Precision.FP8) + token_bytes(256, Precision.BF16)
    expected = 8 * 4 * 2 * (7 / 8 * 2) * token
    rows = np.bincount(decode.sends.source, decode.sends.size_bytes, 16)
    assert rows[8:] == pytest.approx(np.full(8, expected), rel=1e-3)
    assert not rows[:8].any()


@settings(max_examples=20)
@given(batch=st.integers(1, 512), expert=st.sampled_from([1, 2, 8]))
def test_a_token_takes_no_less_time_with_more_requests(batch: int, expert: int) -> None:
    seconds = [
        token_s(serving(batch=size, expert=expert), nvlink=True) for size in (batch, batch + 1)
    ]
    assert seconds[0] <= seconds[1] + 1e-12


def test_two_micro_batches_read_parameters_twice_and_hide_traffic() -> None:
    spec = serving(batch=8, gpu="h100")
    hidden = serving(batch=8, routing={"overlap": "micro-batches"})
    alone, twice = (token_s(one, nvlink=True) for one in (spec, hidden))
    assert alone < twice < 2.2 * alone
    slow_bps = 1e9
    servers = np.arange(16, dtype=np.int32)
    visible = roofline_s(inference_workload(spec, servers=servers), slow_bps)
    both = roofline_s(inference_workload(hidden, servers=servers), slow_bps)
    assert both < visible


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"decode_expert": 3}, "3 expert parallel replicas do not divide 64 experts"),
        ({"redundant_experts": 1}, "do not divide 65 experts"),
        ({"model": "llama3-8b", "expert": 1, "redundant_experts": 1}, "routes no tokens"),
        ({"gpu": None}, "expected gpu or gpu_flops"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_serving_that_does_not_divide_is_refused(keys: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        serving(**keys)


def test_what_figures_rest_on_is_said() -> None:
    by_table = TrainingJob.model_validate({**JOB, "gpu_flops": None, "gpu": "h100"}).basis()
    constant = TrainingJob.model_validate(JOB).basis()
    assert by_table[0].startswith("predicted: times of kernels in bf16 from the table of h100")
    assert constant[0] == "assumed: GPUs compute at gpu_flops, 1 TFLOP/s"
    assert any("tokens go to experts evenly" in line for line in constant)
    assert any("meets" in line for line in serving().basis())
    keys = {**JOB, "expert": 2, "routing": {"skew": 1.0}}
    skewed = TrainingJob.model_validate(keys)
    by_seed = [" ".join(skewed.basis(seed)) for seed in (1, 2)]
    assert all("the busiest GPU gets" in text for text in by_seed)
    assert by_seed[0] != by_seed[1]
