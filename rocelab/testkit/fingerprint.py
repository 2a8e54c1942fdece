"""What a lab is like, so that a test can be told from one that left it as it was.

In: a running lab. Out: its facts, each a place (node, thing) and what was found there; and in words
what differs between two readings. Counters, process ids and the ids of programs are left out: they
change without anyone changing the lab.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from rocelab.kernel import namespaces, netlink, tc
from rocelab.plan.settings import node_settings
from rocelab.runtime.daemons import vty_command
from rocelab.runtime.lab import Lab
from rocelab.runtime.record import LabFiles
from rocelab.runtime.wiring import NUD_PERMANENT

Facts = Mapping[tuple[str, str], str]
"""What was found, by node and thing."""

RTM_NEWLINK, RTM_GETLINK = 16, 18
RTM_GETADDR, RTM_GETROUTE, RTM_GETNEIGH = 22, 26, 30
RTM_GETTFILTER = 46
IFF_UP, IFF_LOWER_UP, RTNH_F_LINKDOWN = 0x1, 0x10000, 16
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_QDISC = 1, 3, 4, 6
IFA_ADDRESS, IFA_LOCAL = 1, 2
NDA_DST, NDA_LLADDR = 1, 2
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_MULTIPATH, RTA_VIA = 1, 4, 5, 6, 9, 18
RT_TABLE_MAIN = 254
TCA_BPF_NAME = 7
TCA_HTB_INIT = 2

_IFINFO = struct.Struct("=BxHiII")
_IFADDR = struct.Struct("=BBBBI")
_NDMSG = struct.Struct("=BxxxiHBB")
_RTMSG = struct.Struct("=BBBBBBBBI")
_RTNEXTHOP = struct.Struct("=HBBi")
_U32 = struct.Struct("=I")


def read_facts(lab: Lab) -> Facts:
    """The lab as kernels, daemons and processes are now. Raises OSError where a node is gone."""
    facts: dict[tuple[str, str], str] = {}
    fabric = lab.fabric
    with ExitStack() as stack:
        descriptors = {}
        for node in fabric.nodes:
            opened = os.open(lab.node(node.name).netns, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, opened)
            descriptors[node.name] = opened

        def visit(name: str) -> None:
            settings = node_settings(fabric, fabric.node(name))
            with netlink.open_socket() as channel:
                for thing, found in _node_facts(channel, settings):
                    facts[name, thing] = found

        namespaces.inside_each(descriptors, visit)
    facts.update(_configurations(lab))
    facts.update(_processes(lab))
    scheme = LabFiles(lab.name).root / "scheme"
    facts[lab.name, "scheme"] = scheme.read_text() if scheme.exists() else ""
    return facts


def differences(before: Facts, now: Facts) -> tuple[str, ...]:
    """What is not as it was, in words; routes last, since they follow from the rest."""
    places = sorted(before.keys() | now.keys(), key=lambda place: ("route " in place[1], place))
    return tuple(
        f"{node}: {thing} {_change(before.get((node, thing)), now.get((node, thing)))}"
        for node, thing in places
        if before.get((node, thing)) != now.get((node, thing))
    )


def _change(was: str | None, found: str | None) -> str:
    """What became of a thing; where it is a list, what came and what went."""
    if found is None:
        return f"is gone (it was {was or 'empty'})"
    if was is None:
        return f"was not there (it is {found or 'empty'})"
    old, new = was.split(", "), found.split(", ")
    if max(len(old), len(new)) == 1:
        return f"is {found or 'none'}, and was {was or 'none'}"
    gone = [f"no longer {each}" for each in old if each and each not in new]
    come = [f"now {each}" for each in new if each and each not in old]
    return f"changed: {', '.join(gone + come) or f'{found}, and was {was}'}"


def _node_facts(channel: socket.socket, settings: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Everything of the calling thread's namespace but its processes."""
    names = dict(socket.if_nameindex())
    for body in netlink.dump(channel, RTM_GETLINK, bytes(_IFINFO.size)):
        yield from _interface(body)
    for index, name in names.items():
        yield from _ordered(f"{name}'s queues", _queues(channel, index))
    yield from _ordered("address of", _addresses(channel, names))
    yield from _ordered("permanent neighbour on", _neighbours(channel, names))
    yield from _routes(channel, names)
    for setting in settings:
        yield f"net/{setting}", Path("/proc/sys/net", setting).read_text().strip()


def _interface(body: bytes) -> Iterator[tuple[str, str]]:
    flags = _IFINFO.unpack_from(body)[3]
    told = tc.attributes(body[_IFINFO.size :])
    name = _text(told[IFLA_IFNAME])
    yield f"{name}'s state", "up" if flags & IFF_UP else "down"
    yield f"{name}'s carrier", "present" if flags & IFF_LOWER_UP else "missing"
    yield f"{name}'s MTU", str(_U32.unpack(told[IFLA_MTU])[0])
    yield f"{name}'s MAC", told.get(IFLA_ADDRESS, b"").hex(":")
    yield f"{name}'s root qdisc", _text(told.get(IFLA_QDISC, b""))


def _ordered(title: str, found: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Facts that come one by one about the same thing as one, in an order of their own."""
    grouped: dict[str, list[str]] = {}
    for thing, value in found:
        grouped.setdefault(thing, []).append(value)
    for thing, values in grouped.items():
        yield f"{title} {thing}".strip(), ", ".join(sorted(values))


def _queues(channel: socket.socket, index: int) -> Iterator[tuple[str, str]]:
    """Qdiscs, classes and filters of an interface, with a digest of what they are set to."""
    parents = []
    for kind, what in ((tc.RTM_GETQDISC, "qdisc"), (tc.RTM_GETTCLASS, "class")):
        for body in netlink.dump(channel, kind, tc.TCMSG.pack(0, index, 0, 0, 0)):
            _, owner, handle, parent, _ = tc.TCMSG.unpack_from(body)
            told = tc.attributes(body[tc.TCMSG.size :])
            if owner != index or tc.TCA_KIND not in told:
                continue  # qdiscs of all interfaces are listed, whichever was asked for
            name = _text(told[tc.TCA_KIND])
            if what == "qdisc":
                clsact = handle == tc.CLSACT_HANDLE
                parents += [tc.CLSACT_INGRESS, tc.CLSACT_EGRESS] if clsact else [handle]
            digest = _digest(_settled(name, told.get(tc.TCA_OPTIONS, b"")))
            yield "", f"{what} {name} {handle:x} below {parent:x} ({digest})"
    for parent in parents:
        for body in netlink.dump(channel, RTM_GETTFILTER, tc.TCMSG.pack(0, index, 0, parent, 0)):
            _, _, handle, _, info = tc.TCMSG.unpack_from(body)
            told = tc.attributes(body[tc.TCMSG.size :])
            program = tc.attributes(told.get(tc.TCA_OPTIONS, b"")).get(TCA_BPF_NAME, b"")
            kind_name = f"{_text(told[tc.TCA_KIND])} {_text(program)}".strip()
            yield "", f"filter {kind_name} {handle:x} of priority {info >> 16} at {parent:x}"


def _settled(kind: str, options: bytes) -> bytes:
    """A qdisc's options without what counts packets (struct tc_htb_glob, direct_pkts)."""
    if kind != "htb" or TCA_HTB_INIT not in (told := tc.attributes(options)):
        return options
    return told[TCA_HTB_INIT][:16]


def _addresses(channel: socket.socket, names: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    for body in netlink.dump(channel, RTM_GETADDR, bytes(_IFADDR.size)):
        _, length, _, _, index = _IFADDR.unpack_from(body)
        told = tc.attributes(body[_IFADDR.size :])
        address = told.get(IFA_LOCAL) or told[IFA_ADDRESS]
        yield names[index], f"{ipaddress.ip_address(address)}/{length}"


def _neighbours(channel: socket.socket, names: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    for body in netlink.dump(channel, RTM_GETNEIGH, bytes(_NDMSG.size)):
        _, index, state, _, _ = _NDMSG.unpack_from(body)
        told = tc.attributes(body[_NDMSG.size :])
        if state & NUD_PERMANENT and NDA_DST in told and index in names:
            mac = told.get(NDA_LLADDR, b"").hex(":")
            yield names[index], f"{ipaddress.ip_address(told[NDA_DST])} is {mac}"


def _routes(channel: socket.socket, names: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """Routes with their next hops as a set: their order depends on which session came up first."""
    request = _RTMSG.pack(socket.AF_INET, 0, 0, 0, 0, 0, 0, 0, 0)
    for body in netlink.dump(channel, RTM_GETROUTE, request):
        _, length, _, _, table, _, _, kind, _ = _RTMSG.unpack_from(body)
        if table != RT_TABLE_MAIN:
            continue
        told = tc.attributes(body[_RTMSG.size :])
        metric = _U32.unpack(told.get(RTA_PRIORITY, bytes(4)))[0]
        prefix = f"{ipaddress.ip_address(told.get(RTA_DST, bytes(4)))}/{length}"
        hops = ", ".join(sorted(_hops(told, names)))
        yield f"route {prefix} of type {kind} and metric {metric}", hops


def _hops(told: Mapping[int, bytes], names: Mapping[int, str]) -> Iterator[str]:
    if RTA_OIF in told:
        yield _hop(_U32.unpack(told[RTA_OIF])[0], 1, told, names)
    several, offset = told.get(RTA_MULTIPATH, b""), 0
    while offset + _RTNEXTHOP.size <= len(several):
        length, flags, weight, index = _RTNEXTHOP.unpack_from(several, offset)
        attributes = tc.attributes(several[offset + _RTNEXTHOP.size : offset + length])
        dead = " without carrier" if flags & RTNH_F_LINKDOWN else ""
        yield _hop(index, weight + 1, attributes, names) + dead
        offset += (length + 3) & ~3


def _hop(index: int, weight: int, told: Mapping[int, bytes], names: Mapping[int, str]) -> str:
    gateway = told.get(RTA_GATEWAY) or told.get(RTA_VIA, b"")[2:]
    via = f" via {ipaddress.ip_address(gateway)}" if gateway else ""
    return f"{names.get(index, index)}{via}" + (f" x {weight}" if weight > 1 else "")


def _configurations(lab: Lab) -> Iterator[tuple[tuple[str, str], str]]:
    """A digest of what each daemon says it is configured with."""
    for switch in lab.fabric.switches:
        node = lab.node(switch.name)
        for daemon in node.daemons():
            try:
                text = vty_command(node.frr, daemon, "show running-config")
            except OSError:
                text = "no answer"
            yield (switch.name, f"configuration of {daemon}"), _digest(text.encode())


def _processes(lab: Lab) -> Iterator[tuple[tuple[str, str], str]]:
    """The commands that run in each node, all found in one pass over /proc."""
    node_of = {lab.node(each.name).netns.stat().st_ino: each.name for each in lab.fabric.nodes}
    running: dict[str, list[str]] = {name: [] for name in node_of.values()}
    for pid in namespaces.processes_in(node_of):
        try:
            inode = Path(f"/proc/{pid}/ns/net").stat().st_ino
            running[node_of[inode]].append(Path(f"/proc/{pid}/comm").read_text().strip())
        except OSError:
            continue  # it has ended
    for name, commands in running.items():
        yield (name, "processes"), ", ".join(sorted(commands))


def _digest(data: bytes) -> str:
    return hashlib.blake2s(data, digest_size=4).hexdigest()


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode()
