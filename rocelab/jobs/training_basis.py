"""What the figures of a training job rest on, in sentences."""

from __future__ import annotations

from rocelab.base import quantities
from rocelab.base.wording import counted
from rocelab.jobs.experts import Exchange, routing_of
from rocelab.jobs.gpus import GPUS
from rocelab.jobs.kernels import SUSTAINED
from rocelab.jobs.model_shape import BF16_BYTES
from rocelab.jobs.storage import storage_basis
from rocelab.jobs.training_spec import TrainingSpec


def speed_basis(gpu: str | None, constant: int | None, precision: str) -> tuple[str, ...]:
    """What times of computation rest on."""
    if constant is not None or gpu is None:
        return (f"assumed: GPUs compute at gpu_flops, {(constant or 0) / 1e12:g} TFLOP/s",)
    table = GPUS[gpu]
    return (
        f"predicted: times of kernels in {precision} from the table of {gpu} ({table.source}; "
        f"best measured product {quantities.whole_share(table.bf16_reached)} of the peak in bf16)",
        f"assumed: a step sustains {SUSTAINED:.0%} of what its kernels reach alone (fitted on "
        "three dense models on H100)",
    )


def training_basis(spec: TrainingSpec, seed: int = 1) -> tuple[str, ...]:
    """Sentences that begin with "predicted" or "assumed"."""
    lines = list(speed_basis(spec.gpu, spec.gpu_flops, spec.precision))
    if spec.tensor > 1 or spec.expert > 1:
        origin = "the job's or its servers'" if spec.nvlink else spec.gpu or "an H100's"
        hidden = ""
        if spec.tensor > 1:
            hidden = f", and {spec.tensor_overlap / 1e4:g}% of tensor parallel traffic is hidden"
        lines.append(
            f"assumed: NVLink carries {spec.nvlink_bps / 1e9:g} GB/s of a GPU one way ({origin})"
            f"{hidden}"
        )
    if spec.peak_flops is not None:
        lines.append(
            f"MFU: 6 operations for each active parameter and token and attention without the "
            f"causal mask, of {spec.peak_flops / 1e12:g} TFLOP/s"
        )
    if spec.model.has_experts:
        lines.append(_experts_basis(spec, seed))
    none = "data loading and stragglers"
    if spec.checkpoint is None:
        none = "data loading, checkpoints and stragglers"
    lines.append(f"assumed: no time for the optimizer, {none}; stages are equal")
    return (*lines, *_checkpoint_basis(spec))


def _checkpoint_basis(spec: TrainingSpec) -> tuple[str, ...]:
    checkpoint = spec.checkpoint
    if checkpoint is None:
        return ()
    if checkpoint.size is None:
        per_parameter = BF16_BYTES + spec.optimizer_bytes
        size = quantities.size(spec.model.parameters * per_parameter)
        size += f", {per_parameter} of each parameter"
    else:
        size = quantities.size(checkpoint.size)
    lines = [
        f"assumed: a checkpoint is {size}, as much from each rank that writes; one is simulated "
        f"after every {counted(checkpoint.every, 'step')}, or after the first of a shorter run, "
        "and the part of the run is of as many steps as the first"
    ]
    if checkpoint.network is not None:
        lines.append(
            f"a checkpoint in network {checkpoint.network} is simulated there by itself, without "
            "--event: nothing else sends there, and nothing that it sends meets the job's sends"
        )
    return (*lines, *storage_basis(checkpoint.stripes, checkpoint.storage_rate))


def _experts_basis(spec: TrainingSpec, seed: int) -> str:
    routing = spec.routing
    if routing.tokens is not None:
        how = "as the token matrix has it"
    elif routing.skew:
        how = f"with a skew of {routing.skew:g}"
    else:
        how = "evenly"
    if how != "evenly":
        busiest = routing_of(spec.model, routing, spec.expert, seed=seed).busiest
        how += f" (the busiest GPU gets {busiest:.2f} times the mean)"
    once = (
        "sent once to each server with one of its experts"
        if routing.exchange is Exchange.PER_SERVER
        else "sent once for each of its experts"
    )
    return (
        f"assumed: tokens go to experts {how}; a token is {once}, in {routing.dispatch} there and "
        f"{routing.combine} back, to all GPUs at once"
    )
