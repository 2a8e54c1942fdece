"""How long a stage of a training job takes for a micro-batch, and what its pipeline waits."""

from __future__ import annotations

from dataclasses import dataclass

from rocelab.jobs import kernels
from rocelab.jobs.experts import TokenRouting, routing_of
from rocelab.jobs.kernels import GpuShare
from rocelab.jobs.training_spec import PipelineSchedule, Recompute, TrainingSpec
from rocelab.jobs.volumes import volumes

OVERLAP_MULTIPROCESSORS = 20
"""That move tokens while the others compute (DeepSeek-AI 2024 (DeepSeek-V3), section 3.2.2)."""


@dataclass(frozen=True)
class PassTimes:
    """Seconds that a stage takes for one micro-batch, forward and backward: all its chunks.

    *_tensor_s is the part that waits for tensor parallel all-reduces within the server.
    """

    forward_s: float
    backward_s: float
    forward_tensor_s: float
    backward_tensor_s: float
    weights_s: float = 0.0
    """Of the backward pass what computes gradients of matrices."""

    @property
    def both_s(self) -> float:
        return self.forward_s + self.backward_s

    @property
    def computed_s(self) -> float:
        """Without the waits."""
        return self.both_s - self.forward_tensor_s - self.backward_tensor_s


def routing(spec: TrainingSpec, seed: int = 1) -> TokenRouting:
    """Where tokens of a job's model go."""
    return routing_of(spec.model, spec.routing, spec.expert, seed=seed)


def pass_times(spec: TrainingSpec, *, nvlink: bool = True, seed: int = 1) -> PassTimes:
    """A stage's kernels (`rocelab.jobs.kernels`) or its operations at `gpu_flops`, backward twice
    the forward, and tensor parallel all-reduces.

    An all-reduce among n takes 2 (n - 1) / n of its bytes at `nvlink`; a layer has two each way
    (Shoeybi et al. 2019, section 3), of which `tensor_overlap` is hidden behind computation.
    nvlink: False without them. All GPUs wait for the one with the most tokens for its experts. What
    is computed again is in the backward pass. GPUs that send tokens while they compute do so with
    OVERLAP_MULTIPROCESSORS, unless their speed is a constant.
    """
    model, speed = spec.model, spec.speed
    busiest = routing(spec, seed).busiest if model.has_experts else 1.0
    tokens = spec.micro_batch * spec.tokens / spec.context
    share = GpuShare(
        tokens, spec.tokens, spec.tensor, spec.expert, spec.divided_expert, expert_tokens=busiest
    )
    ahead = model.predicted_ahead
    forward_s = kernels.forward_s(model, speed, share)
    backward_s = kernels.backward_s(model, speed, share)
    weights_s = backward_s * kernels.weight_gradient_share(model, speed, share)
    if ahead:
        forward_s += ahead * kernels.forward_s(model, speed, share, layers=1)
        backward_s += ahead * kernels.backward_s(model, speed, share, layers=1)
    if spec.recompute is Recompute.FULL:
        backward_s += forward_s
    elif spec.recompute is Recompute.SELECTIVE:
        backward_s += kernels.elements_s(model, speed, share) / 2
    output_s = (1 + ahead) * kernels.output_s(model, speed, tokens, spec.tensor)
    shared = 1.0
    if spec.hides_experts and spec.expert > 1 and speed.gpu is not None and not spec.gpu_flops:
        multiprocessors = speed.gpu.multiprocessors
        shared = multiprocessors / (multiprocessors - OVERLAP_MULTIPROCESSORS)
    forward_s = (forward_s + output_s) * shared / spec.pipeline
    backward_s = (backward_s + 2 * output_s) * shared / spec.pipeline
    factor = 2 * (spec.tensor - 1) / spec.tensor
    all_reduce_s = factor * volumes(spec).tensor_bytes / spec.nvlink_bps
    visible = 1 - spec.tensor_overlap / 10**6
    tensor_s = (
        2 * (model.layers + ahead) / spec.pipeline * all_reduce_s * visible if nvlink else 0.0
    )
    return PassTimes(
        forward_s + tensor_s,
        backward_s + tensor_s,
        tensor_s,
        tensor_s,
        (weights_s + output_s) * shared / spec.pipeline,
    )


def bubble_passes(spec: TrainingSpec, times: PassTimes) -> float:
    """How many micro-batches' passes a stage waits while the pipeline fills and drains.

    (p - 1) / v; of DualPipe (p / 2 - 1) (F + B + B - 3 W) over F + B, at least 0 (DeepSeek-AI 2024
    (DeepSeek-V3), table 2, where two passes that overlap take F + B)."""
    if spec.schedule is not PipelineSchedule.DUALPIPE:
        return (spec.pipeline - 1) / spec.interleave
    waited_s = times.forward_s + 2 * times.backward_s - 3 * times.weights_s
    return max(0.0, (spec.pipeline / 2 - 1) * waited_s / times.both_s)
