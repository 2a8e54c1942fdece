"""Convergence figures against cases computed by hand, and properties that always hold."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.results.convergence import (
    FlowMeasurement,
    FlowSamples,
    MeasurementMethod,
    Window,
    aggregate,
    aggregate_event,
    event_windows,
    find_outages,
    measure_flow,
    offered_rate_pps,
    rate_derived_convergence,
    reordered_packets,
)

MS = 10**6
METHOD = MeasurementMethod(sampling_interval_ns=10 * MS, sustained_ns=100 * MS)
RATE = 1000.0


def flow(
    lost: set[int] = frozenset(),  # type: ignore[assignment]
    packets: int = 1000,
    order: list[int] | None = None,
    delay_ns: int = 50_000,
) -> FlowSamples:
    """A flow of a packet a millisecond from time 0, with `lost` numbers missing."""
    sent = np.arange(packets, dtype=np.int64)
    got = np.array(
        order if order is not None else [n for n in range(packets) if n not in lost], dtype=np.int64
    )
    return FlowSamples(sent, sent * MS, got, got * MS + delay_ns)


def measured(samples: FlowSamples, *windows: Window) -> FlowMeasurement:
    return measure_flow(samples, windows, RATE, METHOD)


def test_a_flow_without_loss_is_not_affected_and_has_no_times() -> None:
    result = measured(flow(), Window(200 * MS, 1000 * MS))
    assert (result.sent, result.received, result.lost) == (1000, 1000, 0)
    assert result.outages == ()
    assert not result.events[0].affected
    assert result.events[0].restored
    assert result.events[0].convergence_ns is None


def test_thirty_packets_lost_from_the_event_on_are_thirty_milliseconds_by_every_method() -> None:
    result = measured(flow(lost=set(range(200, 230))), Window(200 * MS, 1000 * MS))
    event = result.events[0]
    assert result.outages[0].start_ns == 200 * MS
    assert result.outages[0].end_ns == 230 * MS
    assert event.lost == 30
    assert event.convergence_ns == 30 * MS
    assert event.loss_derived_ns == 30 * MS
    assert event.loss_of_connectivity_ns == 30 * MS
    assert event.rate_derived_ns == 30 * MS
    assert event.restored
    assert result.resolution_ns == MS


def test_loss_that_begins_late_counts_from_the_event_for_convergence_but_not_for_loss() -> None:
    event = measured(flow(lost=set(range(250, 260))), Window(200 * MS, 1000 * MS)).events[0]
    assert event.convergence_ns == 60 * MS
    assert event.loss_derived_ns == 10 * MS


def test_two_outages_before_recovery_add_up_in_loss_of_connectivity_only() -> None:
    lost = set(range(200, 210)) | set(range(230, 250))
    event = measured(flow(lost=lost), Window(200 * MS, 1000 * MS)).events[0]
    assert event.lost == 30
    assert event.loss_of_connectivity_ns == 30 * MS
    assert event.convergence_ns == 50 * MS


def test_loss_after_a_sustained_recovery_does_not_lengthen_convergence() -> None:
    lost = set(range(200, 210)) | {400}
    event = measured(flow(lost=lost), Window(200 * MS, 1000 * MS)).events[0]
    assert event.convergence_ns == 10 * MS
    assert (event.lost, event.lost_after_recovery) == (10, 1)


def test_loss_before_the_event_is_reported_apart() -> None:
    result = measured(flow(lost={50, 51, 300}), Window(200 * MS, 1000 * MS))
    assert result.lost == 3
    assert result.lost_outside_events == 2
    assert result.outages[0].event is None
    assert result.events[0].lost == 1


def test_a_packet_on_its_way_when_the_event_strikes_is_held_against_it() -> None:
    result = measured(flow(lost={200, 201}), Window(200 * MS + 400_000, 1000 * MS))
    assert result.lost_outside_events == 0
    assert result.events[0].lost == 2


def test_an_outage_older_than_the_event_is_not_held_against_it() -> None:
    result = measured(flow(lost=set(range(100, 300))), Window(200 * MS, 1000 * MS))
    assert result.lost_outside_events == 200
    assert not result.events[0].affected


def test_each_event_is_charged_with_its_own_losses() -> None:
    lost = set(range(200, 220)) | set(range(600, 605))
    result = measured(
        flow(lost=lost), Window(200 * MS, 600 * MS - 300_000), Window(600 * MS - 300_000, 1000 * MS)
    )
    assert [event.lost for event in result.events] == [20, 5]
    assert result.events[1].convergence_ns == 5 * MS + 300_000


def test_a_flow_that_never_comes_back_is_not_restored_and_has_no_convergence_time() -> None:
    result = measured(flow(lost=set(range(200, 1000))), Window(200 * MS, 1000 * MS))
    event = result.events[0]
    assert result.outages[0].end_ns is None
    assert not event.restored
    assert event.convergence_ns is None
    assert event.loss_derived_ns is None
    assert event.rate_derived_ns is None
    assert event.lost == 800


def test_a_recovery_too_short_to_be_sustained_is_none() -> None:
    event = measured(flow(lost=set(range(200, 950))), Window(200 * MS, 1000 * MS)).events[0]
    assert not event.restored
    assert event.lost == 750


def test_the_rate_derived_method_does_not_see_a_single_lost_packet() -> None:
    result = measured(flow(lost={200}), Window(200 * MS, 1000 * MS))
    event = result.events[0]
    assert event.affected
    assert event.rate_derived_ns == 0
    assert event.loss_derived_ns == MS
    together = aggregate_event([result], 0)
    assert together.rate_derived_ns is None
    assert aggregate([result], [together]).rate_derived_ns is None


def test_what_one_flow_s_rate_does_not_show_does_not_hide_another_s() -> None:
    window = Window(200 * MS, 1000 * MS)
    flows = [measured(flow(lost={200}), window), measured(flow(lost=set(range(200, 230))), window)]
    together = aggregate_event(flows, 0)
    assert together.rate_derived_ns == 30 * MS
    assert aggregate(flows, [together]).rate_derived_ns == 30 * MS


def test_a_rate_that_does_not_come_back_leaves_the_whole_run_without_one() -> None:
    windows = (Window(200 * MS, 500 * MS), Window(500 * MS, 1000 * MS))
    flows = [measured(flow(lost=set(range(200, 230)) | set(range(600, 1000))), *windows)]
    events = [aggregate_event(flows, index) for index in (0, 1)]
    assert [event.rate_derived_ns for event in events] == [30 * MS, None]
    assert aggregate(flows, events).rate_derived_ns is None


@pytest.mark.parametrize(("lost", "below"), [(1, False), (4, False), (5, False), (6, True)])
def test_how_much_lower_a_rate_must_be_is_a_share_of_the_interval(lost: int, below: bool) -> None:
    """Intervals of 500 packets: up to 1 % fewer is the same rate."""
    sent_ns = np.arange(2000, dtype=np.int64) * MS
    received_ns = np.delete(sent_ns, np.arange(500, 500 + lost)) + 50_000
    loss_ns = rate_derived_convergence(
        sent_ns, received_ns, Window(500 * MS, 2000 * MS), MeasurementMethod(500 * MS, 500 * MS)
    )
    assert loss_ns == (500 * MS if below else 0)


def test_one_packet_lost_long_after_an_event_has_no_time() -> None:
    result = measured(flow(lost={700}), Window(200 * MS, 1000 * MS))
    event = result.events[0]
    assert (event.affected, event.restored, event.stray, event.lost) == (True, True, True, 1)
    assert event.convergence_ns is None
    assert event.loss_derived_ns is None
    assert event.loss_of_connectivity_ns is None
    together = aggregate_event([result], 0)
    assert (together.affected_flows, together.lost, together.restored) == (1, 1, True)
    assert together.full_convergence_ns is None


@pytest.mark.parametrize("lost", [{450, 700}, {450, 500}, {320, 450, 700, 702}])
def test_however_many_packets_are_lost_singly_long_after_an_event_they_have_no_time(
    lost: set[int],
) -> None:
    result = measured(flow(lost=lost), Window(200 * MS, 1000 * MS))
    event = result.events[0]
    assert all(outage.stray for outage in result.outages)
    assert (event.affected, event.restored, event.stray) == (True, True, True)
    assert (event.lost, event.lost_after_recovery) == (len(lost), 0)
    assert (event.convergence_ns, event.loss_of_connectivity_ns) == (None, None)
    together = aggregate_event([result], 0)
    assert (together.full_convergence_ns, together.stray_flows) == (None, 1)
    assert aggregate([result], [together]).full_convergence_ns is None


def test_a_packet_lost_singly_does_not_stand_for_the_outage_after_it() -> None:
    """It had been taken for it: 'converged' after 201 ms, 299 ms before connectivity was lost."""
    lost = {400} | set(range(700, 730))
    event = measured(flow(lost=lost), Window(200 * MS, 1000 * MS)).events[0]
    assert (event.stray, event.lost, event.lost_after_recovery) == (False, 31, 0)
    assert event.convergence_ns == 530 * MS
    assert event.loss_of_connectivity_ns is not None
    assert abs(event.loss_of_connectivity_ns - 30 * MS) <= event.resolution_ns


def test_packets_lost_singly_before_an_outage_s_recovery_has_lasted_put_it_off() -> None:
    """RFC 6412 section 3.7.5: without additional packet loss."""
    lost = set(range(200, 210)) | {250}
    event = measured(flow(lost=lost), Window(200 * MS, 1000 * MS)).events[0]
    assert event.convergence_ns == 51 * MS


def test_a_stray_packet_of_one_flow_does_not_hide_or_lengthen_another_s_time() -> None:
    window = Window(200 * MS, 1000 * MS)
    flows = [measured(flow(lost={700}), window), measured(flow(lost=set(range(200, 230))), window)]
    together = aggregate_event(flows, 0)
    assert together.full_convergence_ns == 30 * MS
    assert together.loss_derived_ns == 30 * MS
    assert aggregate(flows, [together]).full_convergence_ns == 30 * MS


def test_one_packet_lost_as_the_event_came_has_a_time() -> None:
    event = measured(flow(lost={201}), Window(200 * MS, 1000 * MS)).events[0]
    assert not event.stray
    assert event.convergence_ns == 2 * MS


def test_one_packet_lost_while_the_event_may_still_have_come_has_a_time() -> None:
    late = flow(lost={220})
    assert measured(late, Window(200 * MS, 1000 * MS)).events[0].stray
    event = measured(late, Window(200 * MS, 1000 * MS, uncertain_ns=20 * MS)).events[0]
    assert (event.stray, event.convergence_ns) == (False, 21 * MS)


def test_two_packets_lost_long_after_an_event_are_an_outage() -> None:
    event = measured(flow(lost={700, 701}), Window(200 * MS, 1000 * MS)).events[0]
    assert event.convergence_ns == 502 * MS


def test_the_rate_derived_method_sees_packets_that_are_late_and_not_lost() -> None:
    sent_ns = np.arange(400, dtype=np.int64) * MS
    receive_ns = sent_ns + 50_000
    receive_ns[200:240] = 240 * MS + 60_000
    window = Window(200 * MS, 400 * MS)
    assert rate_derived_convergence(sent_ns, receive_ns, window, METHOD) == 40 * MS


def test_rfc_4737_counts_late_packets_and_not_gaps() -> None:
    assert reordered_packets(np.array([1, 2, 4, 3, 5])) == 1
    assert reordered_packets(np.array([1, 2, 5, 3, 4, 6])) == 2
    assert reordered_packets(np.array([1, 3, 5, 7])) == 0
    assert reordered_packets(np.array([4, 1, 2, 3])) == 3
    assert reordered_packets(np.array([], dtype=np.int64)) == 0


def test_second_copies_are_duplicates_and_neither_received_nor_reordered() -> None:
    result = measured(flow(packets=5, order=[0, 1, 2, 1, 1, 3, 4]))
    assert (result.received, result.duplicated, result.reordered) == (5, 2, 0)


def test_numbers_never_sent_are_counted_and_change_nothing_else() -> None:
    result = measured(flow(packets=3, order=[0, 77, 1, 2]))
    assert (result.received, result.lost, result.unexpected, result.reordered) == (3, 0, 1, 0)


def test_full_and_first_route_convergence_are_of_the_last_and_the_first_affected_flow() -> None:
    window = Window(200 * MS, 1000 * MS)
    flows = [
        measured(flow(), window),
        measured(flow(lost=set(range(200, 210))), window),
        measured(flow(lost=set(range(200, 240))), window),
    ]
    event = aggregate_event(flows, 0)
    assert event.affected_flows == 2
    assert event.first_route_convergence_ns == 10 * MS
    assert event.full_convergence_ns == 40 * MS
    assert event.loss_derived_ns == 25 * MS
    assert event.loss_of_connectivity_ns == 40 * MS
    overall = aggregate(flows, [event])
    assert (overall.sent, overall.received, overall.lost) == (3000, 2950, 50)
    assert overall.restored
    assert overall.full_convergence_ns == 40 * MS


def test_one_flow_that_stays_dark_leaves_full_convergence_unmeasured() -> None:
    window = Window(200 * MS, 1000 * MS)
    flows = [
        measured(flow(lost=set(range(200, 210))), window),
        measured(flow(lost=set(range(200, 1000))), window),
    ]
    event = aggregate_event(flows, 0)
    assert event.full_convergence_ns is None
    assert event.first_route_convergence_ns == 10 * MS
    overall = aggregate(flows, [event])
    assert overall.full_convergence_ns is None
    assert not overall.restored


def test_an_event_that_touched_no_flow_has_no_times() -> None:
    window = Window(200 * MS, 1000 * MS)
    event = aggregate_event([measured(flow(), window)], 0)
    assert event.affected_flows == 0
    assert event.restored
    assert event.full_convergence_ns is None
    assert event.loss_derived_ns is None


def test_a_dark_flow_outside_every_window_still_means_not_restored() -> None:
    flows = [measured(flow(lost=set(range(900, 1000))), Window(200 * MS, 300 * MS))]
    assert not aggregate(flows, [aggregate_event(flows, 0)]).restored


def test_windows_end_at_the_next_event_the_limit_or_the_end() -> None:
    assert event_windows([100, 300, 900], limit_ns=250, end_ns=1000) == (
        Window(100, 300),
        Window(300, 550),
        Window(900, 1000),
    )
    with pytest.raises(ValueError, match="in order"):
        event_windows([300, 100], limit_ns=1, end_ns=1000)


def test_samples_that_are_not_in_sending_order_are_refused() -> None:
    with pytest.raises(ValueError, match="rise strictly"):
        FlowSamples(np.array([1, 1]), np.array([0, 1]), np.array([1]), np.array([2]))


def test_the_offered_rate_counts_intervals_not_packets() -> None:
    assert offered_rate_pps(np.array([0, MS, 2 * MS])) == 1000.0
    with pytest.raises(ValueError, match="two packets"):
        offered_rate_pps(np.array([5]))


@st.composite
def arrivals(draw: st.DrawFn) -> FlowSamples:
    """Any subset of up to 300 packets, in any order, with copies."""
    packets = draw(st.integers(1, 300))
    order = draw(st.lists(st.integers(0, packets - 1), max_size=400))
    return flow(packets=packets, order=order)


windows = st.lists(st.integers(1, 299), min_size=0, max_size=4, unique=True).map(
    lambda starts: event_windows([s * MS for s in sorted(starts)], 50 * MS, 300 * MS)
)


@given(arrivals(), windows)
def test_every_packet_sent_is_either_received_or_lost_and_every_loss_is_accounted_for(
    samples: FlowSamples, events: tuple[Window, ...]
) -> None:
    result = measured(samples, *events)
    assert result.lost + result.received == result.sent
    assert result.received + result.duplicated == len(samples.received_seq)
    assert sum(outage.lost for outage in result.outages) == result.lost
    attributed = sum(event.lost + event.lost_after_recovery for event in result.events)
    assert attributed + result.lost_outside_events == result.lost
    assert 0 <= result.reordered < max(1, result.received)


@given(arrivals(), windows)
def test_outages_never_overlap_and_each_lasts_as_long_as_its_packets(
    samples: FlowSamples, events: tuple[Window, ...]
) -> None:
    outages = measured(samples, *events).outages
    for earlier, later in pairwise(outages):
        assert earlier.end_ns is not None
        assert earlier.end_ns < later.start_ns
    for outage in outages:
        if outage.end_ns is not None:
            assert outage.end_ns - outage.start_ns == outage.lost * MS


@given(st.integers(1, 500), st.floats(1, 1e6))
def test_loss_derived_time_of_k_packets_at_rate_r_is_k_over_r(k: int, rate_pps: float) -> None:
    samples = flow(lost=set(range(200, 200 + k)))
    event = measure_flow(samples, [Window(200 * MS, 1000 * MS)], rate_pps, METHOD).events[0]
    assert event.loss_derived_ns == pytest.approx(k / rate_pps * 1e9)


@given(st.permutations(list(range(30))))
def test_reordering_is_zero_exactly_when_arrivals_are_in_order(order: list[int]) -> None:
    assert (reordered_packets(np.array(order)) == 0) == (order == sorted(order))


def test_an_outage_that_only_the_repair_ended_is_as_long_as_the_fault() -> None:
    windows = (Window(200 * MS, 500 * MS), Window(500 * MS, 1000 * MS))
    begun, ended = measured(flow(lost=set(range(200, 503))), *windows).events
    assert begun.restored
    assert begun.convergence_ns == begun.loss_of_connectivity_ns == 303 * MS
    assert begun.rate_derived_ns == 310 * MS
    assert not ended.affected


def test_a_recovery_that_another_event_cuts_short_is_one_without_a_time() -> None:
    windows = (Window(200 * MS, 250 * MS), Window(250 * MS, 1000 * MS))
    result = measured(flow(lost=set(range(200, 210)) | set(range(260, 270))), *windows)
    cut_short, last = result.events
    assert cut_short.restored
    assert cut_short.convergence_ns is None
    assert cut_short.loss_derived_ns is None
    assert cut_short.loss_of_connectivity_ns == 10 * MS
    assert last.convergence_ns == 20 * MS
    together = aggregate_event([result], 0)
    assert together.restored
    assert together.full_convergence_ns is None
    assert together.loss_derived_ns is None


def test_a_recovery_that_the_end_of_the_traffic_cuts_short_is_none() -> None:
    lost = set(range(900, 950))
    event = measured(flow(lost=lost), Window(900 * MS, 1000 * MS)).events[0]
    assert not event.restored


def test_a_packet_that_left_later_than_stamped_makes_its_outage_less_certain() -> None:
    sent_ns = np.arange(10, dtype=np.int64) * MS
    delivered = np.array([True] * 3 + [False] * 4 + [True] * 3)
    held_ns = np.zeros(10, np.int64)
    held_ns[4] = 50 * MS  # in the middle of the outage it changes nothing
    (outage,) = find_outages(sent_ns, delivered, held_ns)
    assert (outage.held_ns, outage.resolution_ns) == (0, MS)
    held_ns[3], held_ns[7] = 2 * MS, 15 * MS
    (outage,) = find_outages(sent_ns, delivered, held_ns)
    assert (outage.held_ns, outage.resolution_ns) == (15 * MS, 16 * MS)
    assert (outage.start_ns, outage.end_ns) == (3 * MS, 7 * MS)
    with pytest.raises(ValueError, match="held_ns"):
        FlowSamples(np.arange(2), np.arange(2), np.arange(2), np.arange(2), np.arange(3))
