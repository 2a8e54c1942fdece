"""The catalog of switch models: a folder of SONiC's files for each, shipped in `profiles/`."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache

from rocelab.base.data import shipped
from rocelab.base.wording import RefusedError, name_hint, shown
from rocelab.labfile.profile import ProfileSpec
from rocelab.labfile.reference import named_by
from rocelab.labfile.references import EACH, Content, FileReference, Naming
from rocelab.labfile.sonic import read_profile


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


def _profile(naming: Naming) -> Content | None:
    """What the files of a block's `profile` hold. Raises SpecError."""
    value = naming.value
    texts = value if isinstance(value, list) else [value]
    paths = [naming.folder / text for text in texts if isinstance(text, str)]
    if not paths or len(paths) < len(texts):
        return None
    first = paths[0]
    if isinstance(value, str) and not first.exists():
        return None  # a name of the catalog, or one that is nowhere
    with ExitStack() as stack:
        for path in paths:
            stack.enter_context(named_by(naming.path, path))
        profile = read_profile(first.name if first.is_dir() else first.stem, paths)
    return Content(profile.model_dump(mode="json", exclude_none=True))


PROFILES = tuple(
    FileReference(("queues", *place, "profile"), _profile)
    for place in ((), ("roles", EACH), ("links", EACH))
)
