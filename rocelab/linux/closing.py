"""Bases for objects that hold sockets, descriptors, threads or processes and release them after a
block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from types import TracebackType
from typing import Self


class Closing(ABC):
    """A context manager that ends with `close`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Release what the object holds."""


class Holding(ABC):
    """A context manager that releases what `_enter` has put on its stack, the last first: at the
    end of the block, or when `_enter` fails."""

    _cleanup: ExitStack

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._enter(stack)
            self._cleanup = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cleanup.__exit__(kind, error, trace)

    @abstractmethod
    def _enter(self, stack: ExitStack) -> None:
        """Begin; raises what `with` raises."""
