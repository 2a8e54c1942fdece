"""What a window holds back, of transfers computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rocelab.routes.arrays.flows import Paths
from rocelab.sim.windows import Sent, held_back, round_trips_s

PACKET_BITS, ACK_BITS = 8000, 8 * 86


def sent(
    *transfers: tuple[int, float, float, int], window: int, ack_every: int = 1, late_s: float = 0.0
) -> Sent:
    """Transfers: flow, begin, end and packets of each. late_s: until a last bit has come."""
    flow, begin_s, end_s, packets = zip(*transfers, strict=True)
    number = np.array(packets, np.int64)
    return Sent(
        flow=np.array(flow, np.int64),
        begin_s=np.array(begin_s),
        end_s=np.array(end_s),
        over_s=np.array(end_s) + late_s,
        packets=number,
        bits=PACKET_BITS * number.astype(np.float64),
        window=np.full(len(flow), window, np.int64),
        ack_every=np.full(len(flow), ack_every, np.int64),
        ack_bits=ACK_BITS,
    )


def longer(transfers: Sent, round_s: float) -> list[float]:
    ratios = held_back(transfers, np.full(len(transfers.flow), round_s))
    return [round(ratio, 9) for ratio in ratios.tolist()]


def test_each_full_window_waits_for_a_round_trip() -> None:
    """Windows of 5 packets take 0.5 s and wait 0.6 s: 9 of these waits in 50 packets."""
    assert longer(sent((0, 0.0, 5.0, 50), window=5), 0.6) == [1.18]
    assert longer(sent((0, 0.0, 5.0, 50), window=5, late_s=4.0), 0.6) == [1.1]
    assert longer(sent((0, 0.0, 5.0, 50), window=6), 0.6) == [1.0]
    assert longer(sent((0, 0.0, 5.0, 50), window=50), 9.0) == [1.0]


def test_transfers_of_a_queue_pair_share_a_window() -> None:
    first, second = (0, 0.0, 1.0, 10), (0, 1.0, 2.0, 10)
    assert longer(sent(first, second, window=10), 2.0) == [1.0, 2.0]
    assert longer(sent(second, first, window=10), 2.0) == [2.0, 1.0]
    assert longer(sent(first, (1, 1.0, 2.0, 10), window=10), 2.0) == [1.0, 1.0]
    assert longer(sent(first, (0, 9.0, 10.0, 10), window=10), 2.0) == [1.0, 1.0]


def test_a_transfer_begins_when_the_one_before_it_has_left() -> None:
    assert longer(sent((0, 0.0, 1.0, 10), (0, 0.0, 2.0, 10), window=5), 0.6) == [1.1, 1.2]


def test_what_never_ends_is_not_held_back() -> None:
    assert longer(sent((0, 0.0, np.inf, 10), (1, 0.0, 1.0, 10), window=5), 0.6) == [1.0, 1.1]


@pytest.mark.parametrize(("window", "ack_every", "waited"), [(32, 1, 0), (32, 16, 15), (4, 16, 3)])
def test_a_round_trip_ends_with_the_ack_of_the_last_packet_that_it_is_for(
    window: int, ack_every: int, waited: int
) -> None:
    """Two links, the second half as fast."""
    paths = Paths(np.array([0, 2]), np.array([0, 1], np.int32))
    transfers = sent((0, 0.0, 1.0, 64), window=window, ack_every=ack_every)
    (round_s,) = round_trips_s(transfers, paths, np.array([2e9, 1e9]), np.full(2, 1e-6))
    serialised_s = (PACKET_BITS + ACK_BITS) * 1.5e-9 + waited * PACKET_BITS * 1e-9
    assert round_s == pytest.approx(4e-6 + serialised_s)
