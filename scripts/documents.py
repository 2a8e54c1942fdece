"""Result documents: frozen dataclasses as JSON text, and back.

In: a result, or the text of one. Out: text that is the same bytes for the same result; or an equal
result, or an error that says why the text is none.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from labs.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Result = TypeVar("Result")

# Only between two lines of the indented text, so never inside a JSON string.
_NUMBERS = re.compile(r"\[\n\s+-?\d[-\d.e+,\s]*\]")


def to_json(result: DataclassInstance) -> str:
    """The document as JSON text: the same result gives the same bytes. Vectors of numbers stand on
    one line. Raises ValueError on a number that JSON has not, such as NaN."""
    text = json.dumps(asdict(result), indent=1, sort_keys=True, allow_nan=False)
    return _NUMBERS.sub(lambda match: re.sub(r"\s+", "", match[0]), text) + "\n"


@dataclass(frozen=True, slots=True)
class Format(Generic[Result]):
    """A kind of document: the class that it reads into, and the version that this tool reads.

    `name` and `hint` are for errors: "a result document", and where to find one.
    """

    result: type[Result]
    version: int
    name: str
    hint: str

    def read(self, text: str) -> Result:
        """The result that `to_json` wrote. Raises InputError on anything else."""
        return self.validated(self.parsed(text))

    def parsed(self, text: str) -> dict[str, Any]:
        """The keys of the document, none where it is no JSON object. Raises InputError where the
        text is not JSON."""
        try:
            document = json.loads(text)
        except ValueError as error:
            raise InputError(f"not {self.name}: {error}", hint=self.hint) from error
        return document if isinstance(document, dict) else {}

    def validated(self, document: dict[str, Any]) -> Result:
        """The result of these keys. Raises InputError on another version or what does not fit."""
        version = document.get("schema_version")
        if version != self.version:
            raise InputError(
                f"{self.name} of schema version {version!r}; this tool reads {self.version}",
                hint=self.hint,
            )
        try:
            return TypeAdapter(self.result).validate_python(document)
        except ValidationError as error:
            raise InputError(f"not {self.name}: {error}", hint=self.hint) from error
