"""Published figures of AI zones, with the matching cells of rocelab.

Of Gangidi et al., "RDMA over Ethernet for Distributed AI Training at Meta Scale", SIGCOMM 2024, as
reported in write-ups of it.
"""

from __future__ import annotations

from bench.validation.rows import AT_LEAST, Row, Source, around, percent, ratio, signed
from bench.validation.scaling import GAIN_QPS

META = Source.META
AROUND_40_PERCENT = 1.36, 1.44
"""40 % longer plus or minus a tenth of that, as completion over roofline."""


def over(value: float) -> str:
    """Completion over roofline, as a text of the slowdown."""
    return f"{value - 1:+.0%}"


MMR_ROWS = tuple(
    Row(
        "MMR of 1,000 flows on 16 uplinks",
        "above 1.2 on average",
        META,
        1.2,
        AT_LEAST,
        f"mmr/{model}/1000",
        ratio,
        f"{title}, random NIC pairs and source ports, `uplinks-16`",
    )
    for model, title in (
        ("kernel", "Linux's hash"),
        ("crc16", "CRC-16 modulo"),
        ("crc32", "CRC-32 modulo"),
    )
)
FEW_ROWS = (
    Row(
        "MMR where entropy is low",
        "much worse",
        META,
        1.3,
        AT_LEAST,
        "mmr/few/ecmp",
        ratio,
        "ECMP, 64 NIC pairs x 16 QPs of one source port",
    ),
    Row(
        "the same flows, queue pair hashed",
        "-",
        Source.NONE,
        None,
        None,
        "mmr/few/e-ecmp",
        ratio,
        "E-ECMP",
    ),
)
QP_ROWS = (
    Row(
        "completion over roofline, 4 QPs, mean",
        "+40 %",
        META,
        *AROUND_40_PERCENT,
        "qp/64/churn/1:2/4/mean",
        over,
        "1:2, first fit after churn",
        "qp/64/*/*/4/mean",
    ),
    Row(
        "the same at 1:1.125",
        "+40 %",
        META,
        *AROUND_40_PERCENT,
        "qp/64/churn/1:1.125/4/mean",
        over,
        "1:1.125, first fit after churn",
        "qp/64/*/*/4/mean",
    ),
    Row(
        "the same at 1:1",
        "+40 %",
        META,
        *AROUND_40_PERCENT,
        "qp/64/churn/1:1/4/mean",
        over,
        "1:1, first fit after churn",
        "qp/64/*/*/4/mean",
    ),
    Row(
        "worst job, 4 QPs, part of roofline",
        "20 %",
        META,
        *around(0.2, 0.25),
        "qp/64/churn/1:1/4/worst",
        percent,
        "1:1, first fit after churn",
        "qp/64/*/*/4/worst",
    ),
    Row(
        "worst job, 32 QPs, part of roofline",
        "52 %",
        META,
        *around(0.52, 0.25),
        "qp/64/churn/1:1/32/worst",
        percent,
        "1:1, first fit after churn",
        "qp/64/*/*/32/worst",
    ),
    Row(
        "worst job, 4 QPs, part of roofline",
        "20 %",
        META,
        *around(0.2, 0.25),
        "qp/64/churn/1:2/4/worst",
        percent,
        "1:2, first fit after churn",
        "qp/64/*/*/4/worst",
    ),
    Row(
        "worst job, 32 QPs, part of roofline",
        "52 %",
        META,
        *around(0.52, 0.25),
        "qp/64/churn/1:2/32/worst",
        percent,
        "1:2, first fit after churn",
        "qp/64/*/*/32/worst",
    ),
    Row(
        "AllReduce, E-ECMP and QP scaling against ECMP",
        "up to +40 %",
        META,
        0.0,
        0.4,
        "gain/1:2/4/mean",
        signed,
        f"1:2, 4 rings, 1 against {GAIN_QPS} QPs of one port, mean job",
        "gain/*/*/mean",
    ),
)
TE_ROWS = (
    Row(
        "TE, part of roofline, capacity suffices",
        "100 %",
        META,
        0.99,
        1.0,
        "te/churn/1:2/0/cspf 1",
        percent,
        "CSPF, whole flows, 1:2",
    ),
    Row(
        "the same at 1:1",
        "100 %",
        META,
        0.99,
        1.0,
        "te/scatter/1:1/0/lp 1",
        percent,
        "LP and repair, whole flows, jobs scattered",
    ),
    Row(
        "the same at 1:1, flow by flow",
        "100 %",
        META,
        0.99,
        1.0,
        "te/scatter/1:1/0/cspf 1",
        percent,
        "CSPF, whole flows, jobs scattered",
        "te/*/1:1/0/[cl]* 1",
    ),
)
UTIL_ROWS = (
    Row(
        "uplinks' use with TE",
        "80 %, uniformly",
        META,
        *around(0.8),
        "util/80%/te/middle",
        percent,
        "16 uplinks, 128 servers, NICs held to 80 %",
    ),
    Row(
        "with E-ECMP, 5th percentile of links",
        "40 %",
        META,
        *around(0.4, 0.25),
        "util/80%/e-ecmp 32/low",
        percent,
        "32 QPs",
        "util/80%/e-ecmp */low",
    ),
    Row(
        "with E-ECMP, 95th percentile",
        "90 %",
        META,
        *around(0.9),
        "util/80%/e-ecmp 32/high",
        percent,
        "32 QPs",
        "util/80%/e-ecmp */high",
    ),
    Row(
        "bus bandwidth of TE over E-ECMP",
        "+5 to +10 %",
        META,
        0.05,
        0.1,
        "util/80%/e-ecmp 128/gain",
        signed,
        "128 QPs, NICs held to 80 %",
        "util/80%/e-ecmp */gain",
    ),
    Row(
        "the same with fewer flows",
        "+5 to +10 %",
        META,
        0.05,
        0.1,
        "util/80%/e-ecmp 32/gain",
        signed,
        "32 QPs, NICs held to 80 %",
        "util/80%/e-ecmp */gain",
    ),
)
PIN_ROWS = (
    Row(
        "path pinning, whole racks, loss",
        "none",
        META,
        0.0,
        0.01,
        "pin/whole/mean",
        percent,
        "1:1, mean job",
        "pin/whole/*",
    ),
    Row(
        "path pinning, fragments, loss",
        "up to more than 30 %",
        META,
        0.3,
        1.0,
        "pin/churn/mean",
        percent,
        "1:1, first fit after churn, mean job",
        "pin/[cs]*/*",
    ),
    Row(
        "path pinning, an uplink of each rack failed, loss",
        "up to more than 30 %",
        META,
        0.3,
        1.0,
        "pin/failed/mean",
        percent,
        "1:1, whole racks, mean job",
        "pin/failed/*",
    ),
)
ROWS = MMR_ROWS + FEW_ROWS + QP_ROWS + TE_ROWS + UTIL_ROWS + PIN_ROWS
