// The twin of ModuloScheme.hashes: the middle of an uplink's part of all hashes.
static __always_inline __u32 hashes(const struct packet *packet, __u32 seed, __u64 parameter)
{
	__u64 way = packet->destination_qp % parameter;

	return (2 * way + 1) * (1ULL << 31) / parameter;
}
