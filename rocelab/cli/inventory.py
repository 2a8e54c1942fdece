"""`rocelab inventory`: the nodes of a lab for Ansible, ssh and others."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from rocelab.cli.arguments import OneRunningLab, running_lab
from rocelab.cli.options import choice
from rocelab.linux.rights import need_root
from rocelab.report.console import write


class InventoryFormat(StrEnum):
    """The formats of `inventory`."""

    ANSIBLE = "ansible"
    SSH = "ssh"
    HOSTS = "hosts"


def inventory(
    lab: OneRunningLab = None,
    form: Annotated[
        str, choice("format", InventoryFormat, "What to write.")
    ] = InventoryFormat.ANSIBLE,
) -> None:
    """Print the nodes of a lab with `management: true` for Ansible, ssh or /etc/hosts.

    ansible: an inventory in YAML, a group for each role. ssh: a configuration for `ssh -F`. hosts:
    management addresses and names.
    """
    from rocelab.lab import inventory as texts

    need_root("reading the key of a lab")
    fabric = running_lab(lab).fabric
    texts.check_management(fabric)
    text_of = {
        InventoryFormat.ANSIBLE: texts.ansible_text,
        InventoryFormat.SSH: texts.ssh_text,
        InventoryFormat.HOSTS: texts.hosts_text,
    }
    write([text_of[InventoryFormat(form)](fabric)])
