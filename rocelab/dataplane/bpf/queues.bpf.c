// The queues of a lab's switch ports: which one a packet joins, whether it still fits the buffer,
// and whether it is marked. Runs at clsact egress of every switch port, in front of the port's HTB
// tree (rocelab/dataplane/queues/htb.py), whose queues it reads: the depth is the kernel's own.
//
// One program and one set of maps serve all ports of a lab. A port is told by its interface's
// group (IFLA_GROUP), which `rocelab.lab.wiring` sets to the port's slot in the plan; slot 0 is
// an interface that is no port. Fields of kernel structures are found through BTF when the program
// is loaded, so the same source runs on kernels that lay them out differently.

#include "common.h"

#define IPPROTO_ICMP 1
#define IPPROTO_TCP 6
#define CE 3
#define UDP_AND_VXLAN 16

// A class of lossy ones may hold so many times what the buffer has free (rocelab/planning/queues.py).
#define ALPHA 8

// Of packets that only run a port's queue (rocelab/dataplane/pfc/gates.py): their class keeps none.
#define KICK_MINOR 0x1f
#define BINS 32
#define MAX_CHAIN 16
// What a class holds at most, whatever the size: the port's txqueuelen (rocelab/dataplane/queues/engine.py).
#define MAX_PACKETS 32767

struct gnet_stats_queue {
	__u32 backlog;
} IN_KERNEL;

struct qdisc_skb_head {
	__u32 qlen;
} IN_KERNEL;

struct Qdisc {
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
} IN_KERNEL;

struct net_device {
	unsigned int group;
	struct Qdisc *qdisc;
} IN_KERNEL;

struct sk_buff {
	struct net_device *dev;
} IN_KERNEL;

struct hlist_node {
	struct hlist_node *next;
} IN_KERNEL;

struct hlist_head {
	struct hlist_node *first;
} IN_KERNEL;

struct Qdisc_class_common {
	__u32 classid;
	struct hlist_node hnode;
} IN_KERNEL;

struct Qdisc_class_hash {
	struct hlist_head *hash;
	unsigned int hashmask;
} IN_KERNEL;

struct htb_sched {
	struct Qdisc_class_hash clhash;
} IN_KERNEL;

struct htb_class_leaf {
	struct Qdisc *q;
} IN_KERNEL;

struct htb_class {
	struct Qdisc_class_common common;
	struct htb_class_leaf leaf;
} IN_KERNEL;

// Of ports of one kind, and by class.
struct settings {
	__u64 buffer[CLASSES];
	__u64 kmin[CLASSES];
	__u64 kmax[CLASSES];
	__u64 pmax[CLASSES]; // in units of 2^-31
	__u64 bin_edge[BINS];
	__u64 marked_classes; // bit c: packets of class c are marked
	__u64 lossless_classes; // bit c: class c is dropped at ingress only (pfc.bpf.c)
	__u8 class_of_dscp[64];
};

enum other { TCP, UDP, ICMP, REST, OTHERS };

struct queue {
	__u64 bytes;
	__u64 ce_out;
	__u64 dropped_packets;
	__u64 dropped_bytes;
	__u64 depth_max;
	__u64 depth_sum;
	// Of all these, what is not RoCE.
	__u64 others_bytes;
	__u64 others_ce_out;
	__u64 others_marks;
	__u64 others_dropped_packets;
	__u64 others_dropped_bytes;
	__u64 others_held; // bytes that came since the queue was last seen empty: at most so many are in it
	__u64 others_held_max;
	__u64 crowded_out; // packets of RoCE that would have fitted, had there been no others
	__u64 others[OTHERS]; // packets
	__u64 packets[BINS]; // by depth at enqueue
	__u64 marks[BINS];
};

// By kind of port.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

// slot * CLASSES + class; sized when loaded.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct queue);
} queues SEC(".maps");

// What was found of a port when it last sent: looking a queue up anew costs 150 ns a packet. A queue
// lives as long as the root it hangs from, so it is looked up again when the root is another.
struct port {
	__u64 device;
	__u64 root;
	__u64 leaf[CLASSES];
	__u64 kind; // of its settings
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct port);
} ports SEC(".maps");

// Bytes in each queue when `sample` last ran; indexed as `queues`.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} depths SEC(".maps");

static __always_inline __u32 backlog_of(struct Qdisc *qdisc)
{
	return BPF_CORE_READ(qdisc, qstats.backlog);
}

// net/sched/sch_htb.c htb_find(), include/net/sch_generic.h qdisc_class_hash()
static __always_inline struct Qdisc *leaf_of(struct Qdisc *root, __u32 classid)
{
	struct htb_sched *htb = (void *)root + bpf_core_type_size(struct Qdisc);
	struct hlist_head *heads = BPF_CORE_READ(htb, clhash.hash);
	struct hlist_node *node;
	__u32 bucket = classid;

	bucket ^= bucket >> 8;
	bucket ^= bucket >> 4;
	bucket &= BPF_CORE_READ(htb, clhash.hashmask);
	node = BPF_CORE_READ(&heads[bucket], first);
	for (int i = 0; node && i < MAX_CHAIN; i++) {
		struct htb_class *class =
			(void *)node - bpf_core_field_offset(struct htb_class, common.hnode);

		if (BPF_CORE_READ(class, common.classid) == classid)
			return BPF_CORE_READ(class, leaf.q);
		node = BPF_CORE_READ(node, next);
	}
	return 0;
}

static __always_inline struct Qdisc *known_leaf(struct port *port, struct net_device *device,
						struct Qdisc *root, __u32 class)
{
	struct Qdisc *leaf;

	class &= CLASSES - 1;
	if (port->root != (__u64)root || port->device != (__u64)device) {
		for (int i = 0; i < CLASSES; i++)
			port->leaf[i] = 0;
		port->device = (__u64)device;
		port->root = (__u64)root;
	}
	leaf = (void *)port->leaf[class];
	if (!leaf) {
		leaf = leaf_of(root, HTB_HANDLE | (FIRST_MINOR + class));
		port->leaf[class] = (__u64)leaf;
	}
	return leaf;
}

struct headers {
	__u8 dscp;
	__u8 ecn;
	__u8 protocol;
	__u8 is_roce; // as the counters of links see it (`roce_filter` of rocelab/wire/filters.py)
	__u16 destination_port;
};

// Of a tenant's packet between leaves: what is RoCE inside counts as such. DSCP and ECN bits are those
// of the outer header, which has the inner one's.
static __always_inline void look_inside(struct __sk_buff *skb, __u32 frame, struct headers *found)
{
	struct ipv4_udp ip;
	struct ipv6_udp ip6;
	__u16 type;

	if (bpf_skb_load_bytes(skb, frame + ETH_HLEN - 2, &type, sizeof(type)))
		return;
	if (type == bpf_htons(ETH_P_IP)) {
		if (!bpf_skb_load_bytes(skb, frame + ETH_HLEN, &ip, sizeof(ip)) && is_roce(&ip))
			found->destination_port = ROCE_PORT;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		if (!bpf_skb_load_bytes(skb, frame + ETH_HLEN, &ip6, sizeof(ip6)) && is_roce6(&ip6))
			found->destination_port = ROCE_PORT;
	}
}

// False for what is no IP packet. IPv6 extension headers are not skipped: nothing here sends them.
static __always_inline int parse(struct __sk_buff *skb, struct headers *found)
{
	__u8 ip[40];
	__u32 after_ip;
	__u16 port;
	__u8 tos, is_whole = 0;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN, ip, 20))
			return 0;
		tos = ip[1];
		found->protocol = ip[9];
		after_ip = ETH_HLEN + (ip[0] & 0xf) * 4;
		is_whole = ip[0] == IPV4_NO_OPTIONS && !((ip[6] << 8 | ip[7]) & FRAGMENT);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN, ip, 8))
			return 0;
		tos = traffic_class6(ip);
		found->protocol = ip[6];
		after_ip = ETH_HLEN + 40;
		is_whole = 1;
	} else {
		return 0;
	}
	found->dscp = tos >> 2;
	found->ecn = tos & 3;
	found->destination_port = 0;
	if (found->protocol == IPPROTO_UDP && !bpf_skb_load_bytes(skb, after_ip + 2, &port, 2))
		found->destination_port = bpf_ntohs(port);
	if (is_whole && found->destination_port == VXLAN_PORT)
		look_inside(skb, after_ip + UDP_AND_VXLAN, found);
	found->is_roce = is_whole && found->destination_port == ROCE_PORT;
	return 1;
}

// Routing and neighbour discovery run on the machine's clock, not on the dilated one.
static __always_inline int is_control(const struct headers *headers)
{
	if (headers->protocol == IPPROTO_ICMPV6)
		return 1;
	return headers->dscp >= 48 && headers->destination_port != ROCE_PORT;
}

static __always_inline enum other kind_of(const struct headers *headers)
{
	switch (headers->protocol) {
	case IPPROTO_TCP:
		return TCP;
	case IPPROTO_UDP:
		return UDP;
	case IPPROTO_ICMP:
		return ICMP;
	}
	return REST;
}

// Whether a queue takes `length` bytes more. Where classes are lossless, each other class has the
// buffer to itself: what they hold while paused is no reason to drop what is not. Elsewhere a class
// holds at most ALPHA times what is free of the port's memory, which is the buffer and an ALPHAth of it:
// a class that is alone holds the buffer, and one that fills leaves room for those that come.
static __always_inline int fits(const struct settings *set, __u32 class, __u64 queued, __u64 in_port,
				__u64 length)
{
	__u64 buffer = set->buffer[class & (CLASSES - 1)];

	if (set->lossless_classes)
		return queued + length <= buffer;
	return queued + length + ALPHA * (in_port + length) <= (ALPHA + 1) * buffer;
}

// Of a packet of RoCE that does not fit: whether it would, had there been no other packets. What a
// class held when last looked at may have left since: it is at most what the class has now, and that
// of all classes but this one is what the port has besides.
static __always_inline int is_crowded_out(const struct settings *set, __u32 slot, __u32 class,
					  __u64 queued, __u64 in_port, __u64 length, int is_full)
{
	__u64 own = 0, rest = 0, most;

	for (__u32 each = 0; each < CLASSES; each++) {
		__u32 index = slot * CLASSES + each;
		struct queue *queue = bpf_map_lookup_elem(&queues, &index);

		if (!queue)
			return 0;
		if (each == class)
			own = queue->others_held;
		else
			rest += queue->others_held;
	}
	if (in_port < queued)
		in_port = queued;
	most = in_port - queued;
	own = own < queued ? own : queued;
	rest = rest < most ? rest : most;
	if (is_full)
		return own != 0;
	return own + rest && fits(set, class, queued - own, in_port - own - rest, length);
}

static __always_inline __u32 bin_of(const struct settings *set, __u64 depth)
{
	__u32 low = 0;

	// The last of the 32 edges that is not above the depth, halving the range five times.
#pragma unroll
	for (__u32 step = BINS / 2; step; step /= 2)
		if (set->bin_edge[(low + step) & (BINS - 1)] <= depth)
			low += step;
	return low & (BINS - 1);
}

static __always_inline int is_marked(const struct settings *set, __u32 class, __u64 depth)
{
	__u64 kmin, kmax;

	class &= CLASSES - 1;
	kmin = set->kmin[class];
	kmax = set->kmax[class];
	if (depth <= kmin)
		return 0;
	if (depth > kmax)
		return 1;
	return (bpf_get_prandom_u32() >> 1) < (depth - kmin) * set->pmax[class] / (kmax - kmin);
}

SEC("tc")
int enqueue(struct __sk_buff *skb)
{
	struct net_device *device = BPF_CORE_READ((struct sk_buff *)skb, dev);
	__u32 slot = BPF_CORE_READ(device, group), kind, class, index, bin;
	// What the kernel has not segmented yet counts as the packets that it will be, as for HTB.
	__u32 segments = skb->gso_segs, count = segments ? segments : 1, length = skb->wire_len;
	struct port *port = bpf_map_lookup_elem(&ports, &slot);
	struct settings *set;
	struct headers headers;
	struct Qdisc *root, *leaf;
	struct queue *queue;
	__u64 depth, in_port;
	int ce, is_full;

	if (!port || !slot || skb->priority == (HTB_HANDLE | KICK_MINOR))
		return TC_ACT_UNSPEC;
	kind = port->kind;
	set = bpf_map_lookup_elem(&settings, &kind);
	if (!set)
		return TC_ACT_UNSPEC;
	if (!parse(skb, &headers) || is_control(&headers)) {
		skb->priority = HTB_HANDLE;
		return TC_ACT_UNSPEC;
	}
	class = set->class_of_dscp[headers.dscp & 63] & (CLASSES - 1);
	skb->priority = HTB_HANDLE | (FIRST_MINOR + class);
	index = slot * CLASSES + class;
	queue = bpf_map_lookup_elem(&queues, &index);
	if (!queue)
		return TC_ACT_UNSPEC;
	root = BPF_CORE_READ(device, qdisc);
	leaf = known_leaf(port, device, root, class);
	depth = backlog_of(leaf);
	in_port = backlog_of(root);
	if (!(set->lossless_classes >> class & 1)) {
		is_full = BPF_CORE_READ(leaf, q.qlen) >= MAX_PACKETS;
		if (is_full || !fits(set, class, depth, in_port, length)) {
			__sync_fetch_and_add(&queue->dropped_packets, count);
			__sync_fetch_and_add(&queue->dropped_bytes, length);
			if (!headers.is_roce) {
				__sync_fetch_and_add(&queue->others_dropped_packets, count);
				__sync_fetch_and_add(&queue->others_dropped_bytes, length);
			} else if (is_crowded_out(set, slot, class, depth, in_port, length, is_full)) {
				__sync_fetch_and_add(&queue->crowded_out, 1);
			}
			return TC_ACT_SHOT;
		}
	}
	bin = bin_of(set, depth);
	ce = headers.ecn == CE;
	if (!ce && headers.ecn && set->marked_classes >> class & 1 && is_marked(set, class, depth) &&
	    bpf_skb_ecn_set_ce(skb)) {
		__sync_fetch_and_add(&queue->marks[bin], count);
		if (!headers.is_roce)
			__sync_fetch_and_add(&queue->others_marks, count);
		ce = 1;
	}
	if (ce)
		__sync_fetch_and_add(&queue->ce_out, count);
	if (!depth && queue->others_held)
		queue->others_held = 0;
	if (!headers.is_roce) {
		__sync_fetch_and_add(&queue->others[kind_of(&headers)], count);
		__sync_fetch_and_add(&queue->others_bytes, length);
		if (ce)
			__sync_fetch_and_add(&queue->others_ce_out, count);
		__sync_fetch_and_add(&queue->others_held, length);
		if (queue->others_held > queue->others_held_max)
			queue->others_held_max = queue->others_held;
	}
	__sync_fetch_and_add(&queue->packets[bin], count);
	__sync_fetch_and_add(&queue->bytes, length);
	__sync_fetch_and_add(&queue->depth_sum, depth * count);
	if (depth > queue->depth_max)
		queue->depth_max = depth;
	return TC_ACT_UNSPEC;
}

// At egress of a server's NIC: RoCE, whose agents pace themselves, leaves at once and counts for the
// rate; other packets get what it leaves. Lossless classes come later (pfc.bpf.c).
SEC("tc")
int leave_host(struct __sk_buff *skb)
{
	struct headers headers;

	if (skb->priority == (HTB_HANDLE | KICK_MINOR))
		return TC_ACT_UNSPEC;
	if (!parse(skb, &headers) || is_control(&headers))
		skb->priority = HTB_HANDLE;
	else
		skb->priority = HTB_HANDLE | (headers.is_roce ? ROCE_MINOR : OTHERS_MINOR);
	return TC_ACT_UNSPEC;
}

static long sample_port(void *map, const __u32 *slot, struct port *port, void *unused)
{
	struct net_device *device = (void *)port->device;
	struct Qdisc *root;

	// An interface that is gone leaves its address behind; its group is the proof it is there.
	if (!device || BPF_CORE_READ(device, group) != *slot)
		return 0;
	root = BPF_CORE_READ(device, qdisc);
	for (__u32 class = 0; class < CLASSES; class++) {
		__u32 index = *slot * CLASSES + class;
		__u64 *depth = bpf_map_lookup_elem(&depths, &index);
		struct Qdisc *leaf = leaf_of(root, HTB_HANDLE | (FIRST_MINOR + class));

		if (depth)
			*depth = leaf ? backlog_of(leaf) : 0;
	}
	return 0;
}

SEC("syscall")
int sample(void *unused)
{
	bpf_for_each_map_elem(&ports, sample_port, (void *)0, 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
