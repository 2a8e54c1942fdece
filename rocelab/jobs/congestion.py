"""Congestion controls of the packet engine: how a job chooses one, and its parameters.

A control is registered as a class of `CongestionSpec`: its keys are its parameters, and `sender`
names the module with its compiled functions (`rocelab.sim.packets.control`), which loads numba and
is imported by the engine alone. A job has it by `transport.congestion`; DCQCN, which labs have too,
by `transport.dcqcn` as well.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from rocelab.base.kinds import any_of, model_door
from rocelab.jobs.dcqcn_profiles import PROFILES
from rocelab.labfile.base import SpecModel


class CongestionSpec(SpecModel):
    """The parameters of a congestion control."""

    sender: ClassVar[str]
    """The module of its functions."""

    kind: str


class DcqcnSpec(CongestionSpec):
    """DCQCN with published parameters; the same as `dcqcn`."""

    sender = "rocelab.sim.packets.dcqcn"
    kind: Literal["dcqcn"] = "dcqcn"
    profile: Annotated[
        Literal[*PROFILES],  # type: ignore[valid-type]
        Field(description="the published parameters"),
    ]


CONTROLS = model_door("rocelab.congestion", "congestion control", CongestionSpec)

if TYPE_CHECKING:
    AnyCongestion = CongestionSpec
else:
    AnyCongestion = any_of(CONTROLS)


def sender_files() -> tuple[Path, ...]:
    """The Python files of the senders of plug-ins: each one's module, and what is beside it in its
    package."""
    files: list[Path] = []
    for name, control in CONTROLS.all().items():
        spec = find_spec(control.sender) if CONTROLS.origin(name) else None
        if spec is not None and spec.origin is not None:
            file = Path(spec.origin)
            files += sorted(file.parent.rglob("*.py")) if "." in control.sender else [file]
    return tuple(files)
