// Writes down the hash that a RoCE packet leaves a port with, by its PSN.

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define TC_ACT_UNSPEC (-1)
#define PSN_OFFSET 50 // Ethernet, IPv4, UDP, and 8 bytes of BTH

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, __u32);
} hashes SEC(".maps");

SEC("tc")
int tap(struct __sk_buff *skb)
{
	__u32 psn, hash = skb->hash;

	if (skb->protocol != bpf_htons(0x0800) ||
	    bpf_skb_load_bytes(skb, PSN_OFFSET, &psn, sizeof(psn)))
		return TC_ACT_UNSPEC;
	psn = bpf_ntohl(psn) & 0xffffff;
	bpf_map_update_elem(&hashes, &psn, &hash, BPF_ANY);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "GPL";
