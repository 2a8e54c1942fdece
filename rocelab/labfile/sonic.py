"""Reads a switch's buffers and QoS from SONiC's files: `pg_profile_lookup.ini`, `config_db.json` or
parts of it such as `buffers.json` and `qos.json`.

Tables may be spread over any number of files; where two have the same row, the later one counts.
What is read: the rows of `_TABLES` in old and new notation (`[BUFFER_POOL|name]` and `name`, ports
in lists and with a host in front, queues in ranges, the lists of `swssconfig`). Other tables of a
configuration are left alone. Jinja2 templates are refused: a rendered file has the numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from rocelab.base.errors import Problem, SpecError
from rocelab.base.files import NotTextError, TooLargeError, read_input, text_of
from rocelab.base.units import RATE, SIZE
from rocelab.base.wording import RefusedError, listed, printable, shown
from rocelab.labfile.profile import (
    BufferProfileSpec,
    GroupRow,
    LookupRow,
    PoolMode,
    PoolSpec,
    PortsSpec,
    ProfileSpec,
    QueueRow,
    SchedulerSpec,
    SchedulerType,
    WatchdogRow,
    WredSpec,
)
from rocelab.labfile.source import raise_problems

MAX_FILE_BYTES = 32 * 2**20
LOOKUP_COLUMNS = ("speed", "cable", "size", "xon", "xoff", "threshold", "xon_offset")
MAP_DEFAULTS = {"DSCP_TO_TC_MAP": 64, "TC_TO_QUEUE_MAP": 16, "TC_TO_PRIORITY_GROUP_MAP": 16}
"""The maps, and how many numbers each maps; one that a map leaves out is mapped to 0."""

_TABLES = (
    *("BUFFER_POOL", "BUFFER_PROFILE", "BUFFER_PG", "BUFFER_QUEUE", "WRED_PROFILE", "SCHEDULER"),
    *("QUEUE", *MAP_DEFAULTS, "PORT_QOS_MAP", "PFC_WD", "PORT", "CABLE_LENGTH"),
    "DEFAULT_LOSSLESS_BUFFER_PARAMETER",
)
_OTHERS = (
    *("BUFFER_PORT_INGRESS_PROFILE_LIST", "BUFFER_PORT_EGRESS_PROFILE_LIST"),
    *("DOT1P_TO_TC_MAP", "MPLS_TC_TO_TC_MAP", "TC_TO_DSCP_MAP", "DSCP_TO_FC_MAP", "EXP_TO_FC_MAP"),
    *("MAP_PFC_PRIORITY_TO_QUEUE", "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP", "SWITCH_TRIMMING"),
    *("LOSSLESS_TRAFFIC_PATTERN", "PORT_STORM_CONTROL", "ASYMMETRIC_PFC"),
)
"""Tables about queues that are not used."""

_TEMPLATE = re.compile(r"\{%|\{\{|\{#")
_REFERENCE = re.compile(r"\[[A-Z_0-9]+[|:](.*)\]")
_RENDER = (
    "render it first: on a switch `sonic-cfggen -d -t {0} > {1}`, elsewhere `sonic-cfggen -k "
    "HWSKU -p port_config.ini -t {0} > {1}`, in the folder of the switch's model"
)
_COMMON = {
    "pg_profile_lookup.ini": "the headroom of each speed and cable",
    "config_db.json": "a switch's configuration",
}
Value = TypeVar("Value")
Tables = dict[str, dict[str, "_Row"]]


def read_profile(name: str, paths: Sequence[Path]) -> ProfileSpec:
    """The profile in these files and folders. Raises SpecError with every problem."""
    reader = _Reader()
    files = [file for path in paths for file in _files_of(path)]
    for file in files:
        reader.read(file)
    profile = reader.profile(name, tuple(path.name for path in files))
    if reader.problems:
        raise_problems(reader.problems)
    return profile


def _files_of(path: Path) -> list[Path]:
    """A file, or those of a folder that can be part of a profile."""
    if not path.is_dir():
        return [path]
    files = sorted([*path.glob("*.ini"), *path.glob("*.json")])
    files = [file for file in files if file.suffix == ".json" or "lookup" in file.name]
    if not files:
        templates = sorted(path.glob("*.j2"))
        hint = f"expected {listed(_COMMON, 'or')}, or other JSON files with such tables"
        if templates:
            hint = _RENDER.format(templates[0].name, _rendered(templates[0]))
        raise SpecError(
            [Problem(printable(str(path)), None, "", "no file of a switch's profile", hint)]
        )
    return files


@dataclass(frozen=True)
class _Row:
    """A row of a table: its fields, and where it stands."""

    file: str
    text: str
    table: str
    key: str
    fields: Mapping[str, object]

    def line(self, name: str = "") -> int | None:
        """The line of a field, or of the row."""
        at = 0
        for word in (self.table, self.key, name):
            if word:
                match = re.compile(f'"(?:{re.escape(word)}|{word}_TABLE[:|][^"]*)"').search(
                    self.text, at
                )
                at = match.start() if match else at
        return self.text.count("\n", 0, at) + 1

    @property
    def place(self) -> str:
        return f"{self.table}|{self.key}"


@dataclass
class _Ports:
    """What the tables say of a port."""

    groups: dict[int, str] = field(default_factory=dict)
    queues: dict[int, dict[str, str]] = field(default_factory=dict)
    maps: dict[str, str] = field(default_factory=dict)
    pfc: tuple[int, ...] = ()
    watchdog: WatchdogRow | None = None
    speed_mbps: int | None = None
    cable_m: int | None = None

    def kind(self) -> PortsSpec:
        return PortsSpec(
            speed_mbps=self.speed_mbps,
            cable_m=self.cable_m,
            groups=tuple(GroupRow(group=n, buffer=b) for n, b in sorted(self.groups.items())),
            queues=tuple(QueueRow(queue=n, **row) for n, row in sorted(self.queues.items())),
            dscp_to_tc=self.maps.get("dscp_to_tc_map", ""),
            tc_to_queue=self.maps.get("tc_to_queue_map", ""),
            tc_to_group=self.maps.get("tc_to_pg_map", ""),
            pfc=self.pfc,
            watchdog=self.watchdog,
        )


class _Reader:
    """Collects tables and rows of files, then makes the profile of them."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._tables: Tables = {}
        self._lookup: list[LookupRow] = []
        self._others: list[str] = []

    # Files

    def read(self, path: Path) -> None:
        """Take a file's tables or rows. Raises SpecError if it is neither JSON nor a lookup."""
        file = printable(str(path))
        text = _text_of(path, file)
        template = _TEMPLATE.search(text)
        if template or path.suffix == ".j2":
            line = text.count("\n", 0, template.start() if template else 0) + 1
            problem = "a Jinja2 template, whose numbers depend on the switch"
            hint = _RENDER.format(path.name, _rendered(path))
            raise SpecError([Problem(file, line, "", problem, hint)])
        if text.lstrip()[:1] in ("{", "["):
            self._take_tables(file, text)
        elif re.fullmatch(r"\s*\.{1,2}/\S+\s*", text):
            problem = f"a symbolic link's target ({text.strip()}) instead of a file's content"
            raise SpecError([Problem(file, 1, "", problem, "download the file that it names")])
        else:
            self._take_rows(file, text)

    def _take_tables(self, file: str, text: str) -> None:
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            hint = "a comma before a closing brace or bracket is not JSON"
            problem = Problem(file, error.lineno, "", f"not JSON: {error.msg}", hint)
            raise SpecError([problem]) from None
        except RecursionError:
            raise SpecError([Problem(file, None, "", "nested too deeply")]) from None
        for table, rows in _rows_of(data):
            if table in _OTHERS and table not in self._others:
                self._others.append(table)
            if table not in _TABLES:
                continue
            if not isinstance(rows, dict):
                hint = f'such as {{"{table}": {{"name": {{...}}}}}}'
                self._note(_Row(file, text, table, "", {}), "", "expected rows by name", hint)
                continue
            for key, fields in rows.items():
                row = _Row(file, text, table, str(key), fields if isinstance(fields, dict) else {})
                if not isinstance(fields, dict):
                    self._note(row, "", f"expected fields by name, got {shown(fields)}")
                    continue
                self._tables.setdefault(table, {})[str(key)] = row

    def _take_rows(self, file: str, text: str) -> None:
        columns: Sequence[str] = LOOKUP_COLUMNS
        known = set(LOOKUP_COLUMNS)
        rows = 0
        for number, line in enumerate(text.splitlines(), 1):
            content, _, comment = line.partition("#")
            names = comment.replace("#", " ").lower().split()
            if {"speed", "cable", "xoff"} <= set(names) and set(names) <= known:
                columns = names
            cells = content.split(";")[0].split()
            if not cells:
                continue
            rows += 1
            try:
                self._lookup.append(_lookup_row(cells, columns))
            except RefusedError as error:
                self.problems.append(Problem(file, number, "", error.message, error.hint))
        if not rows:
            hint = f"{' '.join(LOOKUP_COLUMNS)} in each line, or JSON with SONiC's tables"
            self.problems.append(Problem(file, None, "", "expected rows of a lookup", hint))

    # Profile

    def profile(self, name: str, files: tuple[str, ...]) -> ProfileSpec:
        """The profile of all that was read."""
        if not self._tables and not self._lookup and not self.problems:
            hint = f"a profile has rows of {listed(_TABLES, 'or')}, or of pg_profile_lookup.ini"
            self.problems.append(
                Problem(listed(files, "and"), None, "", "no table of buffers or QoS", hint)
            )
        parameters = next(iter(self._rows("DEFAULT_LOSSLESS_BUFFER_PARAMETER")), None)
        profile = ProfileSpec(
            name=name,
            files=files,
            pools=self._named("BUFFER_POOL", self._pool),
            buffers=self._named("BUFFER_PROFILE", self._buffer),
            lookup=_last_of_each(self._lookup),
            wred=self._named("WRED_PROFILE", self._wred),
            schedulers=self._named("SCHEDULER", self._scheduler),
            dscp_to_tc=self._maps("DSCP_TO_TC_MAP"),
            tc_to_queue=self._maps("TC_TO_QUEUE_MAP"),
            tc_to_group=self._maps("TC_TO_PRIORITY_GROUP_MAP"),
            oversubscription=self._number(parameters, "over_subscribe_ratio", float),
            dynamic_th=self._number(parameters, "default_dynamic_th", int),
            kinds=self._kinds(),
            unused=tuple(sorted(self._others)),
        )
        self._check_references(profile)
        return profile

    def _rows(self, table: str) -> list[_Row]:
        return list(self._tables.get(table, {}).values())

    def _named(self, table: str, make: Callable[[_Row], Value]) -> dict[str, Value]:
        values = {}
        for row in self._rows(table):
            try:
                values[row.key] = make(row)
            except ValidationError as error:
                for detail in error.errors():
                    name = str(detail["loc"][0]) if detail["loc"] else ""
                    self._note(row, name, f"{detail['msg']}, got {shown(detail['input'])}")
        return values

    def _pool(self, row: _Row) -> PoolSpec:
        mode = self._word(row, "mode", tuple(PoolMode)) or PoolMode.DYNAMIC
        return PoolSpec(
            type=str(row.fields.get("type", "ingress")),
            mode=PoolMode(mode),
            size=self._size(row, "size"),
            xoff=self._size(row, "xoff") or 0,
        )

    def _buffer(self, row: _Row) -> BufferProfileSpec:
        return BufferProfileSpec(
            pool=_referred(row.fields.get("pool", "")),
            size=self._size(row, "size") or 0,
            xoff=self._size(row, "xoff"),
            xon=self._size(row, "xon") or 0,
            xon_offset=self._size(row, "xon_offset"),
            dynamic_th=self._number(row, "dynamic_th", int),
            static_th=self._size(row, "static_th"),
        )

    def _wred(self, row: _Row) -> WredSpec:
        ecn = str(row.fields.get("ecn", "ecn_none")).lower()
        is_enabled = str(row.fields.get("wred_green_enable", "true")).lower() == "true"
        kmin = self._size(row, "green_min_threshold")
        kmax = self._size(row, "green_max_threshold")
        return WredSpec(
            marks=is_enabled and (ecn == "ecn_all" or "green" in ecn),
            kmin=kmin if kmin is not None else kmax or 0,
            kmax=kmax if kmax is not None else kmin or 0,
            percent=self._number(row, "green_drop_probability", float) or 0.0,
        )

    def _scheduler(self, row: _Row) -> SchedulerSpec:
        kind = self._word(row, "type", tuple(SchedulerType)) or SchedulerType.DWRR
        return SchedulerSpec(
            type=SchedulerType(kind),
            weight=self._number(row, "weight", int) or 1,
            is_shaped=any(
                str(row.fields.get(limit, "0")) != "0" for limit in ("pir", "PIR", "cir", "CIR")
            ),
        )

    def _maps(self, table: str) -> dict[str, tuple[int, ...]]:
        maps = {}
        for row in self._rows(table):
            numbers = [0] * MAP_DEFAULTS[table]
            for key, value in row.fields.items():
                try:
                    for place in _range(key):
                        numbers[place] = int(str(value))
                except (ValueError, IndexError):
                    most = len(numbers) - 1
                    problem = f"expected a number from 0 to {most} and one that it is mapped to"
                    self._note(row, key, f"{problem}, got {shown(value)}")
            maps[row.key] = tuple(numbers)
        return maps

    def _kinds(self) -> tuple[PortsSpec, ...]:
        """The ports by what the tables say of them, most of a kind first."""
        ports: dict[str, _Ports] = {}
        for row in self._rows("BUFFER_PG"):
            for port, number in self._places(row):
                buffer = _referred(row.fields.get("profile", ""))
                ports.setdefault(port, _Ports()).groups[number] = "" if buffer == "NULL" else buffer
        for table, columns in (
            ("BUFFER_QUEUE", {"profile": "buffer"}),
            ("QUEUE", {"scheduler": "scheduler", "wred_profile": "wred"}),
        ):
            for row in self._rows(table):
                for port, number in self._places(row):
                    queue = ports.setdefault(port, _Ports()).queues.setdefault(number, {})
                    for name, target in columns.items():
                        if name in row.fields:
                            queue[target] = _referred(row.fields[name])
        self._take_maps(ports)
        self._take_watchdogs(ports)
        self._take_cables(ports)
        groups: dict[PortsSpec, list[str]] = {}
        for name, tables in ports.items():
            groups.setdefault(tables.kind(), []).append(name)
        order = sorted(groups.items(), key=lambda kind: -len(kind[1]))
        return tuple(kind.model_copy(update={"ports": tuple(names)}) for kind, names in order)

    def _take_maps(self, ports: dict[str, _Ports]) -> None:
        for row in self._rows("PORT_QOS_MAP"):
            maps = {name: _referred(value) for name, value in row.fields.items()}
            names = _ports_of(row.key)
            if names == ["global"]:
                names = [*ports] or [""]
            for name in names:
                port = ports.setdefault(name, _Ports())
                port.maps = {**maps, **port.maps} if row.key == "global" else {**port.maps, **maps}
                if "pfc_enable" in maps:
                    port.pfc = tuple(self._range_of(row, "pfc_enable"))

    def _take_watchdogs(self, ports: dict[str, _Ports]) -> None:
        for row in self._rows("PFC_WD"):
            if row.key.upper() == "GLOBAL":
                continue
            watchdog = self._named_one(row, self._watchdog)
            for name in _ports_of(row.key):
                if name in ports:
                    ports[name].watchdog = watchdog

    def _named_one(self, row: _Row, make: Callable[[_Row], Value]) -> Value | None:
        try:
            return make(row)
        except ValidationError as error:
            self._note(row, "", error.errors()[0]["msg"])
            return None

    def _watchdog(self, row: _Row) -> WatchdogRow:
        return WatchdogRow(
            action=str(row.fields.get("action", "drop")).lower(),
            detection_ms=self._number(row, "detection_time", int) or 200,
            restoration_ms=self._number(row, "restoration_time", int) or 0,
        )

    def _take_cables(self, ports: dict[str, _Ports]) -> None:
        for row in self._rows("PORT"):
            name = _ports_of(row.key)[-1]
            if name in ports and "speed" in row.fields:
                ports[name].speed_mbps = self._number(row, "speed", int)
        for row in self._rows("CABLE_LENGTH"):
            for key, value in row.fields.items():
                if key in ports:
                    try:
                        ports[key].cable_m = _metres(str(value))
                    except RefusedError as error:
                        self._note(row, key, error.message, error.hint)

    def _places(self, row: _Row) -> Iterator[tuple[str, int]]:
        """The ports and numbers of a key such as `Ethernet0,Ethernet4|3-4`."""
        *names, numbers = re.split(r"[|:]", row.key)
        if not names:
            self._note(row, "", "expected a port and numbers, such as Ethernet0|3-4")
            return
        try:
            for number in _range(numbers):
                for port in names[-1].split(","):
                    yield port.strip(), number
        except ValueError:
            self._note(row, "", f"expected numbers such as 3-4, got {shown(numbers)}")

    def _range_of(self, row: _Row, name: str) -> list[int]:
        text = str(row.fields[name]).strip()
        try:
            return sorted(set(_range(text))) if text else []
        except ValueError:
            self._note(row, name, f"expected priorities such as 3,4, got {shown(text)}")
            return []

    # Values

    def _size(self, row: _Row, name: str) -> int | None:
        """A size in bytes, with a unit or without."""
        if name not in row.fields:
            return None
        text = str(row.fields[name]).strip()
        try:
            return int(text) if text.isdigit() else SIZE.parse(text)
        except RefusedError:
            self._note(row, name, f"expected a size in bytes, got {shown(text)}")
            return None

    def _number(self, row: _Row | None, name: str, kind: Callable[[str], Value]) -> Value | None:
        if row is None or name not in row.fields:
            return None
        text = str(row.fields[name]).strip()
        try:
            return kind(text)
        except ValueError:
            self._note(row, name, f"expected a number, got {shown(text)}")
            return None

    def _word(self, row: _Row, name: str, words: Sequence[str]) -> str | None:
        if name not in row.fields:
            return None
        text = str(row.fields[name]).strip()
        match = next((word for word in words if word.lower() == text.lower()), None)
        if match is None:
            self._note(row, name, f"expected {listed(words, 'or')}, got {shown(text)}")
        return match

    def _note(self, row: _Row, name: str, message: str, hint: str | None = None) -> None:
        key = f"{row.place}.{name}" if name else row.place
        self.problems.append(Problem(row.file, row.line(name), key, message, hint))

    def _check_references(self, profile: ProfileSpec) -> None:
        """Note rows that name rows that are nowhere."""
        for table, name, target, names in (
            ("BUFFER_PROFILE", "pool", "BUFFER_POOL", profile.pools),
            ("BUFFER_QUEUE", "profile", "BUFFER_PROFILE", profile.buffers),
            ("QUEUE", "scheduler", "SCHEDULER", profile.schedulers),
            ("QUEUE", "wred_profile", "WRED_PROFILE", profile.wred),
            ("PORT_QOS_MAP", "dscp_to_tc_map", "DSCP_TO_TC_MAP", profile.dscp_to_tc),
            ("PORT_QOS_MAP", "tc_to_queue_map", "TC_TO_QUEUE_MAP", profile.tc_to_queue),
            ("PORT_QOS_MAP", "tc_to_pg_map", "TC_TO_PRIORITY_GROUP_MAP", profile.tc_to_group),
        ):
            for row in self._rows(table):
                text = _referred(row.fields.get(name, ""))
                if text and text not in names:
                    known = f"the files have {listed(names, 'and')}" if names else None
                    hint = known or f"add the file with {target}"
                    self._note(row, name, f"{target} has no {shown(text)}", hint)


def _text_of(path: Path, file: str) -> str:
    try:
        return text_of(read_input(path, MAX_FILE_BYTES))
    except TooLargeError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise SpecError([Problem(file, None, "", problem)]) from None
    except OSError as error:
        raise SpecError([Problem(file, None, "", f"cannot be read: {error.strerror}")]) from None
    except NotTextError as error:
        raise SpecError([Problem(file, error.line, "", str(error), error.hint)]) from None


def _rows_of(data: object) -> Iterator[tuple[str, object]]:
    """The tables of a configuration: `{table: rows}`, or `[{"TABLE_TABLE:row": fields, "OP": ...}]`
    as `swssconfig` reads them."""
    if isinstance(data, dict):
        yield from ((str(table), rows) for table, rows in data.items())
    elif isinstance(data, list):
        for item in data:
            for key, fields in item.items() if isinstance(item, dict) else ():
                table, _, row = str(key).partition(":")
                if row and isinstance(fields, dict):
                    yield table.removesuffix("_TABLE"), {row: fields}


def _rendered(template: Path) -> str:
    """What to call the file that a template makes."""
    return template.name.removesuffix(".j2").removesuffix(".json") + ".json"


def _referred(value: object) -> str:
    """The name in `name` or, in older files, `[TABLE|name]`."""
    text = str(value).strip()
    match = _REFERENCE.fullmatch(text)
    return match[1] if match else text


def _ports_of(key: str) -> list[str]:
    """The ports of `Ethernet0,Ethernet4`, in files of a chassis with `host|asic|` in front."""
    return [port.strip() for port in re.split(r"[|]", key)[-1].split(",")]


def _range(text: str) -> list[int]:
    """The numbers of `3-4` or `0,2-3`. Raises ValueError."""
    numbers = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        numbers += list(range(int(first), int(last or first) + 1))
    if not numbers or min(numbers) < 0 or max(numbers) > 63:
        raise ValueError(text)
    return numbers


def _metres(text: str) -> int:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(m|km)", text.strip())
    if match is None:
        raise RefusedError(f"expected a cable's length such as 40m, got {shown(text)}")
    return ceil(float(match[1]) * (1000 if match[2] == "km" else 1))


def _lookup_row(cells: Sequence[str], columns: Sequence[str]) -> LookupRow:
    least = [name for name in columns if name != "xon_offset"]
    if not len(least) <= len(cells) <= len(columns):
        raise RefusedError(
            f"expected {' '.join(columns)}, got {len(cells)} columns",
            "speed in Mbit/s, cable such as 40m, the others in bytes; xon_offset may be left out",
        )
    row = dict(zip(columns, cells, strict=False))

    def size(name: str) -> int:
        text = row[name]
        return int(text) if re.fullmatch(r"-?[0-9]+", text) else SIZE.parse(text)

    def speed(text: str) -> int:
        return int(text) if text.isdigit() else RATE.parse(text) // 10**6

    try:
        return LookupRow(
            speed_mbps=speed(row["speed"]),
            cable_m=_metres(row["cable"]),
            size=size("size"),
            xon=size("xon"),
            xoff=size("xoff"),
            threshold=size("threshold"),
            xon_offset=size("xon_offset") if "xon_offset" in row else None,
        )
    except ValidationError as error:
        detail = error.errors()[0]
        raise RefusedError(
            f"{detail['loc'][0]}: {detail['msg']}, got {shown(detail['input'])}"
        ) from None


def _last_of_each(rows: Sequence[LookupRow]) -> tuple[LookupRow, ...]:
    """The last row of each speed and cable, in ascending order."""
    by_link = {(row.speed_mbps, row.cable_m): row for row in rows}
    return tuple(by_link[key] for key in sorted(by_link))
