"""Congestion control `aimd`: its parameters; `sender` has the functions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.units import DurationNs
from rocelab.jobs.congestion import CongestionSpec


class AimdSpec(CongestionSpec):
    """A rate that grows by a fixed step, and is halved by a CNP."""

    sender = "rocelab_example.sender"
    kind: Literal["aimd"]
    steps: Annotated[int, Field(ge=1, le=1000, description="from nothing to the NIC's rate")] = 100
    interval: Annotated[DurationNs, Field(ge=1000, description="of a step")] = 50_000
