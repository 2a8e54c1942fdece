# ruff: noqa: ANN401, E402
"""Passes tuples of arrays to compiled functions by reference.

numba passes a named tuple by value: one of thirty arrays is some two hundred values of each call
and each function. These take longer to compile, and to pass, than what most functions do. Importing
this module imports numba.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from rocelab.base import compiling

numba = compiling.numba()

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.arrayobj import populate_array


class Reference(types.Type):  # type: ignore[misc]
    """The type of a reference to a named tuple of arrays and records."""

    def __init__(self, name: str, fields: tuple[tuple[str, Any], ...]) -> None:
        self.fields = fields
        super().__init__(name)

    @property
    def key(self) -> object:
        """What makes two of them equal."""
        return self.name, self.fields


def by_reference(kind: Any) -> None:
    """From now on pass named tuples of this class by reference."""

    @typeof_impl.register(kind)  # type: ignore[untyped-decorator]
    def _type_of(value: Any, context: Any) -> Reference:
        return Reference(
            kind.__name__, tuple(zip(kind._fields, map(numba.typeof, value), strict=True))
        )


@infer_getattr
class _Fields(AttributeTemplate):  # type: ignore[misc]
    key = Reference

    def generic_resolve(self, reference: Reference, name: str) -> Any:
        return dict(reference.fields).get(name)


@register_model(Reference)
class _Address(models.OpaqueModel):  # type: ignore[misc]
    """Of the arrays, one after the other, as numba lays them out, and of pointers to records."""


@cache
def _offsets(reference: Reference) -> tuple[dict[str, int], int]:
    """Where each field is, in bytes, and the size of all."""
    context, offsets, end = cpu_target.target_context, {}, 0
    for name, kind in reference.fields:
        offsets[name] = end
        end += context.get_abi_sizeof(context.get_value_type(kind))
    return offsets, end


def _place(context: Any, builder: Any, reference: Reference, address: Any, name: str) -> Any:
    offset = context.get_constant(types.intp, _offsets(reference)[0][name])
    layout = context.get_value_type(dict(reference.fields)[name])
    return builder.bitcast(builder.gep(address, [offset]), layout.as_pointer())


@lower_getattr_generic(Reference)  # type: ignore[untyped-decorator]
def _field(context: Any, builder: Any, reference: Reference, address: Any, name: str) -> Any:
    """Of an array only data and shape are looked up: it is contiguous, and nobody counts it."""
    kind = dict(reference.fields)[name]
    place = _place(context, builder, reference, address, name)
    if not isinstance(kind, types.Array):
        return _unchanging(builder, place)
    array = context.make_array(kind)(context, builder)

    def member(name: str, *places: int) -> Any:
        number = array._datamodel._fields.index(name)
        return _unchanging(builder, cgutils.gep_inbounds(builder, place, 0, number, *places))

    shape = [member("shape", dimension) for dimension in range(kind.ndim)]
    item_bytes = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    strides = [context.get_constant(types.intp, item_bytes)]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    populate_array(array, member("data"), shape, strides, strides[-1], None)
    return array._getvalue()


def _unchanging(builder: Any, place: Any) -> Any:
    """A value that is the same during the whole call."""
    value = builder.load(place)
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


@unbox(Reference)  # type: ignore[untyped-decorator]
def _unboxed(reference: Reference, value: Any, c: Any) -> Any:
    """The address is good during the call, in which the caller holds the tuple."""
    _, size_bytes = _offsets(reference)
    words = cgutils.alloca_once(c.builder, ir.ArrayType(ir.IntType(64), size_bytes // 8))
    address = c.builder.bitcast(words, c.pyapi.voidptr)
    failed, fields = cgutils.false_bit, []
    for number, (name, kind) in enumerate(reference.fields):
        native = c.unbox(kind, c.pyapi.tuple_getitem(value, number))
        c.builder.store(native.value, _place(c.context, c.builder, reference, address, name))
        failed = c.builder.or_(failed, native.is_error)
        fields.append((kind, native))

    def cleanup() -> None:
        for kind, native in fields:
            if native.cleanup is not None:
                native.cleanup()
            if c.context.enable_nrt:
                c.context.nrt.decref(c.builder, kind, native.value)

    return NativeValue(address, cleanup=cleanup, is_error=failed)
