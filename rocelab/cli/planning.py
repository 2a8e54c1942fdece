"""Commands that need only a lab's file: plan, render, graph, schema."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.base.collection import uncollected
from rocelab.base.options import member_of, of_option
from rocelab.base.quantities import Unit, duration, rate, share, size
from rocelab.base.wording import counted
from rocelab.cli.arguments import FileOption, ForceOption, JsonOption, LabArgument, planned
from rocelab.cli.carving import print_profiles
from rocelab.cli.options import choice
from rocelab.report.console import err, progress_bars, say, show_blocks, write
from rocelab.report.document import Column, Table, columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocelab.fabrics.roles import Role
    from rocelab.labfile.pfc import PfcSpec
    from rocelab.planning.addresses import AddressRange
    from rocelab.planning.fabric import Fabric, Link, Node
    from rocelab.planning.pfc import Carving


MOST_ADDRESS_ROWS = 40
"""With more, the address plan has all zones of a role in one row."""

MOST_COUNTED = 2**32
"""A prefix of IPv6 has more addresses than anyone counts."""


@uncollected()
def plan(lab: LabArgument, json: JsonOption = False) -> None:
    """Show what a lab means: nodes, links, addresses, ASNs, BGP sessions, ECMP widths."""
    from rocelab.planning.document import plan_document

    fabric = planned(lab)
    if json:
        write(plan_document(fabric))
    else:
        _print_plan(fabric)


def _print_plan(fabric: Fabric) -> None:
    from rocelab.planning.fabric import RouteBasis
    from rocelab.planning.limits import lab_limits
    from rocelab.planning.routes import unreachable

    nodes, links = counted(len(fabric.nodes), "node"), counted(len(fabric.links), "link")
    if fabric.parts:
        several = sum(len(names) > 1 for names in fabric.networks_of.values())
        say(
            f"lab {fabric.name}: {nodes}, {links}, {counted(len(fabric.parts), 'network')} "
            f"({counted(several, 'server')} in more than one); nothing routes between networks"
        )
        for part in fabric.parts:
            say("")
            _print_plan(part)
        return
    name = fabric.network_name
    say(f"{'lab' if name is None else 'network'} {name or fabric.name}: {nodes}, {links}")
    addressing = f"{_networks(fabric)} each" if fabric.numbered else "unnumbered (IPv6 link-local)"
    if fabric.basis is not RouteBasis.PLANNED:
        say(f"{fabric.basis.text}.")
    show_blocks(_node_table(fabric), _link_table(fabric))
    if fabric.servers:
        if fabric.is_tiered:
            show_blocks(_uplink_table(fabric))
        else:
            say("Uplink ratios: not applicable, as the fabric has no tiers.")
    show_blocks(_ecmp_table(fabric), _address_table(fabric))
    if fabric.tenants:
        from rocelab.cli.tenants import print_tenants

        print_tenants(fabric)
    if fabric.trunks:
        say(f"Links between switches: {addressing}.")
    say(_address_use(fabric))
    if fabric.servers:
        say(_room(fabric))
    for warning in (*lab_limits(fabric.spec), *unreachable(fabric)):
        _warn(warning)
    if fabric.spec.queues.pfc is not None:
        _print_lossless(fabric, fabric.spec.queues.pfc)
    print_profiles(fabric)


def _node_table(fabric: Fabric) -> Table:

    shared = any(len(prefix.origins) > 1 for prefix in fabric.prefixes)
    originated = Counter(
        (fabric.node(prefix.origins[0]).role, prefix.per_port) for prefix in fabric.prefixes
    )
    members: dict[Role, list[Node]] = {}
    for node in fabric.nodes:
        members.setdefault(node.role, []).append(node)
    return Table(
        "Nodes",
        (
            Column("role"),
            *columns(Unit.COUNT, "nodes", "ASNs", "prefixes"),
            *columns(Unit.COUNT, *(("NICs of several ports",) if shared else ())),
        ),
        tuple(
            (
                role.name,
                len(members[role]),
                len({node.asn for node in members[role]} - {None}),
                originated[role, False],
                *((originated[role, True],) if shared else ()),
            )
            for role in sorted(members, key=lambda role: -role.tier)
        ),
    )


def _link_table(fabric: Fabric) -> Table:
    kinds: dict[tuple[Role, Role, int, int], list[Link]] = {}
    for link in fabric.links:
        key = (link.a.role, link.b.role, link.rate_bps, link.mtu)
        kinds.setdefault(key, []).append(link)
    sessions = set(fabric.sessions)
    return Table(
        "Links",
        (
            Column("between"),
            Column("links", Unit.COUNT),
            Column("rate", Unit.BITS_PER_S),
            Column("MTU", Unit.NUMBER),
            Column("BGP sessions", Unit.COUNT),
        ),
        tuple(
            (f"{lower} to {upper}", len(links), rate_bps, mtu, len(sessions.intersection(links)))
            for (lower, upper, rate_bps, mtu), links in kinds.items()
        ),
    )


def _networks(fabric: Fabric) -> str:
    """`a /31`, `a /31 and a /127`, `a /30 or /31`: the networks of links between switches."""
    primary = {link.a.address for link in fabric.trunks}
    other = {link.a.other_address for link in fabric.trunks}
    by_family = ({text.partition("/")[2] for text in of if text} for of in (primary, other))
    return " and ".join(f"a /{' or /'.join(sorted(of))}" for of in by_family if of)


def _warn(text: str) -> None:
    err().print(f"warning: {text}", markup=False, soft_wrap=True)


def _room(fabric: Fabric) -> str:
    from rocelab.planning.queues import full_classes_bytes, port_bytes

    buffer = fabric.spec.queues.buffer
    alone = f"A class of a switch port holds up to {size(buffer)}"
    if fabric.spec.queues.pfc is not None:
        return f"{alone} if it is not lossless."
    whole, two = port_bytes(buffer), full_classes_bytes(buffer, 2)
    return f"{alone}, all together {size(whole)}, two that are full {size(two)} each."


def _print_lossless(fabric: Fabric, pfc: PfcSpec) -> None:
    from rocelab.planning.dependencies import is_up_down, search
    from rocelab.planning.pfc import carve, nic_headrooms, nic_thresholds, warnings

    dilation = fabric.spec.dilation
    carvings = carve(fabric, pfc)
    show_blocks(_memory_table(carvings, pfc), _headroom_table(fabric, carvings))
    for link in nic_headrooms(fabric, pfc):
        xoff, xon = nic_thresholds(pfc, link.total)
        rate_text = rate(link.rate_bps)
        say(
            f"Receive buffer of a {rate_text} NIC: {size(pfc.nic.buffer)}, XOFF "
            f"{size(xoff)}, XON {size(xon)}; hosts take packets {_drained(pfc)}."
        )
    say(_watchdog(pfc, dilation))
    for warning in warnings(fabric.spec.queues, pfc, carvings, nic_headrooms(fabric, pfc)):
        _warn(warning)
    if is_up_down(fabric):
        say("The routes cannot deadlock: each goes up, then down, whichever links fail.")
        return
    with progress_bars() as progress:
        outcome = search(fabric, progress)
    if not outcome.states:
        say(
            "Whether the routes can deadlock is unknown: there are too many to follow. With "
            "routing.valley_free each goes up, then down, which needs no search."
        )
    elif outcome.cycle is None:
        scope = _searched(outcome.alone, len(fabric.trunks), pairs=outcome.pairs)
        say(f"The routes cannot deadlock, {scope}.")
    else:
        say(f"A deadlock is possible: buffers depend on each other along {outcome.cycle}.")


def _memory_table(carvings: Sequence[Carving], pfc: PfcSpec) -> Table:
    classes = ", ".join(map(str, pfc.classes))
    sizes = ("memory", "reserved", "headroom", "shared", "XOFF", "XON")
    return Table(
        f"Memory of a switch, lossless class{'es' * (len(pfc.classes) > 1)} {classes}",
        (Column("role"), *columns(Unit.COUNT, "switches", "ports"), *columns(Unit.BYTES, *sizes)),
        tuple(
            (
                part.role.name,
                part.switches,
                part.ports,
                part.memory,
                part.reserved,
                part.headroom_pool,
                part.shared,
                part.xoff,
                part.xon,
            )
            for part in carvings
        ),
        caption="XOFF: of the first class that fills; it falls as others do"
        if any(part.is_dynamic for part in carvings)
        else "",
    )


def _headroom_table(fabric: Fabric, carvings: Sequence[Carving]) -> Table:
    from rocelab.planning.pfc import slack_of

    return Table(
        "Headroom of a port and class",
        (
            Column("link", Unit.BITS_PER_S),
            *columns(Unit.BYTES, "own frame", "peer's frame", "cable", "response"),
            Column("cells", Unit.FIGURE),
            *columns(Unit.BYTES, "needed", "lab's slack"),
        ),
        tuple(
            (
                link.rate_bps,
                link.frame,
                link.begun,
                link.cable,
                link.response,
                f"x {link.cell_factor:g}",
                link.total,
                slack_of(link, fabric.spec),
            )
            for link in dict.fromkeys(link for part in carvings for link, _ in part.headroom)
        ),
        caption="lab's slack: in addition to what is needed, for bursts of the lab's ports",
    )


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
    watchdog = pfc.watchdog
    if watchdog is None:
        return "No watchdog."
    detection, restoration = (
        f"{duration(time_ns)} ({duration(time_ns * dilation)} in the lab)"
        for time_ns in (watchdog.detection, watchdog.restoration)
    )
    return (
        f"Watchdog: {watchdog.action.value} after {detection} without a packet from a paused "
        f"queue, restored after {restoration} without a pause."
    )


def _uplink_table(fabric: Fabric) -> Table:
    from rocelab.planning.document import uplinks_by_tier

    return Table(
        "Uplink ratios",
        (
            Column("role"),
            Column("switches", Unit.COUNT),
            *columns(Unit.BITS_PER_S, "down", "up"),
            Column("down:up", Unit.FIGURE),
        ),
        tuple(
            (tier.role.name, tier.switches, tier.down_bps, tier.up_bps, tier.ratio)
            for tier in uplinks_by_tier(fabric)
        ),
    )


def _ecmp_table(fabric: Fabric) -> Table:
    from rocelab.planning.document import expected_widths
    from rocelab.planning.zones import divisions

    word_of = {
        role: (division, division.word) for division in divisions(fabric) for role in division.roles
    }
    widths: dict[tuple[str, str], set[int]] = {}
    for origins, reached in expected_widths(fabric).items():
        origin = origins[0].group
        shared = "pair" if len(origins) == 2 else f"group of {len(origins)}"
        of = f"{origin.role} {shared}" if len(origins) > 1 else origin.role.name
        for width in reached:
            division, word = word_of[width.group.role]
            other = origin.role in division.roles and width.group.zone != origin.zone
            where = f", another {word}" if other else ""
            widths.setdefault((of, f"{width.group.role}{where}"), set()).add(width.width)
    return Table(
        "Expected ECMP width",
        (*columns(Unit.TEXT, "prefix of", "at"), Column("next hops", Unit.FIGURE)),
        tuple(
            (of, at, ", ".join(map(str, sorted(numbers)))) for (of, at), numbers in widths.items()
        ),
        names=2,
    )


def _address_table(fabric: Fabric) -> Table:
    from rocelab.planning.addresses import address_plan
    from rocelab.planning.zones import divisions

    word_of = {
        role.name: division.word
        for division in divisions(fabric)
        for role in division.roles
        if len(division.zones) > 1
    }
    ranges = address_plan(fabric)
    if len(ranges) > MOST_ADDRESS_ROWS:
        ranges = address_plan(fabric, by_zone=False)

    def subject(part: AddressRange) -> str:
        word = None if part.zone is None else word_of.get(part.roles[0])
        return " to ".join(part.roles) + (f", {word} {part.zone}" if word else "")

    return Table(
        "Addresses and AS numbers",
        (
            *columns(Unit.TEXT, "use", "of"),
            Column("number", Unit.COUNT),
            *columns(Unit.FIGURE, "first", "last"),
        ),
        tuple(
            (part.use.value, subject(part), part.count, part.first, part.last) for part in ranges
        ),
        names=2,
    )


def _address_use(fabric: Fabric) -> str:
    from rocelab.planning.addresses import addresses_in_use

    uses = (
        f"{use.used:,} of the {use.size:,} of {use.prefix} are in use "
        f"({share(use.used / use.size)})"
        if use.size <= MOST_COUNTED
        else f"{use.used:,} of {use.prefix} are in use"
        for use in addresses_in_use(fabric)
    )
    return f"Addresses: {', '.join(uses)}."


class RenderTarget(StrEnum):
    """The targets of `render`."""

    FRR = "frr"
    CONTAINERLAB = "containerlab"
    CLABERNETES = "clabernetes"


def render(
    lab: LabArgument,
    folder: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Where to write.", show_default=False),
    ] = None,
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
    diff: Annotated[
        bool,
        typer.Option(
            "--diff",
            help="Print what your values, templates or files change of the kit's configuration, "
            "and write nothing.",
        ),
    ] = False,
    force: ForceOption = False,
) -> None:
    """Write a lab's configuration files.

    For FRR, a folder per switch: DIR/SWITCH/{zebra,bgpd,bfdd}.conf. For containerlab, a folder
    that it deploys; for clabernetes, what `kubectl apply` takes.
    """
    from rocelab.base.errors import InputError
    from rocelab.lab.image import image_here
    from rocelab.render.files import write_clabernetes, write_containerlab, write_rendered
    from rocelab.render.frr_image import DEFAULT_IMAGE

    if diff:
        _print_difference(planned(lab))
        return
    if folder is None:
        raise InputError("render needs a folder", "give one with --out DIR, or ask with --diff")
    if image is not None and target is RenderTarget.FRR:
        raise InputError("--image is for containers", "give --target containerlab or clabernetes")
    fabric = planned(lab)
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


def _print_difference(fabric: Fabric) -> None:
    from rocelab.render.difference import configuration_difference

    lines = list(configuration_difference(fabric))
    write(f"{line}\n" for line in lines)
    if not lines:
        say(f"the switches of lab {fabric.name} have the configuration that rocelab renders")


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
    from rocelab.render.graph import mermaid, svg

    target = None if file is None else output_file(file, overwrite=force)
    fabric = planned(lab)
    text = svg(fabric) if picture is Picture.SVG else mermaid(fabric)
    if target is None:
        write([text])
        return
    target.write(text)
    say(f"{picture} of lab {fabric.name} is in {file}")


def schema(
    kind: Annotated[
        str, typer.Argument(help="lab, drill, job, flows or sweep.", metavar="KIND")
    ] = "lab",
) -> None:
    """Print the JSON Schema of a kind of file, for editors that complete and check YAML.

    A file names its schema in its first line, as those that ship do.

    rocelab schema drill > schemas/drill.schema.json
    """
    from rocelab.cli.schemas import SchemaKind, schema_text

    with of_option("KIND"):
        chosen = member_of(SchemaKind, kind)
    write([schema_text(chosen)])
