"""What the figures of a training job rest on, in sentences."""

from __future__ import annotations

from rocelab.base import quantities
from rocelab.jobs.experts import Exchange, routing_of
from rocelab.jobs.gpus import GPUS
from rocelab.jobs.kernels import SUSTAINED
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
    if spec.tensor > 1:
        origin = "the job's or its servers'" if spec.nvlink else spec.gpu or "an H100's"
        lines.append(
            f"assumed: NVLink carries {spec.nvlink_bps / 1e9:g} GB/s of a GPU one way ({origin}), "
            f"and {spec.tensor_overlap / 1e4:g}% of tensor parallel traffic is hidden"
        )
    if spec.peak_flops is not None:
        lines.append(
            f"MFU: 6 operations for each active parameter and token and attention without the "
            f"causal mask, of {spec.peak_flops / 1e12:g} TFLOP/s"
        )
    if spec.model.has_experts:
        lines.append(_experts_basis(spec, seed))
    lines.append(
        "assumed: no time for the optimizer, data loading, checkpoints and stragglers; stages are "
        "equal"
    )
    return tuple(lines)


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
