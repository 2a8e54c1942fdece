// The outer UDP source port of a tenant's packets, by which switches spread them over equal paths.
// The kernel derives it from a packet's hash (include/net/udp.h udp_flow_src_port), and otherwise
// hashes with a secret of its own: `enter`, at clsact ingress of a leaf's port to a tenant's NIC,
// gives a packet a hash of the flow inside, from which its path can be computed.
//
// `leave`, at clsact egress of a leaf's ports to switches, takes the hash away again: the kernel keeps
// it through the tunnel (net/ipv4/ip_tunnel_core.c iptunnel_xmit), and the next switch would take it
// in place of one of the outer header with its own seed (net/ipv4/route.c fib_multipath_hash).

#include "common.h"

#define IPPROTO_TCP 6

// Any mark keeps the kernel from taking the next hop of an earlier packet to the same leaf for all
// later ones (include/net/ip_tunnels.h ip_tunnel_dst_cache_usable).
#define UNCACHED 1

static __always_inline __u32 hash_of(__u32 source, __u32 destination, __u8 protocol, __u32 ports)
{
	__u64 addresses = (__u64)source << 32 | destination;
	__u64 rest = (__u64)(ports >> 16) << 48 | (__u64)(ports & 0xffff) << 32 | (__u64)protocol << 24;
	__u32 hash = mixed(mixed(addresses) ^ rest) >> 32;

	return hash ? hash : 1;
}

// Both ports of TCP and UDP, the source's in the upper half.
static __always_inline __u32 ports_at(struct __sk_buff *skb, __u8 protocol, __u32 offset)
{
	__u32 ports;

	if (protocol != IPPROTO_UDP && protocol != IPPROTO_TCP)
		return 0;
	return bpf_skb_load_bytes(skb, offset, &ports, sizeof(ports)) ? 0 : bpf_ntohl(ports);
}

// Its twin for UDP: `entropy` of rocelab/routes/tunnel.py.
SEC("tc")
int enter(struct __sk_buff *skb)
{
	__u32 ip[10], ports = 0;
	__u32 hash;

	if (skb->protocol == bpf_htons(ETH_P_IP) && !bpf_skb_load_bytes(skb, ETH_HLEN, ip, 20)) {
		__u32 first = bpf_ntohl(ip[0]);
		__u8 protocol = bpf_ntohl(ip[2]) >> 16 & 0xff;

		if (!(bpf_ntohl(ip[1]) & FRAGMENT))
			ports = ports_at(skb, protocol, ETH_HLEN + (first >> 24 & 0xf) * 4);
		hash = hash_of(bpf_ntohl(ip[3]), bpf_ntohl(ip[4]), protocol, ports);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6) &&
		   !bpf_skb_load_bytes(skb, ETH_HLEN, ip, sizeof(ip))) {
		__u8 protocol = bpf_ntohl(ip[1]) >> 8 & 0xff;

		ports = ports_at(skb, protocol, ETH_HLEN + 40);
		hash = hash_of(word_of(ip + 2), word_of(ip + 6), protocol, ports);
	} else {
		if (bpf_skb_load_bytes(skb, 0, ip, 12))
			return TC_ACT_UNSPEC;
		hash = hash_of(ip[0] ^ ip[1], ip[2], 0, 0);
	}
	bpf_set_hash(skb, hash);
	if (!skb->mark)
		skb->mark = UNCACHED;
	return TC_ACT_UNSPEC;
}

SEC("tc")
int leave(struct __sk_buff *skb)
{
	bpf_set_hash_invalid(skb);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "GPL";
