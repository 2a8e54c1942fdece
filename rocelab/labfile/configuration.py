"""The keys of `routing` by which switches run a configuration of the user's own, and the files that
they name.

`config` names whole files, one of each switch, and `templates` a folder of templates that extend or
replace the kit's. What they hold becomes part of the spec when the lab's file is read, so that a
record or a result needs no other file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import Field, WithJsonSchema, field_validator, model_validator

from rocelab.base.errors import Problem, SpecError
from rocelab.base.files import NotTextError, TooLargeError, read_input, text_of
from rocelab.base.wording import RefusedError, listed, printable, shown
from rocelab.labfile.base import SpecModel
from rocelab.labfile.catalog import tree_of
from rocelab.labfile.frr_file import START_ORDER, read_frr_file
from rocelab.labfile.references import Content, FileReference, Naming
from rocelab.labfile.source import Data, YamlSource

MOST_FILE_BYTES = 2**20
MOST_TEMPLATES = 500
NODE = "{node}"
TEMPLATE_SUFFIX = ".j2"

Texts = Mapping[str, str]


class ConfigSpec(SpecModel):
    """Whole configurations of switches, in FRR's integrated form (frr.conf).

    `config: configs/{node}.conf` is short for `config: {files: "configs/{node}.conf"}`.
    """

    files: Annotated[
        Annotated[str, WithJsonSchema({"type": "string", "pattern": r"\{node\}"})]
        | Mapping[str, str],
        Field(
            description="the file of each switch, relative to the lab's: a path with {node}, or a "
            "block of a path for some nodes; other switches run what the kit renders"
        ),
    ]
    texts: Annotated[
        Texts,
        Field(description="what the files held when the lab's file was read, by node"),
    ] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"files": value} if isinstance(value, str) else value

    @field_validator("files")
    @classmethod
    def _names_nodes(cls, value: str | Mapping[str, str]) -> str | Mapping[str, str]:
        if isinstance(value, str) and NODE not in value:
            raise RefusedError(
                f"expected a path with {NODE}, got {shown(value)}",
                f"for example configs/{NODE}.conf; a block of paths by node has some files only",
            )
        return value

    def path_of(self, node: str) -> str | None:
        """The file of a node, None if it has none."""
        if isinstance(self.files, str):
            return self.files.replace(NODE, node)
        return self.files.get(node)


class TemplatesSpec(SpecModel):
    """A folder of Jinja2 templates. `templates: FOLDER` is short for `templates: {folder: FOLDER}`.

    `nodes/NODE/bgpd.conf.j2` is bgpd's of one switch, `roles/ROLE/bgpd.conf.j2` that of a role,
    `bgpd.conf.j2` that of all.
    """

    folder: Annotated[str, Field(description="the folder of templates, relative to the lab's file")]
    texts: Annotated[
        Texts,
        Field(description="what the files held when the lab's file was read, by path"),
    ] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"folder": value} if isinstance(value, str) else value

    def name_for(self, daemon: str, node: str, role: str) -> str | None:
        """The template of a daemon of a switch; None if the folder has none."""
        places = (f"nodes/{node}/", f"roles/{role}/", "")
        names = (f"{place}{daemon}.conf{TEMPLATE_SUFFIX}" for place in places)
        return next((name for name in names if name in self.texts), None)

    def daemons_for(self, node: str, role: str) -> tuple[str, ...]:
        """The daemons of a switch that the folder has a template of."""
        return tuple(name for name in START_ORDER if self.name_for(name, node, role) is not None)


class ExpectSpec(SpecModel):
    """What a lab has when it is whole, if its routing is the user's own."""

    reach: Annotated[bool, Field(description="every server reaches every other")] = True
    next_hops: Annotated[
        Mapping[str, Annotated[int, Field(ge=1, le=256)]],
        Field(
            description="by role or node, the least next hops of its routes to servers of other "
            "switches"
        ),
    ] = Field(default_factory=dict)


def configurations(switches: Callable[[YamlSource], Iterable[str]]) -> tuple[FileReference, ...]:
    """The files that `routing` names. `switches` gives the names of a lab's switches, or raises
    SpecError. A block that has texts already, as in a result, is left as it is."""

    def config(naming: Naming) -> Content | None:
        if _has_texts(naming.value):
            return None
        names = switches(naming.source)
        spec = ConfigSpec.model_validate(naming.value)
        paths = {name: spec.path_of(name) for name in names}
        texts = _configurations({name: path for name, path in paths.items() if path}, naming.path)
        return _block(spec, texts)

    def templates(naming: Naming) -> Content | None:
        if _has_texts(naming.value):
            return None
        switches(naming.source)
        spec = TemplatesSpec.model_validate(naming.value)
        return _block(spec, _templates(spec.folder, naming.path))

    return (
        FileReference(("routing", "config"), config),
        FileReference(("routing", "templates"), templates),
    )


def _has_texts(value: Data) -> bool:
    """Whether nothing is to be read: the block has its texts, or is none."""
    return value is None or (isinstance(value, dict) and bool(value.get("texts")))


def _block(spec: ConfigSpec | TemplatesSpec, texts: Texts) -> Content:
    return Content({**spec.model_dump(mode="json"), "texts": dict(texts)})


def _configurations(paths: Mapping[str, str], file: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    problems: list[Problem] = []
    for node, name in paths.items():
        try:
            texts[node] = _text(_inside(name, file))
        except SpecError as error:
            problems += error.problems
            continue
        problems += [
            Problem(printable(name), problem.line, "", problem.message, problem.hint)
            for problem in read_frr_file(texts[node]).problems
        ]
    if problems:
        raise SpecError(problems)
    return texts


def _templates(name: str, file: Path) -> dict[str, str]:
    folder = _inside(name, file)
    if not folder.is_dir():
        raise _problem(file, "routing.templates", f"there is no folder {shown(name)}")
    paths = sorted(
        Path(above, entry).relative_to(folder)
        for above, _, entries in os.walk(folder)
        for entry in entries
        if entry.endswith(TEMPLATE_SUFFIX)
    )
    if not paths:
        raise _problem(
            file,
            "routing.templates",
            f"folder {shown(name)} has no template",
            f"bgpd.conf{TEMPLATE_SUFFIX} is that of bgpd of all switches",
        )
    if len(paths) > MOST_TEMPLATES:
        raise _problem(
            file, "routing.templates", f"expected at most {MOST_TEMPLATES} templates in {name}"
        )
    return {
        PurePosixPath(path).as_posix(): _text(_inside(str(Path(name, path)), file))
        for path in paths
    }


def _inside(name: str, file: Path) -> Path:
    """The path of a file that the lab's file names. It is in the tree of the lab's file: a lab may
    come from others, and is not to read the rest of the machine. Raises SpecError."""
    tree = tree_of(file).resolve()
    path = Path(file.parent, name).resolve()
    if not path.is_relative_to(tree):
        raise _problem(
            file,
            "routing",
            f"{shown(name)} leads out of the folder of the lab",
            f"keep the files of a lab below {printable(str(tree_of(file)))}",
        )
    return path


def _text(path: Path) -> str:
    try:
        return text_of(read_input(path, MOST_FILE_BYTES))
    except NotTextError as error:
        raise _problem(path, "", str(error), error.hint, error.line) from None
    except TooLargeError as error:
        raise _problem(path, "", error.strerror or str(error)) from None
    except OSError as error:
        raise _problem(path, "", f"cannot be read: {error.strerror}") from None


def _problem(
    file: Path, key: str, message: str, hint: str | None = None, line: int | None = None
) -> SpecError:
    return SpecError([Problem(printable(str(file)), line, key, message, hint)])


def check_names(block: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raises RefusedError if one of `names`, keys of `routing.BLOCK`, is no role or node."""
    allowed = set(known)
    unknown = [name for name in names if name not in allowed]
    if unknown:
        raise RefusedError(
            f"there is no role or switch {listed(map(shown, unknown), 'and')}",
            "`rocelab plan --json` names the nodes, `rocelab plan` the roles",
            keys=(("routing", block),),
        )
