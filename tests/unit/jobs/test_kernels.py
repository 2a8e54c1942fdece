"""Times of kernels: rooflines, their limits, and what does not change with the division."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocelab.jobs.gpus import GPUS, Precision
from rocelab.jobs.kernels import SUSTAINED, GpuShare, Speed, backward_s, decode_s, forward_s, gemm_s
from rocelab.jobs.models import MODELS

H100 = Speed(GPUS["h100"].memory_bps, gpu=GPUS["h100"])


def test_a_large_product_takes_what_the_best_measured_one_does() -> None:
    flops = 2 * 8192 * 16384 * 16384
    best = GPUS["h100"].reached_flops(Precision.BF16) * SUSTAINED
    assert gemm_s(H100, 8192, 16384, 16384) == pytest.approx(flops / best, rel=0.05)


def test_a_product_of_one_row_reads_its_matrix() -> None:
    read_s = 2 * 16384 * 16384 / 3.35e12
    assert gemm_s(H100, 1, 16384, 16384) == pytest.approx(read_s / 0.9, rel=0.03)
    fp8 = H100.at(Precision.FP8)
    assert gemm_s(fp8, 1, 16384, 16384) == pytest.approx(read_s / 2 / 0.9, rel=0.05)


def test_no_rows_take_no_time() -> None:
    assert gemm_s(H100, 0, 128, 128) == 0
    assert gemm_s(H100, 128, 128, 128, count=0) == 0


@settings(max_examples=80)
@given(
    rows=st.floats(0.5, 1e5),
    inputs=st.integers(1, 50_000),
    outputs=st.integers(1, 50_000),
    more=st.sampled_from([1.0, 1.5, 2.0, 7.0]),
)
def test_a_product_never_beats_the_peak_nor_takes_less_for_more_rows(
    rows: float, inputs: int, outputs: int, more: float
) -> None:
    seconds = gemm_s(H100, rows, inputs, outputs)
    assert seconds >= 2 * rows * inputs * outputs / GPUS["h100"].bf16_flops
    assert gemm_s(H100, rows * more, inputs, outputs) >= seconds - 1e-12


@pytest.mark.parametrize("name", MODELS)
def test_a_backward_pass_takes_about_twice_the_forward_one(name: str) -> None:
    share = GpuShare(8192, 4096, expert=8 if MODELS[name].has_experts else 1)
    forward, backward = (run(MODELS[name], H100, share) for run in (forward_s, backward_s))
    assert 1.8 < backward / forward < 2.5


@pytest.mark.parametrize("name", MODELS)
def test_a_constant_speed_computes_the_operations_of_the_formula(name: str) -> None:
    model = MODELS[name]
    speed = Speed(float("inf"), constant_flops=400e12)
    flops = model.forward_flops(4096, 2048) - 2 * 4096 * model.hidden * model.vocab
    assert forward_s(model, speed, GpuShare(4096, 2048, tensor=4)) == pytest.approx(
        flops / 4 / 400e12
    )


def test_the_gpu_with_more_tokens_for_its_experts_takes_longer() -> None:
    model = MODELS["deepseek-v3"]
    even, busy = (
        forward_s(model, H100, GpuShare(4096, 4096, expert=64, expert_tokens=tokens))
        for tokens in (1.0, 2.0)
    )
    assert even < busy < 2 * even


def test_experts_that_no_token_meets_are_not_read() -> None:
    model = MODELS["deepseek-v3"]
    few, every = (
        decode_s(model, H100, GpuShare(1, 1, expert=1, read_experts=read)) for read in (8.0, 256.0)
    )
    expert = 2 * 58 * 3 * 7168 * 2048 / (0.9 * 3.35e12)
    assert every - few == pytest.approx(248 * expert, rel=0.02)


def test_experts_whole_on_each_gpu_multiply_as_much_as_divided_ones() -> None:
    model = MODELS["qwen3-235b"]
    speed = Speed(float("inf"), gpu=GPUS["h100"])
    divided = forward_s(model, speed, GpuShare(65536, 4096, 2, 16))
    whole = forward_s(model, speed, GpuShare(65536, 4096, 2, 32, divided_expert=1))
    assert whole == pytest.approx(divided, rel=0.1)
