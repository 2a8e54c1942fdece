"""A command's overrides of a lab's file: another scheme, other hashing.

The text of `--scheme` and `--hashing` becomes specs, or a SpecError as for a file.
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
    """The overrides on the command line; None keeps the lab's own."""

    scheme: Annotated[SchemeSpec | None, Field(description="how flows are spread")] = None
    hashing: Annotated[HashingSpec | None, Field(description="the seeds of switches")] = None


def read_asked(scheme: str | None, hashing: str | None = None) -> Asked:
    """The specs of two options, None for an option that is not set. Raises SpecError."""
    texts = {"scheme": scheme, "hashing": hashing}
    data: dict[str, Data] = {
        key: read_scalar(text, None, plain=True) for key, text in texts.items() if text is not None
    }
    return validate(Source("command line", data, {}), Asked)
