"""A congestion control: a share of the NIC's rate, whatever happens."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rocelab.jobs.congestion import CongestionSpec


class PacedSpec(CongestionSpec):
    """A share of the NIC's rate, whatever happens."""

    sender = "lab_pacing.sender"
    kind: Literal["paced"]
    part: Annotated[int, Field(ge=1, le=100, description="of the NIC's rate is sent: 1/part")] = 4
