"""What tcpdump says of its packets, and a tcpdump that ends before it captures."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rocelab.base.errors import MachineError
from rocelab.observe.tcpdump import CaptureCounts, await_listening, counts_in


@pytest.mark.parametrize(
    ("messages", "counts", "unread"),
    [
        # tcpdump 4.99 at its end, and on SIGUSR1.
        (
            b"100 packets captured\n131 packets received by filter\n7 packets dropped by kernel\n",
            CaptureCounts(100, 131, 7),
            24,
        ),
        (
            b"tcpdump: 1 packet captured, 1 packet received by filter, 0 packets dropped by kernel",
            CaptureCounts(1, 1, 0),
            0,
        ),
        (b"tcpdump: pcap_loop: The interface disappeared\n", CaptureCounts(0, 0, 0), 0),
    ],
)
def test_packets_that_are_not_in_the_file_are_counted(
    messages: bytes, counts: CaptureCounts, unread: int
) -> None:
    assert counts_in(messages) == counts
    assert counts.unread == unread


def test_what_it_said_is_in_the_error_where_it_does_not_start() -> None:
    program = "import sys; sys.exit('tcpdump: eth9: No such device exists')"
    with (
        subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) as process,
        pytest.raises(MachineError, match="did not start: tcpdump: eth9: No such device"),
    ):
        await_listening(process)
