"""The page's sections beyond AI zones: HPN, volumes of training, and the effect of packets.

Writes a `Validation` as Markdown. Every number of rocelab comes from the document.
"""

from __future__ import annotations

from bench.validation.document import Validation
from bench.validation.fluid import SIZES
from bench.validation.hpn import JOB_GPUS, OUTAGES_S, OVERLAPS, QPS
from bench.validation.rows import Row, Source, around, percent, signed, size, table

HPN_ROWS = (
    Row(
        "AllReduce, two planes over one, 256 GPUs across segments",
        "+50.1 to +63.7 % (32 to 256 GPUs)",
        Source.HPN,
        0.501,
        0.637,
        "planes/shared/256/16",
        signed,
        "all switches hash alike, 16 QPs",
        "planes/*/256/[136]*",
    ),
    *(
        Row(
            "the same",
            "+50.1 to +63.7 %",
            Source.HPN,
            0.501,
            0.637,
            f"planes/shared/256/{qps}",
            signed,
            f"all switches hash alike, {qps} QPs",
            "planes/*/256/[136]*",
        )
        for qps in (32, 64)
    ),
    *(
        Row(
            "busier port's part of what a NIC receives, one plane",
            "75 % (ports differ 3 times)",
            Source.HPN,
            0.675,
            0.825,
            f"ports/shared/256/{qps}",
            percent,
            f"{qps} QPs, median NIC",
        )
        for qps in (4, 16)
    ),
    *(
        Row(
            "iteration with a failed link of a dual-ToR NIC",
            "-6.25 %",
            Source.HPN,
            *around(0.0625),
            f"dual-tor/{overlap}",
            lambda value: f"-{value:.1%}",
            f"LLaMa-7B, 256 GPUs, {overlap} of gradients overlapped",
            "dual-tor/*%",
        )
        for overlap in OVERLAPS
    ),
    Row(
        "the AllReduce alone",
        "-",
        Source.NONE,
        None,
        None,
        "dual-tor/0%/allreduce",
        lambda value: f"-{value:.1%}",
        "256 GPUs, 16 QPs",
    ),
    Row(
        "a NIC's only link away for 30 s: does the job go on?",
        "yes, up to 1 minute",
        Source.HPN,
        1,
        1,
        "single-tor/nominal/30",
        lambda value: "yes" if value else "no",
        "NCCL's timeouts as written",
    ),
    *(
        Row(
            f"away for {outage} s",
            "yes, up to 1 minute" if goes_on else "no, beyond 2 minutes",
            Source.HPN,
            goes_on,
            goes_on,
            f"single-tor/{patience}/{outage}",
            lambda value: "yes" if value else "no",
            title,
        )
        for outage, goes_on in ((60, 1), (180, 0))
        for patience, title in (
            ("nominal", "NCCL's timeouts as written"),
            ("four times", "timeouts four times as long"),
        )
    ),
)
VOLUME_ROWS = (
    Row(
        "GPT-3 175B, TP8 PP8 DP512: DP AllReduce",
        "5.5 GB",
        Source.HPN,
        *around(5.5e9),
        "volume/gpt3/dp",
        size,
        "2 P / (TP PP) bytes, bf16",
    ),
    Row(
        "PP send and receive",
        "6 MB",
        Source.HPN,
        *around(6e6),
        "volume/gpt3/pp",
        size,
        "2 s h / TP, one sequence",
    ),
    Row(
        "TP AllReduce and AllGather",
        "560 MB",
        Source.HPN,
        *around(560e6),
        "volume/gpt3/tp stage",
        size,
        "one AllReduce of 2 s h for each of a stage's layers",
    ),
    Row(
        "one TP AllReduce",
        "-",
        Source.NONE,
        None,
        None,
        "volume/gpt3/tp",
        size,
        "2 s h",
    ),
    Row(
        "Llama 3 parameters",
        "405 billion",
        Source.LLAMA,
        *around(405e9, 0.01),
        "volume/llama3/parameters",
        lambda value: f"{value / 1e9:.1f} billion",
        "from the published shape",
    ),
    Row(
        "Llama 3, TP8 PP16: parameters gathered per GPU",
        "-",
        Source.NONE,
        None,
        None,
        "volume/llama3/gather",
        size,
        "bf16, once an iteration",
    ),
    Row(
        "gradients reduced per GPU",
        "-",
        Source.NONE,
        None,
        None,
        "volume/llama3/reduce",
        size,
        "fp32, once an iteration",
    ),
    Row(
        "between stages",
        "-",
        Source.NONE,
        None,
        None,
        "volume/llama3/pp",
        size,
        "per micro-batch of 8,192 tokens",
    ),
)
FLUID_ROWS = (
    Row(
        "permutation, mean completion over a plain fluid",
        "+17 %",
        Source.PACKETS,
        *around(0.17),
        "fluid/e-ecmp/1 MB/all",
        signed,
        "E-ECMP, 1 MB",
        "fluid/e-ecmp/*/all",
    ),
    Row(
        "the same, 256 MB",
        "+17 %",
        Source.PACKETS,
        *around(0.17),
        "fluid/e-ecmp/256 MB/all",
        signed,
        "E-ECMP, 256 MB",
        "fluid/e-ecmp/*/all",
    ),
)
ROWS = HPN_ROWS + VOLUME_ROWS + FLUID_ROWS


def hpn(validation: Validation) -> list[str]:
    lines = ["## HPN: two planes, two ToRs", "", *table(HPN_ROWS, validation)]
    lines += [
        "Gain of two planes over one, medians over seeds, hashes of all switches alike (and of "
        "each its own):",
        "",
        "| QPs | " + " | ".join(f"{gpus} GPUs" for gpus in JOB_GPUS) + " |",
        "|--:|" + "--:|" * len(JOB_GPUS),
    ]
    for qps in QPS:
        cells = [
            f"{validation.median(f'planes/shared/{gpus}/{qps}'):+.0%} "
            f"({validation.median(f'planes/per-node/{gpus}/{qps}'):+.0%})"
            for gpus in JOB_GPUS
        ]
        lines.append(f"| {qps} | " + " | ".join(cells) + " |")
    waits = " and ".join(
        f"{validation.median(f'single-tor/{patience}/patience'):.0f} s"
        for patience in ("nominal", "four times")
    )
    lines += [
        "",
        "![planes](validation-hpn.svg)",
        "",
        "- With one plane the aggregation switch chooses a NIC's port, and a ring waits for the "
        "NIC with the worst choice. Fewer connections make it worse. The published runs had an "
        'unknown number ("tens to hundreds" per GPU); with 16 to 64 the published gain is '
        "possible. With 2 queue pairs on 256 GPUs three flows of 200G meet on an uplink of 400G, "
        "which slows both fabrics.",
        "- The imbalance of a NIC's two ports depends only on the number of queue pairs: a fair "
        "coin divides 4 into 3 and 1. In this pod it hardly matters whether all switches use the "
        "same hash: the aggregation switch chooses between two ports by the top bit of a hash "
        "that the ToR has already used, but a rack's flows use all uplinks and so both halves. "
        "The published Clos hashes a third time in the tier above; this page does not show "
        "polarization there.",
        "- A fluid has no queues, so it cannot show the published ones (267 kB against 3 kB, and "
        "-91.8 % with two planes).",
        f"- Queue pairs give up after {waits}: NCCL's timeout of 2^20 x 4.096 us eight times as "
        "written, and at the four times that hardware may take. The published boundary, between "
        "one and two minutes, lies between the two. `rocelab whatif` covers what happens after "
        "that (a restart from the last checkpoint).",
        "- A NIC that lost one of its two ports halves the rate of its ring. The cost to an "
        "iteration depends on the part that waits for gradients: "
        + ", ".join(
            f"{validation.median(f'dual-tor/{overlap}'):.1%} with {overlap} overlapped"
            for overlap in OVERLAPS
        )
        + ". The published 6.25 % is also 1/16 of the host's ports; the division and overlap of "
        "the published job are unknown: ours is TP8 DP32, four micro-batches of four "
        "sequences, GPUs of 200 TFLOPS.",
        "",
        "| a single-ToR NIC's link down for | "
        + " | ".join(f"{outage} s" for outage in OUTAGES_S)
        + " |",
        "|---|" + "---|" * len(OUTAGES_S),
    ]
    for patience in ("nominal", "four times"):
        cells = [
            "continues" if validation.median(f"single-tor/{patience}/{outage}") else "stops"
            for outage in OUTAGES_S
        ]
        lines.append(f"| timeouts {patience} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def volumes(validation: Validation) -> list[str]:
    return [
        "## Volumes of training",
        "",
        *table(VOLUME_ROWS, validation),
        "- PP: 6 MB is what one of 8 tensor parallel GPUs sends; undivided it is "
        f"{size(validation.median('volume/gpt3/pp whole'))}. The paper does not state which of the "
        "two it counts.",
        "- TP: the paper does not define the sum. One AllReduce for each layer of a stage is "
        "nearest; all four per layer are four times as much. TP stays within a server here.",
        "- The Llama 3 paper has the model's shape and division (table 4), but no volumes: those "
        "rows are rocelab's only, for comparison with measurements.",
        "",
    ]


WHAT_COUNTS = (
    ("headers", "headers"),
    ("all", "headers and latency"),
    ("packets", "packet by packet, with queues"),
)


def fluid(validation: Validation) -> list[str]:
    lines = [
        "## What packets would add",
        "",
        *table(FLUID_ROWS, validation),
        "Mean completion of a permutation of 256 NICs over that of a fluid of payload alone, on "
        "the same paths:",
        "",
        "| scheme | what is counted | " + " | ".join(SIZES) + " |",
        "|---|---|" + "--:|" * len(SIZES),
    ]
    for scheme in ("spray", "e-ecmp"):
        for key, title in WHAT_COUNTS:
            cells = [f"fluid/{scheme}/{name}/{key}" for name in SIZES]
            texts = [
                f"{validation.median(cell):+.1%}" if cell in validation.values else "-"
                for cell in cells
            ]
            if any(cell in validation.values for cell in cells):
                lines.append(f"| {scheme} | {title} | " + " | ".join(texts) + " |")
    large = validation.median("fluid/e-ecmp/256 MB/all")
    return [
        *lines,
        "",
        "Headers (82 bytes a packet with preamble, FCS and gap, 4 kB of payload) and 1 us a hop "
        f"are counted; for large transfers that is {large:+.1%}. Queues, congestion control that "
        "approaches a fair rate, losses and go-back-N are not included. Together they account for "
        "the rest of the published 17 %, so a large simulated permutation ends too early by that "
        "much. The transfer size of the published figure is unknown; for small transfers latency "
        "alone is more. Ratios between schemes on the same jobs, which this page compares, are "
        "less affected: both sides have queues.",
        "",
    ]
