# ruff: noqa: ANN401, E402
"""Makes machine code of a function and all that it calls at once.

numba optimises each function with all that it calls, makes machine code of both, and does so again
for each function that calls this one. Within `one_library` a function that only compiled ones call
is lowered and waits for those. Importing this module imports numba.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from rocelab.base import compiling

numba = compiling.numba()

import llvmlite.binding as llvm
from numba.core.codegen import JITCodeLibrary
from numba.core.environment import lookup_environment


class _Part(JITCodeLibrary):  # type: ignore[misc]
    """The code of a function, and what it calls, in `_linking_libraries`: callees come first."""

    _is_emitted = False
    _is_whole = False

    @property
    def codegen(self) -> Any:
        return self._codegen if self._is_emitted else _NoCode()

    def add_linking_library(self, library: Any) -> None:
        parts = library._linking_libraries if isinstance(library, _Part) else ()
        for part in (*parts, library):
            if part not in self._linking_libraries:
                super().add_linking_library(part)

    def finalize(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """The machine code of a function that Python calls, by the name of its wrapper; 0 for all
        others, which have none."""
        if not self._is_emitted:
            if name not in {function.name for function in self.get_defined_functions()}:
                self._ensure_finalized()
                return 0
            self._emit()
        return int(super().get_pointer_to_function(name))

    def _emit(self) -> None:
        # A function is taken over only if one before it calls it.
        self._linking_libraries.reverse()
        super().finalize()
        self._is_emitted = True
        for variable in self._final_module.global_variables:
            environment = lookup_environment(variable.name)
            if environment is not None:
                self._codegen.set_env(variable.name, environment)

    def _get_module_for_linking(self) -> Any:
        """Its own code, which that of all others follows; outside of the block, where nothing does,
        with all that it calls."""
        if not (self._is_emitted or self._is_whole or self._codegen._library_class is _Part):
            for library in reversed(self._linking_libraries):
                self._final_module.link_in(library._get_module_for_linking(), preserve=True)
            self._is_whole, self._shared_module = True, None
        return super()._get_module_for_linking()

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.linkage == llvm.Linkage.linkonce_odr and not function.is_declaration:
                function.linkage = llvm.Linkage.internal
        super()._optimize_final_module()

    @classmethod
    def _unserialize(cls, codegen: Any, state: object) -> _Part:
        library = cast(_Part, super()._unserialize(codegen, state))
        library._is_emitted = True
        return library


class _NoCode:
    """Takes the addresses of what has no machine code yet."""

    def set_env(self, name: str, environment: object) -> None: ...


@contextmanager
def one_library() -> Iterator[None]:
    """A block in which functions without a wrapper for Python get machine code with those that call
    them."""
    generator = compiling.codegen()
    before, generator._library_class = generator._library_class, _Part
    try:
        yield
    finally:
        generator._library_class = before
