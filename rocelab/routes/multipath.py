"""Linux's choice among equal-cost next hops, as a pure function of flow, seed and weights.

Computes the index of the next hop that the kernel takes, from a flow's five-tuple, a switch's
net.ipv4.fib_multipath_hash_seed and hash policy, and the weights of an ECMP group in the kernel's
order. Both kinds of kernel route agree on it: next hops inside the route (net/ipv4/fib_semantics.c,
fib_rebalance; net/ipv6/route.c, rt6_upper_bound_set) and groups of nexthop objects
(net/ipv4/nexthop.c, nh_hthr_group_rebalance). `rocelab.routes.bulk` does the same for arrays of
flows; `rocelab.routes.resilient` models resilient groups.

It holds for packets that a switch forwards and that have no hash from a socket (raw frames) and are
neither tunnelled, fragments nor ICMP errors, on little-endian machines, while the gateways'
neighbour entries are valid: a group of nexthop objects skips a gateway whose MAC address is unknown
(nexthop_is_good_nh).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from rocelab.base.errors import InputError
from rocelab.labfile.model import HashField, HashPolicy
from rocelab.wire.headers import flow_label

HASH_BITS = 31
UDP = 17
JHASH_START = 0xDEADBEEF + (2 << 2)
"""The start value of jhash_2words(a, b, 0) (include/linux/jhash.h)."""

_WORD = 2**64 - 1
_FLOW_KEYS_V4 = struct.Struct("<2xBxI20xHH4x4s4s4x")
_FLOW_KEYS_V6 = struct.Struct("<2xBxI20xHH4x16s16s4x")
_L4_FIELDS = frozenset(HashField) - {HashField.FLOW_LABEL}
_L3_FIELDS_V4 = frozenset({HashField.SOURCE_IP, HashField.DESTINATION_IP})
_L3_FIELDS_V6 = _L3_FIELDS_V4 | {HashField.PROTOCOL, HashField.FLOW_LABEL}


@dataclass(frozen=True, slots=True)
class Flow5:
    """A flow's five-tuple: IPv4 or IPv6 addresses, IP protocol number, ports.

    `flow_label` is IPv6's 20 bits, 0 for IPv4.
    """

    source: str
    destination: str
    protocol: int
    source_port: int
    destination_port: int
    flow_label: int = 0

    @property
    def is_v6(self) -> bool:
        return ":" in self.source


def udp_flow(source: str, destination: str, source_port: int, destination_port: int) -> Flow5:
    """A UDP flow as a lab's NICs send it: over IPv6 with the label that goes with its source
    port."""
    label = flow_label(source_port) if ":" in source else 0
    return Flow5(source, destination, UDP, source_port, destination_port, label)


def multipath_hash(
    flow: Flow5, seed: int, policy: HashPolicy, fields: Collection[HashField] = ()
) -> int:
    """The 31-bit hash of `flow` in a namespace whose fib_multipath_hash_seed is `seed`.

    `fields` are those of policy custom (net.ipv4.fib_multipath_hash_fields). IPv6 uses the same
    seed and net.ipv6.fib_multipath_hash_policy and _fields.

    Source: net/ipv4/route.c fib_multipath_hash, net/ipv6/route.c rt6_multipath_hash and
    net/core/flow_dissector.c __flow_hash_from_keys: SipHash-2-4 over the dissected keys, made equal
    for both directions of a flow; the custom policy then mixes it with the hash of inner headers,
    which is 0 here. Raises InputError for seed 0, the kernel's own secret, ValueError for fields
    without policy custom and the other way round.
    """
    key = siphash_key(seed)
    used = hashed_fields(policy, fields, v6=flow.is_v6)
    # Policy 0 hashes the label in wire order, policy 3 as a number.
    label = flow.flow_label if policy is HashPolicy.CUSTOM else socket.htonl(flow.flow_label)
    digest = _siphash_2_4(_flow_keys(flow, used, label), key, key) & 0xFFFF_FFFF or 1
    return (_jhash_with_no_inner(digest) if policy is HashPolicy.CUSTOM else digest) >> 1


def siphash_key(seed: int) -> int:
    """Each half of the key that the kernel makes from a seed (include/net/ip_fib.h).

    Raises InputError for seed 0.
    """
    if seed == 0:
        raise InputError(
            "with hash seed 0 the kernel hashes with its own secret: the choice cannot be "
            "predicted",
            hint="set hashing.seed to per-node, per-tier, shared or a number above 0; kernels "
            "before 6.11 have no seeds, and every lab runs there with 0",
        )
    return seed << 32 | seed


def hashed_fields(
    policy: HashPolicy, fields: Collection[HashField], *, v6: bool
) -> frozenset[HashField]:
    """The fields that a policy reads; IPv6's policy 0 also reads next header and flow label.

    Raises ValueError for fields without policy custom and the other way round.
    """
    if bool(fields) != (policy is HashPolicy.CUSTOM):
        raise ValueError(f"policy {policy} with {len(fields)} fields")
    if policy is HashPolicy.L3:
        return _L3_FIELDS_V6 if v6 else _L3_FIELDS_V4
    if policy is HashPolicy.L4:
        return _L4_FIELDS
    return frozenset(fields) if v6 else frozenset(fields) - {HashField.FLOW_LABEL}


def upper_bounds(weights: Sequence[int], bits: int = HASH_BITS) -> tuple[int, ...]:
    """The highest hash of `bits` that each next hop of a group takes, for weights of at least 1.

    Source: RFC 2992's hash-threshold as in fib_rebalance (net/ipv4/fib_semantics.c).
    """
    total = sum(weights)
    bounds = []
    cumulative = 0
    for weight in weights:
        cumulative += weight
        bounds.append(((cumulative << bits) + total // 2) // total - 1)
    return tuple(bounds)


def select(flow_hash: int, weights: Sequence[int]) -> int:
    """The index of the next hop that takes `flow_hash`, for a group in the kernel's order.

    Raises ValueError for an empty group.
    """
    if not weights:
        raise ValueError("a group needs at least one next hop")
    return next(i for i, bound in enumerate(upper_bounds(weights)) if flow_hash <= bound)


def _flow_keys(flow: Flow5, used: Collection[HashField], label: int) -> bytes:
    """The bytes of struct flow_keys that the kernel hashes; unused fields are 0.

    Addresses and ports are each sorted: IPv4's and ports by the CPU's load of the wire bytes,
    IPv6's byte by byte.
    """
    addresses = [
        ip_address(address).packed if field in used else bytes(16 if flow.is_v6 else 4)
        for field, address in (
            (HashField.SOURCE_IP, flow.source),
            (HashField.DESTINATION_IP, flow.destination),
        )
    ]
    addresses.sort(key=None if flow.is_v6 else lambda packed: packed[::-1])
    ports = sorted(
        socket.htons(port) if field in used else 0
        for field, port in (
            (HashField.SOURCE_PORT, flow.source_port),
            (HashField.DESTINATION_PORT, flow.destination_port),
        )
    )
    return (_FLOW_KEYS_V6 if flow.is_v6 else _FLOW_KEYS_V4).pack(
        flow.protocol if HashField.PROTOCOL in used else 0,
        label if HashField.FLOW_LABEL in used else 0,
        *ports,
        *addresses,
    )


def _siphash_2_4(keys: bytes, key0: int, key1: int) -> int:
    """SipHash-2-4 (Aumasson and Bernstein 2012) of a whole number of words."""
    state = (
        key0 ^ 0x736F6D6570736575,
        key1 ^ 0x646F72616E646F6D,
        key0 ^ 0x6C7967656E657261,
        key1 ^ 0x7465646279746573,
    )
    for word in (*struct.unpack(f"<{len(keys) // 8}Q", keys), len(keys) << 56):
        v0, v1, v2, v3 = _rounds(2, state[0], state[1], state[2], state[3] ^ word)
        state = (v0 ^ word, v1, v2, v3)
    v0, v1, v2, v3 = _rounds(4, state[0], state[1], state[2] ^ 0xFF, state[3])
    return v0 ^ v1 ^ v2 ^ v3


def _rounds(count: int, v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    """`count` SipRounds: add, rotate, xor on 64-bit words."""
    for _ in range(count):
        v0 = (v0 + v1) & _WORD
        v1 = (v1 << 13 & _WORD | v1 >> 51) ^ v0
        v0 = v0 << 32 & _WORD | v0 >> 32
        v2 = (v2 + v3) & _WORD
        v3 = (v3 << 16 & _WORD | v3 >> 48) ^ v2
        v0 = (v0 + v3) & _WORD
        v3 = (v3 << 21 & _WORD | v3 >> 43) ^ v0
        v2 = (v2 + v1) & _WORD
        v1 = (v1 << 17 & _WORD | v1 >> 47) ^ v2
        v2 = v2 << 32 & _WORD | v2 >> 32
    return v0, v1, v2, v3


def _jhash_with_no_inner(outer: int) -> int:
    """jhash_2words(outer, 0, 0) of include/linux/jhash.h."""
    a, b, c = (outer + JHASH_START) & 0xFFFF_FFFF, JHASH_START, JHASH_START
    c = ((c ^ b) - _rotated(b, 14)) & 0xFFFF_FFFF
    a = ((a ^ c) - _rotated(c, 11)) & 0xFFFF_FFFF
    b = ((b ^ a) - _rotated(a, 25)) & 0xFFFF_FFFF
    c = ((c ^ b) - _rotated(b, 16)) & 0xFFFF_FFFF
    a = ((a ^ c) - _rotated(c, 4)) & 0xFFFF_FFFF
    b = ((b ^ a) - _rotated(a, 14)) & 0xFFFF_FFFF
    return ((c ^ b) - _rotated(b, 24)) & 0xFFFF_FFFF


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & 0xFFFF_FFFF
