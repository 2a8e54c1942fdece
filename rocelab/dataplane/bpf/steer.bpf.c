// By which of its equal paths a switch sends a RoCE packet. Runs at clsact ingress of every switch
// port and gives the packet a hash; the kernel's own ECMP (net/ipv4/route.c fib_multipath_hash,
// policy 1) takes that instead of its own and picks a next hop of the route's group with it. Which
// next hops there are stays with the routes: when a path goes, the hash picks one that is left.
//
// One program and one set of maps serve all switches of a lab. A switch is told by the minor of its
// filter's classid, which cls_bpf hands over in direct-action mode (net/sched/cls_bpf.c
// cls_bpf_classify): its place among the fabric's nodes, from 1. Map `nodes` says what each does.
//
// A hash stays with a packet from switch to switch, so a switch that is to choose as the kernel
// does (scheme KERNEL, no pin, no entry) takes the one of the switch before it away.
// Only RoCEv2 over IPv4 without options and over IPv6 is touched (net/ipv6/route.c rt6_multipath_hash
// takes a packet's hash as IPv4's does).

#include "common.h"

// BTH opcodes: RC SEND and WRITE (InfiniBand Architecture Specification, table "OpCode field").
#define RC_WRITE_ONLY_WITH_IMM 0x0b
#define RC_SEND_LAST_WITH_INVALIDATE 0x16
#define RC_SEND_ONLY_WITH_INVALIDATE 0x17

// As in rocelab/labfile/schemes/base.py.
enum { OFF, KERNEL, HASH, FLOWLET, SPRAY, PINS, ENTRIES, FUNCTION = 255 };
enum { SOURCE = 1, DESTINATION = 2, SOURCE_PORT = 4, DESTINATION_QP = 8 };

struct node {
	__u32 scheme;
	__u32 seed;
	__u64 gap_ns;
	__u64 fields; // that are hashed; of FUNCTION its parameter
};

struct counters {
	__u64 steered; // packets that were given a hash
	__u64 hits;    // pins or entries found
	__u64 misses;
	__u64 flowlets; // first packets of a flow, and those after a pause
	__u64 changes;  // of those, after a pause: chosen anew
};

// Both indexed by node; sized when loaded.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct node);
} nodes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

// Of IPv6 in the order of the wire; of IPv4 as IPv6 maps it (RFC 4291 section 2.5.5.2).
struct address {
	__u32 words[4];
};

struct pin {
	__u32 node;
	struct address destination;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct pin);
	__type(value, __u32);
} pins SEC(".maps");

struct entry {
	__u32 node;
	struct address source;
	struct address destination;
	__u32 source_port;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct entry);
	__type(value, __u32);
} entries SEC(".maps");

struct flow {
	__u32 node;
	struct address source;
	struct address destination;
	__u32 source_port;
	__u32 destination_qp;
};

struct flowlet {
	__u64 last_ns;
	__u64 hash;
};

// A flow that has to make room counts as new when it comes back.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct flow);
	__type(value, struct flowlet);
} flowlets SEC(".maps");

// In the order of the wire.
struct bth {
	__u8 opcode;
	__u8 flags;
	__u16 partition;
	__u32 destination_qp; // the upper 8 bits are reserved
};

struct headers {
	struct ipv4_udp ip;
	struct bth bth;
};

struct headers6 {
	struct ipv6_udp ip;
	struct bth bth;
};

// In the machine's order. `source` and `destination` are what is hashed of addresses: IPv4's 32 bits,
// and a hash of IPv6's 128.
struct packet {
	__u32 source;
	__u32 destination;
	__u32 source_port;
	__u32 destination_qp;
	__u8 opcode;
	struct address from;
	struct address to;
};

static __always_inline void put_mapped(struct address *address, __u32 ipv4)
{
	address->words[0] = address->words[1] = 0;
	address->words[2] = bpf_htonl(0xffff);
	address->words[3] = ipv4;
}

static __always_inline void put(struct address *address, const __u32 *words)
{
#pragma unroll
	for (int i = 0; i < 4; i++)
		address->words[i] = words[i];
}

static __always_inline void put_bth(struct packet *found, const struct bth *bth, __u16 source_port)
{
	found->source_port = bpf_ntohs(source_port);
	found->destination_qp = bpf_ntohl(bth->destination_qp) & 0xffffff;
	found->opcode = bth->opcode;
}

static __always_inline int parse4(struct __sk_buff *skb, struct packet *found)
{
	struct headers wire;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &wire, sizeof(wire)) || !is_roce(&wire.ip))
		return 0;
	found->source = bpf_ntohl(wire.ip.source);
	found->destination = bpf_ntohl(wire.ip.destination);
	put_mapped(&found->from, wire.ip.source);
	put_mapped(&found->to, wire.ip.destination);
	put_bth(found, &wire.bth, wire.ip.source_port);
	return 1;
}

static __always_inline int parse6(struct __sk_buff *skb, struct packet *found)
{
	struct headers6 wire;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &wire, sizeof(wire)) || !is_roce6(&wire.ip))
		return 0;
	found->source = word_of(wire.ip.source);
	found->destination = word_of(wire.ip.destination);
	put(&found->from, wire.ip.source);
	put(&found->to, wire.ip.destination);
	put_bth(found, &wire.bth, wire.ip.source_port);
	return 1;
}

static __always_inline int parse(struct __sk_buff *skb, struct packet *found)
{
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return parse4(skb, found);
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return parse6(skb, found);
	return 0;
}

static __always_inline int is_data(const struct packet *packet)
{
	return packet->opcode <= RC_WRITE_ONLY_WITH_IMM ||
	       packet->opcode == RC_SEND_LAST_WITH_INVALIDATE ||
	       packet->opcode == RC_SEND_ONLY_WITH_INVALIDATE;
}

static __always_inline __u32 field_hash(const struct packet *packet, __u64 fields, __u32 seed)
{
	__u64 source = fields & SOURCE ? packet->source : 0;
	__u64 destination = fields & DESTINATION ? packet->destination : 0;
	__u64 source_port = fields & SOURCE_PORT ? packet->source_port : 0;
	__u64 destination_qp = fields & DESTINATION_QP ? packet->destination_qp : 0;
	__u64 rest = source_port << 48 | (__u64)ROCE_PORT << 32 | (__u64)IPPROTO_UDP << 24 |
		     destination_qp;

	return mixed(mixed(mixed(seed) ^ (source << 32 | destination)) ^ rest) >> 32;
}

static __always_inline __u32 flowlet_hash(const struct packet *packet, __u32 id, __u64 gap_ns,
					  struct counters *count)
{
	struct flow key = {
		.node = id,
		.source = packet->from,
		.destination = packet->to,
		.source_port = packet->source_port,
		.destination_qp = packet->destination_qp,
	};
	struct flowlet *known = bpf_map_lookup_elem(&flowlets, &key), fresh;
	__u64 now_ns = bpf_ktime_get_ns();

	if (!known) {
		fresh.last_ns = now_ns;
		fresh.hash = bpf_get_prandom_u32();
		bpf_map_update_elem(&flowlets, &key, &fresh, BPF_ANY);
		__sync_fetch_and_add(&count->flowlets, 1);
		return fresh.hash;
	}
	// Another CPU may have been here later than this one's clock was read.
	if (now_ns > known->last_ns) {
		if (now_ns - known->last_ns > gap_ns) {
			known->hash = bpf_get_prandom_u32();
			__sync_fetch_and_add(&count->flowlets, 1);
			__sync_fetch_and_add(&count->changes, 1);
		}
		known->last_ns = now_ns;
	}
	return known->hash;
}

static __always_inline __u32 *pin_of(const struct packet *packet, __u32 id)
{
	struct pin key = { .node = id, .destination = packet->to };

	return bpf_map_lookup_elem(&pins, &key);
}

static __always_inline __u32 *entry_of(const struct packet *packet, __u32 id)
{
	struct entry key = {
		.node = id,
		.source = packet->from,
		.destination = packet->to,
		.source_port = packet->source_port,
	};

	return bpf_map_lookup_elem(&entries, &key);
}

static __always_inline void give(struct __sk_buff *skb, __u32 hash, struct counters *count)
{
	bpf_set_hash(skb, hash);
	__sync_fetch_and_add(&count->steered, 1);
}

static __always_inline void give_found(struct __sk_buff *skb, const __u32 *hash,
				       struct counters *count)
{
	if (hash) {
		__sync_fetch_and_add(&count->hits, 1);
		give(skb, *hash, count);
	} else {
		__sync_fetch_and_add(&count->misses, 1);
		bpf_set_hash_invalid(skb);
	}
}

// The hash of a scheme that brings its own: rocelab/labfile/schemes/base.py, `program`.
#ifdef HASHES
#include HASHES
#else
static __always_inline __u32 hashes(const struct packet *packet, __u32 seed, __u64 parameter)
{
	return 0;
}
#endif

SEC("tc")
int steer(struct __sk_buff *skb)
{
	__u32 id = skb->tc_classid & 0xffff;
	struct node *node = bpf_map_lookup_elem(&nodes, &id);
	struct counters *count = bpf_map_lookup_elem(&counters, &id);
	struct packet packet = {};

	if (!node || !count || node->scheme == OFF || !parse(skb, &packet))
		return TC_ACT_UNSPEC;
	switch (node->scheme) {
	case HASH:
		give(skb, field_hash(&packet, node->fields, node->seed), count);
		break;
	case FLOWLET:
		give(skb, flowlet_hash(&packet, id, node->gap_ns, count), count);
		break;
	case SPRAY:
		if (is_data(&packet))
			give(skb, bpf_get_prandom_u32(), count);
		else
			bpf_set_hash_invalid(skb);
		break;
	case PINS:
		give_found(skb, pin_of(&packet, id), count);
		break;
	case ENTRIES:
		give_found(skb, entry_of(&packet, id), count);
		break;
	case FUNCTION:
		give(skb, hashes(&packet, node->seed, node->fields), count);
		break;
	default:
		bpf_set_hash_invalid(skb);
	}
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "GPL";
