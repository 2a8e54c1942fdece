"""Reachability without a lab: the probed pairs, a packet's fields, the display of failures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.layers.inet6 import ICMPv6EchoReply, IPv6
from scapy.layers.l2 import Ether

from rocelab.base.errors import InputError
from rocelab.base.family import Family
from rocelab.lab.lab import Lab
from rocelab.traffic.reachability import (
    MOST_PAIRS,
    Frames,
    Reachability,
    counted_pairs,
    failures,
    nic_names,
    nics_of,
    pairs_of,
    probe_reachability,
    sampled_pairs,
    segments_of,
)

TAG = 0xBEEF


@pytest.mark.parametrize("lab", ["tiny", "rail-small", "hpn-small", "zone-1-1"])
def test_every_nic_is_paired_with_every_nic_of_every_other_server_once(lab: str) -> None:
    nics = nics_of(Lab.planned(lab).fabric)
    pairs = list(pairs_of(nics))
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == {
        (a, b)
        for a in range(len(nics))
        for b in range(len(nics))
        if nics[a].server != nics[b].server
    }


@pytest.mark.parametrize("lab", ["rail-small", "hpn-small"])
def test_a_sample_has_every_nic_as_source_and_as_destination(lab: str) -> None:
    nics = nics_of(Lab.planned(lab).fabric)
    everything = set(pairs_of(nics))
    assert counted_pairs(nics) == len(everything)
    sample = list(sampled_pairs(nics, 3 * len(nics)))
    assert len(sample) == len(set(sample)) <= 3 * len(nics)
    assert set(sample) < everything
    sources, destinations = zip(*sample, strict=True)
    assert set(sources) == set(destinations) == set(range(len(nics)))
    assert set(sampled_pairs(nics, 10**9)) == everything


def test_the_pairs_of_thousands_of_nics_are_refused_with_what_to_do() -> None:
    fabric = Lab.planned("zone-256x32").fabric
    with pytest.raises(InputError) as caught:
        probe_reachability(fabric, lambda _: pytest.fail("a node was entered"))
    assert "4,096 NICs are 16,744,448 pairs, which take up to 67 minutes" in str(caught.value)
    assert "--pairs" in str(caught.value)
    assert MOST_PAIRS < 16_744_448


def test_a_nic_is_called_by_its_number_only_where_there_are_several() -> None:
    one, several = Lab.planned("tiny").fabric, Lab.planned("rail-small").fabric
    assert nic_names(one, nics_of(one))[0] == one.servers[0].name
    assert nic_names(several, nics_of(several))[1] == f"{several.servers[0].name}:2"


def test_a_frame_is_an_echo_reply_with_right_checksums_and_is_read_back() -> None:
    nics = nics_of(Lab.planned("rail-small").fabric)
    frames = Frames(nics, TAG, Family.IPV4)
    for pair in pairs_of(nics):
        frame = frames.build(pair, nics[pair[0]].links[0])
        seen = Ether(frame)
        sums = seen[IP].chksum, seen[ICMP].chksum
        del seen[IP].chksum, seen[ICMP].chksum
        again = Ether(seen.build())
        assert sums == (again[IP].chksum, again[ICMP].chksum)
        assert (seen[IP].src, seen[IP].dst) == (nics[pair[0]].ip, nics[pair[1]].ip)
        assert seen[ICMP].type == 0
        assert seen.dst == nics[pair[0]].links[0].b.mac
        assert frames.read(frame[14:], seen[IP].src) == pair
        assert frames.read(frame[14:], seen[IP].dst) is None
        assert Frames(nics, TAG + 1, Family.IPV4).read(frame[14:], seen[IP].src) is None


def test_a_frame_over_ipv6_is_an_echo_reply_with_a_right_checksum_and_is_read_back() -> None:
    nics = [
        replace(nic, ip=f"2001:db8::{number:x}")
        for number, nic in enumerate(nics_of(Lab.planned("rail-small").fabric), start=1)
    ]
    frames = Frames(nics, TAG, Family.IPV6)
    for pair in pairs_of(nics):
        frame = frames.build(pair, nics[pair[0]].links[0])
        seen = Ether(frame)
        reply = seen[ICMPv6EchoReply]
        checksum = reply.cksum
        del reply.cksum
        assert Ether(seen.build())[ICMPv6EchoReply].cksum == checksum
        assert (seen[IPv6].src, seen[IPv6].dst) == (nics[pair[0]].ip, nics[pair[1]].ip)
        assert frames.read(frame[54:], seen[IPv6].src) == pair
        assert Frames(nics, TAG + 1, Family.IPV6).read(frame[54:], seen[IPv6].src) is None


def test_a_nic_that_nothing_reaches_is_one_row() -> None:
    names = ("a-1", "b-1", "c-1", "d-1")
    cut = tuple((a, b) for a in names for b in names if a != b and "a-1" in (a, b))
    assert list(failures(found(names, cut))) == [("a-1", "any"), ("any", "a-1")]
    assert list(failures(found(names, (("b-1", "c-1"), ("b-1", "d-1"))))) == [("b-1", "c-1, d-1")]


def found(names: tuple[str, ...], failed: tuple[tuple[str, str], ...]) -> Reachability:
    pairs = len(names) * (len(names) - 1)
    return Reachability(names, pairs, pairs, failed, 0.1)


def test_nics_of_a_lab_of_tenants_are_paired_within_these() -> None:
    fabric = Lab.planned("evpn-vxlan").fabric
    nics = nics_of(fabric)

    assert [[nics[index].server for index in segment] for segment in segments_of(fabric, nics)] == [
        [f"srv{rack}-1" for rack in range(1, 5)],
        [f"srv{rack}-2" for rack in range(1, 5)],
    ]
    plain = Lab.planned("tiny").fabric
    assert segments_of(plain, nics_of(plain)) == [[0, 1, 2, 3]]


def test_a_member_that_nothing_of_its_tenant_reaches_is_one_row() -> None:
    red, blue = ("a-1", "b-1", "c-1"), ("a-2", "b-2")
    failed = (("a-1", "b-1"), ("a-1", "c-1"), ("a-2", "b-2"))
    result = Reachability((*red, *blue), 8, 8, failed, 0.1, (red, blue))

    assert list(failures(result)) == [("a-1", "any"), ("a-2", "any"), ("any", "b-2")]
