"""Prints a `Prediction` as tables on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from rocelab.base.units import format_size
from rocelab.base.wording import counted
from rocelab.report.console import table
from rocelab.results.prediction import Prediction, TierPrediction


def print_prediction(found: Prediction, console: Console) -> None:
    """Print balance per tier beside random hashing, polarization and the worst links."""
    console.print(_what(found), highlight=False, soft_wrap=True)
    for shown in (_tiers(found), _polarizations(found), _worst(found)):
        if shown.row_count:
            console.print()
            console.print(shown)


def _what(found: Prediction) -> str:
    origin = "the running kernels' tables" if found.tables == "kernel" else "planned tables"
    carried = [counted(found.flows, "flow")]
    if found.bytes is not None:
        carried.append(f"{format_size(found.bytes)} of payload")
    if found.packets is not None:
        carried.append(f"{found.packets:,} data packets")
    chosen_by = f"scheme {found.scheme['kind']}" if found.model == "kernel" else found.model
    return (
        f"lab {found.lab}, {chosen_by}, seeds {found.hashing['seed']}, from {origin}: "
        f"{', '.join(carried)}"
    )


def _tiers(found: Prediction) -> Table:
    shown = table(
        "Flows on links between switches, beside uniform random hashing of as many (mean, p99)",
        (
            "tier",
            "links",
            "flows",
            "MMR",
            "random MMR",
            "its p99",
            "JFI",
            "random JFI",
            "CoV",
            "random CoV",
            "unused",
            "random unused",
            "MMR of bytes",
            "worst group",
        ),
    )
    for tier in found.tiers:
        if tier.flows.all_links.total:
            shown.add_row(*_tier(tier))
    return shown


def _tier(tier: TierPrediction) -> tuple[str, ...]:
    whole, random = tier.flows.all_links, tier.flows.random
    return (
        f"{tier.tier} {tier.direction}",
        f"{whole.links:,}",
        f"{whole.total:,.0f}",
        _number(whole.mmr),
        _number(None if random is None else random.mmr),
        _number(None if random is None else random.mmr_p99),
        _number(whole.jfi),
        _number(None if random is None else random.jfi),
        _number(whole.cov),
        _number(None if random is None else random.cov),
        f"{whole.unused:,} ({whole.unused / whole.links:.0%})",
        "-" if random is None else f"{random.unused_fraction:.0%}",
        _number(None if tier.bytes is None else tier.bytes.mmr),
        tier.flows.worst_group or "",
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _polarizations(found: Prediction) -> Table:
    shown = table(
        "Polarization: does a choice repeat the one before it?",
        ("first", "second", "flows", "links unused", "random", "information", "by chance"),
        left=2,
        names=2,
    )
    for one in found.polarizations:
        shown.add_row(
            one.first,
            one.second,
            f"{one.flows:,}",
            f"{one.unused_fraction:.0%} of {one.offered_links:,}",
            "-" if one.unused_if_random is None else f"{one.unused_if_random:.0%}",
            _number(one.information),
            _number(one.information_if_independent),
        )
    return shown


def _worst(found: Prediction) -> Table:
    shown = table(
        "Most loaded links between switches",
        ("link", "sent by", "flows", "payload", "of its tier's mean"),
        left=2,
        names=2,
    )
    for one in found.worst:
        size = "-" if one.bytes is None else format_size(one.bytes)
        shown.add_row(one.link, one.sender, f"{one.flows:,}", size, f"{one.of_mean:.2f}")
    return shown
