"""`rocelab path`: every hop of a flow, computed from tables and hash, and measured with probes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.base.quantities import Unit
from rocelab.cli.arguments import (
    JsonOption,
    LabArgument,
    NetworkOption,
    complete_server,
    running_or_planned,
)
from rocelab.cli.unprivileged import take_rights_for
from rocelab.report.console import say, show_blocks, write_json
from rocelab.report.document import Table, columns

if TYPE_CHECKING:
    from rocelab.routes.path import Path
    from rocelab.traffic.traceroute import Nodes

_ROCE_PORT = 4791
_Server = Annotated[
    str,
    typer.Option(
        metavar="SERVER",
        help="A server, or one of its NICs: srv1-1:2.",
        autocompletion=complete_server,
        show_default=False,
    ),
]
_Nic = Annotated[int, typer.Option(metavar="N", min=1, help="Which NIC of the server.")]


def path(
    lab: LabArgument,
    src: _Server,
    dst: _Server,
    sport: Annotated[
        int,
        typer.Option(metavar="PORT", help="UDP source port.", show_default=False, min=0, max=65535),
    ],
    dport: Annotated[
        int, typer.Option(metavar="PORT", help="UDP destination port.", min=0, max=65535)
    ] = _ROCE_PORT,
    qp: Annotated[
        int | None,
        typer.Option(
            metavar="QP",
            help="Destination QP, which e-ecmp hashes.",
            show_default=False,
            min=0,
            max=(1 << 24) - 1,
        ),
    ] = None,
    src_nic: _Nic = 1,
    dst_nic: _Nic = 1,
    probe: Annotated[
        bool, typer.Option("--probe", help="Also send packets, and exit 1 if they differ.")
    ] = False,
    network: NetworkOption = None,
    json: JsonOption = False,
) -> None:
    """Show every hop a flow takes: from the running kernels' tables, or as planned."""
    from rocelab.base.errors import InputError
    from rocelab.jobs.placement import find_nic
    from rocelab.lab.lab import RunningLab
    from rocelab.planning.fabric import RouteBasis
    from rocelab.planning.tenancy import forwarded_to
    from rocelab.record import not_up
    from rocelab.routes.path import walk
    from rocelab.routes.planned import planned_fibs

    chosen = running_or_planned(lab).network(network)
    fabric = chosen.fabric
    up = chosen if isinstance(chosen, RunningLab) else None
    take_rights_for("reading the tables of a lab that is up", is_up=up is not None)
    source, destination = find_nic(fabric, src, src_nic), find_nic(fabric, dst, dst_nic)
    if up is not None:
        fib_of = up.read_fibs()
    elif probe:
        raise not_up(fabric.name, f"there is nothing to probe: bring it up with `rocelab up {lab}`")
    else:
        fib_of = planned_fibs(fabric, fabric.prefixes_holding(forwarded_to(fabric, destination)))
    if probe and dport != _ROCE_PORT:
        raise InputError(f"probes are RoCEv2 packets: --dport can only be {_ROCE_PORT}")
    steering = None if up is None else up.steering.model()
    computed = walk(
        fabric, fib_of, source, destination, sport, dport, destination_qp=qp, steering=steering
    )
    seen: Nodes | None = None
    if up is not None and probe:
        from rocelab.traffic.traceroute import PROBE_QP, probe_path

        seen = probe_path(
            fabric,
            lambda name: up.node(name).netns,
            source,
            destination,
            [sport],
            destination_qp=PROBE_QP if qp is None else qp,
        )[sport]
    tables = "kernel"
    if up is None:
        tables = "assumed" if fabric.basis is RouteBasis.ASSUMED else "planned"
    scheme = (steering.scheme if steering else fabric.spec.scheme).kind
    if json:
        write_json(_document(fabric.name, computed, qp, scheme, tables, seen))
    else:
        _print(fabric.name, computed, qp, scheme, tables, seen)
    if seen is not None and seen != computed.nodes:
        raise typer.Exit(1)


def _document(
    lab: str, computed: Path, qp: int | None, scheme: str, tables: str, seen: Nodes | None
) -> dict[str, object]:
    document = {"lab": lab, "scheme": scheme, "tables": tables, **computed.document(qp)}
    if seen is not None:
        document["probe"] = {"hops": list(seen), "agrees": seen == computed.nodes}
    return document


def _print(
    lab: str, computed: Path, qp: int | None, scheme: str, tables: str, seen: Nodes | None
) -> None:
    flow = computed.flow
    origin = {
        "kernel": "the running kernels' tables",
        "planned": "planned tables (it is not up)",
        "assumed": "assumed tables of shortest paths (its own routing is known once it is up)",
    }[tables]
    to_qp = "" if qp is None else f" QP {qp}"
    say(
        f"lab {lab}, UDP {_end(flow.source, flow.source_port)} to "
        f"{_end(flow.destination, flow.destination_port)}{to_qp}, scheme {scheme}, from {origin}"
    )
    if computed.outer is not None:
        outer = computed.outer
        say(
            f"between leaves VXLAN, UDP {_end(outer.source, outer.source_port)} to "
            f"{_end(outer.destination, outer.destination_port)}"
        )
    rows = []
    for position, hop in enumerate(computed.hops):
        decided = hop.flow_hash is not None
        choice = f"{hop.index + 1} of {hop.width}" if decided else ""
        flow_hash = f"{hop.flow_hash:#010x}" if decided else ""
        port = hop.link.port
        rows.append((port.node, port.name, choice, flow_hash, *_met(seen, position)))
    rows.append((computed.destination, "", "", "", *_met(seen, len(computed.hops))))
    figures = ("choice", "hash", *(("probe met",) if seen else ()))
    head = (*columns(Unit.TEXT, "node", "leaves by"), *columns(Unit.FIGURE, *figures))
    show_blocks(Table("", head, tuple(rows)))
    if seen is not None:
        agrees = "agrees with" if seen == computed.nodes else "DIFFERS from"
        say(f"the probe {agrees} the computed path: {' '.join(node or '?' for node in seen)}")


def _met(seen: Nodes | None, position: int) -> tuple[str, ...]:
    if seen is None:
        return ()
    return ((seen[position] or "?") if position < len(seen) else "",)


def _end(address: str, port: int) -> str:
    """An address and a port, as URLs have them (RFC 3986 section 3.2.2)."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
