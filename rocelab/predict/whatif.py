"""What a command asks of a lab beside what its file says: another scheme, other hashing.

In: the text of `--scheme` and `--hashing`. Out: their specs, or a SpecError as for a file.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rocelab.spec.base import SpecModel
from rocelab.spec.load import validate
from rocelab.spec.model import HashingSpec
from rocelab.spec.scalars import read_scalar
from rocelab.spec.schemes import SchemeSpec
from rocelab.spec.source import Data, Source


class Asked(SpecModel):
    """What stands on the command line; None is as the lab has it."""

    scheme: Annotated[SchemeSpec | None, Field(description="how flows are spread")] = None
    hashing: Annotated[HashingSpec | None, Field(description="the seeds of switches")] = None


def read_asked(scheme: str | None, hashing: str | None = None) -> Asked:
    """The specs of two options, None for those not given. Raises SpecError."""
    given = {"scheme": scheme, "hashing": hashing}
    data: dict[str, Data] = {
        key: read_scalar(text, None, plain=True) for key, text in given.items() if text is not None
    }
    return validate(Source("command line", data, {}), Asked)
