"""Reads the state of a lab, to find what a test has changed.

A fact is a place (node, thing) and the state there; `differences` of two readings are text.
Counters, process ids and the ids of programs are left out: they change by themselves.
"""

from __future__ import annotations

import hashlib
import ipaddress
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rocelab.lab.lab import RunningLab
from rocelab.linux import fib, links, namespaces, netlink, processes, tc
from rocelab.linux.settings import read_settings
from rocelab.planning.settings import node_settings
from rocelab.record import LabFiles

Facts = Mapping[tuple[str, str], str]
"""The state by node and thing."""

TCA_HTB_INIT = 2


def read_facts(lab: RunningLab) -> Facts:
    """The current state of kernels, daemons and processes. Raises OSError if a node is gone."""
    facts: dict[tuple[str, str], str] = {}
    fabric = lab.fabric

    def visit(name: str) -> None:
        settings = node_settings(fabric.network_of(name), fabric.node(name))
        with netlink.open_socket() as channel:
            for thing, value in _node_facts(channel, settings):
                facts[name, thing] = value

    netns_of = {node.name: lab.node(node.name).netns for node in fabric.nodes}
    with namespaces.opened(netns_of) as descriptors:
        namespaces.inside_each(descriptors, visit)
    facts.update(_configurations(lab))
    facts.update(_processes(lab))
    scheme = LabFiles(lab.name).root / "scheme"
    facts[lab.name, "scheme"] = scheme.read_text() if scheme.exists() else ""
    return facts


def differences(before: Facts, now: Facts) -> tuple[str, ...]:
    """What has changed, in words; routes last, since they follow from the rest."""
    places = sorted(before.keys() | now.keys(), key=lambda place: ("route " in place[1], place))
    return tuple(
        f"{node}: {thing} {_change(before.get((node, thing)), now.get((node, thing)))}"
        for node, thing in places
        if before.get((node, thing)) != now.get((node, thing))
    )


def _change(was: str | None, value: str | None) -> str:
    """The change of a thing; for a list, what was added and removed."""
    if value is None:
        return f"is gone (it was {was or 'empty'})"
    if was is None:
        return f"was not there (it is {value or 'empty'})"
    old, new = was.split(", "), value.split(", ")
    if max(len(old), len(new)) == 1:
        return f"is {value or 'none'}, and was {was or 'none'}"
    gone = [f"no longer {line}" for line in old if line and line not in new]
    come = [f"now {line}" for line in new if line and line not in old]
    return f"changed: {', '.join(gone + come) or f'{value}, and was {was}'}"


def _node_facts(channel: socket.socket, settings: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The facts of the calling thread's namespace, without processes."""
    interfaces = links.read_links(channel)
    names = {link.index: link.name for link in interfaces}
    for link in interfaces:
        yield from _interface(link)
        yield from _ordered(f"{link.name}'s queues", _queues(channel, link.index))
    yield from _ordered("address of", _addresses(channel, names))
    yield from _ordered("permanent neighbour on", _neighbours(channel, names))
    yield from _routes(channel, names)
    for setting, value in read_settings(settings).items():
        yield f"net/{setting}", value


def _interface(link: links.KernelLink) -> Iterator[tuple[str, str]]:
    yield f"{link.name}'s state", "up" if link.up else "down"
    yield f"{link.name}'s carrier", "present" if link.carrier else "missing"
    yield f"{link.name}'s MTU", str(link.mtu)
    yield f"{link.name}'s MAC", link.mac
    yield f"{link.name}'s root qdisc", link.qdisc


def _ordered(title: str, facts: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Merge the facts about each thing into one, sorted."""
    grouped: dict[str, list[str]] = {}
    for thing, value in facts:
        grouped.setdefault(thing, []).append(value)
    for thing, values in grouped.items():
        yield f"{title} {thing}".strip(), ", ".join(sorted(values))


def _queues(channel: socket.socket, index: int) -> Iterator[tuple[str, str]]:
    """Qdiscs, classes and filters of an interface, with a digest of their settings."""
    parents = []
    for kind, what in ((tc.RTM_GETQDISC, "qdisc"), (tc.RTM_GETTCLASS, "class")):
        for installed in tc.read(channel, kind, index):
            if what == "qdisc":
                clsact = installed.handle == tc.CLSACT_HANDLE
                parents += [tc.CLSACT_INGRESS, tc.CLSACT_EGRESS] if clsact else [installed.handle]
            place = f"{installed.handle:x} below {installed.parent:x}"
            yield "", f"{what} {installed.kind} {place} ({_digest(_settled(installed))})"
    for parent in parents:
        for installed in tc.read(channel, tc.RTM_GETTFILTER, index, parent):
            name = netlink.text(installed.options.get(tc.TCA_BPF_NAME, b""))
            place = f"{installed.handle:x} of priority {installed.info >> 16} at {parent:x}"
            yield "", f"filter {f'{installed.kind} {name}'.strip()} {place}"


def _settled(qdisc: tc.InstalledFilter) -> bytes:
    """A qdisc's options without packet counters (struct tc_htb_glob, direct_pkts)."""
    if qdisc.kind == "htb" and TCA_HTB_INIT in qdisc.options:
        return qdisc.options[TCA_HTB_INIT][:16]
    return qdisc.find(tc.TCA_OPTIONS)


def _addresses(channel: socket.socket, names: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    for address in links.read_addresses(channel):
        yield names[address.interface], f"{address.ip}/{address.length}"


def _neighbours(channel: socket.socket, names: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    for neighbour in links.read_neighbours(channel):
        if neighbour.interface in names:
            yield (
                names[neighbour.interface],
                f"{ipaddress.ip_address(neighbour.address)} is {neighbour.mac}",
            )


def _routes(channel: socket.socket, names: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """Routes with their next hops as a set: their order depends on which session came up first."""
    for route in fib.read_routes(channel):
        hops = ", ".join(sorted(_hop(hop, names) for hop in route.hops))
        yield f"route {route.prefix} of type {route.kind} and metric {route.metric}", hops


def _hop(hop: fib.KernelHop, names: Mapping[int, str]) -> str:
    gateway = fib.gateway_text(hop.gateway)
    return (
        f"{names.get(hop.interface, hop.interface)}"
        + (f" via {gateway}" if gateway else "")
        + (f" x {hop.weight}" if hop.weight > 1 else "")
        + ("" if hop.carrier else " without carrier")
    )


def _configurations(lab: RunningLab) -> Iterator[tuple[tuple[str, str], str]]:
    """A digest of each daemon's running configuration."""
    for switch in lab.fabric.switches:
        node = lab.node(switch.name)
        for daemon in node.daemons():
            try:
                text = node.stack.running_configuration(node.daemon_files, daemon)
            except OSError:
                text = "no answer"
            yield (switch.name, f"configuration of {daemon}"), _digest(text.encode())


def _processes(lab: RunningLab) -> Iterator[tuple[tuple[str, str], str]]:
    """The commands that run in each node, all found in one pass over /proc."""
    node_of = {lab.node(node.name).netns.stat().st_ino: node.name for node in lab.fabric.nodes}
    running: dict[str, list[str]] = {name: [] for name in node_of.values()}
    for pid in namespaces.processes_in(node_of):
        try:
            inode = Path(f"/proc/{pid}/ns/net").stat().st_ino
            running[node_of[inode]].append(processes.name_of(pid))
        except OSError:
            continue  # it has ended
    for name, commands in running.items():
        yield (name, "processes"), ", ".join(sorted(commands))


def _digest(data: bytes) -> str:
    return hashlib.blake2s(data, digest_size=4).hexdigest()
