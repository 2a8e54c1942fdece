"""Count the ECN codepoints of the RoCEv2 packets that a server of a lab receives, flow by flow.

    sudo .venv/bin/python traffic/count_marks.py zone-small srv3-1 10

Prints `counting` once it sees every packet and, 10 seconds later, a line for each sender and UDP
source port; with a number of packets as fourth argument, as soon as so many have come. Packets that
were sent as ect0 and arrive as ce were marked by a switch.
"""

import sys
from collections import Counter

from scapy.config import conf
from scapy.layers.inet import IP, UDP
from scapy.packet import Packet
from scapy.sendrecv import sniff

from rocelab import RunningLab

ROCE_PORT = 4791
CODEPOINTS = ("not-ect", "ect1", "ect0", "ce")
Flow = tuple[str, int]


def main(name: str, server: str, seconds: str, most: str = "0") -> None:
    lab = RunningLab.open(name)
    ports = [link.a for nic in lab.fabric.nics(server) for link in nic.links]
    addresses = {port.ip for port in ports}
    counts: dict[Flow, Counter[str]] = {}

    def is_received(packet: Packet) -> bool:
        return UDP in packet and packet[UDP].dport == ROCE_PORT and packet[IP].dst in addresses

    def count(packet: Packet) -> None:
        flow = (packet[IP].src, packet[UDP].sport)
        counts.setdefault(flow, Counter())[CODEPOINTS[packet[IP].tos & 3]] += 1

    def listen() -> None:
        conf.ifaces.reload()
        sniff(
            iface=[port.interface for port in ports],
            lfilter=is_received,
            prn=count,
            count=int(most),
            store=False,
            timeout=float(seconds),
            started_callback=lambda: print("counting", flush=True),
        )

    lab.node(server).inside(listen)
    for (source, sport), codepoints in sorted(counts.items()):
        found = ", ".join(f"{codepoints[each]} {each}" for each in CODEPOINTS)
        print(f"{source} port {sport}: {codepoints.total()} packets: {found}")


if __name__ == "__main__":
    main(*sys.argv[1:])
