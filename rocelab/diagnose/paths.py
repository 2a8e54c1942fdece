"""The links that the data and the answers of a job's queue pairs crossed.

Predicts a `FlowPaths` per flow of a job's report, like `rocelab predict`, and checks it against the
links' own counters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rocelab.base.errors import InputError
from rocelab.jobs.placement import reference
from rocelab.planning.fabric import DirectedLink
from rocelab.prediction.matrix import FlowRow
from rocelab.prediction.predictor import Setting, paths_on
from rocelab.results.diagnosis import SuspectLink
from rocelab.results.job import JobReport

LEAST_SEEN = 0.7
"""The least share of a link's predicted data packets that must have arrived at its far end."""


@dataclass(frozen=True, slots=True)
class FlowPaths:
    """The links of a flow's data, in order, and of its ACKs, NAKs and CNPs."""

    data: tuple[DirectedLink, ...]
    answers: tuple[DirectedLink, ...]


def predicted_paths(report: JobReport) -> tuple[FlowPaths, ...]:
    """The paths of each of `report.flows`, from planned tables under the lab's scheme.

    Raises InputError if a path cannot be predicted (spray, flowlet, resilient, te, hash seed 0,
    unnumbered links) or the links' counters contradict it.
    """
    if not report.fabric.numbered:
        raise InputError(
            "links are unnumbered: the order of next hops is not planned",
            hint="use a lab with `routing.numbering: numbered`",
        )
    nics = [reference(rank.nic) for rank in report.ranks]
    rows = []
    for flow in report.flows:
        nic, peer = nics[flow.rank], nics[flow.peer]
        rows.append(FlowRow(nic, peer, flow.sport, flow.dest_qp, leaves_by=flow.port))
        rows.append(FlowRow(peer, nic, flow.acks_sport, flow.acks_qp, leaves_by=flow.acks_port))
    paths = paths_on(report.fabric, rows, Setting())
    predictions = tuple(
        FlowPaths(data, answers) for data, answers in zip(paths[::2], paths[1::2], strict=True)
    )
    _check_counters(report, predictions)
    return predictions


def named(links: Iterable[DirectedLink]) -> str:
    """Links as text."""
    return " or ".join(map(str, links))


def suspects(links: Iterable[DirectedLink]) -> tuple[SuspectLink, ...]:
    """Links as a document names them."""
    return tuple(SuspectLink(link.name, link.sender, link.receiver) for link in links)


def _check_counters(report: JobReport, paths: Sequence[FlowPaths]) -> None:
    figures = report.figures_by_link
    counts: Counter[DirectedLink] = Counter()
    for flow, path in zip(report.flows, paths, strict=True):
        counts.update(dict.fromkeys(path.data, flow.packets))
    for link, packets in counts.items():
        seen = figures[link].packets if link in figures else 0
        if seen < LEAST_SEEN * packets:
            raise InputError(
                f"{link.name} carried {seen:,} packets from {link.sender}, and by the "
                f"predicted paths {packets:,} at least",
                hint="a link was down, or another scheme than the lab's own ran",
            )
