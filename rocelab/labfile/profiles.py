"""The catalog of switch models: a folder of SONiC's files for each, shipped in `profiles/`."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path

from rocelab.base.data import shipped
from rocelab.base.wording import RefusedError, name_hint, shown
from rocelab.labfile.profile import ProfileSpec
from rocelab.labfile.reference import named_by
from rocelab.labfile.sonic import read_profile
from rocelab.labfile.source import Data, YamlSource


def profile_names() -> tuple[str, ...]:
    """The names of the catalog, in alphabetical order."""
    return tuple(sorted(path.name for path in shipped("profiles").iterdir() if path.is_dir()))


@cache
def catalog_profile(name: str) -> ProfileSpec:
    """The switch model of that name. Raises RefusedError."""
    if name not in profile_names():
        raise RefusedError(
            f"there is no switch profile {shown(name)}",
            f"{name_hint(name, profile_names())}; a file's name is relative to the lab's file",
        )
    return read_profile(name, [shipped("profiles") / name])


def with_profiles(source: YamlSource, path: Path) -> YamlSource:
    """A lab's file, at `path`, with the contents of the switch profiles that it names by their
    files. Raises SpecError."""
    queues = source.data.get("queues")
    if not isinstance(queues, dict):
        return source
    blocks = dict(queues)
    for key in ("roles", "links"):
        parts = blocks.get(key)
        if isinstance(parts, dict):
            blocks[key] = {name: _with_profile(part, path) for name, part in parts.items()}
    return replace(source, data={**source.data, "queues": _with_profile(blocks, path)})


def _with_profile(block: Data, path: Path) -> Data:
    """A block of keys, with what the files of its `profile` hold in place of their names."""
    if not isinstance(block, dict):
        return block
    value = block.get("profile")
    names = value if isinstance(value, list) else [value]
    texts = [name for name in names if isinstance(name, str)]
    if not texts or len(texts) < len(names):
        return block
    if isinstance(value, str) and not (path.parent / value).exists():
        return block  # a name of the catalog, or one that is nowhere
    paths = [path.parent / text for text in texts]
    with ExitStack() as stack:
        for named in paths:
            stack.enter_context(named_by(path, named))
        first = paths[0]
        profile = read_profile(first.name if first.is_dir() else first.stem, paths)
    return {**block, "profile": profile.model_dump(mode="json", exclude_none=True)}
