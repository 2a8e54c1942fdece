"""The bytes that each kind of parallelism moves, by formula.

Sizes of collectives are as nccl-tests counts them (an all-gather's is the gathered whole), per GPU
and in bytes of payload.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocelab.jobs.experts import token_bytes
from rocelab.jobs.gpus import Precision
from rocelab.jobs.model_shape import BF16_BYTES, FP32_BYTES, ModelShape
from rocelab.jobs.training_spec import Sharding, TrainingSpec


def gradient_bytes(parameters: float, tensor: int, pipeline: int, element_bytes: int) -> float:
    """Parameters or gradients that one data parallel group exchanges: those of its stage and slice.

    P / (TP PP) elements: bf16 gradients if replicas are whole (Qian et al. 2024 (HPN), table 3);
    with FSDP, parameters in bf16 and gradients in fp32 (Dubey et al. 2024 (Llama 3), section 3.3.2;
    Rajbhandari et al. 2020 (ZeRO), section 7 for the two halves).
    """
    return element_bytes * parameters / (tensor * pipeline)


def activation_bytes(model: ModelShape, micro_batch: int, sequence: int, context: int) -> float:
    """The residual stream of a micro-batch, 2 b s h / CP: the bytes that one tensor parallel
    all-reduce sums.

    A layer has two of them forward and two backward (Shoeybi et al. 2019 (Megatron-LM), section 3);
    with sequence parallelism an all-gather and a reduce-scatter, as many bytes (Korthikanti et al.
    2022, section 4.2.2).
    """
    return BF16_BYTES * micro_batch * sequence * model.hidden / context


def pipeline_bytes(
    model: ModelShape, micro_batch: int, sequence: int, context: int, tensor: int
) -> float:
    """Bytes that a GPU sends to the next stage per micro-batch, and back: 2 b s h / (CP TP).

    Each tensor parallel rank sends its part, which the receiving stage gathers over NVLink
    (Narayanan et al. 2021, section 4.1); with sequence parallelism a rank holds only that part.
    """
    return activation_bytes(model, micro_batch, sequence, context) / tensor


def context_bytes(model: ModelShape, micro_batch: int, sequence: int, tensor: int) -> float:
    """Keys and values of a layer that context parallel ranks gather: 2 x 2 b s h_kv / TP.

    Dubey et al. 2024 (Llama 3), section 3.3.2; their gradients are reduce-scattered on the way
    back. If there are fewer heads of keys and values than ranks, ranks hold copies; of latent
    attention each gathers the short vector.
    """
    copies = min(tensor, model.cached_heads)
    return BF16_BYTES * micro_batch * sequence * model.cached_width / copies


def expert_bytes(model: ModelShape, tokens: float, precision: Precision = Precision.BF16) -> float:
    """Bytes that a GPU sends to all experts of a layer, including its own, if each gets a copy: 2 k
    h for each of its b s / (CP TP) tokens, k the experts that a token goes to; in fp8 half of it
    and scales.

    Dispatch and combine, each forward and backward: four times per layer (Lepikhin et al. 2020
    (GShard); Rajbhandari et al. 2022 (DeepSpeed-MoE)).
    """
    return model.top_k * tokens * token_bytes(model.hidden, precision)


@dataclass(frozen=True)
class Volumes:
    """Bytes per GPU; 0 for traffic that the job does not have."""

    gather_bytes: float
    """Parameters gathered by a stage's data parallel group, per iteration."""
    reduce_bytes: float
    """Gradients reduced by that group, per iteration."""
    expert_gather_bytes: float
    expert_reduce_bytes: float
    pipeline_bytes: float
    """Per boundary, micro-batch and direction."""
    tensor_bytes: float
    """One all-reduce, 4 per layer and micro-batch."""
    context_bytes: float
    """One layer's keys and values, gathered and reduced once per micro-batch."""
    expert_bytes: float
    """One dispatch to experts, two per layer with experts and micro-batch, forward and backward,
    to all experts and before any are left out that share a server."""
    combine_bytes: float
    """One combine, as often."""


def volumes(spec: TrainingSpec) -> Volumes:
    """The volumes of a job. Stages count as equal: each has 1/PP of all parameters, those that
    predict further tokens included."""
    model, sharded = spec.model, spec.sharding is not Sharding.NONE
    cut = (spec.tensor, spec.pipeline)
    step = (model, spec.micro_batch, spec.tokens)
    ahead, ahead_experts = model.ahead_parameters
    outside = model.dense_parameters + ahead
    whole = (model.expert_parameters + ahead_experts) * spec.spread_tensor
    experts = whole / spec.expert
    gradient = FP32_BYTES if sharded else BF16_BYTES
    replicas = spec.data * spec.context
    dense_shared = replicas > 1
    experts_shared = replicas * spec.spread_tensor > spec.expert
    tokens = spec.micro_batch * spec.tokens / (spec.context * spec.tensor)
    routing = spec.routing

    def of(parameters: float, element_bytes: int, shared: bool) -> float:
        return gradient_bytes(parameters, *cut, element_bytes) if shared else 0.0

    return Volumes(
        gather_bytes=of(outside, BF16_BYTES, sharded and dense_shared),
        reduce_bytes=of(outside, gradient, dense_shared),
        expert_gather_bytes=of(experts, BF16_BYTES, sharded and experts_shared),
        expert_reduce_bytes=of(experts, gradient, experts_shared),
        pipeline_bytes=pipeline_bytes(*step, spec.context, spec.tensor)
        if spec.pipeline > 1
        else 0.0,
        tensor_bytes=activation_bytes(*step, spec.context) if spec.tensor > 1 else 0.0,
        context_bytes=context_bytes(*step, spec.tensor) if spec.context > 1 else 0.0,
        expert_bytes=expert_bytes(model, tokens, routing.dispatch) if spec.expert > 1 else 0.0,
        combine_bytes=expert_bytes(model, tokens, routing.combine) if spec.expert > 1 else 0.0,
    )
