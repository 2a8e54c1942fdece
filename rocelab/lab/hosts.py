"""Nodes as machines of their own: each has its host name, and an /etc/hosts with the lab's nodes.

Programs that spread over machines, such as MPI's, take processes with one host name for one
machine. A program gets its host name where it is started. The file is mounted in one mount
namespace for the whole lab, which has all else of this machine: namespaces of switches
(`rocelab.linux.mounts`) can be mounted in no newer one, so it is made before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocelab.base.files import write_file
from rocelab.linux import machines, mounts, namespaces
from rocelab.record import LabFiles

if TYPE_CHECKING:
    from rocelab.planning.fabric import Fabric


def hosts_file(fabric: Fabric) -> str:
    """hosts(5) of a lab: switches by their loopbacks, servers by their first NICs, and by that in
    each network as `srv1-1.frontend`. IPv6 has no address: it is off in servers."""
    address_of = {node.name: node.loopback for node in fabric.switches}
    address_of |= {node.name: fabric.nics(node.name)[0].ip for node in fabric.servers}
    for part in fabric.parts:
        address_of |= {
            f"{node.name}.{part.network_name}": part.nics(node.name)[0].ip for node in part.servers
        }
    lines = [f"{address} {name}" for name, address in address_of.items() if address is not None]
    return "\n".join(("127.0.0.1 localhost", *lines, ""))


def write_hosts(fabric: Fabric, files: LabFiles) -> None:
    """Write a lab's hosts(5), which every user of a node may read. Raises OSError."""
    write_file(files.hosts, hosts_file(fabric), 0o644)


def make_machine(files: LabFiles) -> None:
    """Make and keep the mount namespace of users' programs in the lab's nodes. Raises OSError."""
    mounts.keep(mounts.create_machine(files.root.parent, files.mounts), files.machine)

    def show_hosts() -> None:
        mounts.enter(files.machine)
        machines.show_hosts(files.hosts)

    namespaces.on_own_thread(show_hosts)


def enter(files: LabFiles, node: str) -> None:
    """Move the calling thread, which must end there, into a node: its network, its host name and
    the lab's /etc/hosts, in this machine's file system and the same working directory. A lab that
    was adopted has no /etc/hosts of its own. Raises OSError."""
    machines.enter(files.netns_of(node), node, files.machine, files.hosts)
