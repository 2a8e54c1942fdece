"""Finds which files of this machine a command line reads and writes.

The words of a command and its parsed parameters give an `Upload` for the other machine, with the
files in a mirror of this machine's file system. Relative paths mean the same there; absolute paths
are made relative.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import yaml

from rocelab.base.errors import InputError
from rocelab.base.files import NotTextError, read_input, text_of
from rocelab.labfile.catalog import DRILLS, FLOWS, JOBS, LABS, own_file, tree_of
from rocelab.labfile.source import MAX_FILE_BYTES

INPUTS = frozenset(
    {
        "lab",
        "topology",
        "drill",
        "job_file",
        "objectives",
        "flows",
        "result",
        "measured",
        "sweep_file",
        "timeline",
        "trace",
        "old",
        "new",
    }
)
"""Parameters of commands that name files to read; those of CATALOGS may also name shipped ones."""
CATALOGS = {"lab": LABS, "drill": DRILLS, "job_file": JOBS, "flows": FLOWS}
NAMED_IN = {"lab": LABS, "job": JOBS, "jobs": JOBS}
"""Keys of YAML files that name other files as the command line does."""
OUTPUTS = frozenset(
    {
        "folder",
        "file",
        "out",
        "save",
        "pcap",
        "picture",
        "prometheus",
        "evidence",
        "junit",
        "markdown",
        "chakra",
    }
)
"""Parameters that name files or folders to write."""
CONTINUED = frozenset({"resume"})
"""Parameters that name folders of results to read and to write to."""
STDOUT = "-"
"""The output that is no file."""
RESULTS = "results"
"""The default output folder of commands."""
RESULT = "result.json"
"""The file that is read if a folder of results is named."""
YAML = (".yaml", ".yml")
REFERENCES = (*YAML, ".csv", ".dot", ".gv", ".json", ".ini", ".et")
FOLDERS_NAMED = {"templates"}
"""Keys of a lab's file that name a folder, all of which is read."""


@dataclass(frozen=True, slots=True)
class Upload:
    """The upload for a command on the other machine."""

    words: tuple[str, ...]
    folder: str
    """The mirror of the current folder."""
    sent: Mapping[str, Path]
    """Files to send, by their place in the mirror."""
    present: tuple[str, ...]
    """Paths that must exist there, empty: folders end in a slash."""
    outputs: tuple[str, ...]
    """Places in the mirror to fetch with all their content."""


def make_upload(words: Sequence[str], values: Mapping[str, object], here: Path) -> Upload:
    """The upload of a command line run in the folder `here`.

    `values` has the command's parsed parameters by name. Raises InputError for a missing file, and
    for a YAML file that names another one by an absolute path.
    """
    sent: dict[str, Path] = {}
    present: list[str] = []
    outputs = [mirrored(here / RESULTS)]
    moved = {}
    for name, value in values.items():
        if value is None or str(value) == STDOUT:
            continue
        path = here / str(value) if name in OUTPUTS else _file_to_read(name, str(value), here)
        if path is None:
            continue
        if name in CONTINUED:
            outputs.append(mirrored(here / str(value)))
        if Path(str(value)).is_absolute():
            moved[os.path.normpath(str(value))] = os.path.relpath(path, here)
        if name in OUTPUTS:
            outputs.append(mirrored(path))
            present += _present(path)
        else:
            sent |= {mirrored(reference): reference for reference in _with_references(path)}
    present += _present(here / RESULTS)
    return Upload(
        words=tuple(_rewritten(word, moved) for word in words),
        folder=mirrored(here),
        sent=sent,
        present=tuple(dict.fromkeys(present)),
        outputs=tuple(dict.fromkeys(outputs)),
    )


def mirrored(path: Path) -> str:
    """The place of a path in the mirror. Symbolic links stay as they are: `..` must not differ."""
    return os.path.normpath(path).lstrip("/")


def is_within(place: str, outputs: Sequence[str]) -> bool:
    """Whether a place in the mirror is one of `outputs` or below one, without `..` or other tricks;
    `/` itself contains nothing."""
    parts = PurePosixPath(place).parts
    if not parts or ".." in parts or parts[0] == "/" or not place.isprintable():
        return False
    named = [PurePosixPath(output).parts for output in outputs]
    return any(path and parts[: len(path)] == path for path in named)


def _file_to_read(name: str, text: str, here: Path) -> Path | None:
    """The file that a parameter names, None if it is not a file or is shipped."""
    if name not in INPUTS | CONTINUED:
        return None
    file = own_file(text, CATALOGS[name], here) if name in CATALOGS else None
    if file is not None:
        return file
    path = here / text
    is_path = name not in CATALOGS or "/" in text or text.endswith(YAML)
    return path if is_path or path.is_file() else None


def _present(path: Path) -> Iterator[str]:
    """Names that exist at an output's place: a command may refuse to overwrite them."""
    place = mirrored(path)
    if path.parent.is_dir():
        yield f"{mirrored(path.parent)}/"
    if path.is_dir():
        yield f"{place}/"
        for entry in sorted(path.iterdir()):
            yield f"{place}/{entry.name}" + ("/" if entry.is_dir() else "")
    elif path.exists():
        yield place


def _with_references(path: Path, seen: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """A file, and the files that it names if it is YAML: a drill's lab, a phase's job. For a folder
    of results, its result.json."""
    if path.is_dir() and not (path / RESULT).exists():
        documents = sorted((*path.glob("*.json"), *path.glob("*/*.json")))
        if documents:
            yield from documents
            return
    if path.is_dir():
        path = path / RESULT
    if not path.is_file():
        raise InputError(f"there is no file {path}", hint="what is read there is sent from here")
    yield path
    if path.suffix not in YAML:
        return
    for key, text in _texts(path):
        yield from _files_of(path.parent, key, text)
        file = own_file(text, NAMED_IN[key], tree_of(path)) if key in NAMED_IN else None
        if file is None and not text.endswith(REFERENCES):
            continue
        named = Path(os.path.normpath(file or path.parent / text))
        if not named.is_file() or named in seen:
            continue
        if Path(text).is_absolute():
            raise InputError(
                f"{path} names {text}, which is another place on the other machine",
                hint=f"write {os.path.relpath(named, path.parent)}",
            )
        yield from _with_references(named, seen | {path, named})


def _files_of(folder: Path, key: object, text: str) -> Iterator[Path]:
    """The files of a lab's key that names many: configs/{node}.conf, or a folder of templates."""
    if "{node}" in text and not Path(text).is_absolute():
        yield from sorted(file for file in folder.glob(text.replace("{node}", "*")))
    elif key in FOLDERS_NAMED and (folder / text).is_dir():
        yield from sorted(file for file in (folder / text).rglob("*") if file.is_file())


def _texts(path: Path) -> Iterator[tuple[object, str]]:
    """Every text in a YAML file and its key; none if the file is invalid, which the command itself
    reports."""
    try:
        pending: list[tuple[object, object]] = [
            (None, yaml.safe_load(text_of(read_input(path, MAX_FILE_BYTES))))
        ]
    except (yaml.YAMLError, NotTextError, OSError):
        return
    while pending:
        key, value = pending.pop()
        if isinstance(value, str):
            yield key, value
        elif isinstance(value, Mapping):
            pending += value.items()
        elif isinstance(value, list):
            pending += ((key, item) for item in value)


def _rewritten(word: str, moved: Mapping[str, str]) -> str:
    """A word with its path made relative: alone, as --option=PATH, or as -oPATH."""
    option, equals, path = word.partition("=")
    if word.startswith("--") and equals and os.path.normpath(path) in moved:
        return f"{option}={moved[os.path.normpath(path)]}"
    if word.startswith("-") and os.path.normpath(word[2:]) in moved:
        return f"{word[:2]}{moved[os.path.normpath(word[2:])]}"
    return moved.get(os.path.normpath(word), word)
