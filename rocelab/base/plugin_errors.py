"""Exceptions that plug-ins raise, as errors that name the package, what of it failed, and where.

An exception is a plug-in's if its traceback has a frame in code of a package that registers
something (`rocelab.base.doors`). Errors of rocelab that plug-ins raise are messages already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass

from rocelab.base.doors import DEBUG, Addition, additions
from rocelab.base.errors import PluginError, RocelabError
from rocelab.base.extras import missing
from rocelab.base.tracebacks import Frame, frames_in, sentence


def plugin_error(error: BaseException) -> PluginError | None:
    """The error for the user, None for an exception that no plug-in raised."""
    if isinstance(error, RocelabError) or not isinstance(error, Exception):
        return None
    if isinstance(error, ImportError) and missing(error):
        return None
    packages: dict[str, list[Addition]] = {}
    for addition in additions():
        packages.setdefault(addition.module.partition(".")[0], []).append(addition)
    for package, added in packages.items():
        if frames := frames_in(error, {package}):
            named = PluginError(
                f"{_culprit(frames, added)} failed: {sentence(error, frames)}",
                f"it is for the package's author; {DEBUG}",
            )
            for note in getattr(error, "__notes__", ()):
                named.add_note(note)
            return named
    return None


@contextmanager
def plugins_named() -> Iterator[None]:
    """Raises PluginError for an exception of a plug-in, others as they are."""
    try:
        yield
    except Exception as error:
        named = plugin_error(error)
        if named is None:
            raise
        raise named from error


def error_text(error: BaseException) -> str:
    """An exception in words: a plug-in's by its name."""
    return str(plugin_error(error) or error)


def _culprit(frames: Sequence[Frame], added: Sequence[Addition]) -> str:
    """`kind of fault duct-cut of lab-faults 1.2`; of what cannot be told apart, the package."""
    owners = [
        addition
        for is_of in (_is_of, _is_of_kind)
        for frame in frames
        for addition in added
        if is_of(addition, frame)
    ]
    files = {frame.f_code.co_filename for frame, _ in frames}
    beside = [addition for addition in added if files & _files(addition)]
    for some in (owners[:1], beside, added):
        if len(some) == 1:
            return f"{some[0].noun} {some[0].name} of {some[0].distribution}"
    return added[0].distribution


def _files(addition: Addition) -> set[str]:
    """The file of the module of an addition, and of the one that it names: of a congestion
    control's functions, which have no `self`, or of a scheme's controller."""
    others = (getattr(addition.loaded, name, None) for name in ("sender", "controller"))
    modules = (other.partition(":")[0] for other in others if isinstance(other, str))
    names = (addition.module, *modules)
    return {getattr(sys.modules.get(name), "__file__", None) or "" for name in names} - {""}


def _is_of(addition: Addition, frame: Frame) -> bool:
    """Whether a frame works for it: with an object of its class, or as a function that it has."""
    code, values = frame[0].f_code, frame[0].f_locals.values()
    items = addition.loaded if isinstance(addition.loaded, tuple) else (addition.loaded,)
    classes = [item if isinstance(item, type) else type(item) for item in items]
    return any(value is kind or type(value) is kind for value in values for kind in classes) or any(
        code is function for item in items for function in _functions(item)
    )


def _is_of_kind(addition: Addition, frame: Frame) -> bool:
    """Whether a frame works with an object of its kind, as a fault is besides its spec."""
    return any(_kind(value) == addition.name for value in frame[0].f_locals.values())


def _kind(value: object) -> str | None:
    kind = None
    with suppress(Exception):  # it is an object of others, which may be half made
        kind = getattr(value, "kind", None)
    return kind if isinstance(kind, str) else None


def _functions(item: object) -> list[object]:
    """The code of the functions that are fields of an object."""
    if isinstance(item, type) or not is_dataclass(item):
        return []
    return [getattr(getattr(item, field.name), "__code__", None) for field in fields(item)]
