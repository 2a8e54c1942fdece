"""The validation as a page: rocelab's figures next to published ones, case by case.

Writes a `Validation` as Markdown. Every number of rocelab comes from the document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench.validation import hosts_text, zones_rows, zones_text
from bench.validation.document import Validation
from bench.validation.rows import Kind, Row

DATA = "validation.json"
PAGE, HOSTS_PAGE = "validation.md", "validation-hosts.md"

KIND = """\
Each row compares a published figure with rocelab's, which is from a flow-level simulation: rates
are max-min fair at every moment, and real hash functions choose the paths. Published figures come
from production, from test clusters and from other simulators.

The kinds of comparison:

- We chose unpublished settings (placements, queue pairs, uplink ratio, hosts) ourselves; the row
  names them. The table at the end of a section shows how the figure depends on them. No setting was
  tuned to match a figure.
- *One of several choices* means that the publication leaves the setting open, and that the measured
  alternatives (queue pairs, uplink ratio, placement, mean or worst job, engine, overlap, transfer
  size) give different verdicts. If one of them agrees, the figure is possible, but that setting was
  not necessarily used; if one differs, this proves as little.
- **Second-hand** figures come from write-ups of a paper, not from the paper itself: Gangidi et al.,
  "RDMA over Ethernet for Distributed AI Training at Meta Scale", SIGCOMM 2024. First-hand are Qian
  et al., "Alibaba HPN", SIGCOMM 2024, and Dubey et al., "The Llama 3 Herd of Models", 2024.
- *Compared* follows from the numbers: *agrees* means that our median is within the published range
  (a tenth either way of a single figure; a quarter if it is an extreme, or read off a plot).
- *By construction* means that the result follows from the input: statistics of a fair die, theorems
  about an optimal placement, a configured rate, arithmetic of timeouts, formulas. Agreement shows
  that the calculation is right.
- All others are *predicted*: they could have failed, and the verdict is the same in every measured
  setting.

This does not show that absolute times are right. A fluid has no queues, no congestion control that
approaches a fair rate, no losses and no hosts. Agreement on a ratio shows that hashing, placement
and capacity are sufficient to explain it, not that they are the cause. If rocelab's figure is
higher, hosts and queues usually account for part of the time that links need here."""

SETTING = """\
Zones: racks of two servers of 8 GPUs, 16 NICs under a leaf, 64 racks unless stated otherwise. A
ring goes from NIC i of a server to NIC i of the next. Jobs have 16 to 256 GPUs, the logarithm of
their number uniform; up to 32 GPUs half of them do an AlltoAll. *First fit after churn*: the jobs
that run after 300 jobs have started and ended, each on the first free servers. *Scattered*: random
servers. All begin at once and send a quarter of a gigabyte per NIC; the roofline is the time of the
busiest NIC."""


def _tally(kind: Kind, rows: Sequence[Row], validation: Validation) -> str:
    words = Counter(row.compared(validation) for row in rows if row.kind(validation) is kind)
    counts = ", ".join(f"{word} {count}" for word, count in words.most_common())
    return f"- {words.total()} comparisons are {kind}: {counts}."


def pages(validation: Validation) -> dict[str, str]:
    """The pages by file name."""
    return {PAGE: page(validation), HOSTS_PAGE: hosts_page(validation)}


def hosts_page(validation: Validation) -> str:
    """The page of what lies beyond AI zones."""
    lines = [
        "# HPN, training volumes and packets compared with publications",
        "",
        f"[The simulator compared with publications]({PAGE}) says what is compared, and how.",
        "",
        *hosts_text.hpn(validation),
        *hosts_text.volumes(validation),
        *hosts_text.fluid(validation),
    ]
    return "\n".join(lines).rstrip() + "\n"


def page(validation: Validation) -> str:
    """The page of AI zones, which also has what holds for all comparisons."""
    machine = validation.environment
    rows = zones_rows.ROWS + hosts_text.ROWS
    compared = [row for row in rows if row.low is not None]
    lines = [
        "# The simulator compared with publications",
        "",
        f"`{validation.command}` makes this page, [its data]({DATA}) and the plots: "
        f"{validation.seeds} seeds, {validation.took_s:.0f} s on {machine.cpu_count} CPUs "
        f"({machine.cpu_model}), rocelab {machine.tool_version}, {machine.started}.",
        "",
        KIND,
        "",
        SETTING,
        "",
        *(_tally(kind, compared, validation) for kind in reversed(Kind)),
        "",
        *zones_text.hashing(validation),
        *zones_text.queue_pairs(validation),
        *zones_text.engineering(validation),
        *zones_text.history(validation),
        f"[HPN, training volumes and packets]({HOSTS_PAGE}) are on a separate page.",
    ]
    return "\n".join(lines).rstrip() + "\n"
