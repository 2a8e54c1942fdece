"""Send one RoCEv2 flow between two servers of a lab, with a chosen entropy and ECN codepoint.

    sudo .venv/bin/python traffic/send_flow.py zone-small srv1-1 srv3-1 50000 ect0 1000

The UDP source port, 50000, is what switches hash; not-ect, ect1, ect0 and ce are the codepoints of
RFC 3168. Packets leave as fast as Scapy sends them; traffic/count_marks.py counts them at the other
end, and `rocelab path` says which links they take.
"""

import sys

from scapy.config import conf
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.sendrecv import sendp

from rocelab import RunningLab
from rocelab.jobs.flow import Endpoints, resolve_endpoints
from rocelab.linux.namespaces import inside
from rocelab.traffic.roce import DSCP_ROCE
from rocelab.traffic.roce_layers import RETH
from rocelab.wire.headers import ROCE_PORT, Opcode

CODEPOINTS = {"not-ect": 0, "ect1": 1, "ect0": 2, "ce": 3}
PAYLOAD = bytes(1024)


def packet(ends: Endpoints, sport: int, ecn: int, psn: int) -> Packet:
    """An RDMA WRITE of one packet to the queue pair 17."""
    return (
        Ether(src=ends.source_mac, dst=ends.next_hop_mac)
        / IP(src=ends.source_ip, dst=ends.destination_ip, tos=DSCP_ROCE << 2 | ecn, flags="DF")
        / UDP(sport=sport, dport=ROCE_PORT, chksum=0)
        / BTH(opcode=int(Opcode.RC_WRITE_ONLY), dqpn=17, psn=psn)
        / RETH(va=0x1000, rkey=1, dmalen=len(PAYLOAD))
        / Raw(PAYLOAD)
    )


def main(name: str, source: str, destination: str, sport: str, ecn: str, number: str) -> None:
    lab = RunningLab.open(name)
    ends = resolve_endpoints(lab.fabric, source, destination)
    packets = [packet(ends, int(sport), CODEPOINTS[ecn], psn) for psn in range(int(number))]

    def send() -> None:
        conf.ifaces.reload()
        sendp(packets, iface=ends.interface, verbose=False)

    inside(lab.node(source).netns, send)
    print(f"{len(packets)} packets from {ends.source_ip} to {ends.destination_ip}, {ecn}")


if __name__ == "__main__":
    main(*sys.argv[1:])
