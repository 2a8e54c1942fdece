"""`python -m bench.validation.collectives`: collectives and exchanges of experts beside published
times.

Tables of nccl-tests (tables.yaml) with the types of servers that ship, or with every second size
predicted by a fit to the others as `rocelab reference --save` does; and DeepEP's low-latency
kernels, whose one constant is fitted on three of twelve figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from bench.campaign import command
from bench.campaign.document import Document
from bench.campaign.pages import filled
from bench.campaign.study import BENCH, Publication, Series, Study
from bench.validation.deep_ep import normal_rows
from bench.validation.published import Row, row
from rocelab import HostModelSpec, JobSpec, LabSpec, fit_hosts, load_host_model
from rocelab import SimulationOptions as Options
from rocelab.base.documents import to_json
from rocelab.jobs.job_spec import collective_job
from rocelab.sim.figures import simulation_environment
from rocelab.sim.simulate import simulate

TABLES: Mapping[str, Mapping[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8")
)
DOCS = BENCH.parent / "docs"
NAME = "validation-collectives"
DEEP_EP: Mapping[str, Mapping[int, float]] = {
    "dispatch": {8: 77, 16: 118, 32: 155, 64: 173, 128: 192, 256: 194},
    "combine": {8: 114, 16: 195, 32: 273, 64: 314, 128: 369, 256: 360},
}
"""Microseconds by ranks, of 128 tokens a rank to 8 of 256 experts."""

TOKEN_BYTES = {"dispatch": 7168 + 7168 // 128 * 4, "combine": 2 * 7168}
"""FP8 with a scale of four bytes for each 128, and BF16."""

COPIES = 128 * 8
FIT_RANKS = (8, 32, 128)
H800_LINKS = 8
"""NVLinks of an H800, of 18 of an H100."""

TITLES: Mapping[str, Mapping[str, Any]] = {
    **TABLES,
    "deep-ep": {
        "what": "DeepEP, low latency, H800 with a 400G NIC each",
        "by": "deepseek-ai/DeepEP, README; second-hand",
        "assumed": "every GPU sends 8 copies of 128 tokens to all ranks evenly, FP8 with scales to "
        "experts and BF16 back; over 8 NVLinks in a server, else over InfiniBand that spreads "
        "packets over all paths",
    },
    "deep-ep-normal": {
        "what": "DeepEP, normal kernels, 8 GPUs and 400G NICs a server",
        "by": "deepseek-ai/DeepEP, README and docs/legacy.md; first-hand",
        "assumed": "experts alike in groups of a server, of which a token goes to four at most; "
        "GB/s count what stays in a server too; V2's SM90 is an H100, with 18 NVLinks for the 8 of "
        "an H800; GPUs copy and reduce in no time",
    },
    "simai": {
        "what": "AllReduce by SimAI's table of what NICs reach, 8 GPUs and NICs a server",
        "by": "aliyun/SimAI, nic_ratio.csv; second-hand",
        "assumed": "NICs of 400G, and rings in the protocol Simple: the table names neither, and "
        "what NCCL would take is up to 17 times as fast (16 MiB, 128 servers)",
    },
}

SIMAI = (
    (2, 2**24, 0.32),
    (2, 2**30, 0.92),
    (16, 2**28, 0.57),
    (128, 2**24, 0.0087),
    (128, 2**30, 0.31),
    (128, 2**34, 0.92),
)
"""Servers, bytes, and the share of the NICs' rate that was reached."""

CHOICE = "one of several choices"


def simulated_ns(lab: LabSpec, job: Mapping[str, Any], server: HostModelSpec, links: bool) -> float:
    """The time of an iteration. links: whether links and switches take time."""
    spec = JobSpec.model_validate({**job, "iterations": 1})
    options = Options(host_model=server.model, hop_latency_ns=None if links else 0)
    report = simulate(lab, [collective_job(spec)], options)
    return report.jobs[0].headline("iteration_time").modelled.median


def table_rows(name: str) -> list[Row]:
    """A row for each size of a table."""
    table = TABLES[name]
    lab = LabSpec.model_validate({"name": name, **table["lab"]})
    server = changed(load_host_model(table["hosts"]), table.get("changes", {}))
    times_us: Mapping[int, float] = table["sizes"]

    def of_size(host: HostModelSpec, size_bytes: int, links: bool) -> float:
        return simulated_ns(lab, {**table["job"], "size": f"{size_bytes}B"}, host, links)

    if not table.get("fits"):
        simulated = {size: of_size(server, size, True) for size in times_us}
        return [row(_bytes(size), time_us, simulated[size]) for size, time_us in times_us.items()]
    measured_ns = {size: 1e3 * time_us for size, time_us in times_us.items()}
    fit = fit_hosts(server, measured_ns, float(lab.links.server_rate), of_size, name)
    return [
        row(
            _bytes(size.size_bytes),
            size.measured_ns / 1e3,
            size.fitted_ns if size.held_out_ns is None else size.held_out_ns,
            is_fitted=size.held_out_ns is None,
        )
        for size in fit.sizes
    ]


def changed(server: HostModelSpec, changes: Mapping[str, Any]) -> HostModelSpec:
    """A type of server with other values of some keys; without the sources of what is gone."""
    data = {**server.model_dump(mode="json", exclude_none=True), **changes}
    kept = {key: value for key, value in data.items() if value is not None}
    kept["sources"] = {
        key: text for key, text in server.sources.items() if key.partition(".")[0] in kept
    }
    return HostModelSpec.model_validate(kept)


def deep_ep() -> list[Row]:
    """A row for each kernel and number of ranks: the exchange without what hosts take, and a time
    that is the median of what three figures of dispatch leave."""
    server = load_host_model("dgx-h100")
    assert server.fabric is not None
    bandwidth = f"{server.fabric.bandwidth * H800_LINKS // 18 // 10**6}MB/s"
    fabric = {**server.fabric.model_dump(mode="json"), "bandwidth": bandwidth, "latency": "0ns"}
    h800 = changed(server, {"fabric": fabric, "costs": {}})
    bytes_ns = {
        (kind, ranks): simulated_ns(
            LabSpec.model_validate({"name": "ep", **lab_of(ranks)}),
            {
                "pattern": "alltoall",
                "algorithm": "direct",
                "ranks": ranks,
                "size": f"{COPIES * TOKEN_BYTES[kind]}B",
                "transport": {"mtu": 4096},
            },
            h800,
            True,
        )
        for kind, times_us in DEEP_EP.items()
        for ranks in times_us
    }
    hosts_ns = median(
        1e3 * DEEP_EP["dispatch"][ranks] - bytes_ns["dispatch", ranks] for ranks in FIT_RANKS
    )
    return [
        row(
            f"{kind}, EP {ranks}",
            time_us,
            bytes_ns[kind, ranks] + hosts_ns,
            is_fitted=kind == "dispatch" and ranks in FIT_RANKS,
        )
        for kind, times_us in DEEP_EP.items()
        for ranks, time_us in times_us.items()
    ]


def simai() -> list[Row]:
    """A row for each number of servers and size, the published share as a time."""
    rows = []
    for servers, size_bytes, share in SIMAI:
        ranks = 8 * servers
        job = {
            "pattern": "allreduce",
            "algorithm": "ring",
            "protocol": "simple",
            "ranks": ranks,
            "size": f"{size_bytes}B",
        }
        lab = LabSpec.model_validate({"name": "simai", **lab_of(ranks)})
        ours_ns = simulated_ns(lab, job, load_host_model("dgx-h100"), True)
        bus_bytes = 2 * (ranks - 1) / ranks * size_bytes
        published_us = bus_bytes / (share * 8 * 50) / 1e3
        label = f"{servers} servers, {_bytes(size_bytes)} ({share:.2g} of the rate)"
        rows.append(row(label, published_us, ours_ns) | {"kind": CHOICE})
    return rows


def lab_of(ranks: int) -> dict[str, Any]:
    """Rails for as many GPUs, eight a server, whose spines carry all that leaves rails, sprayed as
    InfiniBand's adaptive routing does."""
    servers = max(2, ranks // 8)
    units = {"units": 1, "servers_per_unit": servers, "rails": 8, "spines": servers}
    return {"fabric": {"kind": "rail", **units}, "scheme": "spray"}


def _bytes(size: int) -> str:
    return f"{size:,} B"


def tallies(points: Mapping[str, Sequence[Sequence[Row]]]) -> list[dict[str, Any]]:
    """How many figures are predicted, met, and off by 2: of each table, of those whose hosts were
    fitted to other figures, and of those with a type of server that ships."""
    predicted = {
        name: [figure for figure in rows if figure["kind"] == "predicted"]
        for name, (rows,) in points.items()
    }
    fitted = [name for name in predicted if name == "deep-ep" or TABLES.get(name, {}).get("fits")]
    sums = {
        "**hosts fitted to other figures**": fitted,
        "**a type of server as it ships**": [name for name in predicted if name not in fitted],
    }
    groups = {name: rows for name, rows in predicted.items() if rows} | {
        title: [figure for name in names for figure in predicted[name]]
        for title, names in sums.items()
    }
    return [
        {
            "name": name,
            "predicted": len(rows),
            "met": sum(figure["met"] for figure in rows),
            "off": sum(figure["off"] for figure in rows),
            "worst": max(
                (figure["ratio"] for figure in rows), key=lambda ratio: max(ratio, 1 / ratio)
            ),
        }
        for name, rows in groups.items()
    ]


def files(document: Document) -> dict[str, str]:
    """The page."""
    points = document.measured
    return {
        f"{NAME}.md": filled(NAME, {"titles": TITLES, "points": points, "tallies": tallies(points)})
    }


STUDY = Study(
    name="validation_collectives",
    about="collectives and exchanges of experts beside published times",
    page=NAME,
    series=lambda: [
        Series.alone(
            {name: partial(table_rows, name) for name in TABLES}
            | {
                "deep-ep": deep_ep,
                "deep-ep-normal": partial(normal_rows, simulated_ns),
                "simai": simai,
            },
            lambda rows: rows(),
        )
    ],
    environment=lambda: asdict(simulation_environment()),
    publication=Publication(
        DOCS,
        lambda document: {f"{NAME}.json": to_json(document), **files(document)},
        lambda: files(published()),
    ),
)


def published() -> Document:
    """The data in docs/."""
    from bench.campaign.document import DOCUMENT

    return DOCUMENT.read((DOCS / f"{NAME}.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    command.run(STUDY.name)
