// What a cable does to packets. `cable` is the time that a healthy one takes, where the lab's file has
// `links.delay`; `cross` is what only a faulty one does: it loses packets, flips bits, takes longer.
// Each runs in front of all else on clsact of a switch port: at ingress for packets towards that
// switch, at egress for those towards a server, whose own ingress comes after its packet sockets.
//
// One program and one set of maps serve all ports of a lab. A port and its direction are told by
// the filter's classid, which cls_bpf hands over in direct-action mode (net/sched/cls_bpf.c
// cls_bpf_classify): its slot, from 1 (rocelab/dataplane/impairments/impairment.py).
//
// No program can hold a packet, so one that is to come later goes, with its slot for a VLAN id,
// through a veth pair to a process in the same namespace (rocelab/dataplane/impairments/delayline.py). What
// that sends comes out of the pair with its slot for a mark; `resume` hands it to the port. For
// `cable` netem may delay packets instead, on the way into a pair of its own; they then come out at
// the far end, with their slot for a VLAN id still. `arrive` hands both to the port.

#include "common.h"

#define ETH_P_8021Q 0x8100
#define CONTROL_DSCP 48
#define BTH_BYTES 12
#define ICRC_BYTES 4
#define IPV6_BYTES 40

// As in rocelab/dataplane/impairments/maps.py.
#define DELAY_LINE 60001
#define CABLE_LINE 60003
#define PASSED 0x77697265

enum { BLACKHOLE, LOSS, CORRUPTION, DELAY, KINDS };

// Share 0: nothing yet.
struct part {
	__u64 share; // of packets, in units of 2^-32
	__u64 start_ns;
	__u64 end_ns;
};

struct rule {
	__u32 interface;
	__u32 at_egress;
	__u64 held; // bit of each kind somebody has prepared; read by those who share a port
	__u64 delay_ns;
	struct part parts[KINDS];
};

struct counters {
	__u64 seen;
	__u64 lost;
	__u64 corrupted;
	__u64 delayed;
	__u64 resumed;
};

// A hash: an update exchanges the element, so that no packet meets half of one rule and half of
// another. Both by slot; sized when loaded.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rule);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

// Flips one bit of a RoCE packet behind its BTH, which its ICRC always shows. Other packets are
// left alone: a real cable's frame checksum would lose them, and a veth carries none that could.
static __always_inline int corrupt(struct __sk_buff *skb)
{
	__u32 first, end, at;
	struct ipv4_udp wire;
	struct ipv6_udp wire6;
	__u8 byte;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN, &wire, sizeof(wire)) || !is_roce(&wire))
			return 0;
		first = ETH_HLEN + sizeof(wire) + BTH_BYTES;
		end = ETH_HLEN + bpf_ntohs(wire.length);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN, &wire6, sizeof(wire6)) || !is_roce6(&wire6))
			return 0;
		first = ETH_HLEN + sizeof(wire6) + BTH_BYTES;
		end = ETH_HLEN + IPV6_BYTES + bpf_ntohs(wire6.length);
	} else {
		return 0;
	}
	if (end < first + ICRC_BYTES)
		return 0;
	at = first + bpf_get_prandom_u32() % (end - first);
	if (bpf_skb_load_bytes(skb, at, &byte, 1))
		return 0;
	byte ^= 1 << (bpf_get_prandom_u32() & 7);
	return !bpf_skb_store_bytes(skb, at, &byte, 1, BPF_F_RECOMPUTE_CSUM);
}

static __always_inline int falls_on(const struct part *part, __u64 now_ns)
{
	return part->share && part->start_ns <= now_ns && now_ns < part->end_ns &&
	       bpf_get_prandom_u32() < part->share;
}

SEC("tc")
int cross(struct __sk_buff *skb)
{
	__u32 slot = skb->tc_classid;
	struct counters *count;
	struct rule *rule;
	__u64 now_ns;

	if (skb->mark == PASSED) {
		skb->mark = 0;
		return TC_ACT_UNSPEC;
	}
	rule = bpf_map_lookup_elem(&rules, &slot);
	count = bpf_map_lookup_elem(&counters, &slot);
	if (!rule || !count)
		return TC_ACT_UNSPEC;
	count->seen++;
	now_ns = bpf_ktime_get_ns();
	if (falls_on(&rule->parts[BLACKHOLE], now_ns) || falls_on(&rule->parts[LOSS], now_ns)) {
		count->lost++;
		return TC_ACT_SHOT;
	}
	if (falls_on(&rule->parts[CORRUPTION], now_ns) && corrupt(skb))
		count->corrupted++;
	if (falls_on(&rule->parts[DELAY], now_ns) &&
	    !bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), slot)) {
		count->delayed++;
		return bpf_redirect(DELAY_LINE, 0);
	}
	return TC_ACT_UNSPEC;
}

SEC("tc")
int resume(struct __sk_buff *skb)
{
	__u32 slot = skb->mark;
	struct rule *rule = bpf_map_lookup_elem(&rules, &slot);
	struct counters *count = bpf_map_lookup_elem(&counters, &slot);

	if (!rule || !count)
		return TC_ACT_SHOT;
	count->resumed++;
	skb->mark = PASSED;
	return bpf_redirect(rule->interface, rule->at_egress ? 0 : BPF_F_INGRESS);
}

// Routing and neighbour discovery run on the machine's clock, not on the dilated one.
static __always_inline int is_dilated(struct __sk_buff *skb)
{
	struct ipv4_udp wire;
	struct ipv6_udp wire6;

	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN, &wire6, sizeof(wire6)) ||
		    wire6.protocol == IPPROTO_ICMPV6)
			return 0;
		return traffic_class6(wire6.first) >> 2 < CONTROL_DSCP || is_roce6(&wire6);
	}
	if (skb->protocol != bpf_htons(ETH_P_IP) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN, &wire, sizeof(wire)))
		return 0;
	return wire.tos >> 2 < CONTROL_DSCP ||
	       (wire.protocol == IPPROTO_UDP && wire.destination_port == bpf_htons(ROCE_PORT));
}

// The label of lossless classes (pfc.bpf.c) would be lost in the process: it goes as an inner tag.
SEC("tc")
int cable(struct __sk_buff *skb)
{
	__u32 slot = skb->tc_classid, label = skb->tc_index;
	struct counters *count;

	if (skb->mark == CROSSED) {
		skb->mark = 0;
		return TC_ACT_UNSPEC;
	}
	if (skb->mark == PASSED)
		return TC_ACT_UNSPEC;
	count = bpf_map_lookup_elem(&counters, &slot);
	if (!count || !is_dilated(skb))
		return TC_ACT_UNSPEC;
	count->seen++;
	skb->mark = 0;
	if (bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), label) ||
	    bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), slot))
		return TC_ACT_SHOT;
	count->delayed++;
	return bpf_redirect(CABLE_LINE, 0);
}

SEC("tc")
int arrive(struct __sk_buff *skb)
{
	__u32 slot = skb->mark;
	struct counters *count;
	struct rule *rule;

	if (!slot) {
		slot = skb->vlan_tci;
		if (bpf_skb_vlan_pop(skb))
			return TC_ACT_SHOT;
	}
	rule = bpf_map_lookup_elem(&rules, &slot);
	count = bpf_map_lookup_elem(&counters, &slot);
	if (!rule || !count)
		return TC_ACT_SHOT;
	skb->tc_index = skb->vlan_tci;
	if (bpf_skb_vlan_pop(skb))
		return TC_ACT_SHOT;
	count->resumed++;
	skb->mark = CROSSED;
	return bpf_redirect(rule->interface, rule->at_egress ? 0 : BPF_F_INGRESS);
}

char LICENSE[] SEC("license") = "GPL";
