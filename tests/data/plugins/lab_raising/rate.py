"""The congestion control."""

from __future__ import annotations

from typing import Literal

from rocelab.jobs.congestion import CongestionSpec


class RaisingControl(CongestionSpec):
    """A congestion control that raises."""

    sender = "lab_raising.sender"
    kind: Literal["broken-rate"]
    compiled: bool = False
