"""Libraries of compiled functions: parts, and entries, which Python calls.

An entry is compiled with all parts that it calls and kept in the cache; parts are not kept. Both
are compiled for their annotated types alone, callees first. A file in the cache, made last, says
that all entries are there.
"""

from __future__ import annotations

import dis
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, update_wrapper
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

from rocelab.base.compiling import OFF, cache_folder, codegen, dispatcher_of, in_turn, numba

COMPLETE = "complete"
"""A file in the cache folder of a library: all entries were compiled."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result", covariant=True)
Steps = Callable[[int, int], object]
"""Is told how many functions have been compiled, of how many."""


def _no_steps(done: int, total: int) -> None: ...


class _Dispatcher(Protocol):
    """numba's, in what is used of it."""

    overloads: Mapping[object, object]

    def compile(self, signature: object) -> object: ...
    def disable_compile(self) -> None: ...
    def __call__(self, *arguments: object, **named: object) -> object: ...


class LibraryPart(Generic[Arguments, Result]):
    """A function that is compiled with those that call it. Python runs it as it stands."""

    def __init__(
        self, function: Callable[Arguments, Result], make: Callable[[], _Dispatcher]
    ) -> None:
        """make: makes its dispatcher, for which numba is imported, when it is needed."""
        self.function, self._make = function, make
        update_wrapper(self, function)

    @cached_property
    def dispatcher(self) -> _Dispatcher:
        """What compiles and calls it."""
        return self._make()

    def __call__(self, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        return self.function(*arguments, **named)

    def callees(self) -> Iterator[LibraryPart[..., Any]]:
        """The parts that it calls by a global name or one of a module."""
        value: object = None
        for step in dis.get_instructions(self.function):
            if step.opname == "LOAD_GLOBAL":
                value = self.function.__globals__.get(step.argval)
            elif isinstance(value, ModuleType) and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                value = getattr(value, step.argval, None)
            if isinstance(value, LibraryPart):
                yield value


class Entry(LibraryPart[Arguments, Result]):
    """A function that Python calls too: at the first call its library is loaded."""

    def __init__(
        self,
        library: FunctionLibrary,
        function: Callable[Arguments, Result],
        make: Callable[[], _Dispatcher],
    ) -> None:
        super().__init__(function, make)
        self._library = library

    @property
    def is_loaded(self) -> bool:
        """Whether a call finds it compiled."""
        return "dispatcher" in vars(self) and bool(self.dispatcher.overloads)

    def __call__(self, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        if not self.is_loaded:
            self._library.load()
        return cast(Result, self.dispatcher(*arguments, **named))


def as_it_stands(entry: Callable[Arguments, Result]) -> Callable[Arguments, Result] | None:
    """An entry for Python to run, which a little work takes less long than to load its library;
    None where that is loaded."""
    if not isinstance(entry, Entry):
        return entry
    return None if entry.is_loaded else entry.function


class FunctionLibrary:
    """Functions of the modules in the folder `sources` and in other files.

    types: gives numba's type of each annotation. makes_arrays: as of
    `rocelab.base.compiling.compiled_in`.
    """

    def __init__(
        self,
        sources: Path,
        files: Sequence[Path] = (),
        *,
        types: Callable[[], Mapping[str, Any]],
        makes_arrays: bool = True,
    ) -> None:
        self._sources, self._files = sources, files
        self._types, self._makes_arrays = types, makes_arrays
        self._entries: list[Entry[..., Any]] = []

    def part(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        """A function that is called by compiled ones only."""
        return self._part(function)

    def inlined(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        """As `part`, and in the code of each function that calls it."""
        return self._part(function, is_inlined=True)

    def making_arrays(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        """As `part`, for one that makes arrays, where others of the library do not."""
        return self._part(function, makes_arrays=True)

    def entry(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        """A function that Python calls."""
        if os.environ.get(OFF) == "1":
            return function
        entry = Entry(
            self,
            function,
            lambda: dispatcher_of(self._folder, function, makes_arrays=self._makes_arrays),
        )
        self._entries.append(entry)
        return entry

    def is_complete(self) -> bool:
        """Whether all entries are in the cache, or are not compiled at all."""
        if os.environ.get(OFF) == "1":
            return True
        return self._folder is not None and self._stamp(self._folder).exists()

    def is_kept(self) -> bool:
        """Whether what is compiled goes to a cache."""
        return self._folder is not None

    def load(self) -> None:
        """Make the entries callable: from the cache, else compiled here."""
        self.compile()
        if not all(entry.dispatcher.overloads for entry in self._entries):
            from rocelab.base.onelibrary import one_library

            with one_library():
                for entry in self._entries:
                    self._compile(entry)

    def compile(self, steps: Steps = _no_steps) -> None:
        """Compile all entries unless they are in the cache, while other processes wait."""
        with in_turn(self._folder):
            if self.is_complete():
                return
            from rocelab.base.onelibrary import one_library

            parts = self._in_order()
            with one_library():
                for number, part in enumerate(parts):
                    steps(number, len(parts))
                    self._compile(part)
            if self._folder is not None:
                self._stamp(self._folder).touch()
        steps(len(parts), len(parts))

    def _part(
        self,
        function: Callable[Arguments, Result],
        *,
        is_inlined: bool = False,
        makes_arrays: bool = False,
    ) -> Callable[Arguments, Result]:
        if os.environ.get(OFF) == "1":
            return function
        return LibraryPart(
            function,
            lambda: dispatcher_of(
                None,
                function,
                makes_arrays=makes_arrays or self._makes_arrays,
                is_inlined=is_inlined,
                is_wrapped=False,
            ),
        )

    def _compile(self, part: LibraryPart[..., Any]) -> None:
        *arguments, result = (
            self._numba_types[str(name)] for name in part.function.__annotations__.values()
        )
        if not part.dispatcher.overloads:
            part.dispatcher.compile(result(*arguments))
            part.dispatcher.disable_compile()

    def _in_order(self) -> list[LibraryPart[..., Any]]:
        """All functions, each after those that it calls."""
        order: dict[LibraryPart[..., Any], None] = {}

        def add(part: LibraryPart[..., Any]) -> None:
            for callee in part.callees():
                if callee not in order:
                    add(callee)
            order.setdefault(part)

        for entry in self._entries:
            add(entry)
        return list(order)

    @cached_property
    def _folder(self) -> Path | None:
        return cache_folder(self._sources, self._files)

    @staticmethod
    def _stamp(folder: Path) -> Path:
        """The file that says so, for this numba and this processor."""
        made_for = repr((numba().__version__, *codegen().magic_tuple()))
        return folder / f"{COMPLETE}-{hashlib.sha256(made_for.encode()).hexdigest()[:16]}"

    @cached_property
    def _numba_types(self) -> Mapping[str, Any]:
        from numba.extending import typeof_impl

        typeof_impl.register(LibraryPart, lambda part, _: numba().typeof(part.dispatcher))
        return self._types()
