"""Reads a configuration in FRR's integrated form, the file `frr.conf` of a switch, as far as a plan
needs it: which daemons it is for, the AS number and the addresses. Pure.

Lines are what FRR's `show running-config` prints: blocks begin at the margin. The kit has log
files, accounts and the host name of its own: such lines are replaced. What reaches beyond the
switch, such as a file that a daemon would write, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_interface

MOST_LINE = 4096
LOOPBACK = "lo"

_DAEMON_OF_BLOCK = (
    (r"router bgp\b", "bgpd"),
    (r"router ospf(?!6)", "ospfd"),
    (r"router ospf6\b", "ospf6d"),
    (r"router isis\b", "isisd"),
    (r"router openfabric\b", "fabricd"),
    (r"router rip\b", "ripd"),
    (r"router ripng\b", "ripngd"),
    (r"router eigrp\b", "eigrpd"),
    (r"router babel\b", "babeld"),
    (r"(ip|ipv6) route\b", "staticd"),
    (r"bfd\b", "bfdd"),
    (r"mpls ldp\b", "ldpd"),
    (r"ip (pim|igmp|msdp|mroute)\b", "pimd"),
    (r"pbr-map\b", "pbrd"),
    (r"vrrp\b", "vrrpd"),
    (r"segment-routing\b", "pathd"),
)
_DAEMON_OF_LINE = (
    (r"neighbor \S+ bfd\b|ip ospf bfd\b|ipv6 ospf6 bfd\b|isis bfd\b|ip pim bfd\b", "bfdd"),
    (r"ip (pim|igmp)\b", "pimd"),
    (r"ip ospf\b", "ospfd"),
    (r"ipv6 ospf6\b", "ospf6d"),
    (r"(ip|ipv6) router isis\b", "isisd"),
    (r"(ip|ipv6) router openfabric\b", "fabricd"),
    (r"vrrp \d", "vrrpd"),
    (r"pbr-policy\b", "pbrd"),
)
START_ORDER = (
    *("zebra", "staticd", "bfdd", "ospfd", "ospf6d", "isisd", "fabricd", "ripd", "ripngd"),
    *("eigrpd", "babeld", "pimd", "ldpd", "pbrd", "vrrpd", "pathd", "bgpd"),
)
"""FRR's daemons that a switch may run, in start order; mgmtd is the release's affair."""

_REPLACED = re.compile(
    r"(no )?(log|hostname|domainname|username|password|enable password|allow-external"
    r"|service (integrated-vtysh-config|password-encryption|advanced-vty|terminal-length)"
    r"|exec-timeout|access-class|banner motd (default|line))\b"
)
_REFUSED = (
    (
        r"(do|shell|start-shell|copy|write|ping|traceroute|telnet|ssh|terminal|configure)\b",
        "a command",
    ),
    (r"dump\b", "it makes a daemon write a file"),
    (r"banner motd file\b", "it reads a file of the machine"),
    (r"(no )?(python|script|hook|agentx|fpm|sharp)\b", "it reaches beyond the switch"),
    (r"netns\b", "it names a namespace of the machine"),
)
_VRF = re.compile(r"vrf \S+|router \S+ (\S+ )?vrf \S+|interface \S+ vrf \S+")


@dataclass(frozen=True, slots=True)
class FrrFileProblem:
    """What is wrong in a line of a file."""

    line: int
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class FrrFile:
    """What a switch's file says, as far as a plan needs it."""

    text: str
    """The file with empty lines in place of those that are replaced, so that lines keep their
    numbers."""
    replaced: tuple[str, ...]
    """The lines that the kit has its own in place of."""
    daemons: tuple[str, ...]
    """What runs it, in start order."""
    defaults: str
    """The profile of `frr defaults`."""
    asn: int | None
    """Of the default BGP instance."""
    router_id: str | None
    """The first that is written, BGP's before another protocol's."""
    addresses: Mapping[str, str]
    """Of each interface that has one, its first IPv4 address with its length."""
    addresses6: Mapping[str, str]
    """The same of IPv6, without link-local ones."""
    ospf: tuple[str, ...]
    """The lines that begin an instance of OSPF."""
    lsp_interval_s: int | None
    """Between two of IS-IS's LSPs of its own; None: FRR's default."""
    vrf: str | None
    """The first line that needs a VRF."""
    problems: tuple[FrrFileProblem, ...] = ()


@dataclass
class _Reader:
    """What was read so far."""

    lines: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    daemons: set[str] = field(default_factory=lambda: {"zebra"})
    defaults: str = "traditional"
    asn: int | None = None
    router_ids: dict[str, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    addresses6: dict[str, str] = field(default_factory=dict)
    ospf: list[str] = field(default_factory=list)
    lsp_interval_s: int | None = None
    vrf: str | None = None
    problems: list[FrrFileProblem] = field(default_factory=list)
    block: str = ""
    """The line at the margin that the current one is below."""


def read_frr_file(text: str) -> FrrFile:
    """What a file says. `problems` has what is refused; FRR itself checks the rest."""
    reader = _Reader()
    for number, raw in enumerate(text.splitlines(), start=1):
        _take(reader, number, raw.rstrip())
    ids = reader.router_ids
    return FrrFile(
        text="".join(f"{line}\n" for line in reader.lines),
        replaced=tuple(reader.replaced),
        daemons=tuple(name for name in START_ORDER if name in reader.daemons),
        defaults=reader.defaults,
        asn=reader.asn,
        router_id=ids.get("bgp") or next(iter(ids.values()), None),
        addresses=reader.addresses,
        addresses6=reader.addresses6,
        ospf=tuple(dict.fromkeys(reader.ospf)),
        lsp_interval_s=reader.lsp_interval_s,
        vrf=reader.vrf,
        problems=tuple(reader.problems),
    )


def _take(reader: _Reader, number: int, raw: str) -> None:
    line = " ".join(raw.split())
    if not line or line.startswith(("!", "#")):
        reader.lines.append(raw)
        return
    if len(raw) > MOST_LINE or not raw.replace("\t", " ").isprintable():
        reader.lines.append("")
        reader.problems.append(
            FrrFileProblem(
                number, f"expected printable text of at most {MOST_LINE:,} characters a line"
            )
        )
        return
    if not raw[0].isspace() and line not in ("exit", "end"):
        reader.block = line
    if _REPLACED.match(line) and (reader.block == line or reader.block.startswith("line vty")):
        reader.replaced.append(line)
        reader.lines.append("")
        return
    reader.lines.append("" if line == "end" else raw)
    problem = next((why for pattern, why in _REFUSED if re.match(pattern, line)), None)
    if problem is not None:
        reader.problems.append(
            FrrFileProblem(number, f"`{line}` is refused: {problem}", "remove the line")
        )
        return
    _note(reader, number, line)


def _note(reader: _Reader, number: int, line: str) -> None:
    """Take what a plan needs of a line."""
    block, at_margin = reader.block, reader.block == line
    patterns = (*_DAEMON_OF_BLOCK, *_DAEMON_OF_LINE) if at_margin else _DAEMON_OF_LINE
    reader.daemons |= {daemon for pattern, daemon in patterns if re.match(pattern, line)}
    if _VRF.match(line) and reader.vrf is None:
        reader.vrf = line
    match line.split():
        case ["router", "ospf", *_] if at_margin:
            reader.ospf.append(line)
        case ["lsp-gen-interval", *_, seconds] if seconds.isdecimal():
            reader.lsp_interval_s = max(int(seconds), reader.lsp_interval_s or 0)
        case ["frr", "defaults", profile]:
            reader.defaults = profile
        case ["router", "bgp", asn, *rest] if at_margin and "vrf" not in rest:
            reader.asn = _asn(asn)
        case [_, "router-id", router_id] if _is_address(router_id):
            reader.router_ids.setdefault(block.split()[1] if "router" in block else "", router_id)
        case ["ip" | "ipv6" as family, "address", address, *_] if block.startswith("interface "):
            addresses = reader.addresses if family == "ip" else reader.addresses6
            _take_address(reader, addresses, number, block.split()[1], address)
        case _:
            pass


def _take_address(
    reader: _Reader, addresses: dict[str, str], number: int, interface: str, address: str
) -> None:
    version = 4 if addresses is reader.addresses else 6
    try:
        value = ip_interface(address)
    except ValueError:
        value = None
    if value is None or value.version != version or "/" not in address:
        expected = f"expected an IPv{version} address with its length, got {address}"
        reader.problems.append(FrrFileProblem(number, expected))
    elif not value.ip.is_link_local and not value.ip.is_loopback:
        addresses.setdefault(interface, value.with_prefixlen)


def _asn(text: str) -> int | None:
    """An AS number, also in the form `65000.1` (RFC 5396); None for anything else."""
    parts = text.split(".")
    if not all(part.isdecimal() for part in parts) or len(parts) > 2:
        return None
    numbers = [int(part) for part in parts]
    return numbers[0] if len(numbers) == 1 else numbers[0] << 16 | numbers[1]


def _is_address(text: str) -> bool:
    try:
        IPv4Address(text)
    except ValueError:
        return False
    return True


def interfaces_in(text: str) -> Iterator[str]:
    """The interfaces that a file has a block of, in its order."""
    for line in text.splitlines():
        if (match := re.match(r"interface (\S+)\s*$", line)) is not None:
            yield match[1]
