"""The errors that a user can cause or meet, each with the command's exit code.

Exit codes: 1 an expectation failed, 2 the input is wrong, 3 this machine cannot run it.
An error derived from `RocelabError` is shown as a message; any other exception is a defect and
shows a traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class RocelabError(Exception):
    """Something a user should read: what was wrong, where, and what to do about it."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class ExpectationError(RocelabError):
    """A lab or a drill ran and did not do what was expected of it."""

    exit_code = 1


class InputError(RocelabError):
    """What the user typed or wrote is wrong."""

    exit_code = 2


class PluginError(InputError):
    """An installed package that adds to rocelab raised an exception."""


class PackageGoneError(InputError, ValueError):
    """A document names something of a package that is not installed here."""


class MachineError(RocelabError):
    """This machine cannot run what was asked."""

    exit_code = 3


COMMAND_LINE = "command line"
"""The place of what was typed and stands in no file; a command shows its own name instead."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a file, or in what was typed (COMMAND_LINE): where it stands, what was
    expected, and what to do."""

    file: str
    line: int | None
    key: str
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        text = f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class SpecError(InputError):
    """Every problem found in one file by one stage of reading it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
