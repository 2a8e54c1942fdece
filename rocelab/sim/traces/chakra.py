"""Reads and writes Chakra execution traces: the nodes of one rank and their dependencies.

A `.et` file (mlcommons/chakra) holds protobuf messages, each after its length as a varint: metadata
first, then nodes. A frozen `Trace` keeps what a simulation needs. A broken file is an InputError
with the byte offset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO

from rocelab.base.errors import InputError
from rocelab.base.files import open_input
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.sim.traces.messages import Message, message_classes

MAX_NODES = 2**20
"""The most nodes of all files of a trace: 1.5 GB of memory."""

MAX_DEPENDENCIES = 2**24

MAX_MESSAGE_BYTES = 2**24
"""A node of a real trace takes less than 100 kB."""

SCHEMA_VERSION = "0.0.4"

Value = bool | int | float | str | bytes | tuple["Value", ...]


class NodeKind(IntEnum):
    """What a node is (Chakra's NodeType)."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMPUTE = 4
    SEND = 5
    RECEIVE = 6
    COLLECTIVE = 7


class CommType(IntEnum):
    """What the ranks of a collective do (Chakra's CollectiveCommType)."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


OUR_ATTRIBUTE = "rocelab_"
"""The prefix of attributes that only rocelab writes; other programs ignore them."""

_KEPT = frozenset(
    {
        "comm_dst",
        "comm_size",
        "comm_src",
        "comm_tag",
        "comm_type",
        "involved_dim",
        "is_cpu_op",
        "pg_name",
        "root",
        "runtime",
        "stream",
        "tid",
    }
)

_FIELDS = {"comm_src": "int32_val", "comm_dst": "int32_val", "comm_tag": "int32_val"}
"""Chakra's feeder reads these as 32 bits and other integers, comm_size and comm_type, as int64."""


@dataclass(frozen=True, slots=True)
class Metadata:
    version: str
    attrs: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChakraNode:
    """A node of a rank's trace."""

    id: int
    name: str
    kind: NodeKind
    ctrl_deps: tuple[int, ...] = ()
    data_deps: tuple[int, ...] = ()
    duration_us: int = 0
    attrs: Mapping[str, Value] = field(default_factory=dict)
    inputs: str = ""
    """The values of its input tensors as in the trace, for metadata nodes only."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What one rank did."""

    source: str
    """The file, for error messages."""
    metadata: Metadata
    nodes: tuple[ChakraNode, ...]


def read_traces(path: Path, progress: ProgressSink = no_progress) -> tuple[Trace, ...]:
    """The traces of a folder, one file `NAME.RANK.et` for each rank from 0, or of a single file.

    Raises InputError if a rank is missing or a file is not a trace; MachineError without protobuf.
    """
    if not path.is_dir():
        return (read_trace(path),)
    ranks: dict[int, Path] = {}
    names = set()
    for file in sorted(path.glob("*.et")):
        if not (parts := re.fullmatch(r"(.+)\.(\d+)\.et", file.name)):
            raise InputError(
                f"{file}: the name does not say which rank it is",
                hint="name the files NAME.0.et, NAME.1.et and so on, one for each rank",
            )
        names.add(parts[1])
        ranks[int(parts[2])] = file
    if not ranks:
        raise InputError(
            f"{path} has no file NAME.RANK.et",
            hint="give the folder with the .et files, or one .et file that all ranks follow",
        )
    if len(names) > 1:
        raise InputError(
            f"{path} has more than one trace: {', '.join(sorted(names))}",
            hint="put each trace into its own folder",
        )
    if missing := [rank for rank in range(max(ranks) + 1) if rank not in ranks][:1]:
        raise InputError(
            f"{path} has no file of rank {missing[0]}, but one of rank {max(ranks)}",
            hint="the ranks count from 0 without a gap",
        )
    traces: list[Trace] = []
    left = MAX_NODES
    for rank in range(len(ranks)):
        traces.append(read_trace(ranks[rank], max_nodes=left))
        left -= len(traces[-1].nodes)
        progress(Progress("reading traces", rank + 1, len(ranks)))
    return tuple(traces)


def read_trace(path: Path, *, max_nodes: int = MAX_NODES) -> Trace:
    """The trace in one file, read message by message. Unknown fields are ignored.

    Raises InputError if it is not a trace, is truncated or holds more than `max_nodes` nodes;
    MachineError without protobuf.
    """
    messages = message_classes()
    try:
        with open_input(path) as file:
            return _read(file, str(path), messages.metadata, messages.node, max_nodes)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}",
            hint="give a Chakra execution trace (.et) or a folder of them",
        ) from None


def write_trace_to(file: BinaryIO, trace: Trace) -> None:
    """`trace` as a file that `read_trace` and Chakra's feeder read. Raises OSError."""
    messages = message_classes()
    metadata = messages.metadata(version=trace.metadata.version)
    _add_attributes(metadata, trace.metadata.attrs)
    _write(file, metadata)
    for node in trace.nodes:
        message = messages.node(
            id=node.id,
            name=node.name,
            type=int(node.kind),
            ctrl_deps=node.ctrl_deps,
            data_deps=node.data_deps,
            duration_micros=node.duration_us,
        )
        if node.inputs:
            message.inputs.values = node.inputs
        _add_attributes(message, node.attrs)
        _write(file, message)


def _read(
    file: BinaryIO, source: str, metadata_class: Message, node_class: Message, max_nodes: int
) -> Trace:
    if packed := _packed(file.read(512)):
        raise InputError(f"{source} is {packed[0]}, not a trace", hint=packed[1])
    file.seek(0)
    messages = _messages(file, source)
    first = next(messages, None)
    if first is None:
        raise InputError(f"{source} is empty", hint="a trace begins with its metadata")
    metadata = _parsed(metadata_class, first[1], source, 0, first[0])
    metadata.DiscardUnknownFields()
    if first[1] and not metadata.ByteSize():
        raise InputError(
            f"{source} does not begin with the metadata of a Chakra execution trace",
            hint="convert the profiler's JSON with chakra_converter first; its output is read here",
        )
    nodes: list[ChakraNode] = []
    ids: dict[int, int] = {}
    dependencies = 0
    for number, (place, text) in enumerate(messages, start=1):
        message = _parsed(node_class, text, source, number, place)
        dependencies += len(message.ctrl_deps) + len(message.data_deps)
        if number > max_nodes or dependencies > MAX_DEPENDENCIES:
            raise InputError(
                f"{source} is too large: more than {MAX_NODES:,} nodes in all files, or more than "
                f"{MAX_DEPENDENCIES:,} dependencies in one",
                hint="cut the trace to one iteration, or give one file that all ranks follow",
            )
        node = _node(message, ids, f"{source}: node {number} at byte {place:,}")
        if node.id in ids:
            raise InputError(f"{source}: two nodes have the id {node.id}", hint=_DAMAGED)
        ids[node.id] = node.id
        nodes.append(node)
    attrs = {attr.name: _value(attr) for attr in metadata.attr}
    # Where several may begin, Chakra's feeder takes them by id, whatever their order in the file.
    nodes.sort(key=attrgetter("id"))
    return Trace(source, Metadata(metadata.version, attrs), tuple(nodes))


_DAMAGED = "the file is damaged, or no Chakra execution trace: copy or convert it again"


def _packed(head: bytes) -> tuple[str, str] | None:
    """The format of a file that begins with `head`, if not a trace, and how to unpack it."""
    if head.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ")) or head[257:262] == b"ustar":
        return "an archive", "unpack it (tar xf FILE) and give the .et file in it"
    if head.startswith(b"PK\x03\x04"):
        return "a zip archive", "unpack it (unzip FILE) and give the .et file in it"
    if re.match(rb'\s*[{\[]\s*["{\[]', head):
        return "JSON", "convert it with chakra_converter, and give the .et file it writes"
    return None


def _messages(file: BinaryIO, source: str) -> Iterator[tuple[int, bytes]]:
    """The place and the bytes of each message, one at a time in memory."""
    number = 0
    while True:
        place = file.tell()
        size = 0
        for shift in range(0, 35, 7):
            byte = file.read(1)
            if not byte:
                if shift == 0:
                    return
                raise InputError(f"{source} ends in message {number}", hint=_DAMAGED)
            size |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                break
        else:
            size = MAX_MESSAGE_BYTES + 1
        if size > MAX_MESSAGE_BYTES:
            raise InputError(
                f"{source}: message {number} at byte {place:,} would be longer than "
                f"{MAX_MESSAGE_BYTES:,} bytes",
                hint=_DAMAGED,
            )
        text = file.read(size)
        if len(text) < size:
            raise InputError(
                f"{source} ends in message {number}, {size - len(text):,} bytes short",
                hint=_DAMAGED,
            )
        yield place, text
        number += 1


def _parsed(kind: Message, text: bytes, source: str, number: int, place: int) -> Message:
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(text)
    except DecodeError:
        raise InputError(
            f"{source}: message {number} at byte {place:,} is not what Chakra's schema has there",
            hint=_DAMAGED,
        ) from None


def _node(message: Message, ids: Mapping[int, int], place: str) -> ChakraNode:
    if message.type not in NodeKind.__members__.values():
        raise InputError(f"{place} is of an unknown type, {message.type}", hint=_DAMAGED)
    kind = NodeKind(message.type)
    return ChakraNode(
        id=message.id,
        name=message.name,
        kind=kind,
        # Share one int object per node id: dependencies take most of the memory.
        ctrl_deps=tuple(ids.get(dep, dep) for dep in message.ctrl_deps),
        data_deps=tuple(ids.get(dep, dep) for dep in message.data_deps),
        duration_us=message.duration_micros,
        attrs={
            attr.name: _value(attr)
            for attr in message.attr
            if attr.name in _KEPT or attr.name.startswith(OUR_ATTRIBUTE)
        },
        inputs=message.inputs.values if kind is NodeKind.METADATA else "",
    )


def _value(attr: Message) -> Value:
    which = attr.WhichOneof("value")
    if which is None:
        return ()
    value = getattr(attr, which)
    return tuple(value.values) if which.endswith("_list") else value


def _add_attributes(message: Message, attrs: Mapping[str, Value]) -> None:
    for name, value in attrs.items():
        attr = message.attr.add(name=name)
        if isinstance(value, tuple):
            kind = "bool_list" if value and isinstance(value[0], bool) else "int64_list"
            getattr(attr, kind).values.extend(value)
            getattr(attr, kind).SetInParent()
        else:
            setattr(attr, _FIELDS.get(name) or _field(value), value)


def _field(value: bool | int | float | str | bytes) -> str:
    match value:
        case bool():
            return "bool_val"
        case int():
            return "int64_val"
        case float():
            return "double_val"
        case str():
            return "string_val"
        case _:
            return "bytes_val"


def _write(file: BinaryIO, message: Message) -> None:
    text = message.SerializeToString()
    size = len(text)
    prefix: list[int] = []
    while size >= 0x80:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    file.write(bytes((*prefix, size)) + text)
