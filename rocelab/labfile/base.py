"""The base of every model of a spec: strict keys, names and the units of time limits.

The pydantic models refuse unknown keys and values, with the messages of `rocelab.base.wording`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field
from pydantic.fields import FieldInfo

from rocelab.base.models import SHORT_FORM as SHORT_FORM
from rocelab.base.models import SpecModel as SpecModel
from rocelab.base.wording import RefusedError, shown

MS = 10**6
SECOND = 10**9
MAX_NAME_LENGTH = 24

_NAME_PATTERN = r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"


def split_nic(data: object, server: str, nic: str) -> object:
    """The keys of a block in which `server` may name a NIC, such as `srv2-1:2`: read as the server
    and the number of the NIC."""
    if isinstance(data, Mapping) and nic not in data:
        match = re.fullmatch(r"([^:]+):([0-9]{1,3})", str(data.get(server)))
        if match is not None:
            return {**data, server: match[1], nic: int(match[2])}
    return data


def short_form(schema: dict[str, Any]) -> FieldInfo:
    """The schema of what a field reads beside its own form, for editors."""
    return cast("FieldInfo", Field(json_schema_extra={SHORT_FORM: schema}))


def check_name(name: object) -> object:
    """A name that is safe in namespaces, paths and shells. Raises RefusedError."""
    if not isinstance(name, str):
        hint = None if name is None else "put the name in quotes, and start it with a letter"
        raise RefusedError(f"expected a name such as zone-small, got {shown(name)}", hint)
    if len(name) > MAX_NAME_LENGTH:
        raise RefusedError(
            f"expected at most {MAX_NAME_LENGTH} characters, got {len(name):,}: {shown(name)}",
            "it becomes part of the names of namespaces and files",
        )
    if not is_name(name):
        safe = safe_name(name)
        raise RefusedError(
            "expected lower-case letters, digits and single dashes, starting with a letter, "
            f"got {shown(name)}",
            f"for example {safe}" if safe else "for example zone-small",
        )
    return name


def safe_name(text: str) -> str:
    """A name made of any text: `my-lab` of `My_Lab`; empty if nothing of it can be in a name."""
    safe = "-".join(re.findall(r"[a-z0-9]+", text.lower())).lstrip("0123456789-")
    return safe[:MAX_NAME_LENGTH].rstrip("-")


def is_name(text: str) -> bool:
    """Whether the text is a valid name of a lab or a node."""
    return len(text) <= MAX_NAME_LENGTH and re.fullmatch(_NAME_PATTERN[1:-1], text) is not None


Name = Annotated[
    str,
    Field(pattern=_NAME_PATTERN, max_length=MAX_NAME_LENGTH),
    BeforeValidator(check_name),
]
