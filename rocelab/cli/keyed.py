"""Commands whose keys are words, `link=rtsw1:ctsw1`: a key that is written as an option is answered
with how to write it."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from rocelab.base.errors import InputError

Read = Any
"""A part of typer's parser, whose classes differ between versions."""


class KeyedCommand(TyperCommand):
    """A command with words KEY=VALUE."""

    written = "{key}={value}"
    """How a key is written."""

    def parse_args(self, ctx: Read, args: list[str]) -> list[str]:
        """Read the words. Raises InputError for a key that is written as an option, and typer's own
        errors for all else."""
        words = list(args)
        try:
            rest: list[str] = super().parse_args(ctx, args)
        except Exception as error:
            option = getattr(error, "option_name", "")
            if type(error).__name__ != "NoSuchOption" or not option.startswith("--"):
                raise
            key = option.removeprefix("--")
            if close := getattr(error, "possibilities", None):
                hint = f"did you mean {' or '.join(close)}?"
            else:
                hint = (
                    f"keys are written `{self.written.format(key=key, value=_value(words, key))}`"
                )
            raise InputError(f"there is no option {option}", hint=hint) from error
        return rest


class SettingCommand(KeyedCommand):
    """A command with options --set KEY=VALUE."""

    written = "--set {key}={value}"


def _value(words: list[str], key: str) -> str:
    """What stands for the value of `--key VALUE` or `--key=VALUE`."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if (
            word == f"--{key}"
            and following
            and not following.startswith("-")
            and "=" not in following
        ):
            return following
        if word.startswith(f"--{key}="):
            return word.partition("=")[2]
    return "VALUE"
