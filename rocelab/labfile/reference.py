"""Limits what messages say about a file that another file names, such as a drill's lab.

The author of the naming file may lack the right to read the named one, and messages go where both
can be read: to a terminal, a log, JUnit XML. So a named file is quoted only if it lies in or below
the folder of the naming file, in the folders where its names are looked up, or among the shipped
files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocelab.base.data import shipped
from rocelab.base.errors import Problem, SpecError
from rocelab.labfile.catalog import JOBS, LABS, tree_of

_KINDS = ("unknown key", "has no value", "missing", "not YAML")
"""Beginnings of messages, which quote nothing."""


@contextmanager
def named_by(naming: Path, named: Path) -> Iterator[None]:
    """A context for reading `named`, which the file `naming` names: unless it may be quoted, its
    SpecError has only the position and kind of problems."""
    try:
        yield
    except SpecError as error:
        if may_be_quoted(named, naming):
            raise
        raise SpecError([withheld(problem) for problem in error.problems]) from None


def may_be_quoted(named: Path, naming: Path) -> bool:
    """Whether `named` lies in or below the folder of `naming`, among the labs and jobs of its tree,
    or is shipped; links are followed."""
    real = Path(os.path.realpath(named))
    folders = [naming.parent]
    for catalog in (LABS, JOBS):
        folders += [tree_of(naming) / catalog.folder, shipped(catalog.folder)]
    return any(real.is_relative_to(os.path.realpath(folder)) for folder in folders)


def withheld(problem: Problem) -> Problem:
    """The problem without content of its file. Without a line it is about the whole file."""
    if problem.line is None:
        return problem
    kind = next((kind for kind in _KINDS if problem.message.startswith(kind)), "does not fit")
    hint = "not quoted, as a file in another folder names this one; give it to a command by itself"
    return Problem(problem.file, problem.line, "", kind, hint)
