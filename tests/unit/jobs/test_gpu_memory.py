"""What jobs keep in a GPU's memory: sums by hand, what they grow with, and refusals."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rocelab.base.errors import SpecError
from rocelab.jobs.gpu_memory import RESERVED_BYTES, training_memory
from rocelab.jobs.inference import InferenceSpec
from rocelab.jobs.job_spec import find_jobs, load_jobs
from rocelab.jobs.models import MODELS
from rocelab.jobs.training import TrainingJob

SMALL: dict[str, Any] = {"model": "llama3-8b", "data": 8, "gpu_flops": "400T"}


def kept(**keys: object) -> dict[str, float]:
    spec = TrainingJob.model_validate({**SMALL, **keys})
    return {part.name: part.bytes for part in training_memory(spec)}


@pytest.mark.parametrize(
    ("sharding", "bytes_of"),
    [
        # Bytes of a parameter that a GPU of eight keeps as parameter, gradient and optimizer.
        ("none", (2, 2, 12)),
        ("zero1", (2, 4, 12 / 8)),
        ("zero2", (2, 4 / 8, 12 / 8)),
        ("fsdp", (2, 4 / 8, 12 / 8)),
    ],
)
def test_sharding_divides_what_it_says(sharding: str, bytes_of: tuple[float, ...]) -> None:
    parts = kept(sharding=sharding)
    expected = [MODELS["llama3-8b"].parameters * kept_bytes for kept_bytes in bytes_of]
    values = [parts[name] for name in ("parameters", "gradients", "optimizer")]
    assert values == pytest.approx(expected)


def test_zero3_keeps_a_share_of_parameters_and_one_layer() -> None:
    whole = 2 * MODELS["llama3-8b"].parameters
    assert kept(sharding="zero3")["parameters"] == pytest.approx(whole / 8 + whole / 32)


def test_experts_are_shared_by_those_that_hold_the_same() -> None:
    model = MODELS["mixtral-8x7b"]
    parts = kept(model="mixtral-8x7b", expert=4, sharding="fsdp", sequence=4096)
    assert parts["parameters"] == pytest.approx(
        2 * (model.dense_parameters + model.expert_parameters / 4)
    )
    assert parts["optimizer"] == pytest.approx(
        12 * (model.dense_parameters / 8 + model.expert_parameters / 4 / 2)
    )


def test_full_recomputation_keeps_the_input_of_each_layer() -> None:
    parts = kept(recompute="full", pipeline=4, data=2, micro_batches=8)
    inputs = 2 * 8192 * 4096
    layers = 32 / 4
    # Four micro-batches in flight, and one layer whole while it is computed again.
    under_way = kept(pipeline=32, data=1, micro_batches=1)["activations"]
    assert parts["activations"] == pytest.approx(4 * layers * inputs + under_way, rel=0.5)
    assert parts["activations"] > 4 * layers * inputs


@settings(max_examples=40)
@given(
    pipeline=st.sampled_from([1, 2, 4]),
    micro_batches=st.integers(1, 16),
    tensor=st.sampled_from([1, 2, 4]),
    micro_batch=st.integers(1, 3),
)
def test_less_is_kept_the_more_is_computed_again_or_divided(
    pipeline: int, micro_batches: int, tensor: int, micro_batch: int
) -> None:
    keys: dict[str, object] = {
        "pipeline": pipeline,
        "micro_batches": micro_batches,
        "tensor": tensor,
        "micro_batch": micro_batch,
    }
    none, selective, full = (
        kept(recompute=recompute, **keys)["activations"]
        for recompute in ("none", "selective", "full")
    )
    assert none >= selective >= full > 0
    assert kept(**{**keys, "tensor": 2 * tensor})["activations"] == pytest.approx(none / 2)
    more = kept(**{**keys, "micro_batches": micro_batches + 1})["activations"]
    assert more >= none
    assert kept(**{**keys, "micro_batch": 2 * micro_batch})["activations"] == pytest.approx(
        2 * none
    )


def test_dualpipe_keeps_two_stages_of_parameters_and_a_micro_batch_more() -> None:
    keys: dict[str, object] = {"pipeline": 4, "data": 2, "micro_batches": 8}
    one, two = kept(**keys), kept(**keys, schedule="dualpipe")
    assert two["parameters"] == 2 * one["parameters"]
    assert two["optimizer"] == one["optimizer"]
    assert one["activations"] < two["activations"] < 1.3 * one["activations"]


def written(folder: Path, **keys: object) -> Path:
    path = folder / "jobs.yaml"
    lines = "".join(f"      {key}: {value}\n" for key, value in keys.items())
    path.write_text(f"jobs:\n  - name: a\n    training:\n{lines}")
    return path


def test_a_job_that_does_not_fit_is_refused_with_its_largest_part(tmp_path: Path) -> None:
    keys: dict[str, object] = {"model": "llama3-70b", "tensor": 8, "data": 4, "gpu": "h100"}
    with pytest.raises(SpecError) as refused:
        load_jobs(written(tmp_path, **keys))
    text = str(refused.value)
    assert "jobs.yaml:7: jobs[0].training.gpu: a GPU would keep" in text
    assert "largest part is optimizer (98.6 GiB), and h100 has 80.0 GiB" in text
    assert "it would fit with" in text
    assert "ignore_memory: true simulates it all the same" in text
    (job,) = load_jobs(written(tmp_path, **keys, ignore_memory="true"))
    assert job.ranks == 32


def test_what_a_refusal_offers_fits(tmp_path: Path) -> None:
    keys: dict[str, object] = {"model": "llama3-70b", "tensor": 8, "data": 8, "gpu": "h100"}
    with pytest.raises(SpecError, match="it would fit with sharding: fsdp"):
        load_jobs(written(tmp_path, **keys))
    assert load_jobs(written(tmp_path, **keys, sharding="fsdp", recompute="full"))


def test_a_job_without_a_type_of_gpu_is_not_refused(tmp_path: Path) -> None:
    keys: dict[str, object] = {"model": "llama3-405b", "data": 2, "gpu_flops": "400T"}
    (job,) = load_jobs(written(tmp_path, **keys))
    assert job.workload is not None
    assert sum(part.bytes for part in job.workload.kept_memory()) > 10**12


def test_an_unknown_type_of_gpu_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"jobs.yaml:6: .*gpu: expected .*h100"):
        load_jobs(written(tmp_path, model="llama3-8b", data=8, gpu="h1000"))


SERVING: dict[str, Any] = {
    "model": "llama3-70b",
    "tensor": 4,
    "prefill": 1,
    "decode": 1,
    "batch": 4,
    "prompt": 1000,
    "output": 24,
    "gpu_flops": "400T",
}


def test_serving_keeps_parameters_and_the_cache_of_its_requests() -> None:
    parts = {part.name: part.bytes for part in InferenceSpec.model_validate(SERVING).kept_memory()}
    model = MODELS["llama3-70b"]
    assert parts["parameters"] == 2 * model.parameters / 4
    assert parts["context, buffers"] == RESERVED_BYTES
    decode = InferenceSpec.model_validate({**SERVING, "batch": 64})
    cached = {part.name: part.bytes for part in decode.kept_memory()}["KV cache"]
    assert cached in (64 * 1000 * 327_680 / 4, 64 * 1024 * 327_680 / 4)


def test_a_cache_that_does_not_fit_is_refused() -> None:
    keys = {**SERVING, "gpu": "h100", "prompt": 100_000, "batch": 8}
    with pytest.raises(ValidationError, match=r"the largest part is KV cache \(61.0 GiB\)"):
        InferenceSpec.model_validate(keys)
    assert InferenceSpec.model_validate({**keys, "ignore_memory": True})


@pytest.mark.parametrize("name", ["deepseek-v3-training", "deepseek-v3-decode"])
def test_examples_fit_their_gpus(name: str) -> None:
    (job,) = load_jobs(find_jobs(name))
    assert job.workload is not None
    assert sum(part.bytes for part in job.workload.kept_memory()) < 80 * 2**30
