"""What switches say of their neighbours by LLDP, as JSON, a document a switch.

The forms are those of lldpd (`lldpcli show neighbors -f json` or json0, which Cumulus and SONiC
have), of Arista's EOS (`show lldp neighbors | json`), of Cisco's NX-OS and of Juniper's Junos. The
switch is named by its file, `leaf1.json`, or, if files have one name, by its folder:
`leaf1/lldp.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rocelab.base.errors import InputError
from rocelab.importing.topology import DrawnEnd, DrawnLink, DrawnNode, ImportedTopology

_JUNOS = "lldp-neighbors-information"
_FORMS = ("lldp", "lldpNeighbors", "TABLE_nbor", _JUNOS)
_SHOWN = 6

Neighbour = tuple[str, str, str]
"""A port of the switch, the neighbour and its port."""


def is_lldp(document: Mapping[str, Any]) -> bool:
    """Whether a document has LLDP neighbours."""
    return any(key in document for key in _FORMS)


def read_lldp(name: str, documents: Mapping[Path, Mapping[str, Any]]) -> ImportedTopology:
    """The topology of the neighbours of switches. A link is there if either end says so.

    Raises InputError if two ends say different things of one cable.
    """
    far_of: dict[tuple[str, str], tuple[str, str]] = {}
    left_out: list[str] = []
    switch_of = _switches(documents)
    for file, document in documents.items():
        switch = switch_of[file]
        for port, neighbour, far_port in _neighbours(document):
            if not neighbour or not far_port:
                left_out.append(f"{switch}:{port} (its neighbour says no name or port)")
                continue
            far = (neighbour.partition(".")[0], far_port)
            if far_of.setdefault((switch, port), far) != far:
                left_out.append(f"{far[0]}:{far[1]} ({switch}:{port} has another neighbour too)")
    switches = set(switch_of.values())
    _check_mutual(far_of, switches)
    links: dict[frozenset[tuple[str, str]], DrawnLink] = {}
    for near, far in far_of.items():
        a: DrawnEnd = near
        links.setdefault(frozenset((near, far)), DrawnLink(a, far))
    nodes = {switch: DrawnNode(is_switch=True) for switch in sorted(switches)}
    for _, far in far_of.items():
        nodes.setdefault(far[0], DrawnNode(None, "says nothing itself"))
    return ImportedTopology(name, nodes, list(links.values()), left_out, is_graph=True)


def _switches(files: Iterable[Path]) -> dict[Path, str]:
    """The switch of each file. Raises InputError if two files are of one."""
    names = {file: file.name.partition(".")[0] for file in files}
    if len({*names.values()}) < len(names):
        names = {file: file.parent.name.partition(".")[0] for file in files}
    file_of: dict[str, Path] = {}
    for file, name in names.items():
        if file_of.setdefault(name, file) != file:
            raise InputError(
                f"{file_of[name]} and {file} are both of the switch {name}",
                "name the file of each switch after it: leaf1.json",
            )
    return names


def _check_mutual(far_of: Mapping[tuple[str, str], tuple[str, str]], switches: set[str]) -> None:
    wrong = [
        f"{near[0]}:{near[1]} says {far[0]}:{far[1]}, which says {far_of[far][0]}:{far_of[far][1]}"
        for near, far in far_of.items()
        if far[0] in switches and far in far_of and far_of[far] != near
    ]
    if wrong:
        more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise InputError(
            f"ends of cables disagree: {'; '.join(wrong[:_SHOWN])}{more}",
            "take the neighbours of all switches at one time",
        )


def _neighbours(document: Mapping[str, Any]) -> Iterator[Neighbour]:
    if "lldp" in document:
        yield from _lldpd_neighbours(document["lldp"])
    elif "lldpNeighbors" in document:
        for row in _rows(document["lldpNeighbors"]):
            ends = ("port", "neighborDevice", "neighborPort")
            yield _texts(row, *ends)
    elif "TABLE_nbor" in document:
        for row in _rows(_mapping(document["TABLE_nbor"]).get("ROW_nbor")):
            yield _texts(row, "l_port_id", "chassis_id", "port_id")
    else:
        for block in _rows(document[_JUNOS]):
            for row in _rows(block.get("lldp-neighbor-information")):
                local = _data(row.get("lldp-local-port-id"))
                far = _data(row.get("lldp-remote-system-name"))
                port = _data(row.get("lldp-remote-port-id"))
                yield local, far, port or _data(row.get("lldp-remote-port-description"))


def _lldpd_neighbours(block: object) -> Iterator[Neighbour]:
    """json has an interface by its name; json0 has lists, with the name in the block."""
    for part in _rows(block):
        for entry in _rows(part.get("interface")):
            named = (
                [(entry["name"], entry)] if isinstance(entry.get("name"), str) else entry.items()
            )
            for port, said in named:
                yield from _lldpd_neighbour(str(port), _mapping(said))


def _lldpd_neighbour(port: str, said: Mapping[str, Any]) -> Iterator[Neighbour]:
    chassis = _rows(said.get("chassis"))
    far = _rows(said.get("port"))
    if not chassis or not far:
        return
    name = _value(chassis[0].get("name"))
    if not name:
        # json: the chassis is a mapping by its name.
        name = next((key for key, value in chassis[0].items() if isinstance(value, dict)), "")
    kinds = {str(_mapping(one).get("type", "")) for one in _rows(far[0].get("id"))}
    identifier = _value(far[0].get("id"))
    described = _value(far[0].get("descr"))
    yield port, name, described if "mac" in kinds and described else identifier


def _value(block: object) -> str:
    """The text of `x`, `{"value": x}` or `[{"value": x}]`."""
    if isinstance(block, str):
        return block
    for one in _rows(block):
        value = one.get("value")
        if isinstance(value, str):
            return value
    return ""


def _data(block: object) -> str:
    for one in _rows(block):
        value = one.get("data")
        if isinstance(value, str):
            return value
    return ""


def _texts(row: Mapping[str, Any], *keys: str) -> Neighbour:
    port, name, far = (str(row.get(key) or "") for key in keys)
    return port, name, far


def _rows(block: object) -> list[Mapping[str, Any]]:
    """The blocks of a list, or one that stands alone."""
    items = block if isinstance(block, list) else [block]
    return [item for item in items if isinstance(item, Mapping)]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
