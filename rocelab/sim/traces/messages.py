"""The messages of a Chakra execution trace, described here field by field.

The protobuf package (the extra `chakra`) builds the two message classes of a trace on first use.
Numbers and types of fields are those of Chakra's schema 0.0.4 (mlcommons/chakra, et_def.proto), so
that other programs can read the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from rocelab.base.extras import missing

PACKAGE = "rocelab.chakra"

SCALARS = (
    "double",
    "float",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "sint32",
    "sint64",
    "fixed32",
    "fixed64",
    "sfixed32",
    "sfixed64",
    "bool",
    "string",
    "bytes",
)
"""What an attribute's value can be: two fields each, a single value and a list, from number 3."""

Message = Any
"""A message, or a class of messages: protobuf makes them at run time."""


@dataclass(frozen=True, slots=True)
class TraceMessages:
    """The classes of the first message of a trace, and of all others."""

    metadata: Message
    node: Message


@cache
def message_classes() -> TraceMessages:
    """The classes, in a descriptor pool of their own, which avoids conflicts with other modules
    that loaded Chakra's schema. Raises MachineError if protobuf is not installed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ModuleNotFoundError as error:
        raise missing(error) or error from None
    file = descriptor_pb2.FileDescriptorProto(
        name="rocelab/chakra.proto", package=PACKAGE, syntax="proto3"
    )
    attribute = file.message_type.add(name="Attribute")
    attribute.oneof_decl.add(name="value")
    _add(attribute, 1, "name", "string")
    _add(attribute, 2, "doc_string", "string")
    for number, scalar in enumerate(SCALARS):
        _add(attribute, 3 + 2 * number, f"{scalar}_val", scalar, oneof_index=0)
        listed = file.message_type.add(name=f"{scalar.capitalize()}s")
        _add(listed, 1, "values", scalar, repeated=True)
        _add(attribute, 4 + 2 * number, f"{scalar}_list", listed.name, oneof_index=0)

    tensors = file.message_type.add(name="Tensors")
    for number, name in enumerate(("values", "shapes", "types"), start=1):
        _add(tensors, number, name, "string")

    metadata = file.message_type.add(name="Metadata")
    _add(metadata, 1, "version", "string")
    _add(metadata, 2, "attr", "Attribute", repeated=True)

    node = file.message_type.add(name="Node")
    _add(node, 1, "id", "uint64")
    _add(node, 2, "name", "string")
    _add(node, 3, "type", "int32")  # an enum: the same on the wire, and unknown kinds stay numbers
    _add(node, 4, "ctrl_deps", "uint64", repeated=True)
    _add(node, 5, "data_deps", "uint64", repeated=True)
    _add(node, 6, "start_time_micros", "uint64")
    _add(node, 7, "duration_micros", "uint64")
    _add(node, 8, "inputs", "Tensors")
    _add(node, 9, "outputs", "Tensors")
    _add(node, 10, "attr", "Attribute", repeated=True)

    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)

    def made(name: str) -> Message:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))

    return TraceMessages(metadata=made("Metadata"), node=made("Node"))


def _add(
    message: Message,
    number: int,
    name: str,
    kind: str,
    *,
    repeated: bool = False,
    oneof_index: int | None = None,
) -> None:
    field = message.field.add(name=name, number=number)
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    if kind in SCALARS:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
    else:
        field.type = field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"
    if oneof_index is not None:
        field.oneof_index = oneof_index
