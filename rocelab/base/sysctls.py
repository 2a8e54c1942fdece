"""Sysctls of a namespace's ECMP hash, as paths below /proc/sys/net
(Documentation/networking/ip-sysctl.rst)."""

HASH_POLICY = "ipv4/fib_multipath_hash_policy"
HASH_FIELDS = "ipv4/fib_multipath_hash_fields"
HASH_POLICY_6 = "ipv6/fib_multipath_hash_policy"
HASH_FIELDS_6 = "ipv6/fib_multipath_hash_fields"
HASH_SEED = "ipv4/fib_multipath_hash_seed"
