// What the programs of this folder share.

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define IN_KERNEL __attribute__((preserve_access_index))

#define TC_ACT_UNSPEC (-1)
#define TC_ACT_SHOT 2
#define ETH_HLEN 14
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86DD
#define IPV4_NO_OPTIONS 0x45
#define FRAGMENT 0x3fff
#define IPPROTO_UDP 17
#define IPPROTO_ICMPV6 58
#define ROCE_PORT 4791
#define VXLAN_PORT 4789

// As in rocelab/dataplane/queues/htb.py, rocelab/planning/queues.py and rocelab/planning/pauses.py.
#define HTB_HANDLE 0x10000
#define FIRST_MINOR 0x10
#define CLASSES 8
#define ROCE_MINOR 0x20
#define OTHERS_MINOR 0x21

// The mark of a packet that has taken the time of its cable.
#define CROSSED 0x77697266

// From the start of the IP header; in the order of the wire.
struct ipv4_udp {
	__u8 version;
	__u8 tos;
	__u16 length;
	__u16 id;
	__u16 fragment;
	__u8 ttl;
	__u8 protocol;
	__u16 checksum;
	__u32 source;
	__u32 destination;
	__u16 source_port;
	__u16 destination_port;
	__u16 udp_length;
	__u16 udp_checksum;
};

// The same of IPv6, without extension headers.
struct ipv6_udp {
	__u8 first[4]; // version, traffic class and flow label
	__u16 length;
	__u8 protocol;
	__u8 hop_limit;
	__u32 source[4];
	__u32 destination[4];
	__u16 source_port;
	__u16 destination_port;
	__u16 udp_length;
	__u16 udp_checksum;
};

// Whether these are the headers of a whole RoCE packet, with nothing between IP and UDP.
static __always_inline int is_roce(const struct ipv4_udp *wire)
{
	return wire->version == IPV4_NO_OPTIONS && wire->protocol == IPPROTO_UDP &&
	       !(wire->fragment & bpf_htons(FRAGMENT)) && wire->destination_port == bpf_htons(ROCE_PORT);
}

static __always_inline int is_roce6(const struct ipv6_udp *wire)
{
	return wire->protocol == IPPROTO_UDP && wire->destination_port == bpf_htons(ROCE_PORT);
}

static __always_inline __u8 traffic_class6(const __u8 *first)
{
	return first[0] << 4 | first[1] >> 4;
}

// The finalizer of SplitMix64 (Steele, Lea and Flood 2014). Its twin: rocelab/routes/steering.py.
static __always_inline __u64 mixed(__u64 value)
{
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ULL;
	value = (value ^ value >> 27) * 0x94d049bb133111ebULL;
	return value ^ value >> 31;
}

// What is hashed of an IPv6 address. Its twin: `address_word` of rocelab/routes/steering.py.
static __always_inline __u32 word_of(const __u32 *words)
{
	__u64 high = (__u64)bpf_ntohl(words[0]) << 32 | bpf_ntohl(words[1]);
	__u64 low = (__u64)bpf_ntohl(words[2]) << 32 | bpf_ntohl(words[3]);

	return mixed(mixed(high) ^ low) >> 32;
}
