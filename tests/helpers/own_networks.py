"""Networks of others, as their files: a SONiC line card and its neighbours, and switches whose FRR
configuration a generator wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

CARD = {
    "DEVICE_METADATA": {
        "localhost": {
            **{"hostname": "card1", "type": "Spine", "bgp_asn": "4200065100"},
            **{"switch_type": "voq", "hwsku": "Test-36x100G", "buffer_model": "traditional"},
        }
    },
    "PORT": {
        f"Ethernet{number}": {"speed": "100000", "mtu": "9100", "lanes": "1,2,3,4"}
        for number in range(0, 24, 4)
    },
    "DEVICE_NEIGHBOR": {
        "Ethernet0": {"name": "core1", "port": "Ethernet1"},
        "Ethernet4": {"name": "core1", "port": "Ethernet2"},
        "Ethernet8": {"name": "core2", "port": "Ethernet1"},
        "Ethernet20": {"name": "card2", "port": "Ethernet20"},
    },
    "DEVICE_NEIGHBOR_METADATA": {
        "core1": {"type": "CoreRouter", "lo_addr": "None", "hwsku": "Test-VM"},
        "core2": {"type": "CoreRouter", "lo_addr": "None", "hwsku": "Test-VM"},
        "card2": {"type": "Spine", "lo_addr": "None", "hwsku": "Test-36x100G"},
    },
    "PORTCHANNEL": {"PortChannel2": {"members": ["Ethernet0", "Ethernet4"], "min_links": "2"}},
    "PORTCHANNEL_MEMBER": {"PortChannel2|Ethernet0": {}, "PortChannel2|Ethernet4": {}},
    "PORTCHANNEL_INTERFACE": {
        **{"PortChannel2": {}, "PortChannel2|10.7.0.0/31": {}},
        "PortChannel2|FC00:7::1/126": {},
    },
    "INTERFACE": {
        **{"Ethernet8": {}, "Ethernet8|10.7.0.4/31": {}, "Ethernet8|FC00:7::9/126": {}},
        **{"Ethernet20": {}, "Ethernet20|10.7.0.8/31": {}},
    },
    "LOOPBACK_INTERFACE": {
        **{"Loopback0": {}, "Loopback0|10.1.7.1/32": {}, "Loopback0|FC00:17::1/128": {}},
        **{"Loopback1": {}, "Loopback1|10.1.8.1/32": {}},
    },
    "BGP_NEIGHBOR": {
        "10.7.0.1": {"asn": "65200", "name": "core1", "local_addr": "10.7.0.0"},
        "fc00:7::2": {"asn": "65200", "name": "core1", "local_addr": "fc00:7::1"},
        "10.7.0.5": {"asn": "65201", "name": "core2", "local_addr": "10.7.0.4"},
        "fc00:7::a": {"asn": "65201", "name": "core2", "local_addr": "fc00:7::9"},
        "10.7.0.9": {"asn": "4200065101", "name": "card2", "local_addr": "10.7.0.8"},
    },
    "BUFFER_POOL": {
        "ingress_lossless_pool": {"type": "ingress", "mode": "dynamic", "size": "12766208"},
        "egress_lossless_pool": {"type": "egress", "mode": "static", "size": "12766208"},
        "egress_lossy_pool": {"type": "egress", "mode": "dynamic", "size": "7326924"},
    },
    "BUFFER_PROFILE": {
        "out_lossless": {"pool": "[BUFFER_POOL|egress_lossless_pool]", "static_th": "12766208"},
        "out_lossy": {"pool": "[BUFFER_POOL|egress_lossy_pool]", "dynamic_th": "3"},
        "in_lossless": {
            **{"pool": "[BUFFER_POOL|ingress_lossless_pool]", "size": "56368", "xon": "18432"},
            **{"xoff": "55120", "dynamic_th": "-1", "xon_offset": "2496"},
        },
    },
    "BUFFER_PG": {"Ethernet0,Ethernet4,Ethernet8|3-4": {"profile": "[BUFFER_PROFILE|in_lossless]"}},
    "BUFFER_QUEUE": {
        "Ethernet0,Ethernet4,Ethernet8|3-4": {"profile": "[BUFFER_PROFILE|out_lossless]"},
        "Ethernet0,Ethernet4,Ethernet8|0-2": {"profile": "[BUFFER_PROFILE|out_lossy]"},
    },
    "DSCP_TO_TC_MAP": {"AZURE": {**{str(n): "1" for n in range(64)}, "3": "3", "26": "3"}},
    "TC_TO_QUEUE_MAP": {"AZURE": {str(n): str(n) for n in range(8)}},
    "PORT_QOS_MAP": {
        port: {
            "dscp_to_tc_map": "[DSCP_TO_TC_MAP|AZURE]",
            "tc_to_queue_map": "[TC_TO_QUEUE_MAP|AZURE]",
            "pfc_enable": "3,4",
        }
        for port in ("Ethernet0", "Ethernet4", "Ethernet8")
    },
    "WRED_PROFILE": {
        "LOSSLESS": {
            **{"ecn": "ecn_all", "wred_green_enable": "true", "green_drop_probability": "5"},
            **{"green_min_threshold": "1048576", "green_max_threshold": "2097152"},
        }
    },
    "QUEUE": {
        "Ethernet0,Ethernet4,Ethernet8|3-4": {
            **{"scheduler": "[SCHEDULER|s1]", "wred_profile": "[WRED_PROFILE|LOSSLESS]"}
        },
        "Ethernet0,Ethernet4,Ethernet8|0-2": {"scheduler": "[SCHEDULER|s0]"},
    },
    "SCHEDULER": {
        "s0": {"type": "DWRR", "weight": "14"},
        "s1": {"type": "DWRR", "weight": "15"},
    },
}
"""A database in the form of the ones that SONiC's tests configure virtual switches with: a line
card of a chassis, a port channel, two families, references in brackets."""


def card(folder: Path) -> Path:
    """A folder with the database of a line card."""
    source = folder / "card"
    source.mkdir()
    (source / "card1_config_db.json").write_text(json.dumps(CARD, indent=4))
    return source


LEAVES, SPINES = 4, 2
POLICY = """ip prefix-list LOOPBACKS seq 5 permit 10.9.0.0/16 ge 32
ip prefix-list SERVERS seq 5 permit 10.20.0.0/16 le 31
bgp community-list standard FABRIC permit 65000:1
route-map OUT permit 10
 match ip address prefix-list SERVERS
 set community 65000:1 additive
exit
route-map OUT permit 20
 match ip address prefix-list LOOPBACKS
exit
route-map IN permit 10
 set local-preference 200
exit
"""


def generated(folder: Path, name: str, queues: str = "") -> Path:
    """The file of a lab whose switches have an FRR configuration each: eBGP with numbers of four
    bytes, peer groups, prefix lists, communities and route maps."""
    files = folder / "configs"
    files.mkdir()
    links: dict[str, list[tuple[str, str, int]]] = {}
    cables = []
    place = 0
    for leaf in range(1, LEAVES + 1):
        for spine in range(1, SPINES + 1):
            # The last leaf has one uplink only.
            if leaf == LEAVES and spine == SPINES:
                continue
            port, far_port = f"Ethernet{4 * (spine - 1)}", f"Ethernet{4 * (leaf - 1)}"
            base = f"10.30.{place // 128}.{place % 128 * 2}", f"10.30.0.{place * 2 + 1}"
            links.setdefault(f"leaf{leaf}", []).append((port, base[1], spine))
            links.setdefault(f"spine{spine}", []).append((far_port, base[0], leaf))
            cables.append(f'{{a: "leaf{leaf}:{port}", b: "spine{spine}:{far_port}"}}')
            place += 1
    nodes = [f"spine{spine}: {{role: spine}}" for spine in range(1, SPINES + 1)]
    for leaf in range(1, LEAVES + 1):
        nodes.append(f"leaf{leaf}: {{role: leaf}}")
        for server in (1, 2):
            nodes.append(f"gpu{leaf}-{server}: {{role: server}}")
            cables.append(
                f'{{a: "gpu{leaf}-{server}:eth0", b: "leaf{leaf}:Ethernet{60 + server}"}}'
            )
    for node, ports in links.items():
        (files / f"{node}.conf").write_text(_configuration(node, ports, links))
    file = folder / f"{name}.yaml"
    fabric = "\n".join(("  nodes:", *(f"    {node}" for node in nodes), "  links:"))
    wires = "\n".join(f"    - {cable}" for cable in cables)
    file.write_text(
        f"name: {name}\nfabric:\n  kind: graph\n{fabric}\n{wires}\n"
        "routing: {config: 'configs/{node}.conf'}\n"
        f"links: {{rate: 100G, server_rate: 100G}}\ndilation: 2500\n{queues}"
    )
    return file


def _configuration(
    node: str, ports: list[tuple[str, str, int]], links: Mapping[str, list[tuple[str, str, int]]]
) -> str:
    number = int(node[-1])
    is_leaf = node.startswith("leaf")
    asn = 4200000000 + (number if is_leaf else 100)
    loopback = f"10.9.{1 if is_leaf else 2}.{number}"
    lines = [f"interface lo\n ip address {loopback}/32\nexit"]
    lines += [f"interface {port}\n ip address {address}/31\nexit" for port, address, _ in ports]
    if is_leaf:
        lines += [
            f"interface Ethernet{60 + server}\n ip address 10.20.{number}.{4 * server}/31\nexit"
            for server in (1, 2)
        ]
    lines += [POLICY.rstrip(), f"router bgp {asn}", f" bgp router-id {loopback}"]
    lines += [" no bgp ebgp-requires-policy", " bgp bestpath as-path multipath-relax"]
    lines += [" neighbor FABRIC peer-group", " neighbor FABRIC timers 1 3"]
    lines += [" neighbor FABRIC advertisement-interval 0", " neighbor FABRIC timers connect 1"]
    for _, address, far in ports:
        far_asn = 4200000100 if is_leaf else 4200000000 + far
        head, _, last = address.rpartition(".")
        lines += [
            f" neighbor {head}.{int(last) ^ 1} remote-as {far_asn}",
            f" neighbor {head}.{int(last) ^ 1} peer-group FABRIC",
        ]
    lines += [" address-family ipv4 unicast", "  redistribute connected", "  maximum-paths 8"]
    lines += ["  neighbor FABRIC send-community", "  neighbor FABRIC route-map OUT out"]
    lines += ["  neighbor FABRIC route-map IN in", " exit-address-family", "exit"]
    return "\n".join(lines) + "\n"
