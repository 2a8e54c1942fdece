"""Templates that users write: rendered in a sandbox, with errors that have a file and a line.

A template sees the variables that it is given, the other templates of its folder, and those of the
kit that it may extend. It reaches no file, no module and no attribute that begins with `_`.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rocelab.base.data import shipped
from rocelab.base.errors import Problem, SpecError
from rocelab.base.wording import printable

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

MOST_CHARACTERS = 4 << 20
"""Of what a template makes."""


class TemplateFolder:
    """The templates of a folder by path. `kits_folder`: that of the shipped templates which they
    may extend, as `FOLDER/NAME`. `folder`: what messages call theirs."""

    def __init__(self, texts: Mapping[str, str], kits_folder: str, folder: str) -> None:
        self._folder = folder
        self._environment = _environment(texts, kits_folder)

    def render(self, name: str, variables: Mapping[str, object]) -> str:
        """The text of a template. Raises SpecError with the template's line."""
        # Imported here: most commands print no template.
        from jinja2 import TemplateError
        from jinja2.exceptions import SecurityError

        try:
            return _limited(self._environment.get_template(name).generate(dict(variables)))
        except SecurityError as error:
            raise self._problem(name, error, f"{error}: it is outside of the sandbox") from None
        except TemplateError as error:
            raise self._problem(name, error, error.message or str(error)) from None
        except (TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
            raise self._problem(name, error, f"{type(error).__name__}: {error}") from None

    def _problem(self, name: str, error: Exception, message: str) -> SpecError:
        file, line = name, None
        if (number := getattr(error, "lineno", None)) is not None:
            file, line = getattr(error, "name", None) or name, number
        else:
            for frame in traceback.extract_tb(error.__traceback__):
                if frame.filename.startswith(_MARK):
                    file, line = frame.filename.removeprefix(_MARK), frame.lineno
        return SpecError([Problem(f"{self._folder}/{file}", line, "", printable(message), None)])


_MARK = "template "


def _limited(parts: Iterable[str]) -> str:
    pieces, size = [], 0
    for piece in parts:
        pieces.append(piece)
        size += len(piece)
        if size > MOST_CHARACTERS:
            raise ValueError(f"it makes more than {MOST_CHARACTERS:,} characters")
    return "".join(pieces)


def _environment(texts: Mapping[str, str], kits_folder: str) -> SandboxedEnvironment:
    from jinja2 import BaseLoader, Environment, StrictUndefined, TemplateNotFound
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Loader(BaseLoader):
        """The user's texts, and files of the shipped folder under its name."""

        def get_source(self, environment: Environment, template: str) -> tuple[str, str, None]:
            if template in texts:
                return texts[template], f"{_MARK}{template}", None
            folder, _, name = template.partition("/")
            if folder == kits_folder and name in known:
                text = (shipped("templates") / kits_folder / name).read_text()
                return text, f"{_MARK}{template}", None
            raise TemplateNotFound(template, f"there is no template {template!r} to extend")

    known = {path.name for path in (shipped("templates") / kits_folder).iterdir()}
    return ImmutableSandboxedEnvironment(
        loader=Loader(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
