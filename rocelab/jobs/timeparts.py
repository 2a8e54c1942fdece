"""Where the time of an iteration goes: computation, and what the longest chain of steps waits for.

`time_parts` walks an iteration backwards from its last step, each time to the step that was waited
for longest, and sums what each of them did. The parts add up to the iteration's time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocelab.jobs.workload import Dimension, Step, StepTiming

COMPUTE = "computation"
BUBBLE = "pipeline bubble"


def time_parts(
    steps: Sequence[Step],
    ends_s: Sequence[float],
    iteration: int,
    computed_s: float | None = None,
    begin_s: float = 0.0,
) -> Mapping[str, float]:
    """Seconds of an iteration by part. ends_s: when each step was over. computed_s: what a GPU
    computes in all; what the chain computes beyond it is the pipeline's bubble. begin_s: when the
    first iteration began."""
    counted = [number for number, step in enumerate(steps) if step.counts is StepTiming.WITHIN]
    numbers = [number for number in counted if steps[number].iteration == iteration]
    if not numbers:
        return {}
    earlier = [ends_s[number] for number in counted if number < numbers[0]]
    begin_s = max(earlier, default=begin_s)
    parts: dict[str, float] = {}

    def add(part: str, seconds: float) -> None:
        if seconds > 0:
            parts[part] = parts.get(part, 0.0) + seconds

    at: int | None = max(numbers, key=lambda number: ends_s[number])
    while at is not None:
        step = steps[at]
        waited = [number for number in step.after if steps[number].iteration == iteration]
        before = max(waited, key=lambda number: ends_s[number], default=None)
        ready_s = begin_s if before is None else ends_s[before]
        inside_s = sum(seconds for _, seconds in step.inside)
        add(COMPUTE, step.compute_s - inside_s)
        for dimension, seconds in step.inside:
            add(dimension, seconds)
        if step.dimension is not None:
            add(step.dimension, ends_s[at] - ready_s - step.compute_s)
        at = before
    if computed_s is not None and parts.get(COMPUTE, 0.0) > computed_s:
        add(BUBBLE, parts[COMPUTE] - computed_s)
        parts[COMPUTE] = computed_s
    return {part: parts[part] for part in (COMPUTE, BUBBLE, *Dimension) if part in parts}
