"""The output of nccl-tests' all_reduce_perf on 8 GPUs, in the columns that its printf formats give
(NVIDIA/nccl-tests, src/common.cu), with the figures of a run that a how-to published."""

from __future__ import annotations

OUT_OF_PLACE = [
    # size, time in us, algbw, busbw
    (268435456, 1119.8, 239.71, 419.49),
    (536870912, 2157.5, 248.83, 435.46),
    (1073741824, 4027.3, 266.61, 466.57),
    (2147483648, 7983.5, 268.99, 470.73),
]
IN_PLACE_US = (1117.4, 2154.8, 4029.1, 7985.2)

_NAMES = "# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s %6s  %7s  %6s  %6s %6s"
_ROW = "%12d  %12d  %8s  %6s  %6d  %7.1f  %6.2f  %6.2f  %5d  %7.1f  %6.2f  %6.2f  %5d"


def nccl_output() -> str:
    half = ("time", "algbw", "busbw", "#wrong")
    units = ("(us)", "(GB/s)", "(GB/s)", "")
    lines = [
        "# nThread 1 nGpus 8 minBytes 268435456 maxBytes 2147483648 step: 2(factor) "
        "warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0",
        "#",
        "#" + " " * 61 + "out-of-place" + " " * 23 + "in-place",
        _NAMES % ("size", "count", "type", "redop", "root", *half, *half),
        _NAMES % ("(B)", "(elements)", "", "", "", *units, *units),
    ]
    for (size, time_us, algbw, busbw), in_place_us in zip(OUT_OF_PLACE, IN_PLACE_US, strict=True):
        speed = size / in_place_us / 1000
        other = (in_place_us, speed, speed * 7 / 4, 0)
        count = size // 4
        lines.append(_ROW % (size, count, "float", "sum", -1, time_us, algbw, busbw, 0, *other))
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 448.212", "#"]
    return "\n".join(lines) + "\n"
