"""Commands that need only a lab's file: plan, render, graph, schema."""

from __future__ import annotations

import json as jsonlib
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.cli.arguments import FileOption, ForceOption, JsonOption, LabArgument, lab_file
from rocelab.cli.collection import uncollected
from rocelab.cli.options import choice
from rocelab.report.console import err, out, progress_bars, say, table, write

if TYPE_CHECKING:
    from rich.table import Table

    from rocelab.labfile.pfc import PfcSpec
    from rocelab.planning.fabric import Fabric, Node


@uncollected()
def plan(lab: LabArgument, json: JsonOption = False) -> None:
    """Show what a lab means: nodes, links, addresses, ASNs, BGP sessions, ECMP widths."""
    from rocelab.lab.lab import Lab
    from rocelab.planning.document import plan_document

    fabric = Lab.planned(lab_file(lab)).fabric
    if json:
        write(plan_document(fabric))
    else:
        _print_plan(fabric)


def _print_plan(fabric: Fabric) -> None:
    from rocelab.base.units import format_rate
    from rocelab.fabrics.roles import Role
    from rocelab.planning.limits import lab_limits

    console = out()
    addressing = "a /31 each" if fabric.numbered else "unnumbered (IPv6 link-local)"
    say(f"lab {fabric.name}: {len(fabric.nodes):,} nodes, {len(fabric.links):,} links")

    shared = any(len(prefix.origins) > 1 for prefix in fabric.prefixes)
    columns = ("role", "nodes", "ASNs", "prefixes", *(("NICs of two ports",) if shared else ()))
    nodes = table("Nodes", columns)
    originated = Counter(
        (fabric.node(prefix.origins[0]).role, prefix.per_port) for prefix in fabric.prefixes
    )
    members: dict[Role, list[Node]] = {}
    for node in fabric.nodes:
        members.setdefault(node.role, []).append(node)
    for role in sorted(members, key=lambda role: -role.tier):
        asns = {node.asn for node in members[role]} - {None}
        counts = (len(members[role]), len(asns), originated[role, False], originated[role, True])
        nodes.add_row(role.name, *(f"{count:,}" for count in counts[: len(columns) - 1]))
    console.print(nodes)

    links = table("Links", ("between", "links", "rate", "MTU", "BGP sessions"))
    kinds = Counter(
        (fabric.node(link.a.node).role, fabric.node(link.b.node).role, link.rate_bps, link.mtu)
        for link in fabric.links
    )
    for (lower, upper, rate_bps, mtu), count in kinds.items():
        sessions = 0 if lower is Role.SERVER else count
        links.add_row(
            f"{lower} to {upper}", f"{count:,}", format_rate(rate_bps), str(mtu), f"{sessions:,}"
        )
    console.print(links)
    if fabric.servers:
        console.print(_uplink_table(fabric))
    console.print(_ecmp_table(fabric))
    say(f"Links between switches: {addressing}.")
    say(_address_use(fabric))
    if fabric.servers:
        say(_room(fabric))
    for warning in lab_limits(fabric.spec):
        _warn(warning)
    if fabric.spec.queues.pfc is not None:
        _print_lossless(fabric, fabric.spec.queues.pfc)


def _warn(text: str) -> None:
    err().print(f"warning: {text}", markup=False, soft_wrap=True)


def _room(fabric: Fabric) -> str:
    from rocelab.base.units import format_size
    from rocelab.planning.queues import full_classes_bytes, port_bytes

    buffer = fabric.spec.queues.buffer
    alone = f"A class of a switch port holds up to {format_size(buffer)}"
    if fabric.spec.queues.pfc is not None:
        return f"{alone} if it is not lossless."
    whole, two = port_bytes(buffer), full_classes_bytes(buffer, 2)
    return f"{alone}, all together {format_size(whole)}, two that are full {format_size(two)} each."


def _print_lossless(fabric: Fabric, pfc: PfcSpec) -> None:
    from rocelab.base.units import format_rate, format_size
    from rocelab.planning.dependencies import is_up_down, search
    from rocelab.planning.pfc import carve, nic_headrooms, nic_thresholds, slack_of, warnings

    console = out()
    dilation = fabric.spec.dilation
    carvings = carve(fabric, pfc)
    memory = table(
        f"Memory of a switch, lossless class{'es' * (len(pfc.classes) > 1)} "
        f"{', '.join(map(str, pfc.classes))}",
        ("role", "switches", "ports", "memory", "reserved", "headroom", "shared", "XOFF", "XON"),
    )
    for part in carvings:
        sizes = (part.memory, part.reserved, part.headroom_pool, part.shared, part.xoff, part.xon)
        counts = f"{part.switches:,}", f"{part.ports:,}"
        memory.add_row(part.role.name, *counts, *map(format_size, sizes))
    if pfc.xoff is None:
        memory.caption = "XOFF: of the first class that fills; it falls as others do"
    console.print(memory)

    needed = table(
        "Headroom of a port and class",
        (
            "link",
            "own frame",
            "peer's frame",
            "cable",
            "response",
            "cells",
            "needed",
            "lab's slack",
        ),
    )
    for link in dict.fromkeys(link for carving in carvings for link, _ in carving.headroom):
        terms = (link.frame, link.begun, link.cable, link.response)
        needed.add_row(
            format_rate(link.rate_bps),
            *map(format_size, terms),
            f"x {link.cell_factor:g}",
            format_size(link.total),
            format_size(slack_of(link, fabric.spec)),
        )
    needed.caption = "lab's slack: in addition to what is needed, for bursts of the lab's ports"
    console.print(needed)
    for link in nic_headrooms(fabric, pfc):
        xoff, xon = nic_thresholds(pfc, link.total)
        rate = format_rate(link.rate_bps)
        say(
            f"Receive buffer of a {rate} NIC: {format_size(pfc.nic.buffer)}, XOFF "
            f"{format_size(xoff)}, XON {format_size(xon)}; hosts take packets {_drained(pfc)}."
        )
    say(_watchdog(pfc, dilation))
    for warning in warnings(fabric.spec.queues, pfc, carvings, nic_headrooms(fabric, pfc)):
        _warn(warning)
    if is_up_down(fabric):
        say("The routes cannot deadlock: each goes up, then down, whichever links fail.")
        return
    with progress_bars() as progress:
        found = search(fabric, progress)
    if not found.states:
        say(
            "Whether the routes can deadlock is unknown: there are too many to follow. With "
            "routing.valley_free each goes up, then down, which needs no search."
        )
    elif found.cycle is None:
        scope = _searched(found.alone, len(fabric.trunks), pairs=found.pairs)
        say(f"The routes cannot deadlock, {scope}.")
    else:
        say(f"A deadlock is possible: buffers depend on each other along {found.cycle}.")


def _searched(alone: int, links: int, *, pairs: bool) -> str:
    """After which failures the routes were searched."""
    if pairs:
        return "also after the failure of any two links"
    if alone == links:
        return "also after the failure of any one link"
    if alone:
        return f"also after the failure of {alone:,} of its {links:,} links alone"
    return f"as long as no link fails (searched after the failure of 0 of {links:,} links)"


def _drained(pfc: PfcSpec) -> str:
    from rocelab.base.units import SHARE

    share = pfc.nic.drain
    return "as they come" if share is None else f"at {SHARE.written(share)} of the link's rate"


def _watchdog(pfc: PfcSpec, dilation: float) -> str:
    from rocelab.base.units import format_duration

    watchdog = pfc.watchdog
    if watchdog is None:
        return "No watchdog."
    detection, restoration = (
        f"{format_duration(time_ns)} ({format_duration(time_ns * dilation)} in the lab)"
        for time_ns in (watchdog.detection, watchdog.restoration)
    )
    return (
        f"Watchdog: {watchdog.action.value} after {detection} without a packet from a paused "
        f"queue, restored after {restoration} without a pause."
    )


def _uplink_table(fabric: Fabric) -> Table:
    from rocelab.base.units import format_rate
    from rocelab.planning.document import uplinks_by_tier

    shown = table("Uplink ratios", ("role", "switches", "down", "up", "down:up"))
    for tier in uplinks_by_tier(fabric):
        rates = format_rate(tier.down_bps), format_rate(tier.up_bps)
        shown.add_row(tier.role.name, f"{tier.switches:,}", *rates, tier.ratio)
    return shown


def _ecmp_table(fabric: Fabric) -> Table:
    from rocelab.planning.document import expected_widths
    from rocelab.planning.zones import divisions

    word_of = {
        role: (division, division.word) for division in divisions(fabric) for role in division.roles
    }
    widths: dict[tuple[str, str], set[int]] = {}
    for origins, reached in expected_widths(fabric).items():
        origin = origins[0].group
        of = f"{origin.role} pair" if len(origins) > 1 else origin.role.name
        for width in reached:
            division, word = word_of[width.group.role]
            other = origin.role in division.roles and width.group.zone != origin.zone
            where = f", another {word}" if other else ""
            widths.setdefault((of, f"{width.group.role}{where}"), set()).add(width.width)
    shown = table("Expected ECMP width", ("prefix of", "at", "next hops"), left=2, names=2)
    for (of, at), found in widths.items():
        shown.add_row(of, at, ", ".join(map(str, sorted(found))))
    return shown


def _address_use(fabric: Fabric) -> str:
    from ipaddress import ip_network

    from rocelab.fabrics.addressing import SPACE_SIZE, SPACE_TEXT

    originated = sum(
        ip_network(prefix.prefix).num_addresses for prefix in fabric.prefixes if not prefix.per_port
    )
    linked = 2 * len(fabric.trunks) if fabric.numbered else 0
    used = originated + linked
    return (
        f"Addresses: {used:,} of the {SPACE_SIZE:,} of {SPACE_TEXT} are in use "
        f"({used / SPACE_SIZE:.2%})."
    )


class RenderTarget(StrEnum):
    """The targets of `render`."""

    FRR = "frr"
    CONTAINERLAB = "containerlab"
    CLABERNETES = "clabernetes"


def render(
    lab: LabArgument,
    folder: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="DIR", help="Where to write.", show_default=False),
    ],
    target: Annotated[str, choice("target", RenderTarget, "What to write for.")] = RenderTarget.FRR,
    image: Annotated[
        str | None,
        typer.Option(
            metavar="IMAGE",
            help="Container image of every node, with FRR; by default that of `rocelab image "
            "build` if it is here and the target is containerlab, else FRR's own.",
            show_default=False,
        ),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write a lab's configuration files.

    For FRR, a folder per switch: DIR/SWITCH/{zebra,bgpd,bfdd}.conf. For containerlab, a folder
    that it deploys; for clabernetes, what `kubectl apply` takes.
    """
    from rocelab.base.errors import InputError
    from rocelab.lab.image import image_here
    from rocelab.lab.lab import Lab
    from rocelab.render.files import write_clabernetes, write_containerlab, write_rendered
    from rocelab.render.frr_image import DEFAULT_IMAGE

    if image is not None and target is RenderTarget.FRR:
        raise InputError("--image is for containers", "give --target containerlab or clabernetes")
    fabric = Lab.planned(lab_file(lab)).fabric
    warnings: tuple[str, ...] = ()
    with progress_bars() as progress:
        if target is RenderTarget.FRR:
            write_rendered(fabric, folder, progress, overwrite=force)
        elif target is RenderTarget.CONTAINERLAB:
            chosen = image or image_here() or DEFAULT_IMAGE
            warnings = write_containerlab(fabric, folder, chosen, progress, overwrite=force)
        else:
            warnings = write_clabernetes(fabric, folder, image or DEFAULT_IMAGE, overwrite=force)
    for warning in warnings:
        _warn(warning)
    say(f"configurations of {len(fabric.switches):,} switches of lab {fabric.name} are in {folder}")


class Picture(StrEnum):
    """The output formats of `graph`."""

    SVG = "svg"
    MERMAID = "mermaid"


def graph(
    lab: LabArgument,
    picture: Annotated[str, choice("format", Picture, "What to write.")] = Picture.SVG,
    file: FileOption = None,
    force: ForceOption = False,
) -> None:
    """Draw a lab's fabric, tiers in rows."""
    from rocelab.base.outputs import output_file
    from rocelab.lab.lab import Lab
    from rocelab.render.graph import mermaid, svg

    target = None if file is None else output_file(file, overwrite=force)
    fabric = Lab.planned(lab_file(lab)).fabric
    text = svg(fabric) if picture is Picture.SVG else mermaid(fabric)
    if target is None:
        write([text])
        return
    target.write(text)
    say(f"{picture} of lab {fabric.name} is in {file}")


def schema() -> None:
    """Print the JSON Schema of a lab's file, for editors that complete and check YAML."""
    from rocelab.labfile.schema import lab_schema

    write([jsonlib.dumps(lab_schema(), indent=2), "\n"])
