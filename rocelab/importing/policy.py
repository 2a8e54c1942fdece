"""What the configurations that a topology binds say, and a lab file does not.

A lab file has the shape of a fabric; addresses, ASNs and policy are rocelab's own. So every
statement of an FRR configuration is listed but those that change nothing in the network: names,
logs, descriptions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from rocelab.base.files import read_input
from rocelab.labfile.source import MAX_FILE_BYTES

_FILE = re.compile(r"[a-z0-9]*d\.conf|frr\.conf|frr\.conf\.sav|Quagga\.conf")
"""Matches the name of a configuration of FRR's or Quagga's."""
_SILENT = re.compile(
    r"[!#]|$|(?:frr|hostname|domainname|log|line|service|end|exit|exit-\S+|description|banner|debug"
    r"|vni-end|no service|no log|no debug|no banner|password|enable|ip forwarding|ipv6 forwarding"
    r"|interface|no shutdown|agentx|terminal|configure|write|vrf-end)(?:\s|$)"
    r"|address-family ipv4 unicast|neighbor \S+ (?:description|activate)|exit-vrf"
)
_SECRET = re.compile(r"(\b(?:password|md5|key-string|authentication-key)\s+)\S.*")
_SUBJECTS = frozenset(
    ("address-family", "bfd", "bgp", "evpn", "ip", "ipv6", "isis", "key", "mpls", "router", "vrf")
)
"""Words that say little without the next one."""


def statements(file: Path) -> Iterator[str]:
    """The statements of a configuration that a lab file does not have, as they are written, without
    secrets; or why it is not read."""
    try:
        text = read_input(file, MAX_FILE_BYTES).decode(errors="replace")
    except OSError as error:
        yield f"{file} cannot be read: {error.strerror}"
        return
    for line in text.splitlines():
        statement = " ".join(line.split())
        if not _SILENT.match(statement):
            yield _SECRET.sub(r"\1(not shown)", statement)


def configurations(source: Path) -> list[Path]:
    """The configurations of FRR's at the source of a bind: the file, or those in the folder."""
    # Not Path.is_file, which raises for a name that is too long.
    if os.path.isfile(source):  # noqa: PTH113
        return [source] if source.suffix == ".conf" else []
    try:
        names = os.listdir(source)  # noqa: PTH208
    except (OSError, ValueError):
        return []
    return [source / name for name in sorted(names) if _FILE.fullmatch(name)]


def kind_of(statement: str) -> str:
    """What a statement is about, by which many are summed up: `neighbor route-map`."""
    words = statement.split()
    negated = ["no"] if words[0] == "no" and len(words) > 1 else []
    words = words[len(negated) :]
    if words[0] == "neighbor" and len(words) > 2:
        return " ".join((*negated, "neighbor", words[2]))
    return " ".join((*negated, *words[: 2 if words[0] in _SUBJECTS else 1]))
