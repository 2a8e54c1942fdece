"""The nodes of a lab with a management network, as other tools read them.

In: a running lab. Out: the text of an Ansible inventory, of an ssh configuration, or of lines for
/etc/hosts. Pure but for `ssh_text`, which reads the file that the lab was brought up with.
"""

from __future__ import annotations

import yaml

from rocelab.base.errors import InputError
from rocelab.lab.management import ManagementFiles, addresses
from rocelab.planning.fabric import Fabric
from rocelab.record import LabFiles


def check_management(fabric: Fabric) -> None:
    """Raises InputError for a lab without a management network."""
    if not fabric.spec.management:
        raise InputError(
            f"lab {fabric.name} has no management network",
            hint="write `management: true` into its file and bring it up again; `rocelab exec` "
            "and `rocelab shell` need none",
        )


def ansible_text(fabric: Fabric) -> str:
    """An inventory in YAML: a group for each role, and `switches`. Ansible's ssh goes into nodes by
    the lab's ssh configuration."""
    groups: dict[str, dict[str, dict[str, object]]] = {}
    for node in fabric.nodes:
        groups.setdefault(node.role.name, {"hosts": {}})["hosts"][node.name] = {}
    tiers: dict[str, object] = {node.role.name: {} for node in fabric.switches}
    configuration = ManagementFiles(LabFiles(fabric.name)).configuration
    variables = {
        "ansible_user": "root",
        "ansible_ssh_common_args": f"-F {configuration}",
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    document = {"all": {"vars": variables, "children": {**groups, "switches": {"children": tiers}}}}
    return yaml.safe_dump(document, sort_keys=False)


def ssh_text(fabric: Fabric) -> str:
    """The configuration for `ssh -F`. Raises OSError if it cannot be read."""
    return ManagementFiles(LabFiles(fabric.name)).configuration.read_text()


def hosts_text(fabric: Fabric) -> str:
    """Each node's management address and name, as in hosts(5). The addresses are those inside the
    management network's own namespace."""
    return "".join(f"{address} {name}\n" for name, address in addresses(fabric).items())
