"""Linux's choice among equal-cost next hops, as a pure function of flow, seed and weights.

In: a flow's five-tuple, a switch's net.ipv4.fib_multipath_hash_seed and hash policy, the weights
of an ECMP group in the kernel's order. Out: the index of the next hop that the kernel takes. Both
kinds of kernel route agree on it: next hops inside the route (net/ipv4/fib_semantics.c,
fib_rebalance) and groups of nexthop objects (net/ipv4/nexthop.c, nh_hthr_group_rebalance).

Holds for IPv4 packets that carry no socket's hash (forwarded raw frames), on little-endian
machines, while the gateways' neighbour entries are valid: a group of nexthop objects passes over a
gateway whose MAC address it could not learn (nexthop_is_good_nh).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from labs.errors import InputError
from labs.spec.model import HashPolicy

HASH_BITS = 31
UDP = 17

_WORD = 2**64 - 1
_FLOW_KEYS = struct.Struct("<2xB25xHH4xII4x")
_FLOW_KEYS_WORDS = struct.Struct("<6Q")
_LENGTH_WORD = _FLOW_KEYS.size << 56


@dataclass(frozen=True, slots=True)
class Flow5:
    """A flow's five-tuple: dotted IPv4 addresses, IP protocol number, ports."""

    source: str
    destination: str
    protocol: int
    source_port: int
    destination_port: int


def multipath_hash(flow: Flow5, seed: int, policy: HashPolicy) -> int:
    """The 31-bit hash of `flow` in a namespace whose fib_multipath_hash_seed is `seed`.

    Source: net/ipv4/route.c fib_multipath_hash and net/core/flow_dissector.c
    __flow_hash_from_keys: SipHash-2-4 over the dissected keys, made equal for both directions of a
    flow. Raises InputError for seed 0, the kernel's own secret.
    """
    if seed == 0:
        raise InputError(
            "with hash seed 0 the kernel hashes with a secret of its own: "
            "the choice can not be predicted",
            hint="set hashing.seed to per-node, per-tier, shared or a number above 0",
        )
    key = seed << 32 | seed
    return (_siphash_2_4(_flow_keys(flow, policy), key, key) & 0xFFFF_FFFF or 1) >> 1


def upper_bounds(weights: Sequence[int]) -> tuple[int, ...]:
    """The highest hash that each next hop of a group takes, for weights of at least 1.

    Source: RFC 2992's hash-threshold as in fib_rebalance (net/ipv4/fib_semantics.c).
    """
    total = sum(weights)
    bounds = []
    cumulative = 0
    for weight in weights:
        cumulative += weight
        bounds.append(((cumulative << HASH_BITS) + total // 2) // total - 1)
    return tuple(bounds)


def select(flow_hash: int, weights: Sequence[int]) -> int:
    """The index of the next hop that takes `flow_hash`, for a group in the kernel's order.

    Raises ValueError for an empty group.
    """
    if not weights:
        raise ValueError("a group needs at least one next hop")
    return next(i for i, bound in enumerate(upper_bounds(weights)) if flow_hash <= bound)


def _flow_keys(flow: Flow5, policy: HashPolicy) -> bytes:
    """The bytes of struct flow_keys that the kernel hashes for IPv4.

    Addresses and ports are each put in order, compared as the CPU loads the bytes of the wire.
    """
    addresses = sorted(
        int.from_bytes(socket.inet_aton(address), "little")
        for address in (flow.source, flow.destination)
    )
    if policy is HashPolicy.L3:
        return _FLOW_KEYS.pack(0, 0, 0, *addresses)
    ports = sorted(socket.htons(port) for port in (flow.source_port, flow.destination_port))
    return _FLOW_KEYS.pack(flow.protocol, *ports, *addresses)


def _siphash_2_4(keys: bytes, key0: int, key1: int) -> int:
    """SipHash-2-4 (Aumasson and Bernstein 2012) of exactly six words."""
    state = (
        key0 ^ 0x736F6D6570736575,
        key1 ^ 0x646F72616E646F6D,
        key0 ^ 0x6C7967656E657261,
        key1 ^ 0x7465646279746573,
    )
    for word in (*_FLOW_KEYS_WORDS.unpack(keys), _LENGTH_WORD):
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
