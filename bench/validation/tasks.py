"""The cells of the validation as tasks, each a function with its arguments."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Found = Mapping[str, Sequence[float]]
"""Values by cell."""


@dataclass(frozen=True)
class Task:
    """A piece of work that returns values by cell."""

    function: Callable[..., Found]
    arguments: tuple[object, ...] = ()

    @property
    def name(self) -> str:
        return " ".join((self.function.__name__, *map(str, self.arguments)))

    def measured(self) -> dict[str, Any]:
        """The values, and how long they took."""
        begun_s = time.monotonic()
        values = {
            key: list(map(float, values)) for key, values in self.function(*self.arguments).items()
        }
        return {"values": values, "took_s": time.monotonic() - begun_s}
