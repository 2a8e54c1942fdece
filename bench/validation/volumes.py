"""Case 8: the bytes that the parallelism of large models moves, by formula.

The inputs are published shapes and divisions.
"""

from __future__ import annotations

from bench.validation.tasks import Found, Task
from rocelab import TrainingSpec
from rocelab import training_volumes as volumes

GPT3 = TrainingSpec.model_validate(
    {"model": "gpt3-175b", "tensor": 8, "pipeline": 8, "data": 512, "gpu_flops": "400T"}
)
LLAMA3 = TrainingSpec.model_validate(
    {
        "model": "llama3-405b",
        "tensor": 8,
        "pipeline": 16,
        "data": 128,
        "sharding": "fsdp",
        "gpu_flops": "400T",
    }
)


def tasks(_: int) -> list[Task]:
    return [Task(moved)]


def moved() -> Found:
    """Bytes per GPU, and parameters."""
    gpt, llama = volumes(GPT3), volumes(LLAMA3)
    layers = GPT3.model.layers // GPT3.pipeline
    return {
        "volume/gpt3/parameters": [GPT3.model.parameters],
        "volume/gpt3/dp": [gpt.reduce_bytes],
        "volume/gpt3/pp": [gpt.pipeline_bytes],
        "volume/gpt3/pp whole": [gpt.pipeline_bytes * GPT3.tensor],
        "volume/gpt3/tp": [gpt.tensor_bytes],
        "volume/gpt3/tp stage": [gpt.tensor_bytes * layers],
        "volume/llama3/parameters": [LLAMA3.model.parameters],
        "volume/llama3/gather": [llama.gather_bytes],
        "volume/llama3/reduce": [llama.reduce_bytes],
        "volume/llama3/pp": [llama.pipeline_bytes],
    }
