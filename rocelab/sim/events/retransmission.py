"""How a queue pair handles lost packets: it waits for a timeout and retransmits them.

From the time of the loss and the time when the path is whole again follows when the queue pair gets
through, if ever. A requester's local ACK timer expires every `ack_timeout_s`, without back-off, and
after `retries` failed retries the queue pair is in error (InfiniBand Architecture Specification
9.7; `rocelab.agent.rc.requester`). Hardware may take up to four times its nominal timeout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from rocelab.base.arrays import Floats
from rocelab.jobs.transport import TransportSpec
from rocelab.labfile.base import SECOND
from rocelab.sim.events.event_spec import RetransmissionSpec

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Retransmission:
    """A queue pair's ACK timeout and number of retries."""

    ack_timeout_s: float
    retries: int

    @classmethod
    def of(cls, spec: RetransmissionSpec | None, transport: TransportSpec | None = None) -> Self:
        """The timeline's values; else those of the job's file; else NCCL's defaults.

        The lab's own default timeout does not apply: it belongs to a network with dilated time, in
        which no route converges within it.
        """
        default = spec or RetransmissionSpec()
        written = transport.model_fields_set if transport and spec is None else set()
        timeout, retries = default.ack_timeout, default.retries
        if transport is not None and "ack_timeout" in written:
            timeout = transport.ack_timeout
        if transport is not None and "retries" in written:
            retries = transport.retries
        return cls(timeout / SECOND, retries)

    @property
    def gives_up_s(self) -> float:
        """The time from a loss until the queue pair is in error."""
        return (self.retries + 1) * self.ack_timeout_s

    def through_s(self, lost_s: Floats | float, whole_s: float) -> Floats:
        """When packets lost at `lost_s` get through on a path that is whole from `whole_s` on: with
        the first retry at or after it. inf if all retries were before. Any shape.

        Assumes that everything sent since is lost and that a timeout triggers the retry: an earlier
        NAK needs a packet that arrives within the send window.
        """
        lost = np.asarray(lost_s, np.float64)
        retry = np.maximum(1.0, np.ceil((whole_s - lost) / self.ack_timeout_s - _ROUNDING))
        sent_s = np.maximum(lost + retry * self.ack_timeout_s, whole_s)
        return np.where(retry <= self.retries, sent_s, np.inf)
