"""Doors: what installed packages may add to rocelab, found as Python entry points.

A `Door` is a group of entry points, such as `rocelab.faults`. What ships is in rocelab's own
pyproject.toml and comes through the same doors. Much of what is loaded runs as root, so that only
distributions are read that are installed beside rocelab or in the interpreter's own site-packages:
never the current folder, PYTHONPATH or the user's site-packages.

A plug-in that cannot be loaded is left out and named by `refusals`: it keeps nobody from taking a
lab down.

Source: Python Packaging User Guide, "Entry points specification".
"""

from __future__ import annotations

import site
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import EntryPoint, distributions
from typing import Generic, TypeVar

from rocelab.base.errors import InputError, MachineError
from rocelab.base.interpreter import HOME
from rocelab.base.wording import name_hint, shown

T = TypeVar("T")

OURS = "rocelab"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An entry point that is not used: its group and name, the distribution with its version, and
    why."""

    group: str
    name: str
    distribution: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} of {self.distribution} ({self.group}): {self.reason}"


@dataclass(frozen=True, slots=True)
class _Entry:
    point: EntryPoint
    package: str
    version: str

    @property
    def distribution(self) -> str:
        return f"{self.package} {self.version}"


class Door(Generic[T]):
    """What is registered in one group of entry points, by name.

    group: such as `rocelab.faults`. noun: one of it, for messages. read: makes of an entry point's
    name and object what is used; it raises TypeError or ValueError with the reason why it cannot.
    """

    def __init__(self, group: str, noun: str, read: Callable[[str, object], T]) -> None:
        self.group = group
        self.noun = noun
        self._read = read
        self._loaded: dict[str, T | Refusal] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """What is registered, in the order ours, others, each by name; nothing is loaded."""
        return tuple(self._registered)

    def all(self, without: str | None = None) -> Mapping[str, T]:
        """Everything that can be loaded, in the order of `names`; `without` is left out, as it
        is by what is being loaded under that name."""
        loaded = {name: self._load(name) for name in self._registered if name != without}
        return {name: item for name, item in loaded.items() if not isinstance(item, Refusal)}

    def refusals(self) -> tuple[Refusal, ...]:
        """Every entry point that is not used. Loads all."""
        loaded = (self._load(name) for name in self._registered)
        broken = tuple(refusal for refusal in loaded if isinstance(refusal, Refusal))
        return (*self._duplicates, *broken)

    def find(self, name: str) -> T:
        """What is registered as `name`. Raises InputError if there is none or if it cannot be
        loaded."""
        if name not in self._registered:
            raise InputError(
                f"there is no {self.noun} {shown(name)}", name_hint(name, self._registered)
            )
        outcome = self._load(name)
        if isinstance(outcome, Refusal):
            raise InputError(
                f"{self.noun} {name} of {outcome.distribution} cannot be used: {outcome.reason}",
                "fix or uninstall that package",
            )
        return outcome

    def origin(self, name: str) -> str | None:
        """The distribution that added `name`, with its version; None for what ships."""
        entry = self._registered[name]
        return None if entry.package == OURS else entry.distribution

    def _load(self, name: str) -> T | Refusal:
        if name not in self._loaded:
            self._loaded[name] = self._opened(name, self._registered[name])
        return self._loaded[name]

    def _opened(self, name: str, entry: _Entry) -> T | Refusal:
        try:
            return self._read(name, entry.point.load())
        except Exception as error:
            if entry.package == OURS:
                raise
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            return Refusal(self.group, name, entry.distribution, reason)

    @cached_property
    def _registered(self) -> Mapping[str, _Entry]:
        refused = {refusal.name for refusal in self._duplicates}
        mine = {entry.point.name: entry for entry in self._entries if entry.package == OURS}
        if not mine:
            raise MachineError(
                f"this installation of rocelab is older than its code: it has no {self.group}",
                "run `make setup`, or install rocelab again",
            )
        others = {
            entry.point.name: entry
            for entry in self._entries
            if entry.package != OURS and entry.point.name not in refused
        }
        return {**mine, **others}

    @cached_property
    def _duplicates(self) -> tuple[Refusal, ...]:
        """The entry points of others whose name another distribution has too."""
        owners: dict[str, set[str]] = {}
        for entry in self._entries:
            owners.setdefault(entry.point.name, set()).add(entry.package)
        return tuple(
            Refusal(
                self.group,
                entry.point.name,
                entry.distribution,
                f"{' and '.join(sorted(owners[entry.point.name] - {entry.package}))} "
                "has that name too",
            )
            for entry in self._entries
            if entry.package != OURS and len(owners[entry.point.name]) > 1
        )

    @property
    def _entries(self) -> tuple[_Entry, ...]:
        return _installed().get(self.group, ())


def registered(group: str) -> frozenset[str]:
    """The names that installed packages, ours too, register in a group; nothing is loaded."""
    return frozenset(entry.point.name for entry in _installed().get(group, ()))


def plugins() -> tuple[str, ...]:
    """The installed packages that add something, each with its version."""
    entries = (entry for group in _installed().values() for entry in group)
    return tuple(sorted({entry.distribution for entry in entries if entry.package != OURS}))


@cache
def _installed() -> Mapping[str, tuple[_Entry, ...]]:
    """The entry points of rocelab's groups, those of each group by name."""
    groups: dict[str, list[_Entry]] = {}
    known: set[str] = set()
    for distribution in distributions(path=_folders()):
        if f"[{OURS}." not in (distribution.read_text("entry_points.txt") or ""):
            continue
        package = distribution.metadata["Name"]
        if package in known:
            continue
        known.add(package)
        for point in distribution.entry_points:
            if point.group.startswith(f"{OURS}."):
                entry = _Entry(point, package, distribution.version)
                groups.setdefault(point.group, []).append(entry)
    return {
        group: tuple(sorted(entries, key=lambda entry: entry.point.name))
        for group, entries in groups.items()
    }


def _folders() -> list[str]:
    """The folders whose distributions are read."""
    beside = [str(HOME)] if any(HOME.glob(f"{OURS}-*.dist-info")) else []
    return [*beside, *site.getsitepackages()]
