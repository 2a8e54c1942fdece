"""The answers of the other machine, checked in every field: it may be hostile, or have another kit.

The received bytes become frozen data of the expected types, or the UnfitError of `not_understood`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.types import FailFast

from rocelab.remote.address import Destination
from rocelab.remote.errors import UnfitError
from rocelab.remote.host.bootstrap import MARK
from rocelab.remote.host.frames import Frame, FrameReader

AN_EXIT_CODE = "an exit code of 0 to 255"
YEAR_10000_UNIX_S = 253_402_300_800
"""Later times are none for `datetime`."""

T = TypeVar("T")
ExitCode = Annotated[int, Field(strict=True, ge=0, le=255)]
Count = Annotated[int, Field(strict=True, ge=0, lt=1 << 63)]


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class MachineAnswer(_Answer):
    """What `describe` says of the machine (`rocelab.remote.host.bootstrap`)."""

    system: str
    home: str
    kit: bool
    venv: str
    has_venv: bool
    uid: Count
    sudo: bool


class RunAnswer(_Answer):
    """What `list` says of a run (`rocelab.remote.host.supervisor`)."""

    run: str
    words: Annotated[tuple[str, ...], FailFast()]
    client: str
    started_unix_s: Annotated[float, Field(ge=0, lt=YEAR_10000_UNIX_S)]
    exit_code: ExitCode | None
    alive: bool


class CheckAnswer(_Answer):
    """A check of `rocelab doctor --json`."""

    name: str
    purpose: str
    needed: bool
    ok: bool
    found: str
    remedy: str


class DoctorAnswer(_Answer):
    """The JSON of `rocelab doctor --json`."""

    checks: Annotated[tuple[CheckAnswer, ...], FailFast()]


MACHINE = TypeAdapter(MachineAnswer)
RUNS: TypeAdapter[tuple[RunAnswer, ...]] = TypeAdapter(Annotated[tuple[RunAnswer, ...], FailFast()])
DOCTOR = TypeAdapter(DoctorAnswer)
WRITTEN: TypeAdapter[dict[str, int]] = TypeAdapter(dict[str, Count])
EXIT_CODE: TypeAdapter[int] = TypeAdapter(ExitCode)
COUNT: TypeAdapter[int] = TypeAdapter(Count)


def not_understood(host: Destination, expected: str) -> UnfitError:
    """The error for every answer that is not the expected one."""
    return UnfitError(
        f"the answer of {host} cannot be understood: expected {expected}",
        hint=f"`rocelab --host {host} doctor` checks it; to reinstall rocelab, remove "
        "~/.local/share/rocelab/kits there",
    )


def parsed(kind: TypeAdapter[T], data: bytes, host: Destination, expected: str) -> T:
    """JSON as the expected kind. Raises UnfitError."""
    try:
        return kind.validate_json(data)
    except ValidationError as error:
        raise not_understood(host, expected) from error


def marked(kind: TypeAdapter[T], output: bytes, host: Destination, expected: str) -> T:
    """The answer of a verb, among other output of the login shell. Raises UnfitError."""
    lines = (line for line in output.splitlines() if line.startswith(MARK.encode()))
    return parsed(kind, next(lines, b"").removeprefix(MARK.encode()), host, expected)


def frames(reader: FrameReader, data: bytes, host: Destination) -> Iterator[Frame]:
    """The frames of a log that these bytes complete. Raises UnfitError."""
    try:
        yield from reader.feed(data)
    except ValueError as error:
        raise not_understood(host, "the log of a run") from error
