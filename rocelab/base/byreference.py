"""Passes tuples of arrays to compiled functions by reference.

numba passes a named tuple by value: one of thirty arrays is some two hundred values of each call and
each function, which take longer to compile, and to pass, than what most functions do. Importing
this module imports numba.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rocelab.base import compiling

numba = compiling.numba()

from llvmlite import ir  # noqa: E402
from numba import types  # noqa: E402
from numba.core import cgutils  # noqa: E402
from numba.extending import (  # noqa: E402
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.core.typing.templates import AttributeTemplate  # noqa: E402
from numba.np.arrayobj import populate_array  # noqa: E402


class Tables(types.Type):
    """The type of a reference to a named tuple of arrays and records."""

    def __init__(self, name: str, fields: tuple[tuple[str, Any], ...]) -> None:
        self.fields = fields
        super().__init__(name)

    @property
    def key(self) -> object:
        return self.name, self.fields


def by_reference(kind: type[tuple[Any, ...]]) -> None:
    """From now on pass tuples of this class by reference."""

    @typeof_impl.register(kind)
    def _typeof(value: Any, context: Any) -> Tables:
        fields = zip(kind._fields, map(numba.typeof, value), strict=True)
        return Tables(kind.__name__, tuple(fields))


@infer_getattr
class _Fields(AttributeTemplate):
    key = Tables

    def generic_resolve(self, tables: Tables, name: str) -> Any:
        return dict(tables.fields).get(name)


@register_model(Tables)
class _Pointer(models.OpaqueModel):
    """To the arrays, one after the other, as numba lays them out."""


def _pointers(context: Any, builder: Any, tables: Tables, reference: Any) -> dict[str, Any]:
    """Where each of the fields is."""
    places, offset = {}, 0
    for name, kind in tables.fields:
        layout = context.get_value_type(kind)
        place = builder.gep(reference, [context.get_constant(types.intp, offset)])
        places[name] = builder.bitcast(place, layout.as_pointer())
        offset += context.get_abi_sizeof(layout)
    return places


@lower_getattr_generic(Tables)
def _field(context: Any, builder: Any, tables: Tables, reference: Any, name: str) -> Any:
    """An array as it was when the tuple was passed, of which only data and shape are looked up."""
    kind = dict(tables.fields)[name]
    place = _pointers(context, builder, tables, reference)[name]
    if not isinstance(kind, types.Array):
        return _constant(builder, place)
    array = context.make_array(kind)(context, builder)
    members = array._datamodel._fields
    data = _constant(builder, cgutils.gep_inbounds(builder, place, 0, members.index("data")))
    shape = cgutils.gep_inbounds(builder, place, 0, members.index("shape"))
    lengths = [_constant(builder, cgutils.gep_inbounds(builder, shape, 0, number)) for number in range(kind.ndim)]
    strides = [context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))]
    for length in reversed(lengths[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    populate_array(array, data, lengths, strides, strides[-1], None)
    return array._getvalue()


def _constant(builder: Any, place: Any) -> Any:
    """What is at a place, which does not change."""
    value = builder.load(place)
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


@unbox(Tables)
def _unboxed(tables: Tables, value: Any, c: Any) -> NativeValue:
    """A reference that holds as long as the call: who calls keeps the tuple."""
    size = sum(c.context.get_abi_sizeof(c.context.get_value_type(kind)) for _, kind in tables.fields)
    memory = cgutils.alloca_once(c.builder, ir.ArrayType(ir.IntType(64), size // 8))
    reference = c.builder.bitcast(memory, c.pyapi.voidptr)
    failed, fields = cgutils.false_bit, []
    places = _pointers(c.context, c.builder, tables, reference)
    for number, (name, kind) in enumerate(tables.fields):
        native = c.unbox(kind, c.pyapi.tuple_getitem(value, number))
        c.builder.store(native.value, places[name])
        failed = c.builder.or_(failed, native.is_error)
        fields.append((kind, native))

    def cleanup() -> None:
        for kind, native in fields:
            if native.cleanup is not None:
                native.cleanup()
            if c.context.enable_nrt:
                c.context.nrt.decref(c.builder, kind, native.value)

    return NativeValue(reference, cleanup=cleanup, is_error=failed)
