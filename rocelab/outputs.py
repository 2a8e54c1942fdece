"""Opens the output files and folders that users name: existing content is not overwritten.

A failed command leaves no empty folder behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

from rocelab.errors import InputError, MachineError
from rocelab.files import NO_ROOM, replace_file

RESULT, REPORT = "result.json", "report.html"
OVERWRITE = "name another place, or say --force to overwrite it"


T = TypeVar("T")


@contextmanager
def results_folder(folder: Path, *, overwrite: bool = False) -> Iterator[None]:
    """The folder, created if missing, for the results of the block.

    If the block ends by an error or a signal, the folders made for it are removed if empty. Raises
    InputError if the folder has a result already, without `overwrite`, or cannot be written to;
    MachineError if the disk is full.
    """
    if not overwrite:
        check_new(folder)
    with _written_to(folder):
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with _written_to(folder):
            yield
    except BaseException:
        for path in made:
            with suppress(OSError):
                path.rmdir()
        raise


def check_new_file(file: Path, *, overwrite: bool) -> None:
    """Raises InputError if the file exists, without `overwrite`, or its folder does not exist."""
    if file.is_dir():
        raise InputError(f"{file} is a folder", hint="name a file")
    if file.exists() and not overwrite:
        raise InputError(f"{file} is there already", hint=OVERWRITE)
    if not file.parent.is_dir():
        raise InputError(f"there is no folder {file.parent}", hint="make it first")


def create_file(file: Path, *, overwrite: bool) -> BinaryIO:
    """Open a file for writing. Raises InputError as `check_new_file`, and if it cannot be
    written."""
    check_new_file(file, overwrite=overwrite)
    try:
        return file.open("wb" if overwrite else "xb")
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}") from error


def make_place(path: Path) -> None:
    """Create the folder of an output file. Raises InputError if the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_folder = path.is_dir()
    except OSError as error:
        raise _unwritable(path, error.strerror or "unknown error") from None
    if is_folder:
        raise _unwritable(path, "it is a folder")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically, over an existing one. Raises InputError if it cannot be written."""
    try:
        replace_file(path, data)
    except OSError as error:
        raise _unwritable(path, error.strerror or "unknown error") from None


def _unwritable(path: Path, why: str) -> InputError:
    return InputError(f"{path} cannot be written: {why}", hint="name another file")


@contextmanager
def shown_if_unwritten(found: Sequence[T], show: Callable[[T], None]) -> Iterator[None]:
    """Show `found` if the block ends by an error: not all of it is in files."""
    try:
        yield
    except Exception:
        for result in found:
            show(result)
        raise


def check_new(folder: Path, hint: str = OVERWRITE) -> None:
    """Raises InputError if the folder has a result, or cannot have one."""
    with _written_to(folder):
        for name in (RESULT, REPORT):
            if (folder / name).exists():
                raise InputError(f"{folder} has a {name} already", hint=hint)


@contextmanager
def _written_to(folder: Path) -> Iterator[None]:
    """Turn an error of writing into the folder into an InputError."""
    try:
        yield
    except OSError as error:
        where = Path(error.filename) if isinstance(error.filename, str) else None
        if error.errno in NO_ROOM:
            if where is not None and not where.is_relative_to(folder):
                raise MachineError(f"there is no room for {where}: {error.strerror}") from None
            raise MachineError(
                f"there is no room for results in {folder}: {error.strerror}",
                hint="make room there, or name another folder",
            ) from None
        if where is None or not (where.is_relative_to(folder) or where in folder.parents):
            raise
        raise InputError(
            f"results cannot be written to {folder}: {error.strerror}", hint="name another folder"
        ) from None
