// Priority-based flow control (IEEE 802.1Qbb) of a lab: which bytes of a lossless class a switch
// holds for which ingress port, when that port is to pause its peer, and what pauses arrive.
//
// A packet's tc_index says what it is counted for. It survives a router from ingress to egress, and
// a veth. Ingress of a switch's port gives a packet the port's slot; egress counts the packet, when
// it joins a queue, for that port and its class; ingress of the next node discounts it there, when
// it has left the queue. A cable that takes time (impairments.bpf.c) comes after that. What the kernel drops in between (a queue that is emptied, a
// cable that is cut) is discounted when it is freed.
//
// This program sends nothing and stops nothing: it reports XOFF, XON and arrived pause frames to
// the process of rocelab/dataplane/pfc/daemon.py, which does.

#include "common.h"
#include <bpf/bpf_tracing.h>

// What this program takes away it counts itself: unlike TC_ACT_SHOT this is no drop of the clsact, in
// which `rocelab health` looks for packets that a link lost.
#define TC_ACT_STOLEN 4
#define ETH_P_MAC_CONTROL 0x8808
#define OPCODE_PFC 0x0101

#define EVENT_BYTES (1 << 18)

// tc_index: a slot and a class, and whether the packet is counted. Of one that is not counted yet, in
// place of the class: whether it left the peer only because that stopped later than modelled.
#define COUNTED 0x8000
#define LATE 1
#define SLOT_OF(label) (((label) & ~COUNTED) >> 3)

enum what { XOFF = 1, XON = 2, PAUSED = 3 };

struct net_device {
	unsigned int group;
} IN_KERNEL;

struct sk_buff {
	struct net_device *dev;
	unsigned int len;
	__u16 tc_index;
	__u16 mac_header; // from head on
	unsigned char *head;
	unsigned char *data;
} IN_KERNEL;

enum skb_drop_reason { SKB_DROP_REASON_PACKET_SOCK_ERROR = 1 };

struct settings {
	__u64 lossless; // bit c: class c is
	__u8 class_of_dscp[64];
};

// Of every port of a switch and of every NIC, by slot.
struct port {
	__u64 device;    // the interface, once it has sent or received
	__u64 peer;      // the slot of the cable's other end
	__u64 pool;      // of its switch, or 0: a NIC
	__u64 headroom;  // for each class, in bytes
	__u64 delay_ns;  // from XOFF here until the peer stops, as modelled
	__u64 storms;    // bit c: it pauses class c for ever (a fault)
	// Of each class, of a switch's port.
	__s64 xoff;       // a static threshold; 0: it is dynamic
	__s64 dynamic_th; // XOFF is 2^this of what is free of the shared memory
	__s64 xon;        // a resume comes at this, or at
	__s64 xon_offset; // so much below XOFF, whichever is more
	__s64 reserved;
	// A NIC's receive buffer, if it drains more slowly than the cable fills it.
	__u64 drain;     // bytes a second of this machine's clock; 0: as they come
	__u64 size;
	__u64 full;      // pauses are sent above
	__u64 empty;     // and end below
	__u64 held;      // bytes in it, when
	__u64 held_ns;   // it was last filled
	__u64 late;      // of these, bytes that came only because the peer stopped later than modelled
	__u64 overflow_packets;
	__u64 held_max;
	// Events that the daemon did not get, since it had not read those before. Of slot 0: records that it
	// had no room for.
	__u64 unreported;
};

// Bytes of headroom in use. Of these, `late` came only because the peer stopped later than modelled:
// they take no room from what came in time. For `beyond`, a part of the late ones, there was no room.
struct headroom {
	__s64 held;
	__s64 late;
	__s64 beyond;
};

// The memory of a switch.
struct pool {
	struct bpf_spin_lock lock;
	__u32 unused;
	__s64 shared_size;
	__s64 shared;
	__s64 headroom_size;
	struct headroom headroom;
};

// Of each port and class: bytes that the switch holds for it.
struct ingress {
	__s64 held;
	struct headroom headroom; // of these
	__u64 over;         // 1: XOFF was crossed, and XON was not yet
	__u64 crossed_ns;   // when it last was, either way
	__u64 packets;
	__s64 held_max;
	__s64 headroom_max;
	__u64 xoffs;
	__u64 dropped_packets; // the headroom was full
	__u64 late_packets;    // taken though it was, because the peer stopped later than modelled
};

// Of each port and class: what was sent, and what the peer asked for.
struct egress {
	__u64 gated;        // the daemon has stopped the class
	__u64 deaf;         // 1: it does not obey (a fault)
	__u64 freed;        // 1: the watchdog has taken it off its pause
	__u64 discards;     // 1: and drops what leaves
	__u64 pauses;       // frames that pause
	__u64 resumes;
	__u64 packets;      // in all, in the queue
	__u64 bytes;
	__u64 out_packets;  // that reached the peer
	__u64 out_bytes;
	__u64 purged_packets;
	__u64 purged_bytes;
	__u64 discarded_packets; // by the watchdog
	__u64 flushed_packets;   // of these, that had been in the queue, and then reached the peer
	__u64 leaked_packets;    // that left while the class was stopped
};

struct event {
	__u32 what;
	__u16 slot;
	__u8 class;
	__u8 unused;
	__u64 quanta;
	__u64 t_ns;         // when it happened
	__u64 crossed_ns;   // PAUSED: when the peer crossed its threshold; of a foreign frame its arrival
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct port);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pool);
} pools SEC(".maps");

// slot * CLASSES + class, both.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ingress);
} ingresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct egress);
} egresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EVENT_BYTES);
} events SEC(".maps");

static __always_inline struct settings *set_of(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&settings, &zero);
}

static __always_inline struct port *port_of(__u32 slot)
{
	return bpf_map_lookup_elem(&ports, &slot);
}

static __always_inline void report(__u32 what, __u32 slot, __u32 class, __u64 quanta, __u64 crossed_ns)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		struct port *port = port_of(slot);

		if (port)
			__sync_fetch_and_add(&port->unreported, 1);
		return;
	}
	event->what = what;
	event->slot = slot;
	event->class = class;
	event->unused = 0;
	event->quanta = quanta;
	event->t_ns = bpf_ktime_get_ns();
	event->crossed_ns = crossed_ns;
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
}

static __always_inline struct ingress *ingress_of(__u32 slot, __u32 class)
{
	__u32 index = slot * CLASSES + (class & (CLASSES - 1));

	return bpf_map_lookup_elem(&ingresses, &index);
}

static __always_inline struct egress *egress_of(__u32 slot, __u32 class)
{
	__u32 index = slot * CLASSES + (class & (CLASSES - 1));

	return bpf_map_lookup_elem(&egresses, &index);
}

static __always_inline struct pool *pool_of(const struct port *port)
{
	__u32 index = port->pool;

	return index ? bpf_map_lookup_elem(&pools, &index) : 0;
}

// The group of an interface of the lab is its port's slot.
static __always_inline __u32 slot_of(struct net_device *device)
{
	return BPF_CORE_READ(device, group);
}

static __always_inline __s64 more(__s64 value, __s64 least)
{
	return value > least ? value : least;
}

static __always_inline __s64 less(__s64 value, __s64 most)
{
	return value < most ? value : most;
}

// The threshold at this moment, of what a port and class hold beyond what is reserved for them: a
// static one is no higher than what is there for all.
static __always_inline __s64 xoff_of(const struct port *port, const struct pool *pool, __s64 beyond)
{
	__s64 unused = more(pool->shared_size - pool->shared, 0);

	if (port->xoff)
		return less(beyond + unused, port->xoff);
	return port->dynamic_th >= 0 ? unused << (port->dynamic_th & 31) :
				       unused >> (-port->dynamic_th & 31);
}

// Whether a port that is over may resume. The caller holds the pool's lock.
static __always_inline int is_below_xon(const struct port *port, const struct pool *pool,
					const struct ingress *in)
{
	__s64 beyond = more(in->held - port->reserved, 0);

	return !in->headroom.held &&
	       (!in->held || beyond <= more(xoff_of(port, pool, beyond) - port->xon_offset, port->xon));
}

// Without its late bytes, a port's headroom would be empty sooner.
static __always_inline void release(struct headroom *pool, struct headroom *own, __s64 length)
{
	__s64 held = own->held - length, late = less(own->late, held), beyond = less(own->beyond, held);

	pool->held -= length;
	pool->late -= own->late - late;
	pool->beyond -= own->beyond - beyond;
	own->held = held;
	own->late = late;
	own->beyond = beyond;
}

static __always_inline int has_room(const struct headroom *headroom, __s64 size, __s64 length, int late)
{
	return headroom->held - (late ? headroom->beyond : headroom->late) + length <= size;
}

static __always_inline void take(struct headroom *headroom, __s64 length, __s64 late, __s64 beyond)
{
	headroom->held += length;
	headroom->late += late;
	headroom->beyond += beyond;
}

// What a switch held for a port leaves it: first what it had beyond XOFF.
static __always_inline void discount(__u32 slot, __u32 class, __u32 length)
{
	struct port *port = port_of(slot);
	struct ingress *in = ingress_of(slot, class);
	struct pool *pool;
	__s64 part, before;
	int resumes = 0;

	if (!port || !in)
		return;
	pool = pool_of(port);
	if (!pool)
		return;
	bpf_spin_lock(&pool->lock);
	before = in->held;
	in->held = before - length;
	part = less(in->headroom.held, length);
	release(&pool->headroom, &in->headroom, part);
	// Of the rest, what was beyond the reserved part was shared.
	pool->shared -= more(before - part - port->reserved, 0) -
			more(in->held - port->reserved, 0);
	if (in->over && is_below_xon(port, pool, in)) {
		in->over = 0;
		resumes = 1;
	}
	bpf_spin_unlock(&pool->lock);
	if (resumes) {
		__u64 now_ns = bpf_ktime_get_ns();

		in->crossed_ns = now_ns;
		report(XON, slot, class, 0, now_ns);
	}
}

// Whether a packet of a class came only because the peer stopped later than modelled: it has not
// stopped yet, or others of these are still `held`, and this one was on its way when it stopped.
static __always_inline int is_late(const struct port *port, const struct ingress *in, __u32 class,
				   __u64 now_ns, __s64 held)
{
	struct egress *up = egress_of(port->peer, class);

	return up && in->over && !up->deaf && !up->freed &&
	       (held || (!up->gated && now_ns - in->crossed_ns > port->delay_ns));
}

// Count a packet for the port it came in by; whether there is room.
static __always_inline int admit_from(__u32 slot, __u32 class, __u32 length, int late)
{
	struct port *port = port_of(slot);
	struct ingress *in = ingress_of(slot, class);
	struct pool *pool;
	__u64 now_ns = bpf_ktime_get_ns();
	__s64 beyond;
	int fits = 1, admitted = 1, crosses = 0;

	if (!port || !in)
		return 1;
	pool = pool_of(port);
	if (!pool)
		return 1;
	bpf_spin_lock(&pool->lock);
	if (in->over) {
		fits = has_room(&in->headroom, port->headroom, length, late) &&
		       has_room(&pool->headroom, pool->headroom_size, length, late);
		admitted = fits || late;
		if (admitted) {
			take(&in->headroom, length, late ? length : 0, fits ? 0 : length);
			take(&pool->headroom, length, late ? length : 0, fits ? 0 : length);
			in->headroom_max = more(in->headroom.held, in->headroom_max);
		}
	} else {
		beyond = more(in->held + length - port->reserved, 0);
		pool->shared += beyond - more(in->held - port->reserved, 0);
		if (beyond && beyond >= xoff_of(port, pool, beyond)) {
			in->over = 1;
			in->xoffs++;
			crosses = 1;
		}
	}
	if (admitted) {
		in->held += length;
		in->held_max = more(in->held, in->held_max);
		in->packets++;
		if (!fits)
			in->late_packets++;
	} else {
		in->dropped_packets++;
	}
	bpf_spin_unlock(&pool->lock);
	if (crosses) {
		in->crossed_ns = now_ns;
		report(XOFF, slot, class, 0, now_ns);
	}
	return admitted;
}

static __always_inline int is_lossless(const struct settings *set, __u32 class)
{
	return set->lossless >> (class & (CLASSES - 1)) & 1;
}

// Count a packet of a lossless class in the queue that it joins.
static __always_inline int join(struct __sk_buff *skb, const struct settings *set, __u32 slot,
				__u32 class)
{
	__u32 label = skb->tc_index, from = label & COUNTED ? 0 : SLOT_OF(label);
	// As in queues.bpf.c: the kernel segments what leaves a queue, and each packet has the label.
	__u32 segments = skb->gso_segs, count = segments ? segments : 1, length = skb->wire_len;
	struct egress *out = egress_of(slot, class);

	if (!out)
		return TC_ACT_UNSPEC;
	if (out->discards) {
		__sync_fetch_and_add(&out->discarded_packets, count);
		return TC_ACT_STOLEN;
	}
	if (from && !admit_from(from, class, length, label & LATE))
		return TC_ACT_STOLEN;
	__sync_fetch_and_add(&out->packets, count);
	__sync_fetch_and_add(&out->bytes, length);
	skb->tc_index = COUNTED | from << 3 | class;
	return TC_ACT_UNSPEC;
}

// At egress of a switch's port, after the program of its queues has chosen the class.
SEC("tc")
int leave_switch(struct __sk_buff *skb)
{
	struct net_device *device = BPF_CORE_READ((struct sk_buff *)skb, dev);
	__u32 slot = slot_of(device), class = skb->priority & (CLASSES - 1);
	struct settings *set = set_of();
	struct port *port = port_of(slot);

	if (!set || !port || (skb->priority & ~(CLASSES - 1)) != (HTB_HANDLE | FIRST_MINOR) ||
	    !is_lossless(set, class))
		return TC_ACT_UNSPEC;
	port->device = (__u64)device;
	return join(skb, set, slot, class);
}

static __always_inline int class_of(struct __sk_buff *skb, const struct settings *set)
{
	__u8 ip[2];

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (!bpf_skb_load_bytes(skb, ETH_HLEN, ip, 2))
			return set->class_of_dscp[ip[1] >> 2 & 63] & (CLASSES - 1);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (!bpf_skb_load_bytes(skb, ETH_HLEN, ip, 2))
			return set->class_of_dscp[traffic_class6(ip) >> 2 & 63] & (CLASSES - 1);
	}
	return -1;
}

// At egress of a NIC, which has a queue for each lossless class; the program of queues has said where
// all else goes.
SEC("tc")
int leave_nic(struct __sk_buff *skb)
{
	struct net_device *device = BPF_CORE_READ((struct sk_buff *)skb, dev);
	__u32 slot = slot_of(device);
	struct settings *set = set_of();
	struct port *port = port_of(slot);
	int class;

	if (!set || !port || (skb->priority & ~(CLASSES - 1)) == (HTB_HANDLE | FIRST_MINOR | CLASSES))
		return TC_ACT_UNSPEC; // the priority of what only runs the queue
	class = class_of(skb, set);
	if (class < 0 || !is_lossless(set, class))
		return TC_ACT_UNSPEC;
	skb->priority = HTB_HANDLE | (FIRST_MINOR + class);
	port->device = (__u64)device;
	return join(skb, set, slot, class);
}

// Pause frames are for the port that they reach: they are read here, and go no further.
static __always_inline int pause(struct __sk_buff *skb, __u32 slot, struct port *port)
{
	__u8 frame[20];
	__u64 now_ns = bpf_ktime_get_ns();
	int obeyed = 1;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, frame, sizeof(frame)) ||
	    (frame[0] << 8 | frame[1]) != OPCODE_PFC)
		return TC_ACT_STOLEN;
#pragma unroll
	for (__u32 class = 0; class < CLASSES; class++) {
		__u64 quanta = frame[4 + 2 * class] << 8 | frame[5 + 2 * class], crossed_ns = now_ns;
		struct egress *out = egress_of(slot, class);
		struct ingress *far = ingress_of(port->peer, class);

		if (!(frame[3] >> class & 1) || !out || !far)
			continue;
		if (quanta)
			__sync_fetch_and_add(&out->pauses, 1);
		else
			__sync_fetch_and_add(&out->resumes, 1);
		if (out->deaf) {
			obeyed = 0;
			continue;
		}
		// What the frame announces happened at the peer when its threshold was crossed.
		if (far->crossed_ns && far->over == (quanta != 0))
			crossed_ns = far->crossed_ns;
		report(PAUSED, slot, class, quanta, crossed_ns);
	}
	return obeyed ? TC_ACT_UNSPEC : TC_ACT_STOLEN;
}

// A packet has left its switch. Returns whether that one's watchdog had dropped it.
static __always_inline int arrive(struct __sk_buff *skb, const struct port *port)
{
	__u32 label = skb->tc_index, class = label & (CLASSES - 1), length = skb->len;
	struct egress *out;

	if (!(label & COUNTED))
		return 0;
	out = egress_of(port->peer, class);
	if (out) {
		__sync_fetch_and_add(&out->out_packets, 1);
		__sync_fetch_and_add(&out->out_bytes, length);
		if (out->gated)
			__sync_fetch_and_add(&out->leaked_packets, 1);
	}
	if (SLOT_OF(label))
		discount(SLOT_OF(label), class, length);
	if (out && out->discards) {
		__sync_fetch_and_add(&out->discarded_packets, 1);
		__sync_fetch_and_add(&out->flushed_packets, 1);
		return 1;
	}
	return 0;
}

static __always_inline __u32 left_late(__u32 label, const struct port *port, __u32 slot)
{
	__u32 class = label & (CLASSES - 1);
	struct ingress *in = ingress_of(slot, class);

	return label & COUNTED && in && is_late(port, in, class, bpf_ktime_get_ns(), in->headroom.late) ?
		       LATE : 0;
}

// At ingress of a switch's port, before anything else.
SEC("tc")
int enter_switch(struct __sk_buff *skb)
{
	struct net_device *device = BPF_CORE_READ((struct sk_buff *)skb, dev);
	__u32 slot = slot_of(device), late;
	struct port *port = port_of(slot);
	int lost;

	if (!port || !slot)
		return TC_ACT_UNSPEC;
	port->device = (__u64)device;
	if (skb->protocol == bpf_htons(ETH_P_MAC_CONTROL)) {
		pause(skb, slot, port);
		return TC_ACT_STOLEN;
	}
	if (skb->mark == CROSSED)
		return TC_ACT_UNSPEC;
	late = left_late(skb->tc_index, port, slot);
	lost = arrive(skb, port);
	skb->tc_index = slot << 3 | late;
	return lost ? TC_ACT_STOLEN : TC_ACT_UNSPEC;
}

// Bytes of a NIC's receive buffer now.
static __always_inline __u64 held_now(const struct port *port, __u64 now_ns)
{
	__u64 left = (now_ns - port->held_ns) / 1000 * port->drain / 1000000;

	return left < port->held ? port->held - left : 0;
}

static __always_inline int receive(const struct settings *set, struct port *port, __u32 slot,
				   __u32 of_class, __u32 length)
{
	__u64 now_ns = bpf_ktime_get_ns(), held = held_now(port, now_ns);
	__u64 before = less(port->late, held); // of the late ones
	struct ingress *own = ingress_of(slot, of_class);
	int late = own && is_lossless(set, of_class) && is_late(port, own, of_class, now_ns, before);

	if (!late && held - before + length > port->size) {
		__sync_fetch_and_add(&port->overflow_packets, 1);
		return 0;
	}
	if (late && held + length > port->size)
		__sync_fetch_and_add(&own->late_packets, 1);
	port->late = before + (late ? length : 0);
	held += length;
	port->held = held;
	port->held_ns = now_ns;
	if (held > port->held_max)
		port->held_max = held;
	if (held < port->full)
		return 1;
	for (__u32 class = 0; class < CLASSES; class++) {
		struct ingress *in = ingress_of(slot, class);

		if (!in || !is_lossless(set, class) || in->over)
			continue;
		in->over = 1;
		in->xoffs++;
		in->crossed_ns = now_ns;
		report(XOFF, slot, class, 0, now_ns);
	}
	return 1;
}

// At ingress of a NIC.
SEC("tc")
int enter_nic(struct __sk_buff *skb)
{
	struct net_device *device = BPF_CORE_READ((struct sk_buff *)skb, dev);
	__u32 slot = slot_of(device);
	struct settings *set = set_of();
	struct port *port = port_of(slot);
	int class, lost;

	if (!set || !port || !slot)
		return TC_ACT_UNSPEC;
	port->device = (__u64)device;
	if (skb->protocol == bpf_htons(ETH_P_MAC_CONTROL))
		return pause(skb, slot, port);
	lost = arrive(skb, port);
	skb->tc_index = 0;
	class = port->drain ? class_of(skb, set) : -1;
	if (lost || (class >= 0 && !receive(set, port, slot, class, skb->len)))
		return TC_ACT_STOLEN;
	return TC_ACT_UNSPEC;
}

// A packet that the kernel gives up: an interface went down with it in its queue or on its cable.
SEC("tp_btf/kfree_skb")
int BPF_PROG(freed, struct sk_buff *skb, void *location, enum skb_drop_reason reason)
{
	__u32 label = BPF_CORE_READ(skb, tc_index), slot, class = label & (CLASSES - 1), length;
	struct net_device *device;
	struct port *port, *from;
	struct egress *out;
	int is_far, is_pulled;

	if (!(label & COUNTED))
		return 0;
	// A copy for a capture whose buffer is full: the packet itself goes on.
	if (reason == bpf_core_enum_value(enum skb_drop_reason, SKB_DROP_REASON_PACKET_SOCK_ERROR))
		return 0;
	device = BPF_CORE_READ(skb, dev);
	slot = device ? BPF_CORE_READ(device, group) : 0;
	port = port_of(slot);
	// Other labs have the same slots.
	if (!slot || !port || port->device != (__u64)device)
		return 0;
	from = port_of(SLOT_OF(label));
	if (!from)
		return 0;
	// On the cable packets have the receiver's interface, and their Ethernet header is off, but for
	// one that its ring had no room for, which is back in the queue of its switch.
	is_pulled = BPF_CORE_READ(skb, data) != BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, mac_header);
	is_far = SLOT_OF(label) ? from->pool != port->pool : is_pulled;
	out = egress_of(is_far ? port->peer : slot, class);
	length = BPF_CORE_READ(skb, len) + (is_pulled ? ETH_HLEN : 0);
	if (SLOT_OF(label))
		discount(SLOT_OF(label), class, length);
	if (out) {
		__sync_fetch_and_add(&out->purged_packets, 1);
		__sync_fetch_and_add(&out->purged_bytes, length);
	}
	return 0;
}

// Evaluate again each port that is over: its threshold rises as others' packets leave.
static long evaluate_port(void *map, const __u32 *key, struct ingress *in, void *unused)
{
	__u32 slot = *key / CLASSES, class = *key % CLASSES;
	struct port *port = port_of(slot);
	struct pool *pool;
	__u64 now_ns;
	int resumes = 0;

	if (!in->over || !port)
		return 0;
	now_ns = bpf_ktime_get_ns();
	pool = pool_of(port);
	if (!pool) {
		if (!port->drain || held_now(port, now_ns) < port->empty) {
			port->late = 0;
			in->over = 0;
			resumes = 1;
		}
	} else {
		bpf_spin_lock(&pool->lock);
		if (in->over && is_below_xon(port, pool, in)) {
			in->over = 0;
			resumes = 1;
		}
		bpf_spin_unlock(&pool->lock);
	}
	if (resumes) {
		in->crossed_ns = now_ns;
		report(XON, slot, class, 0, now_ns);
	}
	return 0;
}

SEC("syscall")
int evaluate(void *unused)
{
	bpf_for_each_map_elem(&ingresses, evaluate_port, (void *)0, 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
