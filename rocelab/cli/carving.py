"""The tables of `rocelab plan` for switches with a profile: what the files say, by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocelab.base.quantities import Unit
from rocelab.report.console import say, show_blocks
from rocelab.report.document import Column, Row, Table, columns

if TYPE_CHECKING:
    from rocelab.labfile.profile import ProfileSpec
    from rocelab.planning.fabric import Fabric
    from rocelab.planning.profiles import PortsByProfile


def print_profiles(fabric: Fabric) -> None:
    """Print the carving of each profile, and what the lab does instead."""
    from rocelab.planning.profiles import coarser, ports_by_profile

    kinds = ports_by_profile(fabric)
    for profile in {kind.profile.name: kind.profile for kind in kinds}.values():
        say(f"Switch profile {profile.name}, from {', '.join(profile.files)}")
        show_blocks(_pool_table(profile))
        for kind in kinds:
            if kind.profile is profile:
                show_blocks(_queue_table(kind), *_group_table(kind))
    notes = coarser(fabric)
    if notes:
        say("Instead, in the lab and the packet engine:")
        for note in notes:
            say(f"- {note}")


def _pool_table(profile: ProfileSpec) -> Table:
    return Table(
        "BUFFER_POOL",
        (
            *(Column(name) for name in ("pool", "type", "mode")),
            *columns(Unit.BYTES, "size", "xoff"),
        ),
        tuple(
            (name, pool.type, pool.mode.value, pool.size, pool.xoff or None)
            for name, pool in profile.pools.items()
        ),
    )


def _queue_table(kind: PortsByProfile) -> Table:
    like = f", as {kind.like}" if kind.like else ""
    return Table(
        f"Queues of {kind.ports:,} {kind.title}{like}",
        (
            Column("queue", Unit.NUMBER),
            Column("DSCPs", Unit.COUNT),
            Column("BUFFER_PROFILE"),
            Column("alone", Unit.BYTES),
            Column("SCHEDULER"),
            Column("weight"),
            Column("WRED_PROFILE"),
            *columns(Unit.BYTES, "min", "max"),
            Column("at max"),
        ),
        tuple(_queue_row(kind, place) for place in range(len(kind.queues))),
        caption="alone: the most that it holds while nothing else is held",
    )


def _queue_row(kind: PortsByProfile, place: int) -> Row:
    row = kind.queues[place]
    line = row.line
    return (
        row.queue,
        row.dscps,
        row.buffer or "none",
        row.limit,
        row.scheduler or "none",
        f"{row.weight}" if row.weight else "strict",
        row.wred or "none",
        None if line is None else line.kmin,
        None if line is None else line.kmax,
        "never marked" if line is None else f"{100 * line.pmax:g}%",
    )


def _group_table(kind: PortsByProfile) -> list[Table]:
    line = kind.group
    if line is None:
        return []
    is_dynamic = line.dynamic_th is not None
    offset = None if kind.has_no_offset else line.xon_offset
    return [
        Table(
            f"Lossless priority group of {kind.title}",
            (
                Column("profile"),
                *columns(Unit.BYTES, "reserved", "xoff (headroom)", "xon", "xon_offset"),
                Column("threshold"),
                Column("headroom is"),
            ),
            (
                (
                    line.name,
                    line.reserved,
                    line.headroom,
                    line.xon,
                    offset,
                    f"dynamic_th {line.dynamic_th}" if is_dynamic else f"static_th {line.xoff}",
                    "its own" if line.is_dedicated else "of the pool",
                ),
            ),
        )
    ]
