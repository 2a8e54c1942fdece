"""Addresses in the keys of the steering program's maps."""

from __future__ import annotations

import pytest

from rocelab.dataplane.steering.maps import address_text, packed_address


@pytest.mark.parametrize("address", ["198.18.0.1", "2001:2:0:3::1", "fd00::c612:1"])
def test_an_address_in_a_key_is_read_back(address: str) -> None:
    packed = packed_address(address)
    assert len(packed) == 16
    assert address_text(packed) == address


def test_an_address_of_ipv4_is_as_ipv6_maps_it() -> None:
    assert packed_address("198.18.0.1") == packed_address("::ffff:198.18.0.1")
