"""Send one RoCEv2 flow between two servers of a lab, with a chosen entropy and ECN codepoint.

    sudo .venv/bin/python traffic/send_flow.py zone-small srv1-1 srv3-1 50000 ect0 1000

The UDP source port, 50000, is what switches hash; not-ect, ect1, ect0 and ce are the codepoints of
RFC 3168. Packets leave as fast as Scapy sends them; traffic/count_marks.py counts them at the other
end, and `rocelab path` says which links they take.
"""

import struct
import sys

from scapy.config import conf
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.sendrecv import sendp

from rocelab import RunningLab

ROCE_PORT = 4791
DSCP = 26
RC_WRITE_ONLY = 0x0A
CODEPOINTS = {"not-ect": 0, "ect1": 1, "ect0": 2, "ce": 3}
RETH = struct.Struct("!QII")  # address, key and length of an RDMA WRITE
PAYLOAD = bytes(1024)


def main(name: str, source: str, destination: str, sport: str, ecn: str, number: str) -> None:
    lab = RunningLab.open(name)
    link = lab.fabric.nics(source)[0].links[0]
    sender, receiver = link.a, lab.fabric.nics(destination)[0]
    headers = (
        Ether(src=sender.mac, dst=link.far(source).mac)
        / IP(src=sender.ip, dst=receiver.ip, tos=DSCP << 2 | CODEPOINTS[ecn], flags="DF")
        / UDP(sport=int(sport), dport=ROCE_PORT, chksum=0)
    )
    write = Raw(RETH.pack(0x1000, 1, len(PAYLOAD)) + PAYLOAD)
    packets = [
        headers / BTH(opcode=RC_WRITE_ONLY, dqpn=17, psn=psn) / write for psn in range(int(number))
    ]

    def send() -> None:
        conf.ifaces.reload()
        sendp(packets, iface=sender.interface, verbose=False)

    lab.node(source).inside(send)
    print(f"{len(packets)} packets from {sender.ip} to {receiver.ip}, {ecn}")


if __name__ == "__main__":
    main(*sys.argv[1:])
