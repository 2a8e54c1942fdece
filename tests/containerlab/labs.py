"""Labs that containerlab deploys in tests: rendered ones, and topologies as others write them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from rocelab.lab.engine import ContainerEngine

DEPLOYS_WITHIN_S = 600.0


@contextmanager
def deployed(topology: Path) -> Iterator[None]:
    """A topology deployed by containerlab, and destroyed with all that it left."""
    try:
        containerlab("deploy", "--topo", str(topology))
        yield
    finally:
        containerlab("destroy", "--topo", str(topology), "--cleanup")


def containerlab(*arguments: str) -> str:
    """containerlab's output."""
    done = subprocess.run(
        ["containerlab", *arguments], capture_output=True, text=True, timeout=DEPLOYS_WITHIN_S
    )
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-2000:]
    return done.stdout


def idle_image(engine: ContainerEngine, image: str) -> str:
    """An image like `image` whose containers do nothing, as images of hosts do."""
    name = "rocelab-tests/host:1"
    container = engine.run("create", "--network", "none", image).strip()
    try:
        idle = ("--change", 'ENTRYPOINT ["sleep", "infinity"]', "--change", "CMD []")
        engine.run("commit", *idle, container, name)
    finally:
        engine.run("rm", container)
    return name


LEAVES, SPINES = 3, 2
DAEMONS = """zebra=yes
bgpd=yes
ospfd={ospfd}
vtysh_enable=yes
zebra_options="  -A 127.0.0.1 -s 90000000"
bgpd_options="   -A 127.0.0.1"
ospfd_options="  -A 127.0.0.1"
"""


def write_leaf_spine(
    folder: Path, image: str, host_image: str, name_of_lab: str = "Leaf_Spine"
) -> Path:
    """A leaf-spine as users of containerlab write it: BGP unnumbered, a folder bound to /etc/frr, a
    management network, hosts with static routes. Returns the topology file."""
    nodes, links = [], []
    for number in range(1, SPINES + 1):
        name = f"Spine_{number}"
        ports = [f"eth{leaf}" for leaf in range(1, LEAVES + 1)]
        _write_frr(folder / name, name, _bgp(65000, f"10.0.0.{100 + number}", ports))
        nodes.append(_node(name, image, bound=True))
    for number in range(1, LEAVES + 1):
        name = f"Leaf_{number}"
        ports = [f"eth{spine}" for spine in range(1, SPINES + 1)]
        _write_frr(
            folder / name,
            name,
            f"interface eth9\n ip address 192.168.{number}.1/24\n!\n"
            + _bgp(65000 + number, f"10.0.0.{number}", ports),
        )
        nodes.append(_node(name, image, bound=True))
        nodes.append(
            _node(
                f"host{number}",
                host_image,
                commands=(
                    f"ip addr add 192.168.{number}.2/24 dev eth1",
                    f"ip route add 192.168.0.0/16 via 192.168.{number}.1 dev eth1",
                    f"ip -6 addr add fd00:{number}::2/64 dev eth1",
                    f"ip -6 route add fd00::/16 via fd00:{number}::1 dev eth1",
                    f"ip neigh add 192.168.{number}.9 lladdr 02:00:00:00:00:09 dev eth1",
                ),
            )
        )
        links.append((f"host{number}:eth1", f"{name}:eth9"))
        links += [(f"{name}:eth{s}", f"Spine_{s}:eth{number}") for s in range(1, SPINES + 1)]
    return _write_topology(folder, name_of_lab, nodes, links)


def write_triangle(folder: Path, image: str, host_image: str) -> Path:
    """Three routers with OSPF, each joined to both others, and a host at each."""
    nodes, links = [], []
    for number in (1, 2, 3):
        name, others = f"router{number}", [peer for peer in (1, 2, 3) if peer != number]
        lines = [f"interface lo\n ip address 10.10.10.{number}/32\n!"]
        for port, other in enumerate(others, 1):
            low, high = sorted((number, other))
            lines.append(
                f"interface eth{port}\n ip address 172.16.{low}{high}.{number}/24\n"
                " ip ospf network point-to-point\n ip ospf area 0\n!"
            )
        lines.append(f"interface eth9\n ip address 192.168.{number}.1/24\n ip ospf area 0\n!")
        _write_frr(
            folder / name, name, "\n".join(lines) + "\nrouter ospf\n passive-interface eth9\n"
        )
        nodes.append(_node(name, image, bound=True))
        nodes.append(
            _node(
                f"PC{number}",
                host_image,
                commands=(
                    f"ip addr add 192.168.{number}.2/24 dev eth1",
                    f"ip route add 192.168.0.0/16 via 192.168.{number}.1 dev eth1",
                ),
            )
        )
        links.append((f"PC{number}:eth1", f"{name}:eth9"))
    links += [("router1:eth1", "router2:eth1"), ("router1:eth2", "router3:eth1")]
    links.append(("router2:eth2", "router3:eth2"))
    return _write_topology(folder, "triangle", nodes, links)


def _bgp(asn: int, loopback: str, ports: list[str]) -> str:
    # By default FRR tries again only after 120 s.
    neighbours = "".join(
        f" neighbor {port} interface remote-as external\n neighbor {port} timers connect 2\n"
        for port in ports
    )
    return (
        f"interface lo\n ip address {loopback}/32\n!\n"
        f"router bgp {asn}\n bgp router-id {loopback}\n no bgp ebgp-requires-policy\n"
        f" bgp bestpath as-path multipath-relax\n{neighbours}"
        " address-family ipv4 unicast\n  redistribute connected\n exit-address-family\n"
    )


def _write_frr(folder: Path, name: str, configuration: str) -> None:
    folder.mkdir(parents=True)
    ospfd = "yes" if "router ospf" in configuration else "no"
    (folder / "daemons").write_text(DAEMONS.format(ospfd=ospfd))
    (folder / "vtysh.conf").write_text("service integrated-vtysh-config\n")
    # With next-hop objects FRR 8.4 forgets that the kernel took a dead link out of a group: routes
    # would stay narrow after a flap, whoever makes it.
    start = f"hostname {name}\nip forwarding\nno zebra nexthop kernel enable\n!\n"
    (folder / "frr.conf").write_text(f"{start}{configuration}")


def _node(
    name: str, image: str, *, bound: bool = False, commands: tuple[str, ...] = ()
) -> tuple[str, dict[str, object]]:
    node: dict[str, object] = {"kind": "linux", "image": image}
    if bound:
        node["binds"] = [f"{name}:/etc/frr"]
        node["sysctls"] = {"net.ipv4.fib_multipath_hash_policy": 1}
    if commands:
        node["exec"] = list(commands)
    return name, node


def _write_topology(
    folder: Path,
    name: str,
    nodes: list[tuple[str, dict[str, object]]],
    links: list[tuple[str, str]],
) -> Path:
    topology = {
        "name": name,
        "topology": {
            "nodes": dict(nodes),
            "links": [{"endpoints": list(ends)} for ends in links],
        },
    }
    file = folder / f"{name}.clab.yml"
    file.write_text(yaml.safe_dump(topology, sort_keys=False))
    return file


def write_bird(folder: Path, image: str, host_image: str) -> Path:
    """Two leaves under two spines with BIRD, numbered links, and a host at each leaf."""
    nodes, links = [], []
    spines, leaves = (1, 2), (1, 2)
    for spine in spines:
        peers = [(f"10.{spine}.{leaf}.1", 65000 + leaf) for leaf in leaves]
        _write_bird(folder / f"spine{spine}", f"10.0.0.{100 + spine}", 65000, peers)
        commands = [
            f"ip addr add 10.{spine}.{leaf}.0/31 dev eth{place}"
            for place, leaf in enumerate(leaves, 1)
        ]
        nodes.append(_bird_node(f"spine{spine}", image, commands))
    for leaf in leaves:
        peers = [(f"10.{spine}.{leaf}.0", 65000) for spine in spines]
        _write_bird(folder / f"leaf{leaf}", f"10.0.0.{leaf}", 65000 + leaf, peers)
        commands = [
            *(f"ip addr add 10.{spine}.{leaf}.1/31 dev eth{spine}" for spine in spines),
            f"ip addr add 192.168.{leaf}.1/24 dev eth9",
        ]
        nodes.append(_bird_node(f"leaf{leaf}", image, commands))
        address, gateway = f"192.168.{leaf}.2/24", f"192.168.{leaf}.1"
        routed = (
            f"ip addr add {address} dev eth1",
            f"ip route add 192.168.0.0/16 via {gateway} dev eth1",
        )
        nodes.append(_node(f"host{leaf}", host_image, commands=routed))
        links.append((f"host{leaf}:eth1", f"leaf{leaf}:eth9"))
        links += [(f"leaf{leaf}:eth{spine}", f"spine{spine}:eth{leaf}") for spine in spines]
    return _write_topology(folder, "birds", nodes, links)


def _bird_node(name: str, image: str, commands: list[str]) -> tuple[str, dict[str, object]]:
    _, node = _node(name, image, bound=False, commands=tuple(commands))
    node["binds"] = [f"{name}/bird.conf:/etc/bird/bird.conf"]
    node["sysctls"] = {"net.ipv4.ip_forward": 1, "net.ipv4.fib_multipath_hash_policy": 1}
    return name, node


def _write_bird(folder: Path, router: str, asn: int, neighbours: list[tuple[str, int]]) -> None:
    sessions = "".join(
        f"protocol bgp peer{number} {{\n  local as {asn};\n  neighbor {address} as {other};\n"
        "  connect delay time 1;\n  connect retry time 2;\n  error wait time 1, 5;\n"
        "  ipv4 { import all; export all; };\n}\n"
        for number, (address, other) in enumerate(neighbours, 1)
    )
    folder.mkdir(parents=True)
    (folder / "bird.conf").write_text(
        f"router id {router};\nprotocol device {{ scan time 1; }}\n"
        'protocol direct { ipv4; interface "-eth0", "*"; }\n'
        "protocol kernel { ipv4 { export where source = RTS_BGP; }; merge paths on; }\n"
        f"{sessions}"
    )
