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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import EntryPoint, distributions
from typing import Any, Generic, TypeVar

from rocelab.base.errors import InputError, MachineError, PluginError
from rocelab.base.interpreter import HOME
from rocelab.base.tracebacks import frames_in, sentence
from rocelab.base.wording import listed, name_hint, shown

T = TypeVar("T")

OURS = "rocelab"
DEBUG = "`rocelab --debug COMMAND` shows the whole traceback"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An entry point that is not used: its group and name, the distribution with its version, and
    why; the exception, if loading it raised one."""

    group: str
    name: str
    distribution: str
    reason: str
    cause: BaseException | None = field(default=None, compare=False)

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

    @property
    def module(self) -> str:
        """The package or module that is its own, at the top level."""
        return self.point.module.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Addition:
    """What a package of others adds and this process has loaded: a noun for it, its name, its
    distribution with the version, its module, and what its door made of it."""

    noun: str
    name: str
    distribution: str
    module: str
    loaded: object


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
        _OPENED[group] = self

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
        outcome = self._load(name) if name in self._registered else self._conflicting.get(name)
        if outcome is None:
            raise InputError(
                f"there is no {self.noun} {shown(name)}", name_hint(name, self._registered)
            )
        if isinstance(outcome, Refusal):
            raise PluginError(
                f"{self.noun} {name} of {outcome.distribution} cannot be used: {outcome.reason}",
                f"fix or uninstall that package ({DEBUG})",
            ) from outcome.cause
        return outcome

    def has(self, name: str) -> bool:
        """Whether a package registers `name`, also if it cannot be used. Loads nothing."""
        return name in self._registered or name in self._conflicting

    def origin(self, name: str) -> str | None:
        """The distribution that added `name`, with its version; None for what ships."""
        entry = self._registered[name]
        return None if entry.package == OURS else entry.distribution

    @property
    def additions(self) -> tuple[Addition, ...]:
        """What packages of others add here and is loaded."""
        loaded = ((self._registered[name], value) for name, value in self._loaded.items())
        return tuple(
            Addition(self.noun, entry.point.name, entry.distribution, entry.point.module, value)
            for entry, value in loaded
            if entry.package != OURS and not isinstance(value, Refusal)
        )

    def _load(self, name: str) -> T | Refusal:
        if name not in self._loaded:
            self._loaded[name] = self._opened(name, self._registered[name])
        return self._loaded[name]

    def _opened(self, name: str, entry: _Entry) -> T | Refusal:
        try:
            return self._read(name, entry.point.load())
        except (Exception, SystemExit) as error:
            if entry.package == OURS:
                raise
            reason = sentence(error, frames_in(error, {entry.module}))
            return Refusal(self.group, name, entry.distribution, reason, error)

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
    def _conflicting(self) -> Mapping[str, Refusal]:
        """The first of the packages that have a name, by the name, where several have it."""
        return {refusal.name: refusal for refusal in reversed(self._duplicates)}

    @property
    def _entries(self) -> tuple[_Entry, ...]:
        return _installed().get(self.group, ())


_OPENED: dict[str, Door[Any]] = {}


def additions() -> tuple[Addition, ...]:
    """What packages of others add and this process has loaded."""
    return tuple(addition for door in _OPENED.values() for addition in door.additions)


def registered(group: str) -> frozenset[str]:
    """The names that installed packages, ours too, register in a group; nothing is loaded."""
    return frozenset(entry.point.name for entry in _installed().get(group, ()))


def plugins() -> tuple[str, ...]:
    """The installed packages that add something, each with its version."""
    entries = (entry for group in _installed().values() for entry in group)
    return tuple(sorted({entry.distribution for entry in entries if entry.package != OURS}))


def gone(packages: Iterable[str]) -> tuple[str, ...]:
    """Those of some packages, each with a version, that are not installed in any version."""
    installed = {_name(package) for package in plugins()}
    return tuple(package for package in packages if _name(package) not in installed)


def of_gone(packages: Iterable[str]) -> str:
    """What a message about something unknown says of the packages that its document was made with
    and that are gone: nothing without one."""
    names = gone(packages)
    return f"; it was made with {listed(names, 'and')}, not installed here" if names else ""


def _name(package: str) -> str:
    return package.rpartition(" ")[0]


@cache
def _installed() -> Mapping[str, tuple[_Entry, ...]]:
    """The entry points of rocelab's groups, those of each group by name."""
    groups: dict[str, list[_Entry]] = {}
    known: set[str] = set()
    for distribution in distributions(path=_folders()):
        if f"[{OURS}." not in (distribution.read_text("entry_points.txt") or ""):
            continue
        metadata = distribution.metadata  # it is parsed at each access
        package = metadata["Name"]
        if package in known:
            continue
        known.add(package)
        for point in distribution.entry_points:
            if point.group.startswith(f"{OURS}."):
                entry = _Entry(point, package, metadata["Version"])
                groups.setdefault(point.group, []).append(entry)
    return {
        group: tuple(sorted(entries, key=lambda entry: entry.point.name))
        for group, entries in groups.items()
    }


def _folders() -> list[str]:
    """The folders whose distributions are read."""
    beside = [str(HOME)] if any(HOME.glob(f"{OURS}-*.dist-info")) else []
    return [*beside, *site.getsitepackages()]
