"""The document of a `Prediction`: balance by tier beside random hashing, polarization, the worst
links."""

from __future__ import annotations

from rocelab.base.quantities import Unit, share, size
from rocelab.base.wording import counted
from rocelab.report.document import Column, Document, Note, Row, Table, columns
from rocelab.results.prediction import Prediction, TierPrediction

ORIGINS = {
    "kernel": "the running kernels' tables",
    "planned": "planned tables",
    "assumed": "assumed tables of shortest paths, as its own routing is known once it is up",
}


def prediction_document(prediction: Prediction) -> Document:
    """What `rocelab predict` prints."""
    tables = (_tiers(prediction), _polarizations(prediction), _worst(prediction))
    return Document("", (Note(_what(prediction)), *tables))


def _what(prediction: Prediction) -> str:
    origin = ORIGINS[prediction.tables]
    carried = [counted(prediction.flows, "flow")]
    if prediction.bytes is not None:
        carried.append(f"{size(prediction.bytes)} of payload")
    if prediction.packets is not None:
        carried.append(counted(prediction.packets, "data packet"))
    kernel = prediction.model == "kernel"
    chosen_by = f"scheme {prediction.scheme['kind']}" if kernel else prediction.model
    return (
        f"lab {prediction.lab}, {chosen_by}, seeds {prediction.hashing['seed']}, from {origin}: "
        f"{', '.join(carried)}"
    )


def _tiers(prediction: Prediction) -> Table:
    return Table(
        "Flows on links between switches, compared with uniform random hashing of the same "
        "number (mean, p99)",
        (
            Column("tier"),
            *columns(Unit.COUNT, "links", "flows"),
            *columns(
                Unit.RATIO, "MMR", "random MMR", "its p99", "JFI", "random JFI", "CoV", "random CoV"
            ),
            Column("unused", Unit.FIGURE),
            Column("random unused", Unit.SHARE),
            Column("MMR of bytes", Unit.RATIO),
            Column("worst group", Unit.FIGURE),
        ),
        tuple(_tier(tier) for tier in prediction.tiers if tier.flows.all_links.total),
    )


def _tier(tier: TierPrediction) -> Row:
    whole, random = tier.flows.all_links, tier.flows.random
    mmr = mmr_p99 = jfi = cov = unused = None
    if random is not None:
        mmr, mmr_p99, jfi, cov = random.mmr, random.mmr_p99, random.jfi, random.cov
        unused = random.unused_fraction
    return (
        f"{tier.tier} {tier.direction}",
        whole.links,
        whole.total,
        whole.mmr,
        mmr,
        mmr_p99,
        whole.jfi,
        jfi,
        whole.cov,
        cov,
        f"{whole.unused:,} ({share(whole.unused / whole.links)})",
        unused,
        None if tier.bytes is None else tier.bytes.mmr,
        tier.flows.worst_group or "",
    )


def _polarizations(prediction: Prediction) -> Table:
    return Table(
        "Polarization: does a choice repeat the one before it?",
        (
            *columns(Unit.TEXT, "first", "second"),
            Column("flows", Unit.COUNT),
            Column("links unused", Unit.FIGURE),
            Column("random", Unit.SHARE),
            *columns(Unit.RATIO, "information", "by chance"),
        ),
        tuple(
            (
                pair.first,
                pair.second,
                pair.flows,
                f"{share(pair.unused_fraction)} of {pair.offered_links:,}",
                pair.unused_if_random,
                pair.information,
                pair.information_if_independent,
            )
            for pair in prediction.polarizations
        ),
        names=2,
    )


def _worst(prediction: Prediction) -> Table:
    return Table(
        "Most loaded links between switches",
        (
            *columns(Unit.TEXT, "link", "sent by"),
            Column("flows", Unit.COUNT),
            Column("payload", Unit.BYTES),
            Column("of its tier's mean", Unit.RATIO),
        ),
        tuple(
            (link.link, link.sender, link.flows, link.bytes, link.of_mean)
            for link in prediction.worst
        ),
        names=2,
    )
