"""Hashes and choices for arrays of flows: `rocelab.routes.multipath`, the kernel's ECMP, and
the hash of fields of `rocelab.routes.steering` and the outer header of tunnels in numpy.

Hashes and indexes of next hops, per flow, equal those of the scalar models. A seed is one for all
or one per flow. Arrays are processed in pieces that fit the processor's cache.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from rocelab.labfile.model import HashField, HashPolicy
from rocelab.labfile.schemes.base import ALL_FIELDS, Hashed, Headers
from rocelab.routes.flows import Bytes, HeaderColumns, Indices, Words, columns_v4
from rocelab.routes.multipath import JHASH_START, UDP, hashed_fields, siphash_key, upper_bounds
from rocelab.routes.steering import IPV4_BYTES, MULTIPLIERS, ROCE_PORT
from rocelab.routes.tunnel import FIELDS as TUNNEL_FIELDS
from rocelab.wire.vxlan import FIRST_SOURCE_PORT, LAST_SOURCE_PORT, VXLAN_PORT

PIECE = 8192
"""Flows hashed at a time: eight arrays of 64 KiB fit a core's second-level cache."""

_Words64 = npt.NDArray[np.uint64]


def multipath_hashes(
    flows: HeaderColumns,
    seeds: int | npt.NDArray[np.uint32],
    policy: HashPolicy,
    fields: Collection[HashField] = (),
) -> Words:
    """The 31-bit hash of each flow, with one seed for all or one per flow.

    Raises as `multipath_hash` does: InputError for a seed of 0.
    """
    used = hashed_fields(policy, fields, v6=flows.is_v6)
    keys = _keys(np.asarray(seeds, np.uint64).reshape(-1))
    hashes = np.empty(len(flows), np.uint32)
    for start in range(0, len(flows), PIECE):
        here = slice(start, start + PIECE)
        words = _flow_key_words(flows.part(here), used, policy)
        digests = _siphash_2_4(words, keys[here] if len(keys) > 1 else keys).astype(np.uint32)
        digests[digests == 0] = 1
        if policy is HashPolicy.CUSTOM:
            digests = _jhash_with_no_inner(digests)
        np.right_shift(digests, 1, out=hashes[here])
    return hashes


def select_all(hashes: Words, weights: Sequence[int]) -> Indices:
    """The index of the next hop that takes each hash (hash-threshold, RFC 2992).

    Raises ValueError for an empty group.
    """
    if not weights:
        raise ValueError("a group needs at least one next hop")
    return by_threshold(hashes, upper_bounds(weights))


def by_threshold(hashes: Words, bounds: Sequence[int]) -> Indices:
    """For each hash, the index of the first of the ascending `bounds` that is not below it."""
    indices: Indices = np.searchsorted(np.array(bounds, np.uint32), hashes)
    return indices


def select_buckets(hashes: Words, buckets: Sequence[int]) -> Indices:
    """The member that takes each hash in a resilient group; `buckets` has the member of each
    bucket."""
    members: Indices = np.asarray(buckets, np.intp)[hashes % np.uint32(len(buckets))]
    return members


def _keys(seeds: _Words64) -> _Words64:
    """The kernel's SipHash key of each seed, as `siphash_key` makes it."""
    if not seeds.all():
        siphash_key(0)
    return seeds << np.uint64(32) | seeds


def _flow_key_words(
    flows: HeaderColumns, used: Collection[HashField], policy: HashPolicy
) -> _Words64:
    """struct flow_keys as the scalar model packs it: one row per 64-bit word, one column a flow."""
    count = len(flows)
    size = 16 if flows.is_v6 else 4
    bytes_per_flow = 40 + 2 * size
    keys = np.zeros((count, bytes_per_flow), np.uint8)
    if HashField.PROTOCOL in used:
        keys[:, 2] = flows.protocol
    if HashField.FLOW_LABEL in used:
        order = "<u4" if policy is HashPolicy.CUSTOM else ">u4"
        keys[:, 4:8] = flows.flow_label.astype(order).view(np.uint8).reshape(-1, 4)
    none = np.zeros((count, 2), np.uint8)
    _put_in_order(
        keys[:, 28:32],
        _port_bytes(flows.source_port) if HashField.SOURCE_PORT in used else none,
        _port_bytes(flows.destination_port) if HashField.DESTINATION_PORT in used else none,
        first_byte_counts_most=False,
    )
    none = np.zeros((count, size), np.uint8)
    _put_in_order(
        keys[:, 36 : 36 + 2 * size],
        flows.source if HashField.SOURCE_IP in used else none,
        flows.destination if HashField.DESTINATION_IP in used else none,
        first_byte_counts_most=flows.is_v6,
    )
    return np.ascontiguousarray(keys.view("<u8").astype(np.uint64).T)


def _port_bytes(ports: Words) -> npt.NDArray[np.uint8]:
    return ports.astype(">u2").view(np.uint8).reshape(-1, 2)


def _put_in_order(
    into: npt.NDArray[np.uint8],
    one: npt.NDArray[np.uint8],
    other: npt.NDArray[np.uint8],
    *,
    first_byte_counts_most: bool,
) -> None:
    """Write two numbers of each flow, the lower one first."""
    swapped = np.zeros(len(one), bool)
    undecided = np.ones(len(one), bool)
    size = one.shape[1]
    for byte in range(size) if first_byte_counts_most else reversed(range(size)):
        swapped |= undecided & (one[:, byte] > other[:, byte])
        undecided &= one[:, byte] == other[:, byte]
    into[:, :size] = np.where(swapped[:, None], other, one)
    into[:, size:] = np.where(swapped[:, None], one, other)


def _siphash_2_4(words: _Words64, key: _Words64) -> _Words64:
    """SipHash-2-4 of each column of `words`, with `key` as both halves of its key."""
    count = words.shape[1]
    state = np.empty((4, count), np.uint64)
    for row, constant in enumerate(
        (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
    ):
        np.bitwise_xor(key, np.uint64(constant), out=state[row])
    v0, v1, v2, v3 = state
    spare = np.empty(count, np.uint64)
    for word in words:
        v3 ^= word
        _rounds(2, v0, v1, v2, v3, spare)
        v0 ^= word
    length = np.uint64(8 * len(words) << 56)
    v3 ^= length
    _rounds(2, v0, v1, v2, v3, spare)
    v0 ^= length
    v2 ^= np.uint64(0xFF)
    _rounds(4, v0, v1, v2, v3, spare)
    return v0 ^ v1 ^ v2 ^ v3


def _rounds(
    count: int, v0: _Words64, v1: _Words64, v2: _Words64, v3: _Words64, spare: _Words64
) -> None:
    """`count` SipRounds in place; addition wraps at 64 bits."""
    for _ in range(count):
        v0 += v1
        _rotate(v1, 13, spare)
        v1 ^= v0
        _rotate(v0, 32, spare)
        v2 += v3
        _rotate(v3, 16, spare)
        v3 ^= v2
        v0 += v3
        _rotate(v3, 21, spare)
        v3 ^= v0
        v2 += v1
        _rotate(v1, 17, spare)
        v1 ^= v2
        _rotate(v2, 32, spare)


def _rotate(words: _Words64, bits: int, spare: _Words64) -> None:
    np.right_shift(words, np.uint64(64 - bits), out=spare)
    np.left_shift(words, np.uint64(bits), out=words)
    words |= spare


def _jhash_with_no_inner(outer: Words) -> Words:
    """jhash_2words(outer, 0, 0) of include/linux/jhash.h; arithmetic wraps at 32 bits."""
    a = outer + np.uint32(JHASH_START)
    b = np.full_like(outer, JHASH_START)
    c = b.copy()
    c = (c ^ b) - _rotated(b, 14)
    a = (a ^ c) - _rotated(c, 11)
    b = (b ^ a) - _rotated(a, 25)
    c = (c ^ b) - _rotated(b, 16)
    a = (a ^ c) - _rotated(c, 4)
    b = (b ^ a) - _rotated(a, 14)
    return (c ^ b) - _rotated(b, 24)


def _rotated(words: Words, bits: int) -> Words:
    return words << np.uint32(bits) | words >> np.uint32(32 - bits)


def field_hashes(headers: Headers, seed: int | _Words64, fields: Hashed = ALL_FIELDS) -> Words:
    """`rocelab.routes.steering.field_hash` for arrays of RoCE flows, with one seed for all or one
    per flow."""
    zero = np.uint64(0)
    source, destination, source_port, destination_qp = (
        column if field in fields else zero for field, column in zip(Hashed, headers, strict=True)
    )
    addresses = source << np.uint64(32) | destination
    same = np.uint64(ROCE_PORT << 32 | UDP << 24)
    rest = source_port << np.uint64(48) | same | destination_qp
    mixed = _mixed(_mixed(_mixed(np.asarray(seed, np.uint64).reshape(-1)) ^ addresses) ^ rest)
    return (mixed >> np.uint64(32)).astype(np.uint32)


def address_words(addresses: Bytes) -> Words:
    """`rocelab.routes.steering.address_word` of each address, from its wire bytes, n x 4 or 16."""
    if addresses.shape[1] == IPV4_BYTES:
        return addresses.view(">u4").reshape(-1).astype(np.uint32)
    high, low = addresses.view(">u8").astype(np.uint64).T
    return (_mixed(_mixed(high) ^ low) >> np.uint64(32)).astype(np.uint32)


def _mixed(value: _Words64) -> _Words64:
    """SplitMix64's finalizer."""
    first, second = map(np.uint64, MULTIPLIERS)
    value = (value ^ value >> np.uint64(30)) * first
    value = (value ^ value >> np.uint64(27)) * second
    return value ^ value >> np.uint64(31)


def outer_columns(headers: Headers, source: Bytes, destination: Bytes) -> HeaderColumns:
    """`rocelab.routes.tunnel.outer_flow` for arrays of RoCE flows: the headers of the flows inside,
    and wire bytes of their leaves' loopbacks, n x 4."""
    digest: Words = field_hashes(headers, 0, TUNNEL_FIELDS)
    digest[digest == 0] = 1
    digest ^= digest << np.uint32(16)
    width = np.uint64(LAST_SOURCE_PORT - FIRST_SOURCE_PORT)
    ports = (digest.astype(np.uint64) * width >> np.uint64(32)) + np.uint64(FIRST_SOURCE_PORT)
    from_, to = (addresses.view(">u4").reshape(-1) for addresses in (source, destination))
    return columns_v4(from_, to, ports, VXLAN_PORT)
