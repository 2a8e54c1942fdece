"""The messages that make queues, read back by a second implementation of tc's netlink."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from rocelab.dataplane.queues import engine, htb, marker, red, red_reader
from rocelab.labfile.model import LabSpec
from rocelab.linux import netlink, tc
from rocelab.planning.build import plan
from rocelab.planning.queues import QueuedPort, QueuePlan, class_of_dscp, dscp_blocks, plan_queues
from rocelab.record import LabFiles
from tests.helpers.labs import planned

PORT = QueuedPort(1, "rtsw1", "srv1-1", 2, 400_000_000, 9000)
EVERY_CLASS = tuple(range(8))


def plan_with(queues: dict[str, object]) -> QueuePlan:
    fabric = {"racks": 1, "spines": 1}
    return plan_queues(
        plan(LabSpec.model_validate({"name": "lab", "fabric": fabric, "queues": queues}))
    )


def decoded(request: bytes) -> Any:
    message = tcmsg(tc.on_interface(request, 7))
    message.decode()
    assert message["index"] == 7
    assert message["header"]["length"] == len(request)
    return message


def options_of(message: Any) -> dict[str, Any]:
    return dict(message.get_attr("TCA_OPTIONS")["attrs"])


def test_a_tree_has_the_port_s_rate_above_and_a_queue_per_class_below() -> None:
    qdisc, root, *queues = (
        decoded(packet) for packet in htb.tree(PORT.rate_bps, PORT.mtu, EVERY_CLASS)
    )

    assert (qdisc["handle"], qdisc["parent"]) == (htb.HANDLE, tc.TC_H_ROOT)
    assert options_of(qdisc)["TCA_HTB_INIT"]["defcls"] == 0
    options = options_of(root)
    assert (root["handle"], root["parent"]) == (0x10001, htb.HANDLE)
    assert options["TCA_HTB_PARMS"]["rate"] == options["TCA_HTB_PARMS"]["ceil"] == 50_000_000
    assert options["TCA_HTB_RATE64"] == 50_000_000
    burst_ns = options["TCA_HTB_PARMS"]["buffer"] * 64
    assert burst_ns == pytest.approx(200_000, abs=64)
    assert [queue["handle"] for queue in queues] == [0x10010 + packet for packet in EVERY_CLASS]
    assert {queue["parent"] for queue in queues} == {0x10001}
    priorities = [options_of(queue)["TCA_HTB_PARMS"]["prio"] for queue in queues]
    assert priorities == [3, 3, 3, 3, 3, 2, 1, 0]
    assert {options_of(queue)["TCA_HTB_PARMS"]["quantum"] for queue in queues} == {9014}
    assert {options_of(queue)["TCA_HTB_RATE64"] for queue in queues} == {1}


def test_a_frame_counts_with_what_ethernet_adds_and_at_its_least_size() -> None:
    _, root, *_ = htb.tree(PORT.rate_bps, PORT.mtu, (3,))
    parameters = netlink.attributes(netlink.attributes(root[36:])[tc.TCA_OPTIONS])[1]
    _, linklayer, overhead, _, mpu, rate = struct.unpack_from("=BBHhHI", parameters)
    assert (linklayer, overhead, mpu, rate) == (1, 24, 84, 50_000_000)


def test_a_rate_beyond_32_bits_is_in_its_own_attribute() -> None:
    _, root, *_ = htb.tree(800 * 10**9, 9000, (3,))
    options = options_of(decoded(root))
    assert (options["TCA_HTB_PARMS"]["rate"], options["TCA_HTB_RATE64"]) == (2**32 - 1, 10**11)


def test_settings_have_the_line_the_bins_and_the_classes() -> None:
    made = plan_with({"buffer": "1MB", "marked": [3, 4], "ecn": {"kmin": "10KB", "kmax": "20KB"}})
    words = struct.unpack("=66Q64B", marker.settings(made, 0))
    assert words[:8] == (1_000_000,) * 8
    assert words[8:16] == (10_000,) * 8
    assert words[16:24] == (20_000,) * 8
    assert words[24:32] == (round(0.2 * 2**31),) * 8
    assert words[32:64] == made.bin_edges_bytes
    assert words[64:66] == (0b11000, 0)
    assert words[66:] == made.class_of_dscp


def test_classes_of_a_profile_have_their_own_limits_lines_and_turns() -> None:
    made = plan_with({"profile": "arista-7060x6-64pe"})
    words = struct.unpack("=66Q64B", marker.settings(made, 0))
    assert words[8 + 3], words[16 + 3] == (131_072, 262_144)
    assert words[24 + 3] == round(0.05 * 2**31)
    assert words[64:66] == (0b11000, 0b11000)
    tree = htb.tree(400_000_000, 9000, (0, 3, 6), made.strict_classes, made.quanta(0, 9000))
    quanta = {
        packet["handle"]: options_of(packet)["TCA_HTB_PARMS"]["quantum"]
        for packet in map(decoded, tree[2:])
    }
    assert quanta == {
        htb.class_id(0): 9014,
        htb.class_id(3): 2 * 9014,
        htb.class_id(6): 7 * 9014,
    }
    assert made.strict_classes == ()


def test_red_looks_at_the_queue_as_it_is_and_drops_only_at_the_buffer() -> None:
    made = plan_with({"buffer": "1MB", "ecn": {"kmin": "10KB", "kmax": "20KB", "pmax": 0.2}})
    attributes = netlink.attributes(red.red_options(made.ecn, made.buffer_bytes))
    limit, low, high, w_log, _, scell_log, flags = struct.unpack("=IIIBBBB", attributes[1])
    assert (limit, low, high, w_log, scell_log, flags) == (1_000_000, 10_000, 20_000, 0, 0, 0)
    assert len(attributes[2]) == 256
    assert max(attributes[2]) < 32
    assert struct.unpack("=I", attributes[3])[0] == round(0.2 / 1.8 * 2**32)
    assert struct.unpack("=II", attributes[4]) == (1 | 8, 1 | 8)


@pytest.mark.parametrize("wanted", [0.01, 0.2, 0.5, 1.0])
def test_red_s_spacing_of_marks_is_allowed_for(wanted: float) -> None:
    """The gaps between marks that red_mark_probability makes, summed exactly."""
    probability = red.red_probability(wanted)
    draws = 100_000
    gaps = [-(-(2 * number + 1) // round(2 * draws * probability)) for number in range(draws)]
    assert draws / sum(gaps) == pytest.approx(wanted, rel=0.05)


def test_marked_classes_have_red_and_others_a_fifo_of_the_buffer() -> None:
    made = plan_with({"buffer": "1MB", "marked": [3]})
    messages = red.RedQueues(made).messages(PORT)
    kinds = {
        decoded(message)["parent"]: decoded(message).get_attr("TCA_KIND")
        for message in messages[10:18]
    }
    assert kinds == {
        htb.class_id(packet): "red" if packet == 3 else "bfifo" for packet in EVERY_CLASS
    }


def rules_take(rules: list[tuple[list[red.Key], int]], header: bytes) -> int:
    """The class of the first rule that takes a packet; 0 if none does. It matches like cls_u32."""
    for keys, target in rules:
        if all(
            struct.unpack_from(">I", header.ljust(64, b"\0"), offset)[0] & mask == value
            for offset, mask, value in keys
        ):
            return target
    return 0


@pytest.mark.parametrize("port", [4791, 179])
@pytest.mark.parametrize("dscp", range(64))
def test_u32_rules_class_as_the_program_does(dscp: int, port: int) -> None:
    classes = class_of_dscp({48: 5, 46: 6, 26: 2})
    blocks = dscp_blocks(classes)
    udp = struct.pack(">HH", 5000, port)
    ipv4 = bytes([0x45, dscp << 2 | 2, 0, 0, 0, 0, 0, 0, 64, 17]) + bytes(10) + udp
    ipv6 = struct.pack(">IHBB", 6 << 28 | dscp << 22, 0, 17, 64) + bytes(32) + udp
    expected = htb.HANDLE if dscp >= 48 and port != 4791 else htb.class_id(classes[dscp])
    assert rules_take(red.ipv4_rules(blocks), ipv4) == expected
    assert rules_take(red.ipv6_rules(blocks), ipv6) == expected


def test_u32_rules_leave_neighbour_discovery_alone() -> None:
    header = struct.pack(">IHBB", 6 << 28, 0, 58, 255) + bytes(32)
    assert rules_take(red.ipv6_rules(dscp_blocks(class_of_dscp({}))), header) == htb.HANDLE


def test_a_u32_filter_is_as_the_kernel_s_headers_lay_it_out() -> None:
    first = red.filters(plan_with({}))[0]
    message = decoded(first)
    assert message.get_attr("TCA_KIND") == "u32"
    assert message["parent"] == htb.HANDLE
    assert message["info"] == 1 << 16 | 0x0008
    attributes = netlink.attributes(netlink.attributes(first[36:])[tc.TCA_OPTIONS])
    assert struct.unpack("=I", attributes[1]) == (htb.class_id(5),)
    flags, _, keys = struct.unpack_from("=BBB", attributes[5])
    assert (flags, keys, len(attributes[5])) == (1, 3, 16 + 3 * 16)


def test_a_red_queue_s_counters_are_read_from_its_dump() -> None:
    stats = netlink.attribute(1, struct.pack("=QIxxxx", 5000, 50)) + netlink.attribute(
        3, struct.pack("=5I", 2, 200, 7, 0, 9)
    )
    body = tc.TCMSG.pack(0, 12, red.leaf_handle(3), htb.class_id(3), 1)
    body += netlink.attribute(tc.TCA_KIND, b"red\0") + netlink.attribute(tc.TCA_STATS2, stats)
    body += netlink.attribute(tc.TCA_XSTATS, struct.pack("=4I", 1, 2, 3, 11))

    read = red_reader.queue_of(tc.parse(body))
    assert read is not None
    index, traffic_class, counters = read
    assert (index, traffic_class) == (12, 3)
    assert (counters.packets, counters.bytes, counters.marked) == (50, 5000, 11)
    assert (counters.dropped_packets, counters.depth_bytes) == (7, 200)
    assert counters.ce_out is None


@pytest.mark.parametrize(
    ("parent", "traffic_class"),
    [
        (htb.class_id(0), 0),
        (htb.class_id(7), 7),
        (htb.class_id(0) - 1, None),
        (htb.class_id(7) + 1, None),
        (htb.ROOT_CLASS, None),
    ],
)
def test_only_a_qdisc_below_a_class_is_a_queue(parent: int, traffic_class: int | None) -> None:
    stats = netlink.attribute(1, bytes(16)) + netlink.attribute(3, bytes(20))
    body = tc.TCMSG.pack(0, 12, 0x10000, parent, 1)
    body += netlink.attribute(tc.TCA_KIND, b"bfifo\0") + netlink.attribute(tc.TCA_STATS2, stats)
    read = red_reader.queue_of(tc.parse(body))
    assert (None if read is None else read[1]) == traffic_class


@given(st.integers(0, 0xFFFF), st.binary(max_size=64))
def test_a_netlink_attribute_is_padded_and_says_its_unpadded_length(
    kind: int, value: bytes
) -> None:
    encoded = netlink.attribute(kind, value)
    assert len(encoded) % 4 == 0
    assert struct.unpack_from("=HH", encoded) == (4 + len(value), kind)
    assert encoded[4 : 4 + len(value)] == value


def test_a_nic_sends_roce_at_once_and_all_else_at_what_is_left_of_its_rate() -> None:
    qdisc, nic, roce, others = (
        decoded(packet) for packet in htb.host_tree(PORT.rate_bps, PORT.mtu, ())
    )
    assert (qdisc["handle"], qdisc["parent"]) == (htb.HANDLE, tc.TC_H_ROOT)
    assert (nic["handle"], nic["parent"]) == (0x10002, htb.HANDLE)
    assert options_of(nic)["TCA_HTB_RATE64"] == options_of(nic)["TCA_HTB_CEIL64"] == 50_000_000
    assert {packet["parent"] for packet in (roce, others)} == {0x10002}
    assert [packet["handle"] for packet in (roce, others)] == [htb.ROCE_CLASS, htb.OTHERS_CLASS]
    assert options_of(roce)["TCA_HTB_RATE64"] == htb.UNLIMITED_BYTES_PER_S
    assert options_of(others)["TCA_HTB_RATE64"] == 500_000


def test_lossless_classes_of_a_nic_have_tokens_that_nothing_else_uses() -> None:
    messages = [decoded(packet) for packet in htb.host_tree(PORT.rate_bps, PORT.mtu, (3, 4))]
    parents = {message["handle"]: message["parent"] for message in messages[1:]}
    assert parents[htb.ROOT_CLASS] == htb.HOST_CLASS
    assert [parents[htb.class_id(packet)] for packet in (3, 4)] == [htb.ROOT_CLASS] * 2
    assert parents[htb.ROCE_CLASS] == parents[htb.OTHERS_CLASS] == htb.HOST_CLASS


@pytest.mark.parametrize("dscp", [0, 26, 46, 48, 56])
@pytest.mark.parametrize("port", [4791, 179])
def test_u32_rules_of_a_nic_tell_roce_control_and_all_else(dscp: int, port: int) -> None:
    ipv4_rules, ipv6_rules = red.host_rules()
    udp = struct.pack(">HH", 5000, port)
    ipv4 = bytes([0x45, dscp << 2, 0, 0, 0, 0, 0, 0, 64, 17]) + bytes(10) + udp
    ipv6 = struct.pack(">IHBB", 6 << 28 | dscp << 22, 0, 17, 64) + bytes(32) + udp
    other = htb.HANDLE if dscp >= 48 and port != 4791 else htb.OTHERS_CLASS
    assert rules_take(ipv4_rules, ipv4) == (htb.ROCE_CLASS if port == 4791 else other)
    assert rules_take(ipv6_rules, ipv6) == other


@pytest.mark.parametrize(("spare", "said"), [(0, None), (-1, "would take minutes to create")])
def test_a_lab_of_more_ports_than_are_made_quickly_has_no_queues_unasked(
    monkeypatch: pytest.MonkeyPatch, spare: int, said: str | None
) -> None:
    fabric = planned("tiny")
    monkeypatch.setattr(engine, "AUTO_PORTS", len(plan_queues(fabric).ports) + spare)
    monkeypatch.setattr(engine.SwitchQueues, "_take", lambda *_: None)
    note = engine.SwitchQueues(fabric, LabFiles("lab")).note
    assert note is None if said is None else said in str(note)
