"""What the kernel's TCP did for a job, as data of its document."""

from __future__ import annotations

from dataclasses import dataclass

from rocelab.results.programs import TcpConnection


@dataclass(frozen=True, slots=True)
class TcpFigures:
    """The connections of a job of TCP, in the lab's clock; instants count from the job's start."""

    congestion_control: str
    rto_min_ns: int
    """The least retransmission timeout."""
    rto_is_scaled: bool
    """Whether the servers' kernel has a setting for it; else it is 200 ms."""
    clock: tuple[str, ...]
    """What of TCP follows the lab's clock and what does not; empty without dilation."""
    connections: tuple[TcpConnection, ...]
    """Each from the sender, those that delivered most first; bytes are those of the kernel, with 16
    of each send's own header."""
    stall_bin_ns: int
    """The shortest stall that is reported, if it is also longer than `least_trips` smoothed round
    trips."""
    least_trips: int
    longest_interval_ns: int
    """The longest time between two samples: a shorter stall may be missed, or be longer by it."""

    @property
    def resent_bytes(self) -> int:
        return sum(connection.resent_bytes for connection in self.connections)

    @property
    def resent_share(self) -> float | None:
        """Of all payload that was sent; None if none was."""
        sent = sum(one.delivered_bytes + one.resent_bytes for one in self.connections)
        return self.resent_bytes / sent if sent else None

    @property
    def stalled(self) -> int:
        """Connections that stalled."""
        return sum(bool(connection.stalls) for connection in self.connections)

    @property
    def longest_stall_ns(self) -> int:
        return max((connection.longest_stall_ns for connection in self.connections), default=0)
